"""Of what has been nothing stays, in the processes that no pod depends on while it runs.

These are the webhook, who keeps its certificates, and the metric agent. Lives are those of
namespaces with a pod, of serving certificates, and of a consumer's pods.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, key_of, named
from kube import client
from kube.client import ClusterClient
from sandbox.controlplane import Plane
from tests import factories
from tests.census import Census, what_stays
from tests.controllers.lives import AT_ONCE, FIRST, LIVES, WITHIN_S, census_running
from tests.controllers.support import end, ensure_namespace
from tests.kube.running import some_at_once
from tests.manifests import documents
from tests.webhook import hooked
from tests.webhook.reviews import offloading, wait_until

pytestmark = pytest.mark.cluster

Life = Callable[[int], Awaitable[None]]
CERTS: Final = Key(keys.LIQO_NAMESPACE, keys.WEBHOOK_CERTS_SECRET)


@pytest.fixture
async def cluster(own_plane: Plane) -> AsyncIterator[ClusterClient]:
    async with client.connect(own_plane.kubeconfig, user_agent="pyliqo-tests") as found:
        yield found


async def assert_nothing_stays(census: Census, life: Life) -> None:
    async def live(numbers: range) -> None:
        await some_at_once(map(life, numbers), AT_ONCE)

    stays = await what_stays([census], live, first=FIRST, lives=LIVES)

    assert stays == {census.module: {}}


async def test_of_namespaces_and_pods_that_went_nothing_stays_in_the_webhook(
    cluster: ClusterClient, own_plane: Plane, tmp_path: Path
) -> None:
    census = Census(tmp_path, "webhook")
    found = hooked.start(own_plane.kubeconfig, tmp_path, module=census.command())

    async def life(_number: int) -> None:
        space = await found.space(cluster)
        await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space))
        assert hooked.tolerates(await cluster.create(keys.POD, factories.pod(space)))
        for kind, name in ((keys.POD, "web"), (keys.NAMESPACE_OFFLOADING, keys.OFFLOADING_NAME)):
            await end(cluster, kind, Key(space, name))
        await end(cluster, keys.NAMESPACE, Key("", space))

    try:
        await asyncio.to_thread(wait_until, found.is_ready)
        await found.install(cluster)
        census.pid = worker(found.process)
        await assert_nothing_stays(census, life)
    finally:
        found.process.kill()
        found.process.wait()


def worker(process: subprocess.Popen[bytes]) -> int:
    """Return the process that answers: gunicorn's other one only looks after it."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0])


async def test_of_certificates_that_ended_nothing_stays_in_who_makes_them(
    cluster: ClusterClient, own_plane: Plane, tmp_path: Path
) -> None:
    turn = asyncio.Lock()

    async def life(_number: int) -> None:
        async with turn:
            await until_there(cluster, keys.SECRET, CERTS)
            await end(cluster, keys.SECRET, CERTS)
            await until_there(cluster, keys.SECRET, CERTS)

    await ensure_namespace(cluster, keys.LIQO_NAMESPACE)
    config = f"--kubeconfig={own_plane.kubeconfig}"
    async with census_running(Census(tmp_path, "certs"), tmp_path / "log", config) as census:
        await assert_nothing_stays(census, life)


async def until_there(
    cluster: ClusterClient, kind: Kind, key: Key, holds: Callable[[Object], bool] = bool
) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            found = await cluster.get_live(kind, key)
            if found is not None and holds(found):
                return
            await asyncio.sleep(0.05)


async def test_of_twins_and_pods_that_went_nothing_stays_in_the_metric_agent(
    cluster: ClusterClient, own_plane: Plane, tmp_path: Path
) -> None:
    """A namespace that is no twin any more is gone for it; here nobody ends one."""

    async def life(number: int) -> None:
        name = f"shop-{number}-rome"
        twin, pod = Key("", name), Key(name, "web")
        mark = {keys.REMOTE_CLUSTER_ID: "rome", keys.TENANT_NAMESPACE: "true"}
        await cluster.create(keys.NAMESPACE, factories.namespace(name, **mark))
        made = factories.pod(name, "web", spec=factories.pod_spec())
        made["metadata"]["labels"] = {keys.MANAGED_BY: keys.MANAGED_BY_SHADOW_POD}
        await cluster.create(keys.POD, made)
        await cluster.create(keys.NODE, named(keys.NODE, twin))
        for kind, key in ((keys.POD, pod), (keys.NODE, twin)):
            await end(cluster, kind, key)
        unmarked = {"metadata": {"labels": dict.fromkeys(mark)}}
        await cluster.patch(keys.NAMESPACE, twin, unmarked)

    config = f"--kubeconfig={own_plane.kubeconfig}"
    census = Census(tmp_path, "controllers.metricagent")
    (service,) = documents.of_kind("APIService")
    await cluster.create(keys.API_SERVICE, service)
    async with census_running(census, tmp_path / "log", config, "--port=0"):
        await until_there(cluster, keys.API_SERVICE, key_of(service), has_authority)
        await assert_nothing_stays(census, life)


def has_authority(service: Object) -> bool:
    return "caBundle" in service["spec"]
