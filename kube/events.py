"""What happened to an object, shown to its user: core/v1 Events, few and aggregated.

Source: docs/parity.md C-29; Kubernetes API reference, "Event v1 core".
"""

import asyncio
import datetime as dt
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from apis import keys, objects
from apis.objects import Key, Kind, Object, key_of, named, reference, uid
from kube import clock as clock_
from kube import errors, metrics
from kube.cluster import Cluster
from kube.ratelimit import Buckets

logger = logging.getLogger(__name__)

EVERY_S: Final = 10.0
"""At most one write an object and reason in so many seconds."""
MAX_REMEMBERED: Final = 2048
MAX_MESSAGE: Final = 1024


class _About(NamedTuple):
    uid: str
    where: Key
    reason: str


@dataclass
class _Record:
    regarding: Object
    type: str
    message: str
    first: dt.datetime
    last: dt.datetime
    count: int = 1
    written: float | None = None
    written_count: int = 0
    name: str = field(default="")


class EventRecorder:
    """Writes events in the background; when a server is slow they wait, then are dropped.

    Each carries ``labels``.
    """

    def __init__(  # noqa: PLR0913  # the last four have defaults
        self,
        cluster: Cluster,
        component: str,
        instance: str,
        *,
        labels: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        pace: Buckets | None = None,
    ) -> None:
        """With ``pace`` writes keep to its rate: Events beyond it wait."""
        self._cluster, self._component, self._instance = cluster, component, instance
        self._labels = dict(labels or {})
        self._clock, self._pace = clock, pace
        self._records: OrderedDict[_About, _Record] = OrderedDict()
        self._waiting: OrderedDict[_About, None] = OrderedDict()
        self._changed = asyncio.Event()

    def event(
        self,
        kind: Kind,
        obj: Object,
        type_: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        """Say ``message`` about ``obj``; the same reason again raises the count of the first."""
        about = _About(uid(obj), key_of(obj), reason)
        text, now = message[:MAX_MESSAGE], clock_.now()
        record = self._records.get(about)
        if record is None:
            record = _Record(_reference(kind, obj), type_, text, now, now)
            self._records[about] = record
        else:
            record.count, record.last, record.message = record.count + 1, now, text
            metrics.EVENTS.labels("merged").inc()
        self._records.move_to_end(about)
        self._waiting[about] = None
        self._forget_oldest()
        self._changed.set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def run(self) -> None:
        """Write events for ever; cancel to stop."""
        while True:
            self._changed.clear()
            due = [about for about in self._waiting if self._due_s(about) <= 0]
            for about in due:
                await self._await_turn()
                await self._write(about)
            if not due:
                await self._wait(min(map(self._due_s, self._waiting), default=None))

    async def _await_turn(self) -> None:
        if self._pace is None:
            return
        while left_s := self._pace.left_s(""):  # noqa: ASYNC110  # time alone brings a token
            await asyncio.sleep(left_s)

    async def _wait(self, within_s: float | None) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _due_s(self, about: _About) -> float:
        written = self._records[about].written
        return 0.0 if written is None else written + EVERY_S - self._clock()

    async def _write(self, about: _About) -> None:
        if about not in self._waiting:
            return  # forgotten while the one before was written
        del self._waiting[about]
        record = self._records[about]
        record.written, count = self._clock(), record.count
        try:
            if record.name:
                await self._count(about, record)
            else:
                await self._create(about, record)
        except errors.KubeError as error:
            # Nobody waits for an event: one that cannot be written is only counted.
            metrics.EVENTS.labels("dropped").inc()
            fields = {"object": str(about.where), "reason": about.reason, "error": str(error)}
            logger.warning("dropped an event", extra=fields)
            return
        record.written_count = count
        metrics.EVENTS.labels("written").inc()

    async def _create(self, about: _About, record: _Record) -> None:
        name = f"{about.where.name[:200]}.{secrets.token_hex(8)}"
        await self._cluster.create(keys.EVENT, self._forged(about, record, name))
        record.name = name

    async def _count(self, about: _About, record: _Record) -> None:
        changes: Object = {
            "count": record.count,
            "lastTimestamp": objects.timestamp(record.last),
            "message": record.message,
        }
        try:
            await self._cluster.patch(keys.EVENT, self._key(about, record.name), changes)
        except errors.NotFoundError:  # the server forgets events after an hour
            await self._create(about, record)

    def _forged(self, about: _About, record: _Record, name: str) -> Object:
        return named(
            keys.EVENT,
            self._key(about, name),
            metadata={"labels": self._labels} if self._labels else {},
            involvedObject=record.regarding,
            reason=about.reason,
            message=record.message,
            type=record.type,
            count=record.count,
            firstTimestamp=objects.timestamp(record.first),
            lastTimestamp=objects.timestamp(record.last),
            source={"component": self._component},
            reportingComponent=self._component,
            reportingInstance=self._instance,
        )

    def _key(self, about: _About, name: str) -> Key:
        return Key(about.where.namespace or "default", name)

    def _forget_oldest(self) -> None:
        while len(self._records) > MAX_REMEMBERED:
            about, _ = self._records.popitem(last=False)
            if self._waiting.pop(about, 0) is None:
                metrics.EVENTS.labels("dropped").inc()


def _reference(kind: Kind, obj: Object) -> Object:
    metadata = obj["metadata"]
    found = {
        **reference(kind, key_of(obj), metadata.get("uid", "")),
        "resourceVersion": metadata.get("resourceVersion", ""),
    }
    return {name: value for name, value in found.items() if value}
