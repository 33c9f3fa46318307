"""Namespace, NamespaceOffloading and Deployment at once, in each order that is possible.

The scheduler, the controllers that make pods, ours, and two replicas of the webhook whose caches
lag by two seconds; nodes are objects only. ``PYLIQO_ONE_FILE_RUNS`` sets how many runs of each.
"""

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Object, is_terminating, named
from kube import client
from kube.client import ClusterClient
from sandbox import controlplane
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests.factories import namespace, pod_spec
from tests.journeys import world
from tests.scheduling import keep
from tests.webhook.reviews import offloading
from tests.webhook.test_live import Hooked
from tests.webhook.test_live_pods import running

pytestmark = pytest.mark.cluster

RUNS: Final = int(os.environ.get("PYLIQO_ONE_FILE_RUNS", "5"))
LAG: Final = "--test-cache-lag=2"
CRDS: Final = Path(__file__).parents[2] / "manifests" / "10-crds"
ORDERS: Final = {"offloading first": [0, 1, 2], "deployment first": [0, 2, 1]}
TAINT: Final = {"key": keys.VIRTUAL_NODE_TAINT, "value": "true", "effect": "NoExecute"}


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
def managing(plane: Plane, directory: Path) -> Iterator[None]:
    port = controlplane.free_ports(1)[0]
    command = [sys.executable, "-m", "controllers", "--no-leader-elect", f"--health-port={port}"]
    with (directory / "controllers.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--kubeconfig={plane.kubeconfig}"], stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Plane, Sequence[Hooked]]]:
    """Yield a control plane of this module's own, and the two replicas of the webhook."""
    folders = [tmp_path_factory.mktemp("one-file") for _ in range(4)]
    flags = ["--disable-admission-plugins=TaintNodesByCondition"]  # nobody makes nodes ready here
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(controlplane.start(folders[0], flags=flags))
        kubectl = Kubectl(plane.kubeconfig)
        kubectl.run("apply", "--server-side", "-k", str(CRDS))
        kubectl.wait("--for=condition=Established", "crd", "--all")
        kubectl.run("create", "namespace", keys.LIQO_NAMESPACE)
        plane.start_scheduler()
        plane.start_deployments()
        stack.enter_context(managing(plane, folders[1]))
        hooked = [stack.enter_context(running(plane, folder, LAG)) for folder in folders[2:]]
        yield plane, hooked


@pytest.fixture
async def cluster(whole: tuple[Plane, Sequence[Hooked]]) -> AsyncIterator[ClusterClient]:
    async with client.connect(whole[0].kubeconfig) as real:
        if await real.get_live(keys.NODE, Key("", "milan")) is None:
            labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}
            milan = {"metadata": {"labels": labels}, "spec": {"taints": [TAINT]}}
            await keep(real, named(keys.NODE, Key("", "milan"), **milan))
            await keep(real, named(keys.NODE, Key("", "worker")))
        yield real


@pytest.mark.parametrize("order", ORDERS)
async def test_every_run_converges_with_caches_that_lag(
    cluster: ClusterClient, whole: tuple[Plane, Sequence[Hooked]], order: str
) -> None:
    plane, hooked = whole
    kubectl = Kubectl(plane.kubeconfig)
    spaces = [f"one-{secrets.token_hex(4)}" for _ in range(RUNS)]
    for number, space in enumerate(spaces):
        made = documents(space, hooked[number % len(hooked)].run)
        items = [made[index] for index in ORDERS[order]]
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        await asyncio.to_thread(kubectl.run, "apply", "--validate=false", "-f", "-", stdin=manifest)

    converged = [await world.until(cluster, keys.POD, space, is_settled) for space in spaces]

    assert len(converged) == RUNS


def is_settled(seen: world.World) -> bool:
    """Whether the one pod that lives is judged, and bound to the virtual node."""
    pods = [pod for pod in seen.values() if not is_terminating(pod)]
    nodes = [pod["spec"].get("nodeName") for pod in pods]
    return nodes == ["milan"]
