"""What a cluster can do, as Protocols: everything above is written against these two."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from apis import keys
from apis.objects import Key, Kind, Object
from kube.kept import Kept

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
    kept: Kept | None = field(default=None, compare=False, repr=False)
    """What is kept of a peer counts there; more is a ``TooMuchError``. None for no such bound."""
    whole_up_to: int = 0
    """Bytes of JSON of the largest dict that is kept whole, 0 for any: another is an outline.

    ``CachedCluster`` asks the server for that object (``kube.slim``).
    """
    is_needed_whole: Callable[[Object], bool] | None = field(
        default=None, compare=False, repr=False
    )
    """Whether a dict is kept whole however large it is; None for none."""
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
