"""Commands that end anywhere: by Ctrl-C, or as a cluster answers a request with an error.

The same command again comes to the same end as one that nothing disturbed, and ``unpeer`` removes
whatever a ``peer`` left that did not come to its end. ``PYLIQO_INTERRUPT_STRIDE=1`` ends them at
each request in each way; by default at every third one, in turns.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from kube.client import ClusterClient
from kube.errors import BusyError
from liqoctl import authentication as auth
from liqoctl import install as installing
from liqoctl import peer as peering
from liqoctl.authentication import PeerClusters
from liqoctl.clusters import Side
from liqoctl.forge.manifests import InstallOptions
from liqoctl.output import Progress
from tests.conftest import size_of
from tests.controllers.peers import World, differing, lasting
from tests.controllers.support import defaulted, ensure_namespace
from tests.fakes import FakeCluster

WAYS: Final = ("refused", "lost", "stopped before", "stopped after")
STRIDE: Final = size_of("PYLIQO_INTERRUPT_STRIDE", 3 * len(WAYS), 1)
MOST: Final = 600
"""More requests than any of these commands makes."""
CALLS: Final = frozenset(
    {"apply", "create", "delete", "get", "get_live", "list", "patch", "patch_status", "post"}
)


@dataclass
class Fuse:
    """Ends a command at its n-th request, once."""

    at: int
    way: str
    requests: int = 0

    async def around(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Return what ``call`` does, or end the command before or after it."""
        self.requests += 1
        if self.requests != self.at:
            return await call()
        if self.way in {"lost", "stopped after"}:
            await call()
        if self.way in {"refused", "lost"}:
            raise BusyError(f"request {self.at} is {self.way}")
        _the_command().cancel()
        await asyncio.Event().wait()  # which the cancellation ends
        raise AssertionError("not reached")

    def is_burnt(self) -> bool:
        return 0 < self.at <= self.requests


def _the_command() -> asyncio.Task[Any]:
    return next(task for task in asyncio.all_tasks() if task.get_name() == "command")


class Breaking:
    """A cluster as a command sees it that does not come to its end."""

    def __init__(self, cluster: ClusterClient, fuse: Fuse) -> None:
        self._cluster, self._fuse = cluster, fuse

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)
        if name not in CALLS:
            return method
        return lambda *args, **rest: self._fuse.around(lambda: method(*args, **rest))

    async def watch(self, *args: Any) -> AsyncGenerator[Any, None]:
        """Watch, unless that is the request at which the command ends."""

        async def begin() -> None:
            """A watch has no answer of its own that could be lost."""

        await self._fuse.around(begin)
        async with contextlib.aclosing(self._cluster.watch(*args)) as events:
            async for event in events:
                yield event


Command = Callable[[PeerClusters], Awaitable[None]]
SLICE: Final = {"resources": {"cpu": "1"}}


async def authenticate(peers: PeerClusters) -> None:
    await auth.authenticate(peers)


async def peer(peers: PeerClusters) -> None:
    await peering.peer(peers, SLICE)


async def unpeer(peers: PeerClusters) -> None:
    await peering.unpeer(peers)


async def run_command(world: World, command: Command, fuse: Fuse | None = None) -> None:
    """Run ``command`` to its end, or as far as ``fuse`` lets it."""
    sides = world.sides()
    if fuse:
        sides = cast(
            "Any",
            [
                replace(side, cluster=cast("ClusterClient", Breaking(side.cluster, fuse)))
                for side in sides
            ],
        )

    async def whole() -> None:
        await command(await auth.meet(*sides))

    await until_command_ends(whole(), fuse)


async def until_command_ends(command: Coroutine[Any, Any, None], fuse: Fuse | None) -> None:
    """Wait for the end of ``command``, which only ``fuse`` may make a bad one."""
    task = asyncio.create_task(command, name="command")
    try:
        await task
    except (BusyError, ExceptionGroup, asyncio.CancelledError):
        if not fuse or not fuse.is_burnt():
            raise


@contextlib.asynccontextmanager
async def world_at_work() -> AsyncIterator[World]:
    world = World()
    async with asyncio.timeout(300), world.working():
        await ensure_namespace(world.rome.fake, "shop")
        await world.rome.fake.create(keys.NAMESPACE_OFFLOADING, defaulted("shop"))
        yield world


async def state_after(*commands: Command, broken: Fuse | None = None, at: int = -1) -> Object:
    """Return what there is after ``commands``, the one at ``at`` ended by the fuse ``broken``."""
    async with world_at_work() as world:
        for number, command in enumerate(commands):
            await run_command(world, command, broken if number == at else None)
        await world.settled()
        return world.state()


async def swept(way: str, *commands: Command, at: int) -> AsyncIterator[tuple[int, Object]]:
    """Yield what there is for each request at which the command at ``at`` ends, and which it is."""
    for number in numbers(way, STRIDE):
        fuse = Fuse(number, way)
        found = await state_after(*commands, broken=fuse, at=at)
        if not fuse.is_burnt():
            break
        yield number, found


def numbers(way: str, stride: int) -> Iterator[int]:
    """Yield the requests to end a command at, others for each ``way``."""
    for number in itertools.count(1 + WAYS.index(way) * stride // len(WAYS), stride):
        yield number
        assert number < MOST, f"more than {MOST} requests"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("before", "command"),
    [((), authenticate), ((), peer), ((peer,), unpeer)],
    ids=["authenticate", "peer", "unpeer"],
)
async def test_the_same_command_again_comes_to_the_same_end(
    way: str, before: tuple[Command, ...], command: Command
) -> None:
    undisturbed = await state_after(*before, command)
    count = 0

    async for number, found in swept(way, *before, command, command, at=len(before)):
        assert differing(found, undisturbed) == {}, f"{way} at request {number}"
        count += 1

    assert count >= 20 // STRIDE


@pytest.mark.parametrize("way", WAYS)
async def test_unpeer_removes_whatever_a_peer_left_that_did_not_end(way: str) -> None:
    undisturbed = await state_after(peer, unpeer)

    async for number, found in swept(way, peer, unpeer, at=0):
        more = {line for line in found if found[line] != undisturbed.get(line)}
        assert more == set(), f"{way} at request {number}"


class Installable(FakeCluster):
    """A cluster whose controllers answer at once: kinds are established, Deployments run."""

    async def version(self) -> Object:
        return {"major": "1", "minor": "34"}

    async def apply(self, kind: Kind, obj: Object, *, manager: str) -> Object:
        made = await super().apply(kind, obj, manager=manager)
        if kind == keys.CUSTOM_RESOURCE_DEFINITION:
            established = {"type": "Established", "status": "True"}
            await self.patch_status(kind, objects.key_of(made), {"conditions": [established]})
        if kind == keys.DEPLOYMENT:
            await self.patch_status(kind, objects.key_of(made), _rolled_out(made))
            name = Key("liqo", keys.CLUSTER_ID_CONFIG_MAP)
            if await self.get_live(keys.CONFIG_MAP, name) is None:
                await self.create(keys.CONFIG_MAP, named(keys.CONFIG_MAP, name, data={}))
        return made


def _rolled_out(deployment: Object) -> Object:
    count = deployment["spec"].get("replicas", 1)
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), count)
    return {**counts, "observedGeneration": deployment["metadata"].get("generation", 0)}


async def install_until(fake: FakeCluster, fuse: Fuse | None = None) -> Object:
    """Install as far as ``fuse`` lets it; return what there is then."""
    cluster = cast("ClusterClient", Breaking(cast("Any", fake), fuse) if fuse else fake)
    wanted = InstallOptions(cluster_id="rome")
    whole = installing.install(Side(cluster, Progress()), wanted, default_image="pyliqo:1")
    await until_command_ends(whole, fuse)
    return {f"{kind} {key}": lasting(obj) for (kind, key), obj in fake.everything().items()}


@pytest.mark.parametrize("way", WAYS)
async def test_an_installation_that_was_interrupted_goes_on(way: str) -> None:
    undisturbed = await install_until(Installable())

    for number in numbers(way, 5 * STRIDE):
        fake, fuse = Installable(), Fuse(number, way)
        async with asyncio.timeout(300):
            await install_until(fake, fuse)
            found = await install_until(fake)
        assert differing(found, undisturbed) == {}, f"{way} at request {number}"
        if not fuse.is_burnt():
            break
