"""The manifests on a real API server: any order, any number of times, and what the rights allow."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from apis import keys, objects
from apis.objects import Key
from apis.offloading import VirtualNode
from controllers.authentication.tenantrights import forge as tenantrights
from controllers.offloading.virtualnode.forge import rights
from kube import client
from sandbox.kubectl import Kubectl, KubectlError
from tests import factories
from tests.controllers.support import own_binding
from tests.manifests import documents
from tests.peering.rights import Somebody, sweep

pytestmark = pytest.mark.cluster

MANAGER: Final = "system:serviceaccount:liqo:liqo-controller-manager"
PATIENCE_S: Final = 300
GOLDEN: Final = Path(__file__).with_name("rights.txt")
NODE: Final = "milan"
TENANT: Final = "tenant-of-milan"
KUBELET: Final = (
    f"--as=system:serviceaccount:{TENANT}:{NODE}",
    "--as-group=system:serviceaccounts",
    "--as-group=system:authenticated",
)


HOW: Final = pytest.mark.parametrize(
    "how",
    [("apply",), ("apply", "--server-side", "--force-conflicts")],  # fields of the way before
    ids=["client-side", "server-side"],
)


def versions(admin: Kubectl) -> dict[str, str]:
    found = admin.items("-k", str(documents.ROOT))
    return {
        f"{obj['kind']} {objects.key_of(obj)}": obj["metadata"]["resourceVersion"] for obj in found
    }


@HOW
def test_applying_again_writes_nothing_and_leaves_what_another_manager_injected(
    admin: Kubectl, tmp_path: Path, how: tuple[str, ...]
) -> None:
    """By the folder and by one file that is built of it."""
    admin.run(*how, "-k", str(documents.ROOT))
    asyncio.run(inject(admin))
    install = tmp_path / "install.yaml"
    install.write_text(admin.run("kustomize", str(documents.ROOT)))
    before = versions(admin)

    for source in (("-k", str(documents.ROOT)), ("-f", str(install))):
        admin.run(*how, *source)
        assert versions(admin) == before, source

    assert len(before) == len(documents.everything())
    for kind in (keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS):
        hooks = admin.get(kind.plural, keys.WEBHOOK_CONFIGURATION)["webhooks"]
        assert {hook["clientConfig"]["caBundle"] for hook in hooks} == {"LS0tCg=="}


def test_an_overlay_names_the_image_once(tmp_path: Path) -> None:
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(Path("..", "manifests"))],
        "images": [{"name": "pyliqo", "newName": "registry.example/pyliqo", "newTag": "1.2.3"}],
    }
    (tmp_path / "manifests").symlink_to(documents.ROOT, target_is_directory=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kustomization.yaml").write_text(json.dumps(overlay))

    built = Kubectl(tmp_path / "none").run("kustomize", str(tmp_path / "mine"))

    images = [line.strip() for line in built.splitlines() if line.strip().endswith("pyliqo:1.2.3")]
    assert len(images) == 4
    assert "image: pyliqo\n" not in built


async def inject(admin: Kubectl) -> None:
    """Set the caBundle of all webhooks as liqo-certs does: that field alone, in its own name."""
    bundle = {"caBundle": "LS0tCg=="}
    async with client.connect(admin.kubeconfig, user_agent="pyliqo-tests") as cluster:
        for kind in (keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS):
            hooks = documents.named(kind.kind, keys.WEBHOOK_CONFIGURATION)["webhooks"]
            injected = [{"name": hook["name"], "clientConfig": bundle} for hook in hooks]
            where = Key("", keys.WEBHOOK_CONFIGURATION)
            wanted = objects.named(kind, where, webhooks=injected)
            await cluster.apply(kind, wanted, manager="liqo-injection")


@pytest.fixture(scope="module")
def installed_virtual_node(admin: Kubectl) -> VirtualNode:
    """Make the tenant namespace, the offloaded namespace and the rights of a virtual node."""
    node = VirtualNode(NODE, TENANT, "milan", kubeconfig_secret="to-milan")  # noqa: S106  # a name
    tenant = factories.tenant_namespace(TENANT, "milan")
    account = Key(keys.LIQO_NAMESPACE, keys.CONTROLLER_MANAGER)
    offloaded = objects.named(keys.NAMESPACE, Key("", "offloaded"))
    admin.apply([tenant, tenantrights.binding(tenant, account), offloaded])
    grants = [grant.wanted for grant in rights.at_home(node)]
    grants.append(rights.offloaded_namespace(node, "offloaded"))
    granted = json.dumps({"apiVersion": "v1", "kind": "List", "items": grants})
    until = time.monotonic() + PATIENCE_S
    while said := _refused(admin, granted):
        assert time.monotonic() < until, f"its own binding is not in force: {said}"
    return node


def _refused(admin: Kubectl, granted: str) -> str:
    """Apply what is granted as the controller manager; return why that was refused, if it was."""
    try:
        admin.run("apply", "--server-side", f"--as={MANAGER}", "-f", "-", stdin=granted)
    except KubectlError as error:
        return str(error)
    return ""


def test_the_controller_manager_can_hand_out_what_a_virtual_kubelet_needs(
    installed_virtual_node: VirtualNode, admin: Kubectl
) -> None:
    assert admin.get("clusterrolebinding", rights.name(NODE))["roleRef"]["name"] == (
        keys.VIRTUAL_KUBELET_LOCAL_ROLE
    )


def test_the_controller_manager_can_hand_out_nothing_else(admin: Kubectl) -> None:
    binding = objects.named(
        keys.CLUSTER_ROLE_BINDING,
        Key("", "too-much"),
        roleRef={"apiGroup": keys.RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
        subjects=[{"kind": "User", "apiGroup": keys.RBAC_GROUP, "name": "mallory"}],
    )

    with pytest.raises(KubectlError, match="attempting to grant RBAC permissions"):
        admin.run("create", f"--as={MANAGER}", "-f", "-", stdin=json.dumps(binding))


RIGHTS: Final[list[Any]] = factories.table("manifests")["install"]["rights"]


def test_rights_of_a_virtual_kubelet(installed_virtual_node: VirtualNode, admin: Kubectl) -> None:
    reviews = [review(verb, resource, namespace) for verb, resource, namespace, _ in RIGHTS]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})

    answers = admin.run("create", "-o", ALLOWED, "-f", "-", stdin=listed).split()

    found = [[*case[:3], answer == "true"] for case, answer in zip(RIGHTS, answers, strict=True)]
    assert found == RIGHTS


PROCESSES: Final = {
    "certs": ("liqo:liqo-certs", ("liqo", "default")),
    "controllers": (
        f"liqo:{keys.CONTROLLER_MANAGER}",
        ("liqo", TENANT, "twin-of-rome", "default", "kube-system"),
    ),
    "kubelet": (f"{TENANT}:{NODE}", (TENANT, "offloaded", "default", "kube-system")),
    "metric-agent": ("liqo:liqo-metric-agent", ("liqo", "default")),
    "webhook": ("liqo:liqo-webhook", ("liqo", "default")),
}
"""By process: its account, and the namespaces where it is asked what a stolen token opens."""


@pytest.fixture(scope="module")
def opened_rights(installed_virtual_node: VirtualNode, admin: Kubectl) -> None:
    """Bind the controller manager in a tenant namespace and a twin, as it does itself."""
    peer = {keys.REMOTE_CLUSTER_ID: "rome"}
    account = Key(keys.LIQO_NAMESPACE, keys.CONTROLLER_MANAGER)
    tenant = factories.namespace(TENANT, **{keys.TENANT_NAMESPACE: "true"}, **peer)
    twin = factories.namespace("twin-of-rome", **peer)
    admin.apply([twin, own_binding("twin-of-rome"), tenantrights.binding(tenant, account)])


@pytest.mark.parametrize("process", PROCESSES)
def test_a_stolen_token_opens_what_the_golden_file_says_and_no_more(
    opened_rights: None, admin: Kubectl, process: str
) -> None:
    """Every verb on every resource, where it works and where it does not (C1)."""
    account, places = PROCESSES[process]
    namespace = account.partition(":")[0]
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    thief = Somebody(process, f"system:serviceaccount:{account}", groups)
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    mine = f"{process} may "
    wanted, until = [one for one in lines if one.startswith(mine)], time.monotonic() + PATIENCE_S

    while (found := sweep(admin.kubeconfig, [thief], places)) != wanted:
        if os.environ.get("PYLIQO_WRITE_GOLDEN") or time.monotonic() > until:
            break  # what was bound last may not be in force yet

    if os.environ.get("PYLIQO_WRITE_GOLDEN"):
        others = [one for one in lines if not one.startswith(mine)]
        GOLDEN.write_text("\n".join(sorted([*others, *found])) + "\n", encoding="utf-8")
    assert found == wanted


ALLOWED: Final = 'jsonpath={.status.allowed}{"\\n"}'


def review(verb: str, resource: str, namespace: str) -> dict[str, Any]:
    kind, _, name = resource.partition("/")
    part = "subresource" if name in SUBRESOURCES else "name"
    attributes = {"verb": verb, "namespace": namespace, "resource": kind, part: name}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {
            "user": f"system:serviceaccount:{TENANT}:{NODE}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {**attributes, "group": GROUPS.get(kind, "")},
        },
    }


SUBRESOURCES: Final = {"token", "status", "approval", "binding", "exec", "ephemeralcontainers"}
GROUPS: Final = {
    "leases": "coordination.k8s.io",
    "namespacemaps": keys.OFFLOADING_GROUP,
    "virtualnodes": keys.OFFLOADING_GROUP,
    "clusterrolebindings": keys.RBAC_GROUP,
    "subjectaccessreviews": "authorization.k8s.io",
    "certificatesigningrequests": "certificates.k8s.io",
}


def pod_on_node(name: str, node: str) -> dict[str, Any]:
    return factories.pod("default", name, spec=factories.pod_spec(nodeName=node))


def node(name: str, **labels: str) -> dict[str, Any]:
    return objects.named(keys.NODE, Key("", name), metadata={"labels": labels})


TAINT: Final = {"key": keys.VIRTUAL_NODE_TAINT, "value": "true", "effect": "NoExecute"}


@pytest.fixture(scope="module")
def policed(installed_virtual_node: VirtualNode, admin: Kubectl) -> Kubectl:
    """Return kubectl once the API server has compiled the policy and knows two pods and nodes."""
    admin.apply([pod_on_node("mine", NODE), pod_on_node("other", "worker"), node("worker")])
    asyncio.run(_until_refused(lambda: _delete_dry(admin, "pod", "other")))
    return admin


async def _until_refused(attempt: Callable[[], str]) -> None:
    await _until(attempt, is_refused=True)


async def _until(attempt: Callable[[], str], *, is_refused: bool) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            attempt()
        except KubectlError:
            if is_refused:
                return
        else:
            if not is_refused:
                return
        await asyncio.sleep(0.05)
    raise AssertionError("the policy is not enforced")


def _delete_dry(admin: Kubectl, kind: str, name: str) -> str:
    return admin.run("delete", kind, name, "--dry-run=server", "--wait=false", *KUBELET)


def _patch(admin: Kubectl, kind: str, name: str, patch: dict[str, Any], *more: str) -> str:
    return admin.run("patch", kind, name, "--type=merge", "-p", json.dumps(patch), *more)


def test_a_virtual_kubelet_changes_pods_of_its_node_only(policed: Kubectl) -> None:
    status = {"status": {"reason": "Test"}, "metadata": {"labels": {keys.SHADOW_POD_LABEL: "true"}}}

    _patch(policed, "pod", "mine", status, "--subresource=status", *KUBELET)
    _delete_dry(policed, "pod", "mine")

    message = "may change pods of this node only, and pod default/other is not on it"
    with pytest.raises(KubectlError, match=message):
        _patch(policed, "pod", "other", status, "--subresource=status", *KUBELET)
    with pytest.raises(KubectlError, match=message):
        _delete_dry(policed, "pod", "other")


def test_a_virtual_kubelet_changes_its_node_only(policed: Kubectl) -> None:
    def create(found: dict[str, Any]) -> str:
        return policed.run("create", "-f", "-", *KUBELET, stdin=json.dumps(found))

    with pytest.raises(KubectlError, match="may change this node only, not turin"):
        create(node("turin", **{keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}))
    with pytest.raises(KubectlError, match="node milan is not a virtual node"):
        create(node(NODE))
    own = node(NODE, **{keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: "milan"})
    with pytest.raises(KubectlError, match=f"keeps its taint {keys.VIRTUAL_NODE_TAINT}"):
        create(own)
    create({**own, "spec": {"taints": [TAINT]}})
    _patch(policed, "node", NODE, {"metadata": {"annotations": {"a": "1"}}}, *KUBELET)
    more = {"spec": {"taints": [TAINT, {"key": "a", "effect": "NoSchedule"}]}}
    _patch(policed, "node", NODE, more, *KUBELET)
    for label in (keys.REMOTE_CLUSTER_ID, keys.NODE_TYPE):
        for part in ([], ["--subresource=status"]):
            claimed = {"metadata": {"labels": {label: "turin"}}}
            with pytest.raises(KubectlError, match="keeps its labels"):
                _patch(policed, "node", NODE, claimed, *part, *KUBELET)
    with pytest.raises(KubectlError, match=f"keeps its taint {keys.VIRTUAL_NODE_TAINT}"):
        _patch(policed, "node", NODE, {"spec": {"taints": None}}, *KUBELET)
    with pytest.raises(KubectlError, match="may change this node only, not worker"):
        _patch(policed, "node", "worker", {"spec": {"unschedulable": True}}, *KUBELET)


def test_tokens_are_given_where_there_are_no_pods(policed: Kubectl) -> None:
    """As controllers of Kubernetes want them in kube-system, whose pods may be elsewhere."""
    policed.run("create", "namespace", "podless")
    policed.run("create", "serviceaccount", "robot", "-n", "podless")

    assert policed.run("create", "token", "robot", "-n", "podless")


def test_a_virtual_kubelet_gets_tokens_of_pods_on_its_node_only(policed: Kubectl) -> None:
    accounts = [
        objects.named(keys.SERVICE_ACCOUNT, Key("offloaded", name)) for name in ("robot", "default")
    ]
    spec = {"serviceAccountName": "robot", "automountServiceAccountToken": False}
    pods = [
        factories.pod("offloaded", name, spec={**pod_on_node(name, on)["spec"], **spec})
        for name, on in (("mine", NODE), ("other", "worker"))
    ]
    policed.apply([*accounts, *pods])
    uids = {
        name: policed.get("pod", name, "-n", "offloaded")["metadata"]["uid"]
        for name in ("mine", "other")
    }

    def token(*bound: str) -> str:
        return policed.run("create", "token", "robot", "-n", "offloaded", *bound, *KUBELET)

    def of(name: str) -> list[str]:
        return [
            "--bound-object-kind=Pod",
            f"--bound-object-name={name}",
            f"--bound-object-uid={uids[name]}",
        ]

    with pytest.raises(KubectlError, match=f"lacks the label {keys.SCHEDULING_ENABLED}"):
        token(*of("mine"))
    policed.run("label", "namespace", "offloaded", f"{keys.SCHEDULING_ENABLED}=true")
    asyncio.run(_until(lambda: token(*of("mine")), is_refused=False))
    asyncio.run(_until_refused(lambda: token(*of("other"))))
    assert token(*of("mine"))
    with pytest.raises(KubectlError, match="pod offloaded/other is not on it"):
        token(*of("other"))
    with pytest.raises(KubectlError, match="may ask for tokens of pods only"):
        token()
    assert policed.run("create", "token", "robot", "-n", "offloaded"), "others are left alone"


def test_tokens_of_pods_elsewhere_are_not_looked_for(policed: Kubectl) -> None:
    """That policy is evaluated once for each pod of a namespace: by the API server's counters."""
    policed.run("create", "serviceaccount", "robot", "-n", "default")
    count = 'apiserver_admission_match_condition_evaluation_seconds_count{kind="policy",name="'

    def asked(policy: str) -> list[str]:
        lines = policed.run("get", "--raw", "/metrics").splitlines()
        return [line for line in lines if line.startswith(f'{count}{policy}"')]

    before = asked("liqo-tokens"), asked("liqo-virtual-kubelets")
    policed.run("create", "token", "robot", "-n", "default")

    assert asked("liqo-tokens") == before[0]
    assert asked("liqo-virtual-kubelets") != before[1]


def test_who_is_no_virtual_kubelet_is_left_alone(policed: Kubectl) -> None:
    _patch(policed, "pod", "other", {"status": {"reason": "Test"}}, "--subresource=status")
    everything = "--clusterrole=cluster-admin"
    policed.run(
        "create", "clusterrolebinding", "robot", everything, "--serviceaccount=default:robot"
    )

    robot = "--as=system:serviceaccount:default:robot"
    policed.run("delete", "pod", "other", "--dry-run=server", "--wait=false", robot)


def volume(name: str, **changes: Any) -> dict[str, Any]:
    """Return a placeholder as a virtual kubelet makes it, unless ``changes`` say otherwise."""
    term = {"key": keys.REMOTE_CLUSTER_ID, "operator": "In", "values": [NODE]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": keys.VIRTUAL_STORAGE_CLASS,
        "hostPath": {"path": "/tmp/liqo-placeholder"},  # noqa: S108  # as it is on the wire
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        **changes,
    }
    metadata = {"annotations": {keys.PROVISIONED_BY: keys.STORAGE_PROVISIONER}}
    return objects.named(keys.PERSISTENT_VOLUME, Key("", name), metadata=metadata, spec=spec)


@pytest.mark.parametrize(
    "changes",
    [
        {"hostPath": {"path": "/etc"}},
        {"nodeAffinity": {}},
        {
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
                    ]
                }
            }
        },
        {"hostPath": None, "nfs": {"server": "192.0.2.1", "path": "/"}},
    ],
    ids=["a path of the node", "anywhere", "on other nodes", "elsewhere"],
)
def test_a_virtual_kubelet_makes_placeholders_only(
    policed: Kubectl, changes: dict[str, Any]
) -> None:
    def create(found: dict[str, Any]) -> str:
        spec = {name: value for name, value in found["spec"].items() if value}
        dry = ("create", "-f", "-", "--dry-run=server")
        return policed.run(*dry, *KUBELET, stdin=json.dumps({**found, "spec": spec}))

    create(volume("placeholder"))
    with pytest.raises(KubectlError, match="placeholders of volumes on its provider only"):
        create(volume("other", **changes))


def test_a_virtual_kubelet_changes_placeholders_only(policed: Kubectl) -> None:
    policed.apply([volume("enlarged"), volume("not-ours", hostPath={"path": "/srv"})])
    change = ("-p", '{"spec":{"capacity":{"storage":"2Gi"}}}', "--dry-run=server", *KUBELET)

    policed.run("patch", "persistentvolume", "enlarged", *change)
    with pytest.raises(KubectlError, match="persistentvolume not-ours is none"):
        policed.run("patch", "persistentvolume", "not-ours", *change)


def test_a_virtual_kubelet_removes_placeholders_only(policed: Kubectl) -> None:
    policed.apply([volume("kept", hostPath={"path": "/srv"})])

    with pytest.raises(KubectlError, match="persistentvolume kept is none"):
        _delete_dry(policed, "persistentvolume", "kept")
