"""What the two containers of one virtual node may do at cluster: names and roles, nothing more.

Source: docs/parity.md § 8.2, docs/parity.md SEC-C1, SEC-C2.
"""

from collections.abc import Callable
from typing import Final

from apis import authentication, keys, naming, objects, ownership
from apis.authentication import Grant
from apis.objects import Key, Kind, Object
from apis.offloading import VirtualNode

AUTHENTICATION_READER: Final = "extension-apiserver-authentication-reader"
AUTHENTICATION_NAMESPACE: Final = "kube-system"

_NAME_LIMIT: Final = 253


def name(virtual_node: str) -> str:
    return naming.shorten(f"liqo-node-{virtual_node}", _NAME_LIMIT)


def labels(virtual_node: VirtualNode) -> dict[str, str]:
    """Return the labels by which its objects are found and told from those of others."""
    return {
        **ownership.MANAGED,
        keys.COMPONENT: keys.VIRTUAL_KUBELET,
        keys.VIRTUAL_NODE_LABEL: virtual_node.name,
        keys.REMOTE_CLUSTER_ID: virtual_node.cluster_id,
    }


def virtual_node_of(obj: Object) -> str:
    """Return the virtual node that an object of ours serves; empty for any other object."""
    if objects.labels(obj).get(keys.COMPONENT) != keys.VIRTUAL_KUBELET:
        return ""
    return objects.labels(obj).get(keys.VIRTUAL_NODE_LABEL, "")


def is_of(virtual_node: VirtualNode) -> Callable[[Object], bool]:
    """Return the question whether an object serves ``virtual_node``, not another cluster's."""

    def is_ours(obj: Object) -> bool:
        is_for_its_cluster = ownership.cluster_named_by(obj) == virtual_node.cluster_id
        return virtual_node_of(obj) == virtual_node.name and is_for_its_cluster

    return is_ours


def is_for_offloading(binding: Object) -> bool:
    role = (binding.get("roleRef") or {}).get("name")
    return bool(virtual_node_of(binding)) and role == keys.VIRTUAL_KUBELET_NAMESPACED_ROLE


def service_account(virtual_node: VirtualNode, owner: Object) -> Grant:
    """Return the identity that the pod of ``virtual_node`` runs as."""
    key = Key(virtual_node.namespace, virtual_node.name)
    metadata = {"labels": labels(virtual_node), "ownerReferences": [owner]}
    return Grant(keys.SERVICE_ACCOUNT, objects.named(keys.SERVICE_ACCOUNT, key, metadata=metadata))


def at_home(virtual_node: VirtualNode) -> list[Grant]:
    """Return all grants of ``virtual_node`` but those in offloaded namespaces."""
    tenant = Key(virtual_node.namespace, name(virtual_node.name))
    secret = Key(virtual_node.namespace, f"{tenant.name}-kubeconfig"[-_NAME_LIMIT:])
    lease = Key(keys.NODE_LEASE_NAMESPACE, tenant.name)
    reader = Key(AUTHENTICATION_NAMESPACE, tenant.name)
    return [
        _binding(virtual_node, Key("", tenant.name), keys.VIRTUAL_KUBELET_LOCAL_ROLE),
        _binding(virtual_node, tenant, keys.VIRTUAL_KUBELET_TENANT_ROLE),
        _role(virtual_node, secret, _secret_rules(virtual_node)),
        _binding(virtual_node, secret, secret.name, keys.ROLE),
        _role(virtual_node, lease, _lease_rules(virtual_node)),
        _binding(virtual_node, lease, lease.name, keys.ROLE),
        _binding(virtual_node, reader, AUTHENTICATION_READER, keys.ROLE),
    ]


def offloaded_namespace(virtual_node: VirtualNode, namespace: str) -> Object:
    key = Key(namespace, name(virtual_node.name))
    return _binding(virtual_node, key, keys.VIRTUAL_KUBELET_NAMESPACED_ROLE).wanted


def _secret_rules(virtual_node: VirtualNode) -> list[Object]:
    secret = virtual_node.kubeconfig_secret
    if not secret:
        return []
    return [_rule("", "secrets", ["get", "list", "watch"], names=[secret])]


def _lease_rules(virtual_node: VirtualNode) -> list[Object]:
    group = keys.LEASE.group
    own = ["get", "update", "patch"]
    return [
        _rule(group, "leases", ["create"]),
        _rule(group, "leases", own, names=[virtual_node.name]),
    ]


def _rule(group: str, resource: str, verbs: list[str], names: list[str] | None = None) -> Object:
    rule: Object = {"apiGroups": [group], "resources": [resource], "verbs": verbs}
    return {**rule, "resourceNames": names} if names else rule


def _role(virtual_node: VirtualNode, key: Key, rules: list[Object]) -> Grant:
    metadata = {"labels": labels(virtual_node)}
    return Grant(keys.ROLE, objects.named(keys.ROLE, key, metadata=metadata, rules=rules))


def _binding(
    virtual_node: VirtualNode, key: Key, role: str, kind: Kind = keys.CLUSTER_ROLE
) -> Grant:
    metadata = {"labels": labels(virtual_node)}
    subject = authentication.account_subject(Key(virtual_node.namespace, virtual_node.name))
    return authentication.binding(key, metadata, subject, role, kind)
