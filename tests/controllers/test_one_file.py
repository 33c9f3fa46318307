"""Pods that come right after their NamespaceOffloading, or after a change of it.

Two API servers of one etcd, the scheduler, the controllers that make pods, ours, and two replicas
of the webhook whose caches lag by two seconds; nodes are objects only. ``PYLIQO_ONE_FILE_RUNS``
sets how many runs of each order in one file, ``PYLIQO_BACK_TO_BACK`` how many namespaces are
offloaded and filled without a pause (``--log-level=INFO -rP`` shows what came of it).
Source: docs/parity.md § 3.2; F-30.
"""

import asyncio
import contextlib
import json
import logging
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Object, annotations, is_terminating, named, uid
from apis.placement import PlacementAnnotation
from kube import client
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.errors import BusyError, KubeError
from kube.informer import Informer
from sandbox import controlplane
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl, KubectlError
from tests.conftest import size_of
from tests.factories import namespace, pod, pod_spec
from tests.journeys import world
from tests.kube.running import running as loops
from tests.manifests import policies
from tests.scheduling import keep
from tests.webhook.hooked import LAGGING as CACHES_LAG
from tests.webhook.hooked import Hooked, tolerates
from tests.webhook.reviews import offloading
from tests.webhook.test_live_pods import running

pytestmark = pytest.mark.cluster

RUNS: Final = size_of("PYLIQO_ONE_FILE_RUNS", 3, 50)
BACK_TO_BACK: Final = size_of("PYLIQO_BACK_TO_BACK", 12, 300)
GROUP: Final = 50
"""Namespaces that there are at a time."""
AHEAD: Final = 0.1
LAGGING: Final = 0.01
"""Of the pods, how many a second API server may refuse, which learns of the label later; at least
one."""
PATIENCE_S: Final = 300.0
"""Within which a pod that was refused is admitted, on a machine with much else to do."""
CRDS: Final = Path(__file__).parents[2] / "manifests" / "10-crds"
ORDERS: Final = {"offloading first": [0, 1, 2], "deployment first": [0, 2, 1]}
TAINT: Final = {"key": keys.VIRTUAL_NODE_TAINT, "value": "true", "effect": "NoExecute"}

logger = logging.getLogger(__name__)


def documents(space: str, run: str) -> list[Object]:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec()}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return [
        namespace(space, judged=run),
        offloading(space, podOffloadingStrategy="Remote"),
        named(keys.DEPLOYMENT, Key(space, "web"), spec=spec),
    ]


@contextlib.contextmanager
def managing(plane: Plane, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    port = controlplane.free_ports(1)[0]
    command = [sys.executable, "-m", "controllers", "--no-leader-elect", f"--health-port={port}"]
    with (directory / "controllers.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--kubeconfig={plane.kubeconfig}"], stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Whole:
    """Two API servers of one etcd, the controllers, and the two replicas of the webhook."""

    plane: Plane
    second: Plane
    controllers: subprocess.Popen[bytes]
    hooked: Sequence[Hooked]

    def run(self, number: int) -> str:
        """Return the run of the replica whose turn it is."""
        return self.hooked[number % len(self.hooked)].run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    """Yield control planes of this module's own, with our policies in force."""
    folders = [tmp_path_factory.mktemp("one-file") for _ in range(5)]
    flags = ["--disable-admission-plugins=TaintNodesByCondition"]  # nobody makes nodes ready here
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(controlplane.start(folders[0], flags=flags))
        kubectl = Kubectl(plane.kubeconfig)
        kubectl.run("apply", "--server-side", "-k", str(CRDS))
        kubectl.wait("--for=condition=Established", "crd", "--all")
        kubectl.run("create", "namespace", keys.LIQO_NAMESPACE)
        kubectl.run("apply", "-f", "-", stdin=policies.manifest())
        plane.start_scheduler()
        plane.start_deployments()
        second = stack.enter_context(controlplane.beside(plane, folders[4]))
        for server in (plane, second):
            policies.wait_until_in_force(Kubectl(server.kubeconfig))
        controllers = stack.enter_context(managing(plane, folders[1]))
        hooked = [
            stack.enter_context(running(plane, folder, env=CACHES_LAG)) for folder in folders[2:4]
        ]
        yield Whole(plane, second, controllers, hooked)


@pytest.fixture
async def cluster(whole: Whole) -> AsyncIterator[ClusterClient]:
    async with client.connect(whole.plane.kubeconfig) as real:
        if await real.get_live(keys.NODE, Key("", "milan")) is None:
            labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}
            milan = {"metadata": {"labels": labels}, "spec": {"taints": [TAINT]}}
            await keep(real, named(keys.NODE, Key("", "milan"), **milan))
            await keep(real, named(keys.NODE, Key("", "worker")))
        yield real


@dataclass
class AskedServer:
    """The API server that pods are created at, and what its watches told."""

    cluster: ClusterClient
    told: Informer[Object]
    is_second: bool

    def knows(self, space: str, generation: int) -> bool:
        """Whether it has told its watches, as which its policies learn, of that generation."""
        found = self.told.get(Key(space, keys.OFFLOADING_NAME))
        return found is not None and found["metadata"]["generation"] >= generation


@pytest.fixture(params=["one", "two"])
async def api_servers(request: pytest.FixtureRequest, whole: Whole) -> AsyncIterator[AskedServer]:
    """Yield the API server that takes the NamespaceOffloadings, then a second one."""
    server = whole.plane if request.param == "one" else whole.second
    told = Informer(Selection(keys.NAMESPACE_OFFLOADING, Object))
    async with client.connect(server.kubeconfig) as real, loops(told.run(real)):
        yield AskedServer(real, told, request.param == "two")


@pytest.mark.parametrize("order", ORDERS)
async def test_every_run_converges_with_caches_that_lag(
    cluster: ClusterClient, whole: Whole, order: str
) -> None:
    kubectl = Kubectl(whole.plane.kubeconfig)
    spaces = [f"one-{secrets.token_hex(4)}" for _ in range(RUNS)]
    for number, space in enumerate(spaces):
        made = documents(space, whole.run(number))
        items = [made[index] for index in ORDERS[order]]
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        await asyncio.to_thread(kubectl.run, "apply", "-f", "-", stdin=manifest)

    converged = [await world.until(cluster, keys.POD, space, is_web_bound) for space in spaces]

    assert len(converged) == RUNS
    await remove_namespaces(cluster, spaces)


@pytest.mark.parametrize(("order", "is_judged"), [([0, 1, 2, 3], True), ([0, 2, 3, 1], False)])
async def test_bare_pods_in_one_file_are_applied_at_once(
    cluster: ClusterClient, whole: Whole, order: list[int], *, is_judged: bool
) -> None:
    """Those after the NamespaceOffloading are judged; those before it stay as they are."""
    kubectl = Kubectl(whole.plane.kubeconfig)
    spaces = [f"bare-{secrets.token_hex(4)}" for _ in range(RUNS)]
    wrong: list[str] = []
    for number, space in enumerate(spaces):
        made = [*documents(space, whole.run(number))[:2], pod(space, "web"), pod(space, "db")]
        items = [made[index] for index in order]
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        try:
            await asyncio.to_thread(kubectl.run, "apply", "-f", "-", stdin=manifest)
        except KubectlError as error:
            wrong.append(f"{space}: {error}")
            continue
        pods = (await cluster.list(Selection(keys.POD, Object, namespace=space))).items.values()
        found = [(PlacementAnnotation.of(one) is not None, tolerates(one)) for one in pods]
        wrong += [] if found == [(is_judged, is_judged)] * 2 else [f"{space}: {found}"]
    await remove_namespaces(cluster, spaces)

    assert wrong == []


def is_web_bound(seen: world.World) -> bool:
    """Whether the one pod that lives is judged, and bound to the virtual node."""
    pods = [pod for pod in seen.values() if not is_terminating(pod)]
    nodes = [pod["spec"].get("nodeName") for pod in pods]
    return nodes == ["milan"]


async def remove_namespaces(cluster: ClusterClient, spaces: Sequence[str]) -> None:
    for space in spaces:
        found = await cluster.get_live(keys.NAMESPACE, Key("", space))
        await cluster.delete(keys.NAMESPACE, Key("", space), uid=uid(found or {}))


@dataclass
class ReceivedPods:
    """How the pods of many namespaces were received."""

    at_once: int = 0
    late: list[float] = field(default_factory=list)
    """Seconds after which one that had been refused was admitted."""
    unjudged: list[str] = field(default_factory=list)
    ahead: list[str] = field(default_factory=list)
    """Asked for, and admitted unjudged, before the API server told our watch of the change."""

    async def create(self, asked: AskedServer, space: str, generation: int) -> None:
        """Create a pod, again and again while it is refused for a moment."""
        is_known = asked.knows(space, generation)
        made = await admitted(asked.cluster, space)
        if made is None:
            began = time.monotonic()
            made, is_known = await again(asked.cluster, space), True  # to the policy that refused
            self.late.append(time.monotonic() - began)
        else:
            self.at_once += 1
        judged = PlacementAnnotation.of(made)
        if judged is None or judged.generation < generation:
            (self.unjudged if is_known else self.ahead).append(f"{space}: {judged}")

    def __str__(self) -> str:
        slowest = max(self.late, default=0.0)
        late = f"{len(self.late)} asked again, slowest {slowest:.2f} s"
        missed = f"unjudged {self.unjudged}, {len(self.ahead)} ahead of any watch"
        return f"{self.at_once} at once, {late}, {missed}"

    def missed(self) -> list[str]:
        return [*self.unjudged, *self.ahead]


async def admitted(cluster: ClusterClient, space: str) -> Object | None:
    """Return the pod that was created, None if it is to be created again in a moment."""
    try:
        return await cluster.create(keys.POD, pod(space, f"p-{secrets.token_hex(4)}"))
    except KubeError as error:
        if policies.AGAIN not in str(error):
            raise
        return None


async def offload_patiently(cluster: ClusterClient, wanted: Object) -> None:
    """Create ``wanted``; a machine that is busy may need to be asked again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(BusyError):
                await cluster.create(keys.NAMESPACE_OFFLOADING, wanted)
                return


async def again(cluster: ClusterClient, space: str) -> Object:
    """Return the pod that was created when it was asked for often enough."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            made = await admitted(cluster, space)
            if made is not None:
                return made
            await asyncio.sleep(0.02)


async def test_no_pod_passes_unjudged_however_soon_it_comes(
    cluster: ClusterClient, api_servers: AskedServer, whole: Whole
) -> None:
    told, spaces = ReceivedPods(), list[str]()
    for number in range(BACK_TO_BACK):
        space = f"soon-{secrets.token_hex(4)}"
        spaces.append(space)
        await cluster.create(keys.NAMESPACE, namespace(space, judged=whole.run(number)))
        wanted = offloading(space, podOffloadingStrategy="Remote")
        await offload_patiently(cluster, wanted)
        await told.create(api_servers, space, generation=1)
        if len(spaces) == GROUP:
            await remove_namespaces(cluster, spaces)
            spaces.clear()
    await remove_namespaces(cluster, spaces)

    logger.info("%s namespaces: %s", BACK_TO_BACK, told)
    assert told.missed() == []
    assert len(told.late) <= (max(1, LAGGING * BACK_TO_BACK) if api_servers.is_second else 0)


async def test_no_pod_is_judged_by_the_strategy_of_before(
    cluster: ClusterClient, api_servers: AskedServer, whole: Whole
) -> None:
    told, space, as_before = ReceivedPods(), f"change-{secrets.token_hex(4)}", list[str]()
    await cluster.create(keys.NAMESPACE, namespace(space, judged=whole.run(0)))
    made = offloading(space, podOffloadingStrategy="Local")
    await cluster.create(keys.NAMESPACE_OFFLOADING, made)
    key = Key(space, keys.OFFLOADING_NAME)
    rounds = max(3, BACK_TO_BACK // 10)
    for generation in range(2, 2 + 2 * rounds, 2):
        for strategy, number in (("Remote", generation), ("Local", generation + 1)):
            change = {"spec": {"podOffloadingStrategy": strategy}}
            await cluster.patch(keys.NAMESPACE_OFFLOADING, key, change)
            if strategy == "Remote":
                await told.create(api_servers, space, number)
                continue
            judged = PlacementAnnotation.of(await again(api_servers.cluster, space))
            if judged is not None and judged.generation != number:
                as_before.append(f"{number}: {judged}")
    await remove_namespaces(cluster, [space])

    logger.info("Changes of strategy: %s; judged as before: %s", told, as_before)
    assert len(told.missed()) <= unavoidable(rounds)
    assert len(as_before) <= unavoidable(rounds)


def unavoidable(pods: int) -> float:
    """Return how many of so many pods may pass by what was before, at most.

    A policy knows of a change when the API server's own watch has told it, which nobody sees from
    outside: another watch may be told before. Nobody can judge pods until then, so that is for the
    controllers to mend. Without the policy all are such pods.
    """
    return max(2, AHEAD * pods)


# Last, since it takes our kinds away --------------------------------------------------------------


async def test_whatever_of_ours_is_gone_or_stopped_pods_of_others_are_created_as_before(
    cluster: ClusterClient, whole: Whole
) -> None:
    """Uninstalling in any order: every set of what may be gone already."""
    kubectl, space = Kubectl(whole.plane.kubeconfig), f"other-{secrets.token_hex(4)}"
    await cluster.create(keys.NAMESPACE, namespace(space, judged=whole.run(0)))
    processes = [whole.controllers, *(hooked.process for hooked in whole.hooked)]

    def toggle_policies(*, gone: bool) -> None:
        if gone:
            kubectl.run("delete", "-f", "-", stdin=policies.manifest())
        else:
            kubectl.run("apply", "-f", "-", stdin=policies.manifest())

    def toggle_processes(*, gone: bool) -> None:
        for process in processes:
            process.send_signal(signal.SIGSTOP if gone else signal.SIGCONT)

    def toggle_kinds(*, gone: bool) -> None:
        assert gone
        kubectl.run("delete", "crd", keys.NAMESPACE_OFFLOADING.resource)

    steps = [
        (toggle_processes, True), (toggle_policies, True), (toggle_processes, False),
        (toggle_policies, False), (toggle_kinds, True), (toggle_processes, True),
        (toggle_policies, True), (toggle_processes, False),
    ]  # fmt: skip
    try:
        for toggle, gone in steps:
            await asyncio.to_thread(toggle, gone=gone)
            for _ in range(3):
                made = await cluster.create(keys.POD, pod(space, f"p-{secrets.token_hex(4)}"))
                assert keys.PLACEMENT not in annotations(made)
    finally:
        toggle_processes(gone=False)
