"""``python -m bench writes``: what each kind of write costs an API server.

On a control plane of its own, whose etcd does not sync, so that no disk is in it. One client writes
one object after the other; the kinds of write take turns, round after round.
"""

import argparse
import asyncio
import contextlib
import copy
import secrets
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias

import msgspec

from apis import keys
from apis.objects import UNTRACKED, Key, Kind, Object, named
from bench import arms, counters, figures, floor, load, waiting
from bench.counters import Component
from bench.observe import DATA, SEQUENCE
from kube import client, credentials, wire
from kube.cluster import Selection
from kube.errors import NotFoundError
from kube.slim import Partial
from kube.transport import Transport
from kube.untrusted.decode import Decoder
from sandbox import controlplane
from sandbox.controlplane import Plane

MANAGER: Final = "bench"
_NAMESPACE: Final = "bench-writes"
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_JSON: Final = "application/json"
_IGNORE: Final = (("fieldValidation", "Ignore"),)
_LARGE: Final = 20_000
_MS: Final = 1000.0


@dataclass(frozen=True)
class Subject:
    """What is written; ``at`` is the field that each write changes."""

    name: str
    kind: Kind
    made: Callable[[str], Object]
    at: tuple[str, ...]
    subresource: str = ""


def _shadow_pod(name: str) -> Object:
    spec = {"pod": load.pod(_NAMESPACE, name)["spec"]}
    return named(floor.SHADOW, Key(_NAMESPACE, name), spec=spec)


def _large(name: str) -> Object:
    made = load.item(keys.CONFIG_MAP, _NAMESPACE, name, 0)
    lines = "\n".join(f"line {number} of a file" for number in range(_LARGE // 20))
    return merged(made, {"data": {"file": lines}})


_ANNOTATION: Final = ("metadata", "annotations", SEQUENCE)
SUBJECTS: Final = (
    Subject("ConfigMap", keys.CONFIG_MAP,
            lambda name: load.item(keys.CONFIG_MAP, _NAMESPACE, name, 0), ("data", DATA)),
    Subject("ConfigMap of 20 kB", keys.CONFIG_MAP, _large, ("data", DATA)),
    Subject("Service", keys.SERVICE,
            lambda name: load.item(keys.SERVICE, _NAMESPACE, name, 0), _ANNOTATION),
    Subject("Pod", keys.POD, lambda name: load.pod(_NAMESPACE, name), _ANNOTATION),
    Subject("status of a Pod", keys.POD, lambda name: load.pod(_NAMESPACE, name),
            ("status", "message"), "status"),
    Subject("ShadowPod", floor.SHADOW, _shadow_pod, _ANNOTATION),
)  # fmt: skip
Body: TypeAlias = Callable[[Subject, Object, str], Any]
"""From what is written, the object as it was, and the text that it shall say, to what is sent."""


@dataclass(frozen=True)
class Write:
    """A kind of write; ``on`` names the kind of creation of the objects that it changes."""

    name: str
    method: str
    content: str
    body: Body
    on: str = ""
    query: tuple[tuple[str, str], ...] = ()

    def suits(self, subject: Subject) -> bool:
        """Whether an API server takes it: of statuses no creation, of CRDs no strategic patch."""
        is_custom = "." in subject.kind.group
        return not (subject.subresource and not self.on) and not (
            is_custom and self.content == _STRATEGIC
        )


def nested(at: Sequence[str], text: str) -> Object:
    """Return a merge patch that lets the field ``at`` be ``text``."""
    value: Any = text
    for name in reversed(at):
        value = {name: value}
    return dict(value)


def json_patch(at: Sequence[str], text: str) -> list[Object]:
    """Return the same as a JSON patch."""
    path = "/".join(["", *(name.replace("~", "~0").replace("/", "~1") for name in at)])
    return [{"op": "add", "path": path, "value": text}]


def merged(into: Object, changes: Object) -> Object:
    """Return ``into`` with a merge patch that removes nothing."""
    made = copy.deepcopy(into)
    for name, value in changes.items():
        is_deep = isinstance(value, dict) and isinstance(made.get(name), dict)
        made[name] = merged(made[name], value) if is_deep else value
    return made


def _whole(subject: Subject, was: Object, text: str) -> Object:
    metadata = {name: value for name, value in was["metadata"].items() if name != "managedFields"}
    body = {**was, "metadata": metadata}  # whom nobody names, the server goes on to keep
    return wire.typed(subject.kind, merged(body, nested(subject.at, text)))


def _applied(subject: Subject, was: Object, text: str) -> Object:
    name = was["metadata"]["name"]
    made = named(subject.kind, Key(_NAMESPACE, name)) if subject.subresource else subject.made(name)
    return _whole(subject, made, text)


def _untracked(subject: Subject, _was: Object, text: str) -> Object:
    return merged(nested(subject.at, text), {"metadata": UNTRACKED})


CREATE, APPLY_NEW = "create", "apply of a new one"
WRITES: Final = (
    Write(CREATE, "POST", _JSON, _whole),
    Write(APPLY_NEW, "PATCH", _APPLY, _whole),
    Write("create, fields not validated", "POST", _JSON, _whole, query=_IGNORE),
    Write("apply of a new one, fields not validated", "PATCH", _APPLY, _whole, query=_IGNORE),
    Write("update (PUT)", "PUT", _JSON, _whole, CREATE),
    Write("JSON patch", "PATCH", _JSON_PATCH, lambda s, _, text: json_patch(s.at, text), CREATE),
    Write("merge patch", "PATCH", _MERGE, lambda s, _, text: nested(s.at, text), CREATE),
    Write("strategic merge patch", "PATCH", _STRATEGIC, lambda s, _, text: nested(s.at, text),
          CREATE),
    Write("apply", "PATCH", _APPLY, _applied, APPLY_NEW),
    Write("apply, fields not validated", "PATCH", _APPLY, _applied, APPLY_NEW, _IGNORE),
    Write("merge patch, fields not validated", "PATCH", _MERGE,
          lambda s, _, text: nested(s.at, text), CREATE, _IGNORE),
    Write("merge patch without managedFields", "PATCH", _MERGE, _untracked, CREATE),
)  # fmt: skip


@dataclass
class Cost:
    """What the writes of one kind took in all rounds: seconds each, CPU-seconds by process."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: dict[str, float] = field(default_factory=dict)

    def add(self, seconds: Iterable[float], cpu_s: dict[str, float]) -> None:
        """Take a round in."""
        self.seconds += seconds
        for name, used in cpu_s.items():
            self.cpu_s[name] = self.cpu_s.get(name, 0.0) + used

    def cells(self) -> Iterator[str]:
        """Yield P50 and P99 in ms, and the CPU of API server and etcd a write in ms."""
        yield f"{statistics.median(self.seconds) * _MS:.2f}"
        yield f"{figures.percentile(self.seconds, 99) * _MS:.2f}"
        for server in counters.SERVERS:
            yield f"{self.cpu_s.get(server, 0.0) / len(self.seconds) * _MS:.2f}"


Costs: TypeAlias = dict[tuple[Subject, Write], Cost]


def table(costs: Costs) -> str:
    """Return the costs as Markdown; pure."""
    head = ("object", "write", "P50 ms", "P99 ms", "CPU of the API server, ms", "of etcd, ms")
    rows = [head, ("---",) * len(head)]
    rows += [(of.name, how.name, *cost.cells()) for (of, how), cost in costs.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


class Bench:
    """One client of one control plane."""

    def __init__(self, plane: Plane, transport: Transport) -> None:
        self._transport = transport
        self._servers = [Component(name, "", plane.pid(name)) for name in counters.SERVERS]

    async def round(self, subject: Subject, count: int, costs: Costs) -> None:
        """Create objects in each way, and change them in each."""
        made: dict[str, list[Object]] = {"": []}
        for how in (how for how in WRITES if not how.on):
            mark = f"w{secrets.token_hex(3)}"
            new = [subject.made(f"{mark}-{number}") for number in range(count)]
            creation = Subject(subject.name, subject.kind, subject.made, _ANNOTATION)
            cost = costs.setdefault((subject, how), Cost()) if how.suits(subject) else Cost()
            made[how.name] = await self._measured(creation, how, new, cost)
        for how in (how for how in WRITES if how.on and how.suits(subject)):
            cost = costs.setdefault((subject, how), Cost())
            made[how.on] = await self._measured(subject, how, made[how.on], cost)

    async def _measured(
        self, subject: Subject, how: Write, objs: Sequence[Object], cost: Cost
    ) -> list[Object]:
        """Write each of ``objs`` once; return them as they are then."""
        text, before = secrets.token_hex(4), counters.cpu_s(self._servers)
        written, took = [], []
        for each in objs:
            began = monotonic()
            written.append(await self._write(subject, how, each, text))
            took.append(monotonic() - began)
        after = counters.cpu_s(self._servers)
        cost.add(took, {one.name: after[one] - before[one] for one in self._servers})
        return written

    async def _write(self, subject: Subject, how: Write, was: Object, text: str) -> Object:
        path = wire.collection(subject.kind, _NAMESPACE)
        if how.method != "POST":
            part = subject.subresource if how.on else ""
            path = wire.path(subject.kind, Key(_NAMESPACE, was["metadata"]["name"]), part)
        query = {"fieldManager": MANAGER, **dict(how.query)}
        query |= {"force": "true"} if how.content == _APPLY else {}
        answer = await self._transport.request(
            how.name, subject.kind.plural, how.method, path, query=query,
            data=msgspec.json.encode(how.body(subject, was, text)),
            headers={"Content-Type": how.content},
        )  # fmt: skip
        return Decoder().opened(subject.kind, answer)


async def measure(plane: Plane, count: int, rounds: int) -> Costs:
    """Return the costs of ``count`` writes of each kind in each round, all on ``plane``."""
    costs: Costs = {}
    async with client.connect(plane.kubeconfig, user_agent=MANAGER) as cluster:
        await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", _NAMESPACE)))
        await arms.define_shadow_pods(cluster)
        await waiting.until(lambda: _is_served(cluster), bool, what="ShadowPods served")
    transport = Transport(await credentials.from_file(plane.kubeconfig), MANAGER)
    try:
        bench = Bench(plane, transport)
        for subject in SUBJECTS:
            await bench.round(subject, min(count, 10), {})  # connections, caches, schemas
        for _ in range(rounds):
            for subject in SUBJECTS:
                await bench.round(subject, count, costs)
    finally:
        await transport.close()
    return costs


async def _is_served(cluster: client.ClusterClient) -> bool:
    with contextlib.suppress(NotFoundError):
        await cluster.list(Selection(floor.SHADOW, Partial, _NAMESPACE))
        return True
    return False


def main(argv: Sequence[str]) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench writes", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="objects a round (default: 100)")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    given = parser.parse_args(argv)
    with (
        tempfile.TemporaryDirectory(prefix="pyliqo-writes-") as folder,
        controlplane.start(Path(folder)) as plane,
    ):
        costs = asyncio.run(measure(plane, given.count, given.rounds))
    sys.stdout.write(table(costs))
    return 0
