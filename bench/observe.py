"""The one observer: a process that watches both clusters and stamps what it sees, as it sees it.

``python -m bench.observe FILE CLUSTER=KUBECONFIG...`` appends a line to FILE for each change of an
object that carries the label ``ITEM``, with the time of the machine's monotonic clock, which all
processes share. Its own process, so that no load generator delays a stamp.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

import msgspec

from apis import keys
from apis.objects import Kind
from bench import children
from kube import client
from kube.cluster import Selection
from kube.informer import Change, Informer

ITEM: Final = "bench.pyliqo.io/item"
"""Label of what is observed."""
SEQUENCE: Final = "bench.pyliqo.io/sequence"
"""Annotation with the number of an object's state, where it has no data."""
NUMBERED: Final = "ContainersReady"
"""Condition of a pod whose message is the number of its state; a foreign one is not mirrored."""
DATA: Final = "sequence"
KINDS: Final = (keys.POD, keys.CONFIG_MAP, keys.SECRET, keys.SERVICE)
READY, GONE = "ready", "gone"
_FLUSH_S: Final = 0.02


class Sighting(msgspec.Struct, array_like=True, frozen=True):
    """One change, as one line: what the object was like at ``t``."""

    t: float
    cluster: str
    kind: str
    namespace: str
    name: str
    uid: str
    node: str = ""
    state: str = ""
    """``ready``, ``gone``, or else the phase."""
    sequence: str = ""


class Id(NamedTuple):
    """An object of a cluster."""

    cluster: str
    kind: str
    namespace: str
    name: str


@dataclass
class Life:
    """When what was first seen of an object; times of the monotonic clock."""

    uid: str
    created: float
    bound: float | None = None
    ready: float | None = None
    gone: float | None = None
    sequences: dict[str, float] = field(default_factory=dict)
    latest: str = ""
    changed: float = 0.0
    """When the latest sequence was first seen in a row."""


class Story:
    """All lives, folded from sightings; pure."""

    def __init__(self) -> None:
        self.lives: dict[Id, Life] = {}
        self.doubles: list[Id] = []
        """Objects that were replaced by others of the same name while the run expected none."""

    def fold(self, seen: Sighting) -> None:
        """Take a sighting in."""
        where = Id(seen.cluster, seen.kind, seen.namespace, seen.name)
        life = self.lives.get(where)
        if life is None or life.uid != seen.uid:
            if life is not None and life.gone is None:
                self.doubles.append(where)
            life = self.lives[where] = Life(seen.uid, seen.t)
        _age(life, seen)

    def of(self, cluster: str, kind: Kind, namespace: str) -> dict[str, Life]:
        """Return the lives of a namespace by name."""
        wanted = (cluster, kind.kind, namespace)
        return {where.name: life for where, life in self.lives.items() if where[:3] == wanted}

    def forget(self) -> None:
        """Drop what is over, so that a long run stays small."""
        self.lives = {where: life for where, life in self.lives.items() if life.gone is None}
        self.doubles.clear()


def _age(life: Life, seen: Sighting) -> None:
    if seen.state == GONE:
        life.gone = seen.t
        return
    if seen.node and life.bound is None:
        life.bound = seen.t
    if seen.state == READY and life.ready is None:
        life.ready = seen.t
    if seen.sequence:
        life.sequences.setdefault(seen.sequence, seen.t)
        if life.latest != seen.sequence:
            life.latest, life.changed = seen.sequence, seen.t


class Observer:
    """The story so far, read from the file that the observing process writes."""

    def __init__(self, path: Path, process: asyncio.subprocess.Process) -> None:
        self.story = Story()
        self._path, self._process, self._offset = path, process, 0
        self._decode = msgspec.json.Decoder(Sighting).decode

    @property
    def pid(self) -> int:
        """The id of the observing process."""
        return self._process.pid

    def look(self) -> Story:
        """Take in what was seen since the last look."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self.story.fold(self._decode(line))
        return self.story

    async def until(
        self, holds: Callable[[Story], bool], *, what: str, within_s: float = 300.0
    ) -> Story:
        """Return the story once it ``holds``; the stamps do not depend on when we look.

        Raises:
            RuntimeError: it never did, or the observer ended.
        """
        began = monotonic()
        while not holds(self.look()):
            if self._process.returncode is not None:
                raise RuntimeError(f"the observer ended with {self._process.returncode}")
            if monotonic() - began > within_s:
                raise RuntimeError(f"not seen within {within_s:.0f} s: {what}")
            await asyncio.sleep(_FLUSH_S)
        return self.story


@contextlib.asynccontextmanager
async def watching(path: Path, kubeconfigs: Mapping[str, Path]) -> AsyncIterator[Observer]:
    """Run the observing process; it has synced when this yields."""
    arguments = [f"{cluster}={file}" for cluster, file in kubeconfigs.items()]
    async with children.running(
        sys.executable, "-m", "bench.observe", str(path), *arguments
    ) as process:
        for _ in kubeconfigs:
            await children.line(process)
        yield Observer(path, process)


# The observing process ----------------------------------------------------------------------------


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    phase: str = ""
    conditions: list[_Condition] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Seen(msgspec.Struct):
    """What the observer decodes of an object."""

    metadata: _Meta
    spec: _Spec | None = None
    status: _Status | None = None
    data: dict[str, str] | None = None


def sighting(t: float, cluster: str, kind: str, change: Change[Seen]) -> Sighting:
    """Return what ``change``, seen at ``t``, says."""
    item = change.new or change.old
    metadata = item.metadata if item else _Meta()
    where = (cluster, kind, change.key.namespace, change.key.name, metadata.uid)
    if change.new is None:
        return Sighting(t, *where, state=GONE)
    status = change.new.status or _Status()
    conditions = {one.type: one for one in status.conditions or []}
    is_ready = conditions.get("Ready", _Condition()).status == "True"
    node = change.new.spec.node_name if change.new.spec else ""
    return Sighting(
        t, *where, node, READY if is_ready else status.phase, _sequence(change.new, conditions)
    )


def _sequence(item: Seen, conditions: dict[str, _Condition]) -> str:
    if NUMBERED in conditions:
        return conditions[NUMBERED].message
    if item.data and DATA in item.data:
        return item.data[DATA]
    return (item.metadata.annotations or {}).get(SEQUENCE, "")


async def _watch(cluster: str, path: Path, write: Callable[[bytes], None]) -> None:
    informers = [Informer(Selection(kind, Seen, labels=ITEM)) for kind in KINDS]
    async with (
        client.connect(path, user_agent="bench-observer") as connected,
        asyncio.TaskGroup() as tasks,
    ):
        for informer in informers:
            kind = informer.selection.kind.kind
            informer.subscribe(_writer(cluster, kind, write))
            tasks.create_task(informer.run(connected))
        for informer in informers:
            await informer.synced.wait()
        print(cluster, flush=True)  # told to the parent


def _writer(
    cluster: str, kind: str, write: Callable[[bytes], None]
) -> Callable[[Change[Seen]], None]:
    encode = msgspec.json.Encoder().encode

    def on_change(change: Change[Seen]) -> None:
        write(encode(sighting(monotonic(), cluster, kind, change)) + b"\n")

    return on_change


async def _run(path: Path, clusters: dict[str, Path]) -> None:
    lines: list[bytes] = []
    with path.open("wb", buffering=0) as file:
        async with asyncio.TaskGroup() as tasks:
            for cluster, kubeconfig in clusters.items():
                tasks.create_task(_watch(cluster, kubeconfig, lines.append))
            while True:
                if lines:
                    text, lines[:] = b"".join(lines), []
                    file.write(text)
                await asyncio.sleep(_FLUSH_S)


def main(argv: Sequence[str] | None = None) -> int:
    """Observe until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m bench.observe", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("clusters", nargs="+", metavar="CLUSTER=KUBECONFIG")
    given = parser.parse_args(argv)
    pairs: list[Any] = [text.partition("=") for text in given.clusters]
    clusters = {name: Path(path) for name, _, path in pairs}
    asyncio.run(_run(given.file, clusters))
    return 0


if __name__ == "__main__":
    sys.exit(main())
