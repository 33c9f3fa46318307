"""What a provider says and loses, judged by API servers that keep what comes of it.

Source: docs/parity.md SEC-B2; F-6, F-7, F-28.
"""

import dataclasses
import datetime as dt
import itertools
import secrets
from typing import Any, Final, cast

import pytest

from apis import keys, objects
from apis.objects import Kind
from kube import client, credentials, errors
from kube.cluster import Cluster
from kubelet.node import PingReconciler, ProviderHealth
from sandbox.controlplane import Plane
from tests.kube.running import Gate
from tests.kubelet import worlds
from tests.kubelet.test_node import Keeper
from tests.kubelet.worlds import World, named_condition

WRITES: Final = frozenset({"create", "apply", "patch", "patch_status", "delete", "post"})
LONG: Final = "\x1b[2Jgone\r\n\u202e" + "x" * 100_000
FLAPS: Final = (1, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 1)
"""Which pings are answered: two that are lost are no outage, three are, two answers end it."""


async def test_what_a_provider_says_is_cut_and_no_phase_goes_back(world: World) -> None:
    odd = worlds.ended("Succeeded", 0) | {"message": LONG, "reason": LONG[:200]}
    odd["conditions"] = [worlds.pod_condition("Ready", "False"), worlds.pod_condition("made.up/x")]
    await world.offloaded()
    await world.runs(odd)
    await world.reconcile(2)
    told = await world.status()
    assert told["phase"] == "Succeeded"
    assert len(told["message"]) <= 1024
    assert not set("\x1b\r\u202e") & set(told["message"] + told.get("reason", ""))

    await world.runs(worlds.running())
    await world.reconcile(2)
    assert (await world.status())["phase"] == "Succeeded"


class Losing:
    """A cluster that does all writes; the first answer to each kind of them is lost."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.lost: set[tuple[str, str]] = set()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)
        if name not in WRITES:
            return method

        async def done(kind: Kind, *args: Any, **rest: Any) -> Any:
            answer = await method(kind, *args, **rest)
            if (name, kind.plural) in self.lost:
                return answer
            self.lost.add((name, kind.plural))
            raise errors.NotReachableError("the answer was lost")

        return done


async def settle_kubelet(kubelet: World) -> None:
    """Look at the pod as often as the loop would, after each failure again."""
    for _ in range(10):
        try:
            await kubelet.reconcile()
        except errors.NotReachableError:
            continue


async def test_whatever_answers_are_lost_a_pod_lives_once(world: World) -> None:
    here, there = Losing(world.local), Losing(world.remote)
    kubelet = World(cast("Cluster", here), cast("Cluster", there), world.pair)
    loop = world.controller()
    local = await world.bound()
    await settle_kubelet(kubelet)
    shadow = await world.shadow()

    await loop.reconcile(world.twin)
    body = {"target": {"kind": "Node", "name": "worker"}, "metadata": {"name": world.twin.name}}
    await world.remote.post(keys.POD, world.twin, "binding", body)
    remote = await world.runs(worlds.running())
    await settle_kubelet(kubelet)
    pod, again, runs = await world.pod(), await world.shadow(), await world.remote_pod()
    assert pod["status"]["phase"] == "Running"
    assert objects.uid(pod) == objects.uid(local)
    assert objects.uid(again) == objects.uid(shadow)
    assert objects.uid(runs) == objects.uid(remote)

    await world.delete_locally(7)
    await settle_kubelet(kubelet)
    await loop.reconcile(world.twin)
    await settle_kubelet(kubelet)
    assert not await world.has_shadow()
    await world.end_remotely()
    await loop.reconcile(world.twin)
    await settle_kubelet(kubelet)
    assert not await world.has_remote_pod()
    assert not await world.has_pod()
    assert len(here.lost | there.lost) >= 4


@pytest.mark.cluster
async def test_a_link_that_flaps_is_one_verdict_a_real_outage(plane: Plane, gate: Gate) -> None:
    """Pings of a real API server through a port that is shut and opened; its Node has the last."""
    who = await credentials.from_file(plane.kubeconfig)
    through = dataclasses.replace(who, server=f"https://127.0.0.1:{gate.port}")
    changes: list[bool] = []
    health = ProviderHealth(lambda found: changes.append(found.is_reachable), successes=2)

    async def ping() -> dt.timedelta:
        async with client.connect(through, user_agent="pyliqo-tests") as provider:
            await provider.version()
        return dt.timedelta()

    pings = PingReconciler(ping, health, interval_s=10)
    told: list[tuple[str, str]] = []
    async with client.connect(who, user_agent="pyliqo-tests") as home:
        keeper = Keeper(home, name=f"flaps-{secrets.token_hex(4)}")
        is_open = 1
        for is_up in FLAPS:
            if is_up != is_open:
                await (gate.open() if is_up else gate.shut())
            is_open = is_up
            await pings.reconcile(keeper.key)
            keeper.health, keeper.now = health.health, keeper.now + dt.timedelta(seconds=10)
            ready = named_condition((await keeper.reconcile())["status"], "Ready")
            told.append((ready["status"], ready["lastTransitionTime"]))

    assert changes == [True, False, True]
    assert [status for status, _ in itertools.groupby(told)] == [*dict.fromkeys(told)]
    assert [status for status, _ in dict.fromkeys(told)] == ["False", "True", "False", "True"]


@pytest.mark.cluster
async def test_clocks_that_are_too_far_apart_show_on_the_node_until_they_are_set(
    plane: Plane,
) -> None:
    health, found = ProviderHealth(lambda _: None, is_pinged=False), []
    async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as home:
        keeper = Keeper(home, name=f"clock-{secrets.token_hex(4)}")
        for ahead_s in (0, 300, 612, -301, 0):
            health.record("", dt.timedelta(seconds=ahead_s))
            keeper.health = health.health
            status = (await keeper.reconcile())["status"]
            found.append(named_condition(status, "ClockSkew").get("message", "")[:60])

    said = "when this began, the provider's clock was 612 s ahead of this cluster's"[:60]
    assert found == ["", "", said, said, ""]
