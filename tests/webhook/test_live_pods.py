"""The registration of the pod hooks, as the manifests have it, on a real API server.

Source: docs/parity.md A-22, A-33; § 2.4, 3.1; F-29, F-30.
"""

import asyncio
import base64
import contextlib
import secrets
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from kube import client
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.errors import AlreadyExistsError, KubeError
from sandbox.controlplane import Plane
from tests.factories import pod, pod_spec
from tests.manifests import documents
from tests.webhook.hooked import LAGGING, Hooked, run_kubectl, start, tolerates
from tests.webhook.reviews import offloading, wait_until
from tests.webhook.served import CA, address

pytestmark = pytest.mark.cluster

STRATEGIES = ["Local", "Remote", "LocalAndRemote"]
REGION = {"key": "region", "operator": "In", "values": ["eu"]}
SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [REGION]}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def registered(kind: Kind, hooked: Hooked, within_s: int) -> list[Object]:
    """Return the manifests' hooks on pods and NamespaceOffloadings, for this run alone."""
    found = documents.named(kind.kind, keys.WEBHOOK_CONFIGURATION)["webhooks"]
    ours = [
        hook
        for hook in found
        if hook["rules"][0]["resources"] in (["pods"], ["namespaceoffloadings"])
    ]
    own = {"timeoutSeconds": within_s}
    return [{**hook, **own, **_of_this_run(hook, hooked)} for hook in ours]


def _of_this_run(hook: Object, hooked: Hooked) -> Object:
    wanted = (hook.get("namespaceSelector") or {}).get("matchExpressions") or []
    judged = {"key": "judged", "operator": "In", "values": [hooked.run]}
    return {
        "namespaceSelector": {"matchExpressions": [*wanted, judged]},
        "clientConfig": {
            "url": address(hook, hooked.port),
            "caBundle": base64.b64encode(CA.certificate).decode(),
        },
    }


async def install(kubeconfig: Path, hooked: Hooked, within_s: int) -> None:
    async with client.connect(kubeconfig) as cluster:
        for kind in (keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS):
            hooks = registered(kind, hooked, within_s)
            await cluster.create(kind, named(kind, Key("", hooked.run), webhooks=hooks))
        (runtime_class,) = documents.of_kind("RuntimeClass")
        with contextlib.suppress(AlreadyExistsError):
            await cluster.create(keys.RUNTIME_CLASSES, runtime_class)
        await hooked.wait_until_called(cluster)


@contextlib.contextmanager
def running(
    plane: Plane,
    directory: Path,
    *flags: str,
    within_s: int = 30,
    env: Mapping[str, str] | None = None,
) -> Iterator[Hooked]:
    """Run a webhook that API servers wait for so long: by default no test is about that."""
    found = start(plane.kubeconfig, directory, *flags, env=env)
    try:
        wait_until(found.is_ready)
        installing = install(plane.kubeconfig, found, within_s)
        with ThreadPoolExecutor() as pool:  # anybody who asks may be inside an event loop
            pool.submit(lambda: asyncio.run(installing)).result()
        yield found
    finally:
        found.process.kill()
        found.process.wait()


@pytest.fixture(scope="module")
def hooked(plane: Plane, crds: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooked]:
    with running(plane, tmp_path_factory.mktemp("pods")) as found:
        yield found


@pytest.fixture(scope="module")
def lagging(
    plane: Plane, crds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Hooked]]:
    with contextlib.ExitStack() as stack:
        folders = [tmp_path_factory.mktemp("lagging") for _ in range(2)]
        yield [stack.enter_context(running(plane, folder, env=LAGGING)) for folder in folders]


def is_untouched(made: Object, affinity: Object | None = None) -> bool:
    return not tolerates(made) and made["spec"].get("affinity", {}) == (affinity or {})


DAEMON = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
ON_WORKER = {
    "nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker"]}]}
    ]
}
LINUX = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
OWN_AFFINITY = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [LINUX]}]}}}
EVERYTHING = [{"operator": "Exists"}]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("way", [(), ("--server-side",)])
async def test_a_pod_of_one_file_is_applied_twice_as_once(
    cluster: ClusterClient, plane: Plane, hooked: Hooked, strategy: str, way: tuple[str, ...]
) -> None:
    space = await hooked.space(cluster)
    spec: Object = {"podOffloadingStrategy": strategy, "clusterSelector": SELECTOR}
    await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space, **spec))
    affinity: Object = {"affinity": OWN_AFFINITY}
    tolerations: Object = {"tolerations": EVERYTHING}
    wanted: list[Object] = [{}, affinity, tolerations, {**affinity, **tolerations}]
    wanted.append({**affinity, "runtimeClassName": "liqo"})
    file = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {"apiVersion": "v1", "kind": "Pod", **pod(space, f"p{i}", spec=pod_spec(**one))}
            for i, one in enumerate(wanted)
        ],
    }

    await run_kubectl(plane, file, "apply", *way)
    before = {key: one["metadata"]["resourceVersion"] for key, one in await pods_of(cluster, space)}
    await run_kubectl(plane, file, "apply", *way)
    await run_kubectl(plane, file, "diff", *way)

    after = {key: one["metadata"]["resourceVersion"] for key, one in await pods_of(cluster, space)}
    assert after == before
    assert len(after) == len(wanted)


async def pods_of(cluster: ClusterClient, space: str) -> list[tuple[Key, Object]]:
    return list((await cluster.list(Selection(keys.POD, Object, space))).items.items())


PLACED: list[tuple[Object, Object]] = [
    ({"ownerReferences": [DAEMON]}, {"affinity": {"nodeAffinity": {REQUIRED: ON_WORKER}}}),
    ({}, {"nodeName": "worker"}),
    ({"annotations": {"kubernetes.io/config.mirror": "x"}}, {"nodeName": "worker"}),
]


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_pods_that_are_placed_otherwise_never_drift(
    cluster: ClusterClient, hooked: Hooked, strategy: str
) -> None:
    space = await hooked.space(cluster)
    spec: Object = {"podOffloadingStrategy": strategy, "clusterSelector": SELECTOR}
    await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space, **spec))

    made = [
        await cluster.create(
            keys.POD, pod(space, f"web-{number}", metadata=metadata, spec=pod_spec(**wanted))
        )
        for number, (metadata, wanted) in enumerate(PLACED)
    ]

    assert all(
        is_untouched(one, wanted.get("affinity"))
        for one, (_, wanted) in zip(made, PLACED, strict=True)
    )


@pytest.mark.parametrize("selector", [{}, {"clusterSelector": SELECTOR}])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_the_runtime_class_forces_virtual_nodes_and_the_selector_chooses(
    cluster: ClusterClient, hooked: Hooked, strategy: str, selector: Object
) -> None:
    space = await hooked.space(cluster)
    spec = {"podOffloadingStrategy": strategy, **selector}
    await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space, **spec))

    made = await cluster.create(keys.POD, pod(space, spec=pod_spec(runtimeClassName="liqo")))

    affinity = (made["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or []
    assert made["spec"]["nodeSelector"] == {"liqo.io/type": "virtual-node"}
    assert tolerates(made)
    assert terms == (SELECTOR["nodeSelectorTerms"] if selector else [])


async def test_replicas_whose_caches_lag_judge_by_what_is_there(
    cluster: ClusterClient, lagging: list[Hooked]
) -> None:
    async def one_file(hooked: Hooked) -> bool:
        space = await hooked.space(cluster)
        spec = {"podOffloadingStrategy": "Remote"}
        await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space, **spec))
        return tolerates(await cluster.create(keys.POD, pod(space)))

    assert [await one_file(lagging[turn % 2]) for turn in range(20)] == [True] * 20


async def test_a_namespace_that_admission_opened_refuses_no_pod_before_its_offloading(
    cluster: ClusterClient, hooked: Hooked
) -> None:
    """Of one that is refused after all; who labels a namespace in advance does want to wait."""
    space = await hooked.space(cluster)
    mark = {"metadata": {"annotations": {keys.SCHEDULING_ENABLED_BY: "a-uid"}}}
    await cluster.patch(keys.NAMESPACE, Key("", space), mark)

    made = await cluster.create(keys.POD, pod(space))

    assert is_untouched(made)


async def test_replicas_whose_caches_lag_never_give_one_twin_to_two(
    cluster: ClusterClient, lagging: list[Hooked]
) -> None:
    twin = f"twin-{secrets.token_hex(4)}"
    spec = {"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": twin}
    first, second = [await hooked.space(cluster) for hooked in lagging]
    await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(first, **spec))

    with pytest.raises(KubeError, match=f"already that of {first}"):
        await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(second, **spec))


@pytest.mark.parametrize("end", ["hangs", "is gone"])
async def test_a_webhook_that_does_not_answer_keeps_no_pod_from_other_namespaces(
    plane: Plane, crds: None, tmp_path: Path, cluster: ClusterClient, end: str
) -> None:
    with running(plane, tmp_path, within_s=5) as hooked:
        labelled = await hooked.space(cluster)
        other = await hooked.space(cluster, is_labelled=False)
        if end == "hangs":
            hooked.process.send_signal(signal.SIGSTOP)
        else:
            hooked.process.kill()
            hooked.process.wait()

        made = [await cluster.create(keys.POD, pod(other, f"web-{n}")) for n in range(2)]

        assert all(map(is_untouched, made))
        with pytest.raises(KubeError, match=r"pod\.mutate\.liqo\.io"):
            await cluster.create(keys.POD, pod(labelled))
