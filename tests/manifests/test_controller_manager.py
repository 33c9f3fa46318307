"""Where the controller manager may write: the API server holds it to that. Source: R3, R5."""

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from controllers.authentication.tenantrights import forge
from sandbox.kubectl import Kubectl, KubectlError
from tests import factories
from tests.controllers.support import own_binding
from tests.manifests.users import refusal

pytestmark = pytest.mark.cluster

MANAGER: Final = "system:serviceaccount:liqo:liqo-controller-manager"
PATIENCE_S: Final = 300
_APP: Final = {"app": "x"}
_CONTAINED: Final[Object] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_POD: Final[Object] = {
    "containers": [{"name": "c", "image": "none", "securityContext": _CONTAINED}]
}
"""Pod Security refuses it nowhere."""
_TEMPLATE: Final[Object] = {"metadata": {"labels": _APP}, "spec": _POD}


class Spaces(NamedTuple):
    """Three namespaces, one of a kind each."""

    tenant: str
    twin: str
    users: str


@pytest.fixture(scope="module")
def spaces(admin: Kubectl) -> Iterator[Spaces]:
    end = secrets.token_hex(3)
    made = Spaces(*(f"{name}-{end}" for name in Spaces._fields))
    peer = {keys.REMOTE_CLUSTER_ID: "rome"}
    admin.apply(
        [
            factories.namespace(made.tenant, **{keys.TENANT_NAMESPACE: "true"}, **peer),
            factories.namespace(made.twin, **peer),
            factories.namespace(made.users),
        ]
    )
    until = time.monotonic() + PATIENCE_S
    while "label liqo.io/tenant-namespace=true only" not in create(admin, account(made.users)):
        assert time.monotonic() < until, "the policy is not in force"
    for binding in (own_binding(made.twin), of_tenant(made.tenant)):
        admin.run("create", "-f", "-", f"--as={MANAGER}", stdin=json.dumps(binding))
    while "is forbidden" in create(admin, pod(made.twin)) + create(admin, secret(made.tenant)):
        assert time.monotonic() < until, "the bindings are not in force"
    yield made
    admin.run("delete", "namespace", *made, "--wait=false")


def of_tenant(namespace: str) -> Object:
    """Return what the controller manager gives to itself in a tenant namespace."""
    account_ = Key(keys.LIQO_NAMESPACE, keys.CONTROLLER_MANAGER)
    return forge.binding(factories.tenant_namespace(namespace, "rome"), account_)


def create(admin: Kubectl, obj: Object) -> str:
    """Return why the controller manager may not create ``obj``, or an empty string."""
    return refusal(admin, "create", "-f", "-", f"--as={MANAGER}", stdin=json.dumps(obj))


def delete(admin: Kubectl, *what: str) -> str:
    return refusal(admin, "delete", "--wait=false", *what, f"--as={MANAGER}")


def made(kind: Kind, namespace: str, **rest: Any) -> Object:
    return named(kind, Key(namespace, "x"), **rest)


def secret(namespace: str) -> Object:
    return made(keys.SECRET, namespace)


def deployment(namespace: str) -> Object:
    spec = {"selector": {"matchLabels": _APP}, "template": _TEMPLATE}
    return made(keys.DEPLOYMENT, namespace, spec=spec)


def account(namespace: str) -> Object:
    return made(keys.SERVICE_ACCOUNT, namespace)


def role(namespace: str) -> Object:
    return made(keys.ROLE, namespace, rules=[])


def pod(namespace: str) -> Object:
    return made(keys.POD, namespace, spec=_POD)


def endpoints(namespace: str) -> Object:
    return made(keys.ENDPOINT_SLICE, namespace, addressType="IPv4", endpoints=[])


def claim(namespace: str) -> Object:
    size = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": size}
    return made(keys.PERSISTENT_VOLUME_CLAIM, namespace, spec=spec)


@pytest.mark.parametrize(
    ("forged", "where"),
    [
        (secret, {"tenant", "liqo"}),
        (deployment, {"tenant"}),
        (account, {"tenant"}),
        (role, {"tenant", "kube-node-lease"}),
        (pod, {"twin"}),
        (endpoints, {"twin"}),
        (claim, {"liqo-storage"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_it_creates_where_its_work_is(
    admin: Kubectl, spaces: Spaces, forged: Any, where: set[str]
) -> None:
    everywhere = {**spaces._asdict(), **{name: name for name in OTHERS}}
    answers = {name: create(admin, forged(space)) for name, space in everywhere.items()}

    assert {name for name, said in answers.items() if not said} == where, answers


_TWIN = {"twin"}
_TENANT = {"tenant"}
_READER: Final = "extension-apiserver-authentication-reader"


@pytest.mark.parametrize(
    ("kind", "role", "where"),
    [
        ("ClusterRole", keys.CONTROLLER_MANAGER_TWIN_ROLE, _TWIN),
        ("ClusterRole", keys.CONTROLLER_MANAGER_TENANT_ROLE, _TENANT),
        ("ClusterRole", keys.VIRTUAL_KUBELET_REMOTE_ROLE, _TWIN),
        ("ClusterRole", keys.REMOTE_CONTROLPLANE_ROLE, _TENANT),
        ("ClusterRole", keys.VIRTUAL_KUBELET_TENANT_ROLE, _TENANT),
        ("ClusterRole", keys.VIRTUAL_KUBELET_NAMESPACED_ROLE, {"twin", "users", "default"}),
        ("ClusterRole", keys.VIRTUAL_KUBELET_LOCAL_ROLE, set()),
        ("ClusterRole", "liqo-controller-manager", set()),
        ("Role", _READER, {"kube-system"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_binds_each_role_where_that_belongs(
    admin: Kubectl, spaces: Spaces, kind: str, role: str, where: set[str]
) -> None:
    """So a right that it may hand out reaches nothing of others."""
    reference = {"apiGroup": keys.RBAC_GROUP, "kind": kind, "name": role}
    kubelet = {"kind": "ServiceAccount", "namespace": spaces.tenant, "name": "milan"}
    everywhere = {**spaces._asdict(), **{name: name for name in OTHERS}}
    if kind == "Role":
        del everywhere["tenant"], everywhere["kube-node-lease"]  # its own Roles are there
    answers = {
        name: create(admin, made(keys.ROLE_BINDING, space, roleRef=reference, subjects=[kubelet]))
        for name, space in everywhere.items()
    }

    assert {name for name, said in answers.items() if not said} == where, answers


_KUBELET: Final = {"kind": "ServiceAccount", "name": "milan"}
_NO_KUBELETS: Final[tuple[list[Object], ...]] = (
    [],
    [{"apiGroup": keys.RBAC_GROUP, "kind": "Group", "name": "system:authenticated"}],
    [{"apiGroup": keys.RBAC_GROUP, "kind": "User", "name": "rome"}],
    [{**_KUBELET, "namespace": "kube-system"}],
    [{**_KUBELET, "namespace": "liqo"}],
    [{**_KUBELET, "namespace": "liqo-tenant-milan"}, {**_KUBELET, "namespace": "argocd"}],
)


@pytest.mark.parametrize("subjects", _NO_KUBELETS, ids=str)
def test_the_roles_of_virtual_kubelets_go_to_one_account_of_a_tenant(
    admin: Kubectl, spaces: Spaces, subjects: list[Object]
) -> None:
    """Who is no ServiceAccount meets no policy for virtual kubelets."""
    for kind, space, role in (
        (keys.ROLE_BINDING, spaces.users, keys.VIRTUAL_KUBELET_NAMESPACED_ROLE),
        (keys.CLUSTER_ROLE_BINDING, "", keys.VIRTUAL_KUBELET_LOCAL_ROLE),
    ):
        reference = {"apiGroup": keys.RBAC_GROUP, "kind": "ClusterRole", "name": role}
        binding = made(kind, space, roleRef=reference, subjects=subjects)
        assert "to one ServiceAccount of a tenant namespace" in create(admin, binding)


def test_it_gives_nobody_what_it_has_in_twins_in_the_whole_cluster(
    admin: Kubectl, spaces: Spaces
) -> None:
    for role in (keys.CONTROLLER_MANAGER_TWIN_ROLE, keys.VIRTUAL_KUBELET_NAMESPACED_ROLE):
        reference = {"apiGroup": keys.RBAC_GROUP, "kind": "ClusterRole", "name": role}
        someone = {"apiGroup": keys.RBAC_GROUP, "kind": "User", "name": "rome"}
        whole = made(keys.CLUSTER_ROLE_BINDING, "", roleRef=reference, subjects=[someone])
        assert f"binds ClusterRole {role} in no whole cluster" in create(admin, whole)


def test_bindings_of_others_it_does_not_delete(admin: Kubectl, spaces: Spaces) -> None:
    theirs = own_binding(spaces.users)
    del theirs["metadata"]["labels"]
    admin.apply([theirs])
    what = ("rolebinding", theirs["metadata"]["name"], "-n")

    assert "with the label liqo.io/remote-cluster-id only" in delete(admin, *what, spaces.users)
    assert delete(admin, *what, spaces.twin) == ""


def test_who_makes_and_changes_pods_meets_no_policy_of_ours(admin: Kubectl, spaces: Spaces) -> None:
    """The API server counts what it asks of whom; a deletion, of which it asks, is the control."""
    admin.apply([named(keys.SERVICE_ACCOUNT, Key(spaces.users, "default"))])
    before = policy_requests(admin)
    admin.apply([factories.pod(spaces.users, "plain", spec={**_POD})])
    admin.run("label", "pod", "plain", "a=b", "-n", spaces.users)
    made_and_changed = policy_requests(admin)
    admin.run("delete", "pod", "plain", "--wait=false", "-n", spaces.users)

    assert made_and_changed == before
    assert policy_requests(admin) != before


def policy_requests(admin: Kubectl) -> list[str]:
    """Return how often the API server asked each policy of ours, by its own metrics."""
    lines = admin.run("get", "--raw", "/metrics").splitlines()
    counts = (line for line in lines if line.startswith("apiserver_admission_match_condition"))
    return sorted(line for line in counts if 'name="liqo-' in line and "_count" in line)


OTHERS: Final = ("liqo", "kube-system", "kube-node-lease", "default", "liqo-storage")


def test_of_pods_elsewhere_it_deletes_those_of_virtual_nodes(
    admin: Kubectl, spaces: Spaces
) -> None:
    key = {"serviceAccountName": "default"}
    remote = {
        **_POD,
        **key,
        "tolerations": [{"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists"}],
    }
    admin.apply([named(keys.SERVICE_ACCOUNT, Key(spaces.users, "default"))])
    admin.apply(
        [
            factories.pod(spaces.users, "local", spec={**_POD, **key}),
            factories.pod(spaces.users, "remote", spec=remote),
        ]
    )

    assert "those of virtual nodes only" in delete(admin, "pod", "local", "-n", spaces.users)
    assert delete(admin, "pod", "remote", "-n", spaces.users) == ""


def test_it_evicts_pods_of_offloaded_namespaces_only(admin: Kubectl, spaces: Spaces) -> None:
    """Of an eviction no policy sees the Pod."""
    spec = {**_POD, "serviceAccountName": "default"}
    admin.apply(
        [
            named(keys.SERVICE_ACCOUNT, Key(spaces.users, "default")),
            factories.pod(spaces.users, "stays", spec=spec),
        ]
    )

    assert "evicts pods of offloaded namespaces" in evict(admin, spaces.users, "stays")
    admin.run("label", "namespace", spaces.users, f"{keys.SCHEDULING_ENABLED}=true")
    try:
        assert evict(admin, spaces.users, "stays") == ""
    finally:
        admin.run("label", "namespace", spaces.users, f"{keys.SCHEDULING_ENABLED}-")


def evict(admin: Kubectl, namespace: str, name: str) -> str:
    made = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction?dryRun=All"
    try:
        admin.run("create", "--raw", path, "-f", "-", f"--as={MANAGER}", stdin=json.dumps(made))
    except KubectlError as error:
        return str(error)
    return ""


def test_pods_of_the_system_it_does_not_delete_for_tolerating_everything(
    admin: Kubectl, spaces: Spaces
) -> None:
    """Each DaemonSet of the system does; in other namespaces such a pod runs on virtual nodes."""
    name = spaces.users
    spec = {**_POD, "serviceAccountName": name, "tolerations": [{"operator": "Exists"}]}
    for space in ("kube-system", spaces.users):
        account_ = named(keys.SERVICE_ACCOUNT, Key(space, name))
        admin.apply([account_, factories.pod(space, name, spec=spec)])

    said = {space: delete(admin, "pod", name, "-n", space) for space in ("kube-system", name)}

    admin.run("delete", "pod,serviceaccount", name, "-n", "kube-system", "--wait=false")
    assert "those of virtual nodes only" in said["kube-system"]
    assert said[name] == ""


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
def test_it_reads_secrets_of_tenant_namespaces_only(
    admin: Kubectl, spaces: Spaces, verb: str
) -> None:
    """R5: of the others it may read the one with its own key, by name."""
    everywhere = {**spaces._asdict(), **{name: name for name in OTHERS}}
    answers = {name: may(admin, verb, "secrets", "-n", space) for name, space in everywhere.items()}

    assert {name for name, is_allowed in answers.items() if is_allowed} == {"tenant"}
    assert not may(admin, verb, "secrets", "-A")
    assert may(admin, verb, "secrets/authentication-keys", "-n", "liqo") is (verb == "get")


def may(admin: Kubectl, verb: str, *what: str) -> bool:
    """Return what the API server says of the controller manager."""
    try:
        admin.run("auth", "can-i", verb, *what, f"--as={MANAGER}")
    except KubectlError:
        return False
    return True


def test_it_gives_up_its_rights_also_where_no_tenant_is_any_more(
    admin: Kubectl, spaces: Spaces
) -> None:
    """The finalizer is its own to take; whom the binding names is not."""
    left = of_tenant(spaces.users)
    left["metadata"]["name"] = "left"
    admin.apply([left])
    others = json.dumps({"subjects": [{**left["subjects"][0], "name": "somebody"}]})
    patch = ("patch", "rolebinding", "left", "-n", spaces.users, "--type=merge")
    as_manager = (f"--as={MANAGER}", "-p")

    assert refusal(admin, *patch, *as_manager, '{"metadata":{"finalizers":null}}') == ""
    assert "does not bind ClusterRole" in refusal(admin, *patch, *as_manager, others)
    admin.run(*patch, "-p", '{"metadata":{"finalizers":null}}')
    admin.run("delete", "rolebinding", "left", "-n", spaces.users)


def test_secrets_of_others_are_neither_changed_nor_deleted(admin: Kubectl, spaces: Spaces) -> None:
    for space in (spaces.users, spaces.tenant):
        admin.apply([secret(space)])
    patch = ("patch", "secret", "x", "-p", '{"data":{"a":"Yg=="}}', f"--as={MANAGER}", "-n")

    for said in (
        refusal(admin, *patch, spaces.users),
        delete(admin, "secret", "x", "-n", spaces.users),
    ):
        assert 'secrets "x" is forbidden' in said
    assert refusal(admin, *patch, spaces.tenant) == ""
    assert delete(admin, "secret", "x", "-n", spaces.tenant) == ""


def test_it_makes_no_tenant_and_no_twin_of_a_namespace_of_users(
    admin: Kubectl, spaces: Spaces
) -> None:
    def labelled(label: str) -> str:
        return refusal(admin, "label", "namespace", spaces.users, label, f"--as={MANAGER}")

    assert "makes no tenant namespace of it" in labelled(f"{keys.TENANT_NAMESPACE}=true")
    assert "makes no tenant namespace of it" in labelled(f"{keys.REMOTE_CLUSTER_ID}=rome")
    assert labelled(f"{keys.SCHEDULING_ENABLED}=true") == ""
    assert "of twins only" in labelled(f"{keys.POD_SECURITY_ENFORCE}=privileged")


def test_it_creates_and_deletes_twins_and_no_other_namespace(
    admin: Kubectl, spaces: Spaces
) -> None:
    twin = factories.namespace("another-twin", **{keys.REMOTE_CLUSTER_ID: "rome"})
    tenant = factories.namespace("another-tenant", **{keys.TENANT_NAMESPACE: "true"})

    assert create(admin, twin) == ""
    assert "makes no tenant namespace of it" in create(admin, tenant)
    assert delete(admin, "namespace", spaces.twin) == ""
    assert "deletes twins only" in delete(admin, "namespace", spaces.users)


def test_of_nodes_it_changes_and_deletes_virtual_ones(admin: Kubectl) -> None:
    virtual = {"labels": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}}
    admin.apply([named(keys.NODE, Key("", "real"))])
    admin.apply([named(keys.NODE, Key("", "virtual"), metadata=virtual)])
    try:
        for name, is_allowed in (("real", False), ("virtual", True)):
            cordon = ("-p", '{"spec":{"unschedulable":true}}', f"--as={MANAGER}")
            cordoned = refusal(admin, "patch", "node", name, *cordon)
            label = ("-p", json.dumps({"metadata": virtual}), f"--as={MANAGER}")
            labelled = refusal(admin, "patch", "node", name, *label)
            for said in (cordoned, labelled, delete(admin, "node", name)):
                assert ("is not a virtual node" not in said) is is_allowed, said
    finally:
        admin.run("delete", "node", "real", "virtual", "--wait=false")


CERTS: Final = "system:serviceaccount:liqo:liqo-certs"


@factories.cases("changes, told")
@pytest.mark.parametrize("kind", [keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS], ids=str)
def test_of_webhooks_certs_changes_whom_the_api_server_trusts_and_nothing_else(
    admin: Kubectl, kind: Kind, changes: Object, told: str
) -> None:
    what = (kind.resource, keys.WEBHOOK_CONFIGURATION)
    found = json.loads(admin.run("get", *what, "-o", "json"))
    first, *others = found["webhooks"]
    client = {**first["clientConfig"], **changes.get("clientConfig", {})}
    client["service"] = {
        **first["clientConfig"]["service"],
        **changes.get("clientConfig", {}).get("service", {}),
    }
    webhooks = [{**first, **changes, "clientConfig": client}, *others]
    patch = ("--type=merge", "-p", json.dumps({"webhooks": webhooks}))

    said = refusal(admin, "patch", *what, *patch, f"--as={CERTS}")

    assert (told in said) if told else (said == "")
