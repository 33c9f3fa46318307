"""What a kind's module gives the one algorithm: pure functions, and which objects they look at."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from apis import keys, reflectionpolicy
from apis.networks import Network
from apis.objects import Key, Kind, Object
from apis.offloading import MappedNamespace
from apis.offloading import ReflectionPolicy as Policy
from apis.providerpolicy import AllowedReflection
from apis.reflection import ReflectedKind
from apis.reflectionpolicy import MetadataFilter, NotReflected


@dataclass(frozen=True)
class Settings:
    """What a virtual node says about its twins."""

    hidden: MetadataFilter = field(default_factory=MetadataFilter)
    enable_load_balancer: bool = False
    load_balancer_class: str = ""
    enable_ingress: bool = False
    ingress_class: str = ""
    enable_storage: bool = False
    """Where the Node of a claim's first pod does not say so itself, as ``storage_class``."""
    storage_class: str = ""
    """On the provider; empty for its default class."""
    virtual_storage_class: str = keys.VIRTUAL_STORAGE_CLASS
    """Of the claims at the consumer that may be fulfilled there."""
    local_pods: tuple[Network, ...] = ()
    """Networks of pods here, if an IP fabric joins the clusters; empty without one."""


class Look(Protocol):
    """The objects that a kind asked for by its ``Input``; as old as a cache, and read only."""

    def get(self, kind: Kind, key: Key) -> Any:
        """Return the one at ``key``, None if it is absent."""
        ...

    def each(self, kind: Kind) -> Iterable[Any]:
        """Return those of the namespace, or of the cluster for kinds without namespaces."""
        ...

    def asked(self, key: Key) -> Any:
        """Return what was asked for at ``key``, as its server said a moment ago."""
        ...


class Nothing:
    """Fulfils Look where there is nothing to look at."""

    def get(self, kind: Kind, key: Key) -> Any:  # noqa: ARG002  # none has any
        return None

    def each(self, kind: Kind) -> Iterable[Any]:  # noqa: ARG002  # none has any
        return ()

    def asked(self, key: Key) -> Any:  # noqa: ARG002  # none has any
        return None


@dataclass(frozen=True)
class Scene:
    """Between which namespaces, by which rules, and what else is there."""

    pair: MappedNamespace
    policy: Policy = Policy.DENY_LIST
    settings: Settings = field(default_factory=Settings)
    look: Look = field(default_factory=Nothing)
    offers: AllowedReflection | None = None
    """What the provider takes beyond its defaults; None where it says nothing of it."""


def _always(_settings: Settings) -> bool:
    return True


Touched = Callable[[Any, Any, Scene], Iterable[Key]]
"""From an input before and after its change (None: not there) to the keys of originals."""


def nobody(_old: Any, _new: Any, _scene: Scene) -> Iterable[Key]:
    """Look at no original again: what changes is there when one is looked at."""
    return []


@dataclass(frozen=True)
class Input:
    """Objects that a kind looks at besides its originals and twins."""

    kind: Kind
    touched: Touched
    """Which originals are to be looked at again when one of these objects changes."""
    shape: type[Any] | None = None
    """A struct of the part that is looked at; None for whole objects."""
    labels: str = ""
    policies: frozenset[Policy] = frozenset(Policy)
    """Under which it is looked at."""
    is_needed: Callable[[Settings], bool] = _always
    may_be_unknown: bool = False
    """Whether a cluster that does not know the kind counts as having no objects of it."""


@dataclass(frozen=True)
class Asking:
    """Objects that a kind reads one by one, once an original is about one, and does not follow."""

    kind: Kind
    shape: type[Any]
    """A struct of the part that is looked at."""
    about: Callable[[Object, Scene], Key | None]
    """Return which one the original is about; None if that does not matter."""
    held_s: Callable[[Object, Scene], float]
    """Return for how many seconds an original waits before it is judged."""
    suffices: Callable[[Object, Any], bool]
    """Whether what is known of the one it is about is enough, however old."""
    story: Callable[[Object], str]
    """Return what the original is a part of: where one has come home the others do not wait."""


@dataclass(frozen=True)
class Write:
    """One write in the cluster of the original that follows from original and twin."""

    verb: Literal["create", "patch", "status", "delete"]
    kind: Kind
    key: Key
    body: Object = field(default_factory=dict)
    """Of a patch: the changes; with the UID it is for. Of a delete: the object."""


def _same(name: str, _pair: MappedNamespace) -> str:
    return name


def _as_it_is(wanted: Object) -> Object:
    return wanted


def _as_wanted(wanted: Object, _found: Object) -> Object:
    return wanted


def _never(_wanted: Object, _found: Object) -> bool:
    return False


def _nothing(_original: Object, _scene: Scene) -> str:
    return ""


def _no_write(
    _key: Key, _original: Object | None, _twin: Object | None, _scene: Scene
) -> Iterable[Write]:
    return ()


@dataclass(frozen=True)
class Forge:
    """How a kind is reflected."""

    row: ReflectedKind
    twin: Callable[[Object, Scene], Object]
    """Return the twin of an original, or raise ``leaving.NotYetError``."""
    stays: Callable[[Object, Scene], NotReflected | None] | None = None
    """Return why an original has no twin; None to go by the policies for all kinds."""
    lacks: Callable[[Object, Scene], str] = _nothing
    """Return for its author what the twin of an original lacks, as not offered; empty: nothing."""
    twin_name: Callable[[str, MappedNamespace], str] = _same
    original_name: Callable[[str, MappedNamespace], str] = _same
    selector: tuple[str, ...] = ()
    """What besides the pair's labels tells twins from what others keep under the same labels."""
    shown: Callable[[Object], Object] = _as_it_is
    """Return of a wanted twin what the server shows as it was sent."""
    settled: Callable[[Object, Object], Object] = _as_wanted
    """Return the wanted twin (first) with what cannot be changed in the one there is (second)."""
    is_fixed: Callable[[Object, Object], bool] = _never
    """Whether no server lets the twin there is (second) become the wanted one (first)."""
    pace: Callable[[Object], str] | None = None
    """Return whose share of writes an original takes; None for kinds without limit."""
    back: Callable[[Key, Object | None, Object | None, Scene], Iterable[Write]] = _no_write
    """Return what is to be written where the original is."""
    inputs: tuple[Input, ...] = ()
    asking: Asking | None = None

    def reason_to_stay(self, original: Object, scene: Scene) -> NotReflected | None:
        """Return why ``original`` is to have no twin, None when it is to have one."""
        if self.stays is not None:
            return self.stays(original, scene)
        return reflectionpolicy.reason_to_stay(self.row.kind, original, scene.policy)
