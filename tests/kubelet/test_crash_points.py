"""A process that dies right before or right after any call it makes loses and doubles nothing.

Each scenario runs once to count the calls of our processes, reads too, then once for each call and
side. And it runs while three answers of ten are lost, of whatever call: nobody knows then what was
done. ``PYLIQO_TEST_LOST=125`` lets that happen to 1,000 lives. Source: docs/parity.md F-1, F-2,
F-6, F-23.
"""

import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from apis import keys, objects
from apis.objects import Key, Object
from controllers.offloading.shadowpod.reconciler import ShadowPodReconciler
from kube import errors
from kube.cache import CachedCluster
from kube.cluster import Selection
from kube.events import EventRecorder as Events
from kubelet.pods import shadowpod
from kubelet.pods.apiserver import ApiServer
from kubelet.pods.mapping import MappingState, NamespaceMapping
from kubelet.pods.reconcile import PodReconciler
from kubelet.pods.state import VirtualNodeContext
from tests.conftest import size_of
from tests.fakes import FakeCluster
from tests.kube.running import dice
from tests.kubelet import worlds
from tests.kubelet.doom import ROUNDS, Doom, KilledError
from tests.kubelet.worlds import HOST, NODE, World, ended, running

LOST: Final = 0.3
LIVES: Final = size_of("PYLIQO_TEST_LOST", 10, 125)


class Losses(Doom):
    """Loses answers of what was done, by chance, until late in each phase of a scenario."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rounds = 2 * ROUNDS
        self.lost = 0
        self._chance, self._is_over = dice(seed).random, False

    def enter(self, round_: int) -> None:
        super().enter(round_)
        self._is_over = round_ >= ROUNDS

    def strike(self, number: int, *, is_after: bool) -> None:
        if is_after and not self._is_over and self._chance() < LOST:
            self.lost += 1
            raise errors.NotReachableError("the answer was lost")


class PodLife:
    """A pod, both our processes that look after it, and what the clusters do by themselves."""

    def __init__(self, doom: Doom) -> None:
        self.world = World(FakeCluster(), FakeCluster())
        self.world.now = dt.datetime.now(dt.UTC)  # noqa: TID251  # as the fakes
        self.doom = doom
        self.births: set[str] = set()
        self.script: Callable[[Object], Object] = lambda _: running()
        self.begin()

    def begin(self) -> None:
        """Start both processes: they remember nothing."""
        world = self.world
        remote = self.doom.over(world.remote)
        self.kubelet = PodReconciler(
            CachedCluster(self.doom.over(world.local)),
            CachedCluster(remote),
            node=VirtualNodeContext(
                NODE, HOST, lambda: shadowpod.Options(NODE, world.patch, world.api_server)
            ),
            namespaces=world.namespaces,
            recorder=world.recorder,
            clock=lambda: world.now,
        )
        events = Events(world.remote, "tests", "tests")
        self.controller = ShadowPodReconciler(remote, events=events, clock=lambda: world.now)

    async def settle(self) -> None:
        for round_ in range(self.doom.rounds):
            self.doom.enter(round_)
            await self._alive(lambda: self.kubelet.reconcile(self.world.web))
            await self._alive(lambda: self.controller.reconcile(self.world.twin))
            await self._by_themselves()
            self.world.now += dt.timedelta(seconds=1)

    async def _alive(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except KilledError:
            self.begin()
        except errors.KubeError:
            return  # tried again, as the queue does

    async def _by_themselves(self) -> None:
        """Collect what has no owner any more, and run what was created."""
        if not await self.world.has_remote_pod():
            return
        remote = await self.world.remote_pod()
        self.births.add(objects.uid(remote))
        shadow = await self.world.remote.get(keys.SHADOW_POD, self.world.twin)
        owner = objects.controller_of(remote)
        assert owner
        if shadow is None or objects.uid(shadow) != owner["uid"] or objects.is_terminating(remote):
            await self.world.end_remotely()
        elif not worlds.named_condition(remote.get("status") or {}, "Ready"):
            await self.world.runs(self.script(remote))


async def lives(life: PodLife) -> None:
    made = await life.world.bound()
    await life.settle()
    assert (await life.world.status())["phase"] == "Running"
    changes = {"metadata": {"labels": {"tier": "front"}}}
    await life.world.local.patch(keys.POD, life.world.web, changes)
    await life.settle()
    remote = await life.world.remote_pod()
    assert objects.labels(remote)["tier"] == "front"
    assert (await life.world.status())["containerStatuses"][0]["restartCount"] == 0
    assert len(life.births) == 1
    await life.world.local.delete(keys.POD, life.world.web, uid=objects.uid(made))
    await life.settle()
    await nothing_left(life)
    assert len(life.births) == 1


async def works(life: PodLife) -> None:
    """Let a pod do its work, and its remote one be removed afterwards."""
    life.script = lambda _: ended("Succeeded", 0)
    made = await life.world.bound(spec={"restartPolicy": "OnFailure"})
    await life.settle()
    assert (await life.world.status())["phase"] == "Succeeded"
    await life.world.end_remotely()
    await life.settle()
    assert len(life.births) == 1, "work that is done is not done again"
    await life.world.local.delete(keys.POD, life.world.web, uid=objects.uid(made), grace_s=0)
    await life.settle()
    await nothing_left(life)


async def is_replaced(life: PodLife) -> None:
    """Delete a pod by force; another one of its name comes at once."""
    old = await life.world.bound()
    await life.settle()
    await life.world.local.delete(keys.POD, life.world.web, uid=objects.uid(old), grace_s=0)
    new = await life.world.bound()
    await life.settle()
    assert (await life.world.status())["phase"] == "Running"
    remote = await life.world.remote_pod()
    assert objects.annotations(remote)[keys.LOCAL_POD_UID] == objects.uid(new)
    assert len(life.births) == 2


async def is_evicted_remotely(life: PodLife) -> None:
    """Let the provider remove a pod that runs: it comes back once."""
    await life.world.bound()
    await life.settle()
    await life.world.end_remotely()
    await life.settle()
    assert (await life.world.status())["phase"] == "Running"
    assert (await life.world.status())["containerStatuses"][0]["restartCount"] == 1
    assert len(life.births) == 2


async def fails_there(life: PodLife) -> None:
    """Let a kubelet of the provider evict a pod: it has failed, here too, and for good."""
    made = await life.world.bound()
    await life.settle()
    failed = {**ended("Failed", 137), "reason": "Evicted", "message": "The node was low on memory"}
    await life.world.runs(failed)
    await life.settle()
    status = await life.world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    await life.world.end_remotely()
    await life.settle()
    assert len(life.births) == 1, "its owner makes another one, if there is an owner"
    await life.world.local.delete(keys.POD, life.world.web, uid=objects.uid(made), grace_s=0)
    await life.settle()
    await nothing_left(life)


async def is_evicted(life: PodLife) -> None:
    """Evict a pod here, as ``kubectl drain`` does; its successor has the same name."""
    old = await life.world.bound()
    await life.settle()
    preconditions = {"preconditions": {"uid": objects.uid(old)}}
    request = {"metadata": {"name": life.world.web.name}, "deleteOptions": preconditions}
    await life.world.local.post(keys.POD, life.world.web, "eviction", request)
    await life.settle()
    await nothing_left(life)
    assert len(life.births) == 1
    await life.world.bound()
    await life.settle()
    assert (await life.world.status())["phase"] == "Running"
    assert len(life.births) == 2


async def is_unoffloaded(life: PodLife) -> None:
    """Withdraw the namespace: the pod fails, its owner makes another elsewhere."""
    await life.world.bound()
    await life.settle()
    pair = life.world.pair
    life.world.namespaces.now = NamespaceMapping(MappingState.WITHDRAWN, pair)
    await life.settle()
    status = await life.world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "OffloadingAborted")
    life.world.namespaces.now = NamespaceMapping(MappingState.OFFLOADED, pair)
    await life.settle()
    assert not await life.world.has_shadow()
    assert not await life.world.has_remote_pod()
    assert len(life.births) == 1


async def reaches_its_api_server(life: PodLife) -> None:
    """Give a pod a token of its account, which goes with it."""
    world = life.world
    world.api_server = ApiServer(is_supported=True, host="api.rome", port=6443)
    life.begin()
    account = objects.named(keys.SERVICE_ACCOUNT, Key(world.web.namespace, "robot"))
    await world.local.create(keys.SERVICE_ACCOUNT, account)
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    volume = {"name": "api", "projected": {"sources": [token]}}
    made = await world.bound(spec={"serviceAccountName": "robot", "volumes": [volume]})
    await life.settle()
    assert (await world.status())["phase"] == "Running"
    secrets = (await world.remote.list(Selection(keys.SECRET, Object))).items
    assert [*secrets] == [Key(world.twin.namespace, "web-token")]
    await world.local.delete(keys.POD, world.web, uid=objects.uid(made))
    await life.settle()
    await nothing_left(life)
    assert len(life.births) == 1


async def nothing_left(life: PodLife) -> None:
    assert not await life.world.has_pod()
    assert not await life.world.has_shadow()
    assert not await life.world.has_remote_pod()


SCENARIOS: Final = {
    one.__name__: one
    for one in (
        lives,
        works,
        is_replaced,
        is_evicted,
        is_evicted_remotely,
        fails_there,
        is_unoffloaded,
        reaches_its_api_server,
    )
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_whoever_is_killed_at_whatever_call_loses_and_doubles_nothing(name: str) -> None:
    whole = Doom()
    await SCENARIOS[name](PodLife(whole))

    for at, is_after in whole.stops:
        try:
            await SCENARIOS[name](PodLife(Doom(at, is_after=is_after)))
        except AssertionError as error:
            side = "after" if is_after else "before"
            raise AssertionError(f"killed {side} call {at} of {whole.calls}") from error


@pytest.mark.parametrize("name", SCENARIOS)
async def test_whatever_answers_are_lost_nothing_is_lost_or_doubled(name: str) -> None:
    lost = 0
    for seed in range(LIVES):
        losses = Losses(seed)
        try:
            await SCENARIOS[name](PodLife(losses))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {losses.lost} answers lost") from error
        lost += losses.lost
    assert lost > LIVES
