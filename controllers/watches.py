"""What the controllers watch, which keys a change concerns, and what is read of whole kinds."""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from apis import keys, objects, ownership
from apis.authentication import Binding
from apis.objects import Key, Kind, Object
from kube.cluster import Cluster, Selection
from kube.controller import own_key
from kube.informer import Change, Informer

_OF_KUBELETS: Final = f"{keys.COMPONENT}={keys.VIRTUAL_KUBELET}"


def every(
    kind: Kind, *, namespace: str = "", labels: str = "", fields: str = ""
) -> Selection[Object]:
    """Return the selection of all whole objects of ``kind``, or of those so labelled."""
    return Selection(kind, Object, namespace, labels, fields)


OFFLOADINGS: Final = every(
    keys.NAMESPACE_OFFLOADING, fields=f"metadata.name={keys.OFFLOADING_NAME}"
)
WHOLE: Final = 2**17
"""Bytes of an object of a consumer that is kept whole: CRDs and policies allow about 64 KiB."""


def written_by_consumers(kind: Kind, namespace: str = "", labels: str = "") -> Selection[Object]:
    """Return the selection of objects of ``kind``, of which consumers write some.

    Those are kept in outline where they are large. Source: docs/parity.md X5, X6.
    """
    return Selection(
        kind,
        Object,
        namespace,
        labels,
        whole_up_to=WHOLE,
        is_needed_whole=lambda obj: not ownership.is_foreign(obj),
    )


def templates(namespace: str) -> Selection[Object]:
    return every(keys.VK_OPTIONS_TEMPLATE, namespace=namespace)


NAMESPACE_MAPS: Final = written_by_consumers(keys.NAMESPACE_MAP)
VIRTUAL_NODES: Final = every(keys.VIRTUAL_NODE)
NODES: Final = every(keys.NODE, labels=f"{keys.NODE_TYPE}={keys.VIRTUAL_NODE_TYPE}")
"""The virtual ones."""
PEER_NAMESPACES: Final = every(keys.NAMESPACE, labels=ownership.PEERS)
"""Tenant namespaces and twins."""
ENABLED_NAMESPACES: Final = every(keys.NAMESPACE, labels=keys.SCHEDULING_ENABLED)
ROLE_BINDINGS: Final = Selection(
    keys.ROLE_BINDING,
    Object,
    labels=f"{keys.APP_MANAGED_BY}=liqo,{keys.REMOTE_CLUSTER_ID}",
    is_alike=True,
)
"""One or two a namespace and peer, whose labels, roles and subjects are those of the peer."""
ALL_BINDINGS: Final = (
    Selection(keys.CLUSTER_ROLE_BINDING, Binding),
    Selection(keys.ROLE_BINDING, Binding),
)
"""Of the whole cluster, no matter who made them."""
CLUSTER_ROLE_BINDINGS: Final = every(keys.CLUSTER_ROLE_BINDING, labels=_OF_KUBELETS)
ROLES: Final = every(keys.ROLE, labels=_OF_KUBELETS)
LEASE_ROLES: Final = every(keys.ROLE, namespace=keys.NODE_LEASE_NAMESPACE, labels=_OF_KUBELETS)
SERVICE_ACCOUNTS: Final = every(keys.SERVICE_ACCOUNT, labels=_OF_KUBELETS)
DEPLOYMENTS: Final = every(keys.DEPLOYMENT, labels=_OF_KUBELETS)
BESIDE_VIRTUAL_NODES: Final = (ROLES, SERVICE_ACCOUNTS, DEPLOYMENTS)
"""Only ever in the namespaces that have a VirtualNode: ``Manager.informer``. Users may write the
labels by which these are selected, in their namespaces and as large as they like.
Source: docs/parity.md H18."""
TENANTS: Final = every(keys.TENANT)
IDENTITIES: Final = every(keys.IDENTITY)
RENEWS: Final = written_by_consumers(keys.RENEW)
RESOURCE_SLICES: Final = written_by_consumers(keys.RESOURCE_SLICE)
REPLICATED: Final = (NAMESPACE_MAPS, RESOURCE_SLICES, RENEWS)
"""What goes to peers; a new kind is one more here."""
FOREIGN_CLUSTERS: Final = every(keys.FOREIGN_CLUSTER)


def opens_secrets(binding: Object) -> bool:
    """Whether the binding gives this process its rights in a tenant namespace."""
    role = binding.get("roleRef") or {}
    is_of_cluster = role.get("kind") == keys.CLUSTER_ROLE.kind
    return is_of_cluster and role.get("name") == keys.CONTROLLER_MANAGER_TENANT_ROLE


SECRETS: Final = every(keys.SECRET)
"""Only ever within tenant namespaces: ``Manager.informer``."""
QUOTAS: Final = every(keys.QUOTA)
LIMIT_RANGES: Final = every(keys.LIMIT_RANGE)
RUNTIME_CLASSES: Final = every(keys.RUNTIME_CLASSES)
PROVIDER_POLICIES: Final = every(keys.PROVIDER_POLICY)
STORAGE_CLASSES: Final = every(keys.STORAGE_CLASS)
CONFIGURATIONS: Final = every(keys.CONFIGURATION)


# Which keys a change concerns, in the ways that several controllers share -------------------------

Keys: TypeAlias = Callable[[Change[Any]], Iterable[Key]]

_VERSIONS: Final = frozenset({"resourceVersion", "managedFields"})
_BOOKED: Final = frozenset({"ledger", "round", "keeper", "grants", "cordoned"})
"""Fields of the status of Tenants and ProviderPolicies: see ``controllers.granting.grants``."""


def but_booked(keys_of: Keys = own_key) -> Keys:
    """Return what answers as ``keys_of``, and with nothing where only what is booked changed."""

    def keys_but_booked(change: Change[Any]) -> Iterable[Key]:
        is_same = change.old is not change.new and _unbooked(change.old) == _unbooked(change.new)
        return () if is_same else keys_of(change)

    return keys_but_booked


def _unbooked(obj: Object | None) -> Object | None:
    if obj is None:
        return None
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _VERSIONS}
    status = {name: value for name, value in objects.status(obj).items() if name not in _BOOKED}
    return {**obj, "metadata": metadata, "status": status}


def consumers(namespaces: Informer[Object]) -> Callable[[str], str]:
    """Return what tells whose pods run in the namespace of a name; empty where it is no twin."""
    return lambda name: ownership.consumer_of(namespaces.get(Key("", name)))


# Whose a namespace is: the provider's own record, which no consumer can write ---------------------
# Source: docs/parity.md § 2.5; SEC-A7.


async def peer_in(cluster: Cluster, namespace: str) -> str:
    """Return the cluster that the tenant namespace called ``namespace`` is for; empty for none."""
    return ownership.peer_of(await cluster.get(keys.NAMESPACE, Key("", namespace)))


async def consumer_in(cluster: Cluster, namespace: str) -> str:
    """Return the cluster whose pods run in the twin called ``namespace``; empty for none."""
    return ownership.consumer_of(await cluster.get(keys.NAMESPACE, Key("", namespace)))
