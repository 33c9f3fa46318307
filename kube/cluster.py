"""What a cluster can do, as Protocols, and what holds for all that is read of one.

Everything above is written against ``Watched`` and ``Cluster``. How many bytes are kept of what one
peer says is counted over all kinds and namespaces together. Only a leader's cluster is written to.
An API server's store may be restored from an older state: such a server takes a watch from a
version that it does not have yet, and tells nothing of what happens until it has. So a watch goes
on without a question only where it follows at once on a list, or on a watch that the server ended
when its time was over, and the server was there all the time. Else the server first says which
version it has.
Source: docs/parity.md F-12, H14; part 2, cause 2.
"""

import math
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

from apis import keys
from apis.objects import Key, Kind, Object
from kube import errors
from kube.errors import ConflictError


@dataclass
class ByteQuota:
    """A number of bytes that several take from."""

    most: int
    used: int = 0

    def take(self, what: str, size: int, instead_of: int) -> None:
        """Count ``size`` bytes of ``what`` that take the place of ``instead_of`` others.

        Raises:
            TooMuchError: that would be more than ``most`` in all.
        """
        after = self.used + size - instead_of
        if after > self.most and size > instead_of:
            raise errors.TooMuchError(f"{what} has more than is kept of a peer, {self.most} bytes")
        self.used = after

    def give_back(self, size: int) -> None:
        """Count ``size`` bytes no longer."""
        self.used -= size


@dataclass
class MemoryQuota(ByteQuota):
    """Shared by all informers that follow one peer.

    Lists that arrive are counted together, too, by themselves: as long as one is read, what it
    takes the place of is still there. So at most twice ``most`` bytes are there of a peer.
    """

    _lists: ByteQuota = field(init=False)

    def __post_init__(self) -> None:
        self._lists = ByteQuota(self.most)

    @contextmanager
    def arriving(self) -> Iterator["ListQuota"]:
        """Yield what counts the pages of one list, until it has arrived or failed."""
        arriving = ListQuota(self._lists)
        try:
            yield arriving
        finally:
            self._lists.give_back(arriving.size)


@dataclass
class ListQuota:
    """A list whose pages are read one after another."""

    _lists: ByteQuota
    size: int = 0

    def has(self, what: str, size: int) -> None:
        """Take note that ``size`` bytes of ``what`` are there by now.

        Raises:
            TooMuchError: that is more, with the other lists that arrive, than is kept of a peer.
        """
        self._lists.take(what, size, self.size)
        self.size = size


# What a cluster can do ----------------------------------------------------------------------------

T = TypeVar("T")

SHARED: Final = frozenset({keys.POD, keys.NODE})
"""Kinds whose status has several writers: it is patched so that none loses a condition."""
NO_VERSION: Final = "1"
"""A resourceVersion that no object has, etcd's before its first write: an apply with it creates."""


@dataclass(frozen=True)
class Selection(Generic[T]):
    """Which objects, and as what: ``Object``, or a msgspec struct of the part one needs."""

    kind: Kind
    shape: type[T]
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    most: int = 0
    """So many are listed, and the newest kept; 0 for all. For what others may make without end."""
    kept: MemoryQuota | None = field(default=None, compare=False, repr=False)
    """What is kept of a peer counts there; more is a ``TooMuchError``. None for no such bound."""
    whole_up_to: int = 0
    """Bytes of JSON of the largest dict that is kept whole, 0 for any: another is an outline.

    ``CachedCluster`` asks the server for that object (``kube.slim``).
    """
    is_needed_whole: Callable[[Object], bool] | None = field(
        default=None, compare=False, repr=False
    )
    """Whether a dict is kept whole however large it is; None for none."""
    is_alike: bool = False
    """Whether of parts that many dicts have in common one is kept: ``objects.shared``."""
    keeps: Callable[[Key], bool] | None = field(default=None, compare=False, repr=False)
    """Whether an object is kept; None for all. For ``Packed`` shapes only.

    Of another only the key, UID and version are, and it is not decoded: there is such an object.
    """


class Listing(NamedTuple, Generic[T]):
    """What there is, and the version from which a watch goes on."""

    items: dict[Key, T]
    version: str
    sizes: Mapping[Key, int] = MappingProxyType({})
    """Bytes that each item takes, where that is known."""


class Event(NamedTuple, Generic[T]):
    """ADDED, MODIFIED, DELETED or BOOKMARK (which carries a version and nothing else)."""

    type: str
    key: Key
    version: str
    object: T
    size: int = 0
    """Bytes that the object takes."""


class Watched(Protocol):
    """What an informer needs of a cluster."""

    async def list(self, of: Selection[T]) -> Listing[T]:
        """Return all that is selected, read from the server in pages of 500."""
        ...

    def watch(self, of: Selection[T], since: str) -> AsyncGenerator[Event[T], None]:
        """Yield what happened after ``since``; ExpiredError means list again."""
        ...


class Cluster(Watched, Protocol):
    """Plain JSON in and out. Everything may raise kube.errors.KubeError."""

    async def get(self, kind: Kind, key: Key) -> Object | None:
        """Return the object, perhaps as old as a cache; None is the server's own word."""
        ...

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        """Return the object as the server has it now: what every deletion is decided on."""
        ...

    async def create(self, kind: Kind, obj: Object) -> Object:
        """Create ``obj``; AlreadyExistsError when its name is taken."""
        ...

    async def apply(self, kind: Kind, obj: Object, *, manager: str) -> Object:
        """Server-side apply, forced.

        ``manager`` owns exactly the fields it sent last: a field it stops sending is
        removed, so one manager always sends the same set of fields. With NO_VERSION as
        metadata.resourceVersion what is there already is left alone: a ConflictError.
        """
        ...

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        """Merge ``changes``; a metadata.resourceVersion in them makes it compare-and-swap.

        ``subresource`` is for those that are patched: ``scale``, ``approval`` of a
        CertificateSigningRequest.
        """
        ...

    async def patch_status(
        self, kind: Kind, key: Key, status: Object, *, metadata: Object | None = None
    ) -> Object:
        """Merge ``status`` into the status subresource and return the object.

        Several write the status of what is ``SHARED``: conditions are merged by type, addresses
        of a pod by IP, with ``$patch`` for what goes (Kubernetes, strategic merge patch).

        ``metadata`` may hold ``uid`` or ``resourceVersion`` as precondition (ConflictError),
        and for pods ``labels``: the status subresource takes both in one write.
        """
        ...

    async def delete(self, kind: Kind, key: Key, *, uid: str, grace_s: int | None = None) -> None:
        """Delete that very object; a namesake with another UID, or none at all, is fine."""
        ...

    async def post(self, kind: Kind, key: Key, subresource: str, body: Object) -> Object:
        """Create at a subresource: ``token`` (TokenRequest), ``eviction``, ``binding``."""
        ...


# Whether an API server still has all that it had --------------------------------------------------

AT_ONCE_S: Final = 10.0
"""Within which no server is stopped, restored and started again. An informer lists, tells its
handlers, and watches in less."""
_LONGEST: Final = 20
"""Digits of the largest version: servers count in 64 bits."""


class RollbackDetector:
    """Of which selections the server may have forgotten something since they were last heard of."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sure: WeakKeyDictionary[Selection[Any], float] = WeakKeyDictionary()
        """Since when it is sure; infinitely long ago for one that was lost."""

    def lost(self, of: Selection[Any]) -> None:
        """Note that the watch of ``of`` broke, was silent, or was given up."""
        self._sure[of] = -math.inf

    def all_lost(self) -> None:
        """Note that the server does not answer."""
        for of in list(self._sure):
            self.lost(of)

    def asked(self, of: Selection[Any]) -> None:
        """Note that the server says which version it has, or ends a watch when its time is over."""
        self._sure[of] = self._clock()

    def __contains__(self, of: Selection[Any]) -> bool:
        since = self._sure.get(of)
        return since is not None and self._clock() - since > AT_ONCE_S


def is_behind(version: str, since: str) -> bool:
    """Whether ``version``, the server's own, is older than ``since``, which it gave us before.

    Source: Kubernetes API concepts, "Resource versions": of one resource they may be compared.
    """
    return _is_number(version) and _is_number(since) and int(version) < int(since)


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdecimal() and len(version) <= _LONGEST


# Clusters that ask another one, and differ in some of its methods ---------------------------------


class ForwardingCluster:
    """Fulfils Cluster by the one behind it; who inherits it overrides what differs."""

    def __init__(self, live: Cluster) -> None:
        self._live = live

    def _writable(self) -> Cluster:
        return self._live

    async def get(self, kind: Kind, key: Key) -> Object | None:
        return await self._live.get(kind, key)

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        return await self._live.get_live(kind, key)

    async def list(self, of: Selection[T]) -> Listing[T]:
        return await self._live.list(of)

    def watch(self, of: Selection[T], since: str) -> AsyncGenerator[Event[T], None]:
        return self._live.watch(of, since)

    async def create(self, kind: Kind, obj: Object) -> Object:
        return await self._writable().create(kind, obj)

    async def apply(self, kind: Kind, obj: Object, *, manager: str) -> Object:
        return await self._writable().apply(kind, obj, manager=manager)

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        return await self._writable().patch(kind, key, changes, subresource=subresource)

    async def patch_status(
        self, kind: Kind, key: Key, status: Object, *, metadata: Object | None = None
    ) -> Object:
        return await self._writable().patch_status(kind, key, status, metadata=metadata)

    async def delete(self, kind: Kind, key: Key, *, uid: str, grace_s: int | None = None) -> None:
        await self._writable().delete(kind, key, uid=uid, grace_s=grace_s)

    async def post(self, kind: Kind, key: Key, subresource: str, body: Object) -> Object:
        return await self._writable().post(kind, key, subresource, body)


class LeaderOnlyCluster(ForwardingCluster):
    """Reads always, writes while ``may_write``, such as ``election.is_leader``.

    The election cancels its work at the renew deadline; this is for a process that was stopped
    across that moment, whose next step would be a write.
    """

    def __init__(self, live: Cluster, may_write: Callable[[], bool]) -> None:
        super().__init__(live)
        self.may_write = may_write

    def _writable(self) -> Cluster:
        if not self.may_write():
            raise ConflictError("no longer leads: somebody else may be writing")
        return self._live
