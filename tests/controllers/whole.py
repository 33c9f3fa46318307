"""One controller as the controller manager runs it: its informers, its queue, its loops."""

import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, TypeVar

from apis.objects import Key, Kind
from controllers.manager import Controller, ControllerSetup, Limits, Manager, Setup
from kube.cluster import Cluster, Selection
from kube.informer import Change, Indexed
from tests.controllers.support import manager_of
from tests.kube.running import running

C = TypeVar("C", bound=Controller)
T = TypeVar("T")


@contextlib.asynccontextmanager
async def controlling(
    cluster: Cluster, controller: ControllerSetup, limits: Limits | None = None, **rest: Any
) -> AsyncIterator[None]:
    """Run ``controller`` on ``cluster``, which is called milan, as the one leader."""
    manager = manager_of(cluster, of=Manager, limits=limits or Limits(), **rest)
    term = controller(manager)
    async with running(*(informer.run(cluster) for informer in manager.informers.all())):
        await manager.informers.wait()
        async with running(*(one.run() for one in term())):
            yield


@dataclass(frozen=True)
class Counting(Manager):
    """A manager that counts the objects which controllers get of it, by kind."""

    read: Counter[Kind] = field(default_factory=Counter)

    async def all(self, selection: Selection[T]) -> Mapping[Key, T]:
        return self._counted(selection, await super().all(selection))

    async def found_by(
        self, selection: Selection[T], of: Indexed[T], said: Hashable
    ) -> Mapping[Key, T]:
        return self._counted(selection, await super().found_by(selection, of, said))

    def _counted(self, selection: Selection[T], found: Mapping[Key, T]) -> Mapping[Key, T]:
        self.read[selection.kind] += len(found)
        return found


@contextlib.asynccontextmanager
async def watching(
    cluster: Cluster, controller: type[C], of: type[Manager] = Manager, **rest: Any
) -> AsyncIterator[C]:
    """Have ``controller`` whose informers run, without its loop."""
    manager = manager_of(cluster, of=of, **rest)
    controller.setup(manager)
    async with running(*(informer.run(cluster) for informer in manager.informers.all())):
        await manager.informers.wait()
        yield controller(manager)


@contextlib.contextmanager
def calls(code: CodeType) -> Iterator[list[None]]:
    """Yield what has an entry for each time that a function begins, or a generator goes on."""
    seen: list[None] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is code:
            seen.append(None)

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def together(*controllers: type[Controller]) -> ControllerSetup:
    def setup(manager: Manager) -> Setup:
        each = [controller.setup(manager) for controller in controllers]
        return lambda: [loop for made in each for loop in made()]

    return setup


def woken(controller: Controller, kind: Kind, change: Change[Any]) -> list[Key]:
    """Return the keys that are looked at for a change of an object of ``kind``."""
    sources = [one for one in controller.watches() if one.informer.selection.kind == kind]
    return [key for source in sources for key in source.keys(change)]
