"""The webhook is rolled, taken away and started from nothing on whole clusters.

Source: docs/parity.md F-29, F-30, F-36; A-34; issue "Admission", staying up.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from apis import keys, objects
from apis.objects import Key, Object
from kube.errors import KubeError
from sandbox import cluster, install
from sandbox.clusters import Sandbox
from sandbox.kubectl import Kubectl
from tests.journeys import world
from tests.webhook.replicas import Load
from tests.world import is_ready, restarts

pytestmark = pytest.mark.journey

WEBHOOK: Final = ("-n", keys.LIQO_NAMESPACE, "deployment/liqo-webhook")
PER_S: Final = 10


@pytest.fixture
def rome(kubeconfigs: Mapping[str, Path]) -> Kubectl:
    return Kubectl(kubeconfigs["rome"])


@pytest.fixture
async def offloaded(both: world.Pair, namespace: str) -> str:
    await both.offload(namespace)
    return namespace


async def test_a_rollout_restart_under_load_fails_no_admission(
    rome: Kubectl, offloaded: str, kubeconfigs: Mapping[str, Path]
) -> None:
    load = Load(kubeconfigs["rome"], offloaded, per_s=PER_S)
    async with load.running():
        await load.steady()
        await asyncio.to_thread(rome.run, "rollout", "restart", *WEBHOOK)
        await load.more(10)
        await asyncio.to_thread(install.wait, kubeconfigs["rome"])
        await load.more(30)  # the last of the old replicas drains meanwhile

    assert load.failures == []


STOP: Final = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) not in (1, os.getpid()):
        os.kill(int(pid), signal.SIGSTOP)
"""
"""Lets every process of a container hang but the first, which is gunicorn's own."""


async def test_a_worker_that_hangs_is_started_anew_and_the_other_replica_goes_on(
    both: world.Pair, rome: Kubectl, offloaded: str, kubeconfigs: Mapping[str, Path]
) -> None:
    found = await world.until(
        both.rome, keys.POD, keys.LIQO_NAMESPACE, lambda seen: len(replicas(seen)) == 2
    )
    hanging, other = replicas(found)

    where = ("-n", hanging.namespace, hanging.name)
    await asyncio.to_thread(rome.run, "exec", *where, "--", "python3", "-c", STOP)
    now = await world.until(
        both.rome,
        keys.POD,
        hanging.namespace,
        lambda seen: restarts(seen[hanging]) > restarts(found[hanging]) and is_ready(seen[hanging]),
        patience_s=180,
    )

    assert restarts(now[other]) == restarts(found[other])
    load = Load(kubeconfigs["rome"], offloaded, per_s=PER_S)
    async with load.running():
        await load.steady()
        await load.more(30)
    assert load.failures == []


@pytest.fixture
async def taken_away(both: world.Pair, rome: Kubectl, offloaded: str) -> AsyncIterator[None]:
    """Scale the webhook to none, for one test."""
    pods = "app.kubernetes.io/name=liqo-webhook"
    await asyncio.to_thread(rome.run, "scale", *WEBHOOK, "--replicas=0")
    gone = ("-n", keys.LIQO_NAMESPACE, "wait", "--for=delete", "pod", "-l", pods, "--timeout=60s")
    await asyncio.to_thread(rome.run, *gone)
    yield
    await asyncio.to_thread(rome.run, "scale", *WEBHOOK, "--replicas=2")


async def test_without_any_replica_only_offloaded_namespaces_wait_and_then_they_go_on(
    both: world.Pair, rome: Kubectl, offloaded: str, taken_away: None
) -> None:
    with pytest.raises(KubeError, match=r"pod\.mutate\.liqo\.io"):
        await both.rome.create(keys.POD, world.pod(offloaded, "refused", both.image))
    elsewhere = Key("default", f"{offloaded}-elsewhere")
    await both.rome.create(keys.POD, world.pod(*elsewhere, both.image))
    await world.until_one(both.rome, keys.POD, elsewhere, lambda pod: world.phase(pod) == "Running")
    await world.remove(both.rome, keys.POD, elsewhere)
    await both.rome.create(keys.DEPLOYMENT, world.deployment(offloaded, "web", both.image, 1))

    await asyncio.to_thread(rome.run, "scale", *WEBHOOK, "--replicas=2")

    await world.until(both.rome, keys.POD, offloaded, lambda seen: runs_on(both.node, seen))


async def test_both_clusters_come_back_from_nothing_by_themselves(
    both: world.Pair, offloaded: str, kubeconfigs: Mapping[str, Path]
) -> None:
    """No manifest is applied again and nobody is told anything: machines are switched on."""
    await both.rome.create(keys.DEPLOYMENT, world.deployment(offloaded, "web", both.image, 2))
    before = await world.until(
        both.rome, keys.POD, offloaded, lambda seen: len(seen) == 2 and runs_on(both.node, seen)
    )
    sandbox, servers = Sandbox(), (both.rome, both.milan)
    ours = [await world.until(one, keys.POD, keys.LIQO_NAMESPACE, bool) for one in servers]

    for site in sandbox.sites():
        cluster.lose_power(site)
    await asyncio.to_thread(sandbox.up)
    for server, pods in zip(servers, ours, strict=True):
        are_back = functools.partial(have_restarted, pods)
        await world.until(server, keys.POD, keys.LIQO_NAMESPACE, are_back, patience_s=300)

    # A Deployment tries again, should the API server not know yet where the webhook is.
    await both.rome.create(keys.DEPLOYMENT, world.deployment(offloaded, "later", both.image, 1))
    after = await world.until(
        both.rome,
        keys.POD,
        offloaded,
        lambda seen: len(seen) == 3 and runs_on(both.node, seen),
        patience_s=300,
    )
    assert uids(before) <= uids(after)
    there = await world.until(
        both.milan, keys.POD, both.twin(offloaded), lambda seen: len(seen) == 3
    )
    assert all(world.phase(pod) == "Running" for pod in there.values())


def runs_on(node: str, seen: world.World) -> bool:
    pods = list(seen.values())
    return bool(pods) and all(
        world.phase(pod) == "Running" and pod["spec"].get("nodeName") == node for pod in pods
    )


def have_restarted(before: world.World, now: world.World) -> bool:
    """Whether all are Ready in other containers: what was stored before the end is no sign."""
    old = {one for pod in before.values() for one in containers(pod)}
    return all(is_ready(pod) and old.isdisjoint(containers(pod)) for pod in now.values())


def replicas(seen: world.World) -> list[Key]:
    """Return the pods of the webhook; none while one is on its way in or out."""
    found = {key: pod for key, pod in seen.items() if key.name.startswith("liqo-webhook-")}
    is_calm = all(is_ready(pod) and not objects.is_terminating(pod) for pod in found.values())
    return sorted(found) if is_calm else []


def containers(pod: Object) -> list[str]:
    statuses = pod["status"].get("containerStatuses") or []
    return [str(one.get("containerID")) for one in statuses]


def uids(seen: world.World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in seen.values()}
