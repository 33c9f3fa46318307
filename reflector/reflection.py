"""The one algorithm that keeps reflected objects, and what their authors are told of it.

Source: docs/parity.md § 6.1, 6.11; SEC-B6, SEC-B9.
"""

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from apis import apply, keys, naming, objects, ownership, reflectionpolicy, texts
from apis.objects import Key, Kind, Object
from apis.reflectionpolicy import NotReflected, ReflectionEvent, ReflectionSubject
from kube import errors
from kube.breaker import HOLD_S, Breaker
from kube.cache import CachedCluster
from kube.cluster import NO_VERSION
from kube.controller import TerminalError
from kube.informer import Change
from kube.ratelimit import Buckets, Budget, Turns
from reflector.kinds.contract import KindReflection, ReflectionContext, Write
from reflector.patience import Patience

logger = logging.getLogger(__name__)


FOREIGN_RETRY_S: Final = 15.0
"""Somebody else's object is not in our watch; so look now and then whether it has gone."""
STALE_RETRY_S: Final = 1.0
NOT_YET_RETRY_S: Final = 15.0
TERMINATING_RETRY_S: Final = 5.0
REFUSED_RETRY_S: Final = 300.0
"""What the other cluster refuses it may take some day, by a newer CRD or another policy."""
UNFOLLOWED_RETRY_S: Final = 20.0
"""Of a twin that no watch shows nobody tells when it changes or goes: its kind came just now, or
it may be written and not listed."""
ABSENT_RETRY_S: Final = 5.0
_MUCH: Final = "more than a fifth"
_SOME: Final = "the API server has gone back to an older state, and a part"
_TERMINATING: Final = "being terminated"
_NO_NAMESPACE: Final = 'namespaces "'


@dataclass(frozen=True)
class ReflectionClients:
    """The cluster of the originals, that of the twins, and what records Events on originals."""

    source: CachedCluster
    target: CachedCluster
    record: "RecordEvent"
    budget: Budget = field(default_factory=Budget)
    """Of the provider, one for all kinds and namespaces."""


class Reflection:
    """Keeps the twins of one kind, in one namespace mapping. Keys are those of originals."""

    def __init__(
        self, of_kind: KindReflection, context: ReflectionContext, clients: ReflectionClients
    ) -> None:
        self.of_kind = of_kind
        self._context, self._pair = context, context.pair
        self._kind, self._twin_kind = of_kind.row.kind, of_kind.row.twin
        self._source, self._target = clients.source, clients.target
        self.reporter = ReflectionReporter(clients.record, of_kind.row.kind, self._pair.destination)
        self._pace, self._budget = Buckets(time.monotonic), clients.budget
        self.before_first: Callable[[], Awaitable[bool]] = _always
        """Awaited before a twin is looked for that may be made; whether twins are followed then."""
        self.patience: Patience | None = None
        """By which an original waits before it is looked at; None: it does not."""
        self._gone: set[Key] = set()
        """Originals whose deletion was seen: of those nobody has to be asked whether they are."""
        self.breaker = Breaker(self._on_breaker)
        """Open while so many originals are missing at once that no twin goes for it."""
        self.on_absence: Callable[[str], None] = lambda _: None
        """Called with a message when it opens."""

    @property
    def namespace(self) -> str:
        pair = self._pair
        return pair.local_namespace if self.of_kind.row.is_outward else pair.remote_namespace

    def saw(self, change: Change[Any]) -> Iterable[Key]:
        """Return the key of an original that changed, having noted whether it was seen to go."""
        is_gone = change.new is None and change.was_seen
        (self._gone.add if is_gone else self._gone.discard)(change.key)
        return (change.key,)

    async def reconcile(self, key: Key) -> float | None:
        if not naming.is_dns_subdomain(key.name):
            return None  # a provider said so: no object of this cluster is called that
        original = await self._source.seen(self._kind, key)
        if original is not None and self.patience is not None:
            left_s = await self.patience.left_s(original)
            if left_s > 0:
                return left_s
        try:
            stay = self._reason_to_stay(original) if original else None
            if original is None or stay is not None:
                return await self._withdraw(key, original, stay)
            return await self._keep(key, original)
        except reflectionpolicy.UnseenError:
            return None  # it is looked at once that comes
        except reflectionpolicy.NotYetError as error:
            if original is not None:
                self.reporter.failed(original, str(error))
            return NOT_YET_RETRY_S

    async def _keep(self, key: Key, original: Object) -> float | None:
        pace = self.of_kind.pace
        if pace and not self._pace.allows(pace(original)):
            return None  # a look costs a request, too
        if pace and (left_s := self._left_s(self._budget.writes, key)):
            return left_s
        are_followed = await self.before_first()
        again_s = await self._bring(key, original)
        return again_s if again_s is not None or are_followed else UNFOLLOWED_RETRY_S

    async def _bring(self, key: Key, original: Object) -> float | None:
        """Let the twin be as the original says; where none is seen, look only if there is one."""
        where = self.twin_of(key)
        found = await self._target.seen(self._twin_kind, where)
        if found is None:
            with contextlib.suppress(errors.ConflictError):
                return await self._settle(key, original, None)
            found = await self._target.get_live(self._twin_kind, where)
        return await self._settle(key, original, found)

    async def _settle(self, key: Key, original: Object, found: Object | None) -> float | None:
        where = self.twin_of(key)
        if found and not self._is_twin(found) and not self._is_on_record(found):
            return self._refuse(original, where)
        wanted = self.of_kind.twin(original, self._context)
        wanted = apply.stamped(self.of_kind.settled(wanted, found) if found else wanted)
        if found is None or not self._is_current(wanted, found):
            if found and self._is_in_the_way(wanted, found):
                await self._make_room(original, where)
                found = None
            found, again_s = await self._apply(original, wanted, found)
            if again_s is not None:
                return again_s
        again_s = await self._report_back(key, original, found)
        if again_s is None:
            self.reporter.succeeded(original, self.of_kind.lacks(original, self._context))
        return again_s

    def _is_in_the_way(self, wanted: Object, found: Object) -> bool:
        """Whether its server lets ``found`` not become as its original has been made again.

        What the provider itself has done to a twin is no reason to remove it.
        """
        sent, was = (objects.annotations(each).get(keys.APPLIED) for each in (wanted, found))
        return sent != was and self.of_kind.is_fixed(wanted, found)

    async def _make_room(self, original: Object, where: Key) -> None:
        """Remove such a twin, the original and it by a live look."""
        live = await self._source.get_live(self._kind, objects.key_of(original))
        if live is None or objects.uid(live) != objects.uid(original):
            raise errors.ConflictError(f"{self._name(original)} is another object now")
        await self._delete(where, await self._target.get_live(self._twin_kind, where))

    def twin_of(self, key: Key) -> Key:
        turn = self._pair.twin_of if self.of_kind.row.is_outward else self._pair.original_of
        namespace, name = turn(key)
        return Key(namespace, self.of_kind.twin_name(name, self._pair))

    def original_of(self, key: Key) -> Key:
        turn = self._pair.original_of if self.of_kind.row.is_outward else self._pair.twin_of
        namespace, name = turn(key)
        return Key(namespace, self.of_kind.original_name(name, self._pair))

    def _is_twin(self, found: Object) -> bool:
        return self._pair.reflects(found) and not reflectionpolicy.is_pod_token(found)

    def _is_on_record(self, found: Object) -> bool:
        """Whether it is ours by the server's record, though somebody took its labels.

        Source: docs/parity.md F-33. Only what was read live carries the record.
        """
        origin = ownership.shadow_origin(found, self._pair.origin)
        return (
            origin == self._pair.origin
            and not reflectionpolicy.is_pod_token(found)
            and any(
                entry.get("manager") == keys.REFLECTION_MANAGER
                and entry.get("operation") == "Apply"
                for entry in found["metadata"].get("managedFields") or ()
            )
        )

    def _is_current(self, wanted: Object, found: Object) -> bool:
        shown = self.of_kind.shown(wanted)
        return apply.is_current(wanted, shown, found)

    def _reason_to_stay(self, original: Object) -> NotReflected | None:
        try:
            return self.of_kind.reason_to_stay(original, self._context)
        except reflectionpolicy.ContradictionError as error:
            self.reporter.failed(original, str(error))
            raise TerminalError(FAILED, f"{self._name(original)}: {error}") from error

    def _refuse(self, original: Object, where: Key) -> float:
        """Leave somebody else's object alone and say so."""
        self.reporter.failed(
            original,
            f"{self._twin_kind} {where} exists on {self._pair.destination} and is not ours: "
            "rename or remove one of the two",
        )
        extra = {"kind": str(self._twin_kind), "key": where}
        logger.warning("Left a foreign object alone", extra=extra)
        return FOREIGN_RETRY_S

    async def _apply(
        self, original: Object, wanted: Object, found: Object | None
    ) -> tuple[Object | None, float | None]:
        """Return the twin as the server has it now, or when to try again."""
        # The very object that was looked at; where there was none, a new one; or a conflict.
        only = {"uid": objects.uid(found)} if found else {"resourceVersion": NO_VERSION}
        wanted = {**wanted, "metadata": {**wanted["metadata"], **only}}
        try:
            made = await self._written(wanted, found)
        except errors.InvalidError as error:
            self.reporter.failed(original, self._refused(error))
            logger.warning("A twin was refused", extra={"key": objects.key_of(original)})
            return None, REFUSED_RETRY_S
        except (errors.ForbiddenError, errors.NotFoundError) as error:
            if _is_leaving(error):  # its mapping is about to leave, or to come again
                return None, TERMINATING_RETRY_S
            self.reporter.failed(original, self._withheld(error))
            raise
        if self.patience is not None:
            self.patience.came_home(original)
        extra = {"kind": str(self._kind), "key": objects.key_of(original)}
        logger.info("Reflected an object", extra=extra)
        return made, None

    async def _written(self, wanted: Object, found: Object | None) -> Object:
        """Return the twin as its server has it after the write.

        An apply merges some lists by key, ports by number: what others put there stays, or makes
        the result invalid. Such a list is then written whole. Source: Kubernetes, "Server-Side
        Apply", merge strategy.
        """
        try:
            made = await self._applied(wanted)
        except errors.UnknownFieldError:
            raise
        except errors.InvalidError:
            if found is None:
                raise
        else:
            if found is None or self._is_current(wanted, made):
                return made
        await self._target.patch(self._twin_kind, objects.key_of(wanted), wanted)
        return await self._applied(wanted)

    async def _applied(self, wanted: Object) -> Object:
        return await self._target.apply(self._twin_kind, wanted, manager=keys.REFLECTION_MANAGER)

    def _refused(self, error: errors.InvalidError) -> str:
        if not isinstance(error, errors.UnknownFieldError):
            return str(error)
        return (
            f"{error.said}: {self._pair.destination} has an older version of this kind, "
            f"its administrator has to update the CRD {self._twin_kind.resource}"
        )

    def _withheld(self, error: errors.KubeError) -> str:
        if isinstance(error, errors.ForbiddenError):
            return str(error)
        return (
            f"{self._twin_kind} is unknown on {self._pair.destination}: "
            f"its administrator has to install the CRD {self._twin_kind.resource}"
        )

    async def _withdraw(
        self, key: Key, original: Object | None, stay: NotReflected | None
    ) -> float | None:
        """Remove the twin of what was seen to go, or of what is gone or stays by a live look.

        What came home stays: the copy of an Event expires as Events do.
        """
        where = self.twin_of(key)
        is_outward = self.of_kind.row.is_outward
        is_unknown = original is None and key not in self._gone
        if is_outward and is_unknown and self._target.may_have(self._twin_kind, where):
            # Before the twin is read, too: without its original the cache has only an outline.
            left_s = self._unknown_left_s(key)
            if left_s:
                return left_s
        found = await self._target.seen(self._twin_kind, where) if is_outward else None
        if found and self._is_twin(found):
            if original is not None or is_unknown:
                original = await self._source.get_live(self._kind, key)
                stay = self._reason_to_stay(original) if original else None
                if original and stay is None:
                    return STALE_RETRY_S
                found = await self._target.get_live(self._twin_kind, where)
            await self._delete(where, found)
        self._gone.discard(key)
        await self._write_back(self.of_kind.back(key, original, None, self._context))
        self.reporter.disabled(key, original, stay)
        return None

    def _unknown_left_s(self, key: Key) -> float:
        """Return in how many seconds to look for an original that no cache knows; 0 for now."""
        if self.breaker.is_open():
            return ABSENT_RETRY_S
        return self._left_s(self._budget.looks, key)

    def _left_s(self, turns: Turns, key: Key, *, is_urgent: bool = False) -> float:
        """Return 0 if it is the turn of ``key``; a pod waits for its volume, for Events nobody."""
        namespace = self._pair.local_namespace
        return turns.left_s((self._kind, key), namespace, is_urgent=is_urgent)

    async def _delete(self, where: Key, found: Object | None) -> None:
        if found and self._is_twin(found) and not objects.is_terminating(found):
            await self._target.delete(self._twin_kind, where, uid=objects.uid(found))
            logger.info("Removed a twin", extra={"kind": str(self._twin_kind), "key": where})

    async def _report_back(self, key: Key, original: Object, twin: Object | None) -> float | None:
        """Write what follows from ``twin`` to the consumer; what is refused there is told, too."""
        writes = list(self.of_kind.back(key, original, twin, self._context))
        if writes and twin and (left_s := self._left_s(self._budget.writes, key, is_urgent=True)):
            return left_s
        try:
            await self._write_back(writes)
        except (errors.InvalidError, errors.ForbiddenError, errors.NotFoundError) as error:
            if await self._source.get_live(self._kind, key) is None:
                return None  # it has gone, and its twin goes with it
            said = f"what {self._pair.destination} tells of it cannot be written here: {error}"
            self.reporter.failed(original, said)
            if not isinstance(error, errors.InvalidError):
                raise
            return REFUSED_RETRY_S
        return None

    async def _write_back(self, writes: Iterable[Write]) -> None:
        for write in writes:
            await _WRITES[write.verb](self._source, write)

    def _on_breaker(self) -> None:
        if self.breaker.is_open():
            much = _SOME if self.breaker.is_after_restore else _MUCH
            self.on_absence(
                f"{much} of the {self._kind.plural} is missing from a list at once: "
                f"unless they come back, their twins on {self._pair.destination} go "
                f"after {HOLD_S:.0f} s"
            )

    def _name(self, original: Object) -> str:
        return f"{self._kind} {objects.key_of(original)}"


def _is_leaving(error: errors.KubeError) -> bool:
    """Whether the twin namespace is going, or gone."""
    return _TERMINATING in str(error) or error.said.startswith(_NO_NAMESPACE)


async def _always() -> bool:
    return True


async def _create(cluster: CachedCluster, write: Write) -> None:
    try:
        await cluster.create(write.kind, write.body)
    except errors.AlreadyExistsError:
        logger.debug("Somebody was faster", extra={"kind": str(write.kind), "key": write.key})


async def _patch(cluster: CachedCluster, write: Write) -> None:
    await cluster.patch(write.kind, write.key, write.body)


async def _status(cluster: CachedCluster, write: Write) -> None:
    metadata = write.body["metadata"]
    await cluster.patch_status(write.kind, write.key, write.body["status"], metadata=metadata)


async def _remove(cluster: CachedCluster, write: Write) -> None:
    await cluster.delete(write.kind, write.key, uid=objects.uid(write.body))


_WRITES: Final[dict[str, Callable[[CachedCluster, Write], Awaitable[None]]]] = {
    "create": _create,
    "patch": _patch,
    "status": _status,
    "delete": _remove,
}


# What authors are told of the reflection of their objects. Source: docs/parity.md § 6.1 -----------

SUCCESSFUL: Final = reflectionpolicy.SUCCESSFUL
FAILED: Final = keys.FAILED_REFLECTION
DISABLED: Final = keys.REFLECTION_DISABLED


class RecordEvent(Protocol):
    """Records an Event on an original."""

    def __call__(
        self, obj: Object, type_: Literal["Normal", "Warning"], reason: str, message: str, /
    ) -> None:
        """Return at once; a reason that was just told may be dropped."""
        ...


class ReflectionReporter:
    """Remembers what was said last of each original of ``kind``, and why it has no twin."""

    def __init__(self, record: RecordEvent, kind: Kind, destination: str) -> None:
        self._record, self._kind, self._destination = record, kind, destination
        self._last: dict[Key, tuple[str, str]] = {}

    def remember(self, namespace: str, events: Mapping[ReflectionSubject, ReflectionEvent]) -> None:
        """Take what ``events`` say for said: it is not repeated, and that it is over is told."""
        for (cluster, kind, name, uid), last in events.items():
            is_ours = (cluster, kind) == (self._destination, self._kind.kind)
            if is_ours and last.reason != SUCCESSFUL:
                self._last[Key(namespace, name)] = (uid, last.message)

    def failed(self, original: Object, message: str) -> None:
        """Say why ``original`` has no twin, or one that is not as it says.

        The provider may have written ``message``.
        """
        message = texts.clamp(message)
        self._last[objects.key_of(original)] = (objects.uid(original), message)
        self._record(original, "Warning", FAILED, message)

    def succeeded(self, original: Object, lacks: str = "") -> None:
        """Say that what was told is over. Of what goes well nothing is said: that is a write.

        What its twin ``lacks`` is reported once.
        """
        if lacks:
            self._once(original, keys.REFLECTED_IN_PART, lacks)
            return
        last = self._last.pop(objects.key_of(original), None)
        if last and last[0] == objects.uid(original):
            message = f"{self._kind} reflected to {self._destination}"
            self._record(original, "Normal", SUCCESSFUL, message)

    def disabled(self, key: Key, original: Object | None, stay: NotReflected | None) -> None:
        """Say once why ``original`` has no twin; of what is protected, say nothing."""
        if original is None or stay is None or not stay.is_told:
            self._last.pop(key, None)
        else:
            self._once(original, DISABLED, stay.reason)

    def _once(self, original: Object, reason: str, message: str) -> None:
        said, key = (objects.uid(original), message), objects.key_of(original)
        if self._last.get(key) != said:
            self._last[key] = said
            self._record(original, "Normal", reason, message)
