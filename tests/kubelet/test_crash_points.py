"""A process that dies right before or right after any call it makes loses and doubles nothing.

Each scenario runs once to count the calls of our processes, then once for each call and side.
Source: faults.md F1, F2, F23.
"""

import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import pytest

from apis import keys, objects
from apis.objects import Object
from controllers.shadowpod.reconciler import ShadowPodReconciler
from kube import errors
from kube.cache import CachedCluster
from kube.cluster import Cluster
from kube.events import Recorder as Events
from kubelet.forge import shadowpod
from kubelet.forge.mapping import MappingState, NamespaceMapping
from kubelet.pods import Node, PodReconciler
from tests.fakes import FakeCluster
from tests.kubelet import worlds
from tests.kubelet.worlds import HOST, NODE, World, ended, running

CALLS: Final = frozenset(
    {"get_live", "list", "create", "apply", "patch", "patch_status", "delete", "post"}
)
"""What goes over the wire: what ``get`` returns comes from caches."""
ROUNDS: Final = 12


class KilledError(Exception):
    """SIGKILL: whatever was in memory is gone."""


class Doom:
    """Kills whoever makes call number ``at``; ``is_after`` once the server has done it."""

    def __init__(self, at: int = -1, *, is_after: bool = False) -> None:
        self.at, self.is_after, self.calls = at, is_after, 0

    def over(self, cluster: Cluster) -> Cluster:
        """Return ``cluster`` as a process sees it that may die."""
        return cast("Cluster", _Doomed(cluster, self))


class _Doomed:
    def __init__(self, cluster: Cluster, doom: Doom) -> None:
        self._cluster, self._doom = cluster, doom

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cluster, name)
        if name not in CALLS:
            return found

        async def call(*args: Any, **rest: Any) -> Any:
            doom = self._doom
            number, doom.calls = doom.calls, doom.calls + 1
            if number == doom.at and not doom.is_after:
                raise KilledError
            answer = await found(*args, **rest)
            if number == doom.at:
                raise KilledError
            return answer

        return call


class Life:
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
            node=Node(NODE, HOST, lambda: shadowpod.Options(NODE, world.patch)),
            namespaces=world.namespaces,
            recorder=world.recorder,
            clock=lambda: world.now,
        )
        events = Events(world.remote, "tests", "tests")
        self.controller = ShadowPodReconciler(remote, events=events, clock=lambda: world.now)

    async def settle(self) -> None:
        """Let everybody work until nothing changes any more."""
        for _ in range(ROUNDS):
            await self._alive(lambda: self.kubelet.reconcile(self.world.web))
            await self._alive(lambda: self.controller.reconcile(self.world.twin))
            await self._by_themselves()
            self.world.now += dt.timedelta(seconds=1)

    async def _alive(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except KilledError:
            self.begin()
        except (errors.ConflictError, errors.NotFoundError):
            return  # tried again, as the queue does

    async def _by_themselves(self) -> None:
        """Collect what has no owner any more, and run what was created."""
        remote = await self.world.remote_pod()
        if remote is None:
            return
        self.births.add(objects.uid(remote))
        shadow = await self.world.shadow()
        owner = objects.controller_of(remote)
        assert owner
        if shadow is None or objects.uid(shadow) != owner["uid"] or objects.is_terminating(remote):
            await self.world.end_remotely()
        elif not worlds.named_condition(remote.get("status") or {}, "Ready"):
            await self.world.runs(self.script(remote))


async def lives(life: Life) -> None:
    """Create, change and delete a pod."""
    made = await life.world.bound()
    await life.settle()
    assert (await life.world.status())["phase"] == "Running"
    changes = {"metadata": {"labels": {"tier": "front"}}}
    await life.world.local.patch(keys.POD, life.world.web, changes)
    await life.settle()
    remote = await life.world.remote_pod()
    assert remote
    assert objects.labels(remote)["tier"] == "front"
    assert (await life.world.status())["containerStatuses"][0]["restartCount"] == 0
    assert len(life.births) == 1
    await life.world.local.delete(keys.POD, life.world.web, uid=objects.uid(made))
    await life.settle()
    await nothing_left(life)
    assert len(life.births) == 1


async def works(life: Life) -> None:
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


async def is_replaced(life: Life) -> None:
    """Delete a pod by force; another one of its name comes at once."""
    old = await life.world.bound()
    await life.settle()
    await life.world.local.delete(keys.POD, life.world.web, uid=objects.uid(old), grace_s=0)
    new = await life.world.bound()
    await life.settle()
    assert (await life.world.status())["phase"] == "Running"
    remote = await life.world.remote_pod()
    assert remote
    assert objects.annotations(remote)[keys.LOCAL_POD_UID] == objects.uid(new)
    assert len(life.births) == 2


async def is_evicted_remotely(life: Life) -> None:
    """Let the provider remove a pod that runs: it comes back once."""
    await life.world.bound()
    await life.settle()
    await life.world.end_remotely()
    await life.settle()
    assert (await life.world.status())["phase"] == "Running"
    assert (await life.world.status())["containerStatuses"][0]["restartCount"] == 1
    assert len(life.births) == 2


async def is_unoffloaded(life: Life) -> None:
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
    assert await life.world.shadow() is None
    assert await life.world.remote_pod() is None
    assert len(life.births) == 1


async def nothing_left(life: Life) -> None:
    assert await life.world.pod() is None
    assert await life.world.shadow() is None
    assert await life.world.remote_pod() is None


SCENARIOS: Final = {
    one.__name__: one for one in (lives, works, is_replaced, is_evicted_remotely, is_unoffloaded)
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_whoever_is_killed_at_whatever_call_loses_and_doubles_nothing(name: str) -> None:
    whole = Doom()
    await SCENARIOS[name](Life(whole))

    for at in range(whole.calls):
        for is_after in (False, True):
            try:
                await SCENARIOS[name](Life(Doom(at, is_after=is_after)))
            except AssertionError as error:
                side = "after" if is_after else "before"
                raise AssertionError(f"killed {side} call {at} of {whole.calls}") from error
