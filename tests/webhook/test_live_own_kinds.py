"""The registration of our own kinds, as the manifests have it, on a real API server.

Source: docs/parity.md A-25, A-28, A-33; § 3.4, 3.7, 3.8.
"""

import asyncio
import base64
import itertools
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, key_of, named, uid
from kube import client
from kube.client import ClusterClient
from kube.errors import KubeError
from sandbox.controlplane import Plane
from tests.factories import pod_spec
from tests.manifests import documents
from tests.webhook.hooked import Hooked, run_kubectl, start
from tests.webhook.reviews import wait_until
from tests.webhook.served import CA, address
from webhook.webhooks import WEBHOOKS

pytestmark = pytest.mark.cluster


def registered(kind: Kind, hooked: Hooked) -> list[Object]:
    """Return the hooks of the manifests on namespaced kinds of ours, for this run alone."""
    found = documents.named(kind.kind, keys.WEBHOOK_CONFIGURATION)["webhooks"]
    ours = [hook for hook in found if hook["rules"][0]["resources"][0].partition("/")[0] != "pods"]
    return [
        {
            **hook,
            "clientConfig": {
                "url": address(hook, hooked.port),
                "caBundle": base64.b64encode(CA.certificate).decode(),
            },
            "namespaceSelector": {"matchLabels": {"judged": hooked.run}},
            "timeoutSeconds": 30,
        }
        for hook in ours
        if hook["rules"][0]["scope"] == "Namespaced"
    ]


@pytest.fixture(scope="module")
def hooked(plane: Plane, crds: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooked]:
    found = start(plane.kubeconfig, tmp_path_factory.mktemp("own-kinds"))
    try:
        wait_until(found.is_ready)
        yield found
    finally:
        found.process.kill()
        found.process.wait()


@pytest.fixture
async def twin(cluster: ClusterClient, hooked: Hooked) -> str:
    """Make a namespace of the consumer rome, and wait until the hooks are called there."""
    for kind in (keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS):
        if await cluster.get_live(kind, Key("", hooked.run)) is None:
            hooks = registered(kind, hooked)
            await cluster.create(kind, named(kind, Key("", hooked.run), webhooks=hooks))
    name = await hooked_namespace(cluster, hooked)
    async with asyncio.timeout(300):
        while not await are_called(cluster, name):  # noqa: ASYNC110  # it learns of both by itself
            await asyncio.sleep(0.05)
    return name


@pytest.fixture
async def hooked_tenant(
    cluster: ClusterClient, hooked: Hooked, twin: str
) -> str:  # so that they are called
    """Make a tenant namespace where the hooks are called."""
    return await hooked_namespace(cluster, hooked, **{keys.TENANT_NAMESPACE: "true"})


async def hooked_namespace(cluster: ClusterClient, hooked: Hooked, **labels: str) -> str:
    name = f"live-{secrets.token_hex(4)}"
    metadata = {"labels": {"judged": hooked.run, keys.REMOTE_CLUSTER_ID: "rome", **labels}}
    await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name), metadata=metadata))
    return name


async def are_called(cluster: ClusterClient, space: str) -> bool:
    """Whether the API server knows both configurations."""
    field = "automountServiceAccountToken"
    unsaid: Object = {field: None}
    said = shadow(space, secrets.token_hex(4), **unsaid)
    made = await cluster.create(keys.SHADOW_POD, said)
    try:
        await cluster.create(keys.SHADOW_POD, shadow(space, secrets.token_hex(4), origin=""))
    except KubeError:
        return made["spec"]["pod"].get(field) is False
    return False


def shadow(namespace: str, name: str = "web", *, origin: str = "rome", **spec: Any) -> Object:
    labels = {keys.ORIGIN: origin} if origin else {}
    pod = {**pod_spec(), **spec}
    return named(
        keys.SHADOW_POD, Key(namespace, name), metadata={"labels": labels}, spec={"pod": pod}
    )


async def test_shadow_pods_are_judged_and_their_upkeep_is_not_hindered(
    cluster: ClusterClient, twin: str
) -> None:
    made = await cluster.create(keys.SHADOW_POD, shadow(twin, automountServiceAccountToken=None))
    assert made["spec"]["pod"]["automountServiceAccountToken"] is False
    with pytest.raises(KubeError, match=r"spec\.pod\.hostNetwork must not be true"):
        await cluster.create(keys.SHADOW_POD, shadow(twin, "bad", hostNetwork=True))
    key = Key(twin, "web")
    change: Object = {"spec": {"pod": {"nodeSelector": {"a": "b"}}}}
    with pytest.raises(KubeError, match=r"spec\.pod\.nodeSelector cannot be changed"):
        await cluster.patch(keys.SHADOW_POD, key, change)
    await cluster.patch(keys.SHADOW_POD, key, {"metadata": {"labels": {"app": "web"}}})
    await cluster.patch(keys.SHADOW_POD, key, {"metadata": {"finalizers": ["x.io/y"]}})
    await cluster.patch_status(keys.SHADOW_POD, key, {"phase": "Running"})
    await cluster.delete(keys.SHADOW_POD, key, uid=made["metadata"]["uid"])
    await cluster.patch(keys.SHADOW_POD, key, {"metadata": {"finalizers": None}})
    assert await cluster.get_live(keys.SHADOW_POD, key) is None


async def test_virtual_nodes_are_filled_in_and_keep_to_the_template(
    cluster: ClusterClient, hooked_tenant: str
) -> None:
    key = Key(hooked_tenant, f"vn-{secrets.token_hex(4)}")
    elsewhere, missing = (
        named(keys.VIRTUAL_NODE, key, spec={"vkOptionsTemplateRef": reference})
        for reference in ({"name": "a", "namespace": "shop"}, {"name": "nobody"})
    )
    with pytest.raises(KubeError, match=r"vkOptionsTemplateRef\.namespace"):
        await cluster.create(keys.VIRTUAL_NODE, elsewhere)
    with pytest.raises(KubeError, match="there is no VkOptionsTemplate liqo/nobody"):
        await cluster.create(keys.VIRTUAL_NODE, missing)

    reference = {"name": await template(cluster)}
    lists = {"labelsNotReflected": ["own"]}
    spec = {"vkOptionsTemplateRef": reference, "offloadingPatch": lists, "createNode": False}
    made = await cluster.create(keys.VIRTUAL_NODE, named(keys.VIRTUAL_NODE, key, spec=spec))
    assert made["spec"]["createNode"] is False
    assert made["spec"]["disableNetworkCheck"] is True
    assert made["spec"]["offloadingPatch"] == {
        "labelsNotReflected": ["own", "team"],
        "annotationsNotReflected": ["note"],
    }
    own: Object = {"spec": {"template": {"spec": {"replicas": 3}}}}
    with pytest.raises(KubeError, match=r"spec\.template is not taken"):
        await cluster.patch(keys.VIRTUAL_NODE, key, own)
    await cluster.patch(keys.VIRTUAL_NODE, key, {"metadata": {"labels": {"app": "web"}}})


async def template(cluster: ClusterClient) -> str:
    """Make a VkOptionsTemplate where those of administrators are."""
    name = f"template-{secrets.token_hex(4)}"
    space = named(keys.NAMESPACE, Key("", keys.LIQO_NAMESPACE))
    await cluster.apply(keys.NAMESPACE, space, manager="tests")
    spec = {
        "containerImage": "i",
        "createNode": True,
        "disableNetworkCheck": True,
        "metricsEnabled": False,
        "labelsNotReflected": ["team"],
        "annotationsNotReflected": ["note"],
    }
    key = Key(keys.LIQO_NAMESPACE, name)
    await cluster.create(keys.VK_OPTIONS_TEMPLATE, named(keys.VK_OPTIONS_TEMPLATE, key, spec=spec))
    return name


def silent(kind: Kind, run: str) -> list[Object]:
    """Return the hooks of our kinds that are needed, at an address where nobody answers."""
    found = documents.named(kind.kind, keys.WEBHOOK_CONFIGURATION)["webhooks"]
    return [
        {
            **{name: value for name, value in hook.items() if name != "namespaceSelector"},
            "clientConfig": {
                "url": "https://127.0.0.1:1/",
                "caBundle": base64.b64encode(CA.certificate).decode(),
            },
            "objectSelector": {"matchLabels": {"judged": run}},
            "timeoutSeconds": 1,
        }
        for hook in found
        if hook["failurePolicy"] == "Fail"
        and not hook["rules"][0]["resources"][0].startswith("pods")
    ]


KEPT: Final[Mapping[Kind, Object]] = {
    keys.NAMESPACE_OFFLOADING: {},
    keys.VIRTUAL_NODE: {"clusterID": "milan"},
    keys.SHADOW_POD: {"pod": pod_spec()},
    keys.RESOURCE_SLICE: {"providerClusterID": "milan", "class": "default"},
    keys.TENANT: {"clusterID": "rome"},
    keys.FOREIGN_CLUSTER: {"clusterID": "rome"},
}
"""Kinds of ours that a webhook is needed for, with the spec of an object."""


async def test_a_slice_called_like_a_node_of_this_cluster_is_refused(
    cluster: ClusterClient, hooked_tenant: str
) -> None:
    name = f"node-{secrets.token_hex(4)}"
    node = named(keys.NODE, Key("", name), spec={"unschedulable": True})
    made = await cluster.create(keys.NODE, node)
    slice_ = named(keys.RESOURCE_SLICE, Key(hooked_tenant, name), spec={"class": "default"})
    with pytest.raises(KubeError, match=f"there is a node '{name}', and nodes are called after"):
        await cluster.create(keys.RESOURCE_SLICE, slice_)
    await cluster.delete(keys.NODE, Key("", name), uid=uid(made))


async def test_what_is_deleted_goes_while_no_webhook_answers(plane: Plane, crds: None) -> None:
    """Controllers take finalizers off, and a namespace ends: both are changes of an object."""
    run = f"silent-{secrets.token_hex(3)}"
    hold = ["tests.pyliqo.io/hold"]
    assert {row.kind for row in WEBHOOKS if row.is_needed and row.kind != keys.POD} == KEPT.keys()
    async with client.connect(plane.kubeconfig) as real:
        await real.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", run)))

        def sample(kind: Kind, name: str, *finalizers: str) -> Object:
            name = keys.OFFLOADING_NAME if kind == keys.NAMESPACE_OFFLOADING else name
            metadata = {"labels": {"judged": run}, "finalizers": [*finalizers]}
            where = Key(run if kind.namespaced else "", name)
            return named(kind, where, metadata=metadata, spec=KEPT[kind])

        made = {kind: await real.create(kind, sample(kind, run, *hold)) for kind in KEPT}
        configurations = (keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS)
        for kind in configurations:
            await real.create(kind, named(kind, Key("", run), webhooks=silent(kind, run)))
        try:
            for kind, obj in made.items():
                await until_refused(real, kind, obj)
            for kind, obj in made.items():
                await real.delete(kind, key_of(obj), uid=uid(obj))
                await real.patch(kind, key_of(obj), {"metadata": {"finalizers": None}})
                assert await real.get_live(kind, key_of(obj)) is None
        finally:
            for kind in configurations:
                found = await real.get_live(kind, Key("", run))
                assert found
                await real.delete(kind, Key("", run), uid=uid(found))


async def until_refused(cluster: ClusterClient, kind: Kind, obj: Object) -> None:
    """Wait until a change of ``obj`` is refused, because nobody answers."""
    async with asyncio.timeout(300):
        for number in itertools.count():
            notes = {f"note-{number}": "x"}
            change: Object = {"metadata": {"labels": notes, "annotations": notes}}
            if kind == keys.VIRTUAL_NODE:
                change["spec"] = {"labels": notes}
            if kind == keys.RESOURCE_SLICE:
                return  # only a consumer's changes are judged, and new slices
            try:
                await cluster.patch(kind, key_of(obj), change)
            except KubeError as error:
                if "failed calling webhook" in str(error):
                    return
                raise
            await asyncio.sleep(0.05)


# DaemonSets that tolerate everything --------------------------------------------------------------

OFF = {"key": keys.NODE_TYPE, "operator": "NotIn", "values": [keys.VIRTUAL_NODE_TYPE]}
LINUX = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def daemon_set(space: str, **affinity: Any) -> Object:
    labels = {"app": "logs"}
    spec = pod_spec(tolerations=[{"operator": "Exists"}], **affinity)
    template = {"metadata": {"labels": labels}, "spec": spec}
    wanted = {"selector": {"matchLabels": labels}, "template": template}
    return named(keys.DAEMON_SET, Key(space, "logs"), spec=wanted)


def wanted_terms(obj: Object) -> Any:
    return obj["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][REQUIRED][
        "nodeSelectorTerms"
    ]


@pytest.mark.parametrize("own", [[], [LINUX]])
@pytest.mark.parametrize("way", [(), ("--server-side",)])
async def test_a_daemon_set_is_kept_off_virtual_nodes_and_applied_twice_as_once(
    cluster: ClusterClient, plane: Plane, twin: str, own: list[Object], way: tuple[str, ...]
) -> None:
    terms = [{"matchExpressions": own}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    sent = daemon_set(twin, **({"affinity": affinity} if own else {}))

    for _ in range(2):
        await run_kubectl(plane, sent, "apply", *way)
    await run_kubectl(plane, sent, "diff", *way)

    made = await cluster.get_live(keys.DAEMON_SET, Key(twin, "logs"))
    assert made is not None
    assert wanted_terms(made) == [{"matchExpressions": [*own, OFF]}]
    assert made["metadata"]["generation"] == 1


async def test_a_daemon_set_of_before_changes_with_its_template_only(
    cluster: ClusterClient, twin: str
) -> None:
    sent = daemon_set(twin)
    sent["metadata"]["labels"] = {keys.ON_VIRTUAL_NODES: "true"}
    made = await cluster.create(keys.DAEMON_SET, sent)
    assert "affinity" not in made["spec"]["template"]["spec"]

    key = Key(twin, "logs")
    made = await cluster.patch(
        keys.DAEMON_SET, key, {"metadata": {"labels": {keys.ON_VIRTUAL_NODES: None}}}
    )
    assert "affinity" not in made["spec"]["template"]["spec"]

    changed = {"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}}
    made = await cluster.patch(keys.DAEMON_SET, key, changed)
    assert wanted_terms(made) == [{"matchExpressions": [OFF]}]
