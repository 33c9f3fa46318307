"""What the module of a kind gives the one algorithm, which objects it reads, and what all share."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import msgspec

from apis import allowlist, keys, objects, ownership, reflectionpolicy
from apis.networks import Network
from apis.objects import Key, Kind, Meta, Object
from apis.offloading import MappedNamespace
from apis.offloading import ReflectionPolicy as Policy
from apis.providerpolicy import AllowedReflection
from apis.reflection import ReflectedKind
from apis.reflectionpolicy import Mention, MetadataFilter, NotReflected
from reflector.kinds import fields


@dataclass(frozen=True)
class RemoteObjectOptions:
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


class Lister(Protocol):
    """The objects that a kind asked for by its ``Input``; as old as a cache, and read only."""

    def get(self, kind: Kind, key: Key) -> Any:
        """Return the one at ``key``, None if it is absent."""
        ...

    def each(self, kind: Kind) -> Iterable[Any]:
        """Return those of the namespace, or of the cluster for kinds without namespaces."""
        ...

    def recent(self, key: Key) -> Any:
        """Return what was read at ``key`` alone, as its server said a moment ago."""
        ...


class Nothing:
    """Fulfils Lister where there is nothing to look at."""

    def get(self, kind: Kind, key: Key) -> Any:  # noqa: ARG002  # none has any
        return None

    def each(self, kind: Kind) -> Iterable[Any]:  # noqa: ARG002  # none has any
        return ()

    def recent(self, key: Key) -> Any:  # noqa: ARG002  # none has any
        return None


@dataclass(frozen=True)
class ReflectionContext:
    """Between which namespaces, by which rules, and what else is there."""

    pair: MappedNamespace
    policy: Policy = Policy.DENY_LIST
    settings: RemoteObjectOptions = field(default_factory=RemoteObjectOptions)
    lister: Lister = field(default_factory=Nothing)
    offers: AllowedReflection | None = None
    """What the provider takes beyond its defaults; None where it says nothing of it."""


Touched = Callable[[Any, Any, ReflectionContext], Iterable[Key]]
"""From an input before and after its change (None: not there) to the keys of originals."""


def nobody(_old: Any, _new: Any, _context: ReflectionContext) -> Iterable[Key]:
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
    is_needed: Callable[[RemoteObjectOptions], bool] = lambda _settings: True
    may_be_unknown: bool = False
    """Whether a cluster that does not know the kind counts as having no objects of it."""


@dataclass(frozen=True)
class RateLimitedRead:
    """Objects that a kind reads one by one, once an original is about one, and does not follow."""

    kind: Kind
    shape: type[Any]
    """A struct of the part that is looked at."""
    about: Callable[[Object, ReflectionContext], Key | None]
    """Return which one the original is about; None if that does not matter."""
    held_s: Callable[[Object, ReflectionContext], float]
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


@dataclass(frozen=True)
class KindReflection:
    """How a kind is reflected."""

    row: ReflectedKind
    twin: Callable[[Object, ReflectionContext], Object]
    """Return the twin of an original, or raise ``reflectionpolicy.NotYetError``."""
    stays: Callable[[Object, ReflectionContext], NotReflected | None] | None = None
    """Return why an original has no twin; None to go by the policies for all kinds."""
    lacks: Callable[[Object, ReflectionContext], str] = lambda _original, _context: ""
    """Return for its author what the twin of an original lacks, as not offered; empty: nothing."""
    twin_name: Callable[[str, MappedNamespace], str] = lambda name, _pair: name
    original_name: Callable[[str, MappedNamespace], str] = lambda name, _pair: name
    selector: tuple[str, ...] = ()
    """What besides the pair's labels tells twins from what others keep under the same labels."""
    shown: Callable[[Object], Object] = lambda wanted: wanted
    """Return of a wanted twin what the server shows as it was sent."""
    settled: Callable[[Object, Object], Object] = lambda wanted, _found: wanted
    """Return the wanted twin (first) with what cannot be changed in the one there is (second)."""
    is_fixed: Callable[[Object, Object], bool] = lambda _wanted, _found: False
    """Whether no server lets the twin there is (second) become the wanted one (first)."""
    pace: Callable[[Object], str] | None = None
    """Return whose share of writes an original takes; None for kinds without limit."""
    back: Callable[[Key, Object | None, Object | None, ReflectionContext], Iterable[Write]] = (
        lambda _key, _original, _twin, _context: ()
    )
    """Return what is to be written where the original is."""
    inputs: tuple[Input, ...] = ()
    rate_limited_read: RateLimitedRead | None = None

    def reason_to_stay(self, original: Object, context: ReflectionContext) -> NotReflected | None:
        """Return why ``original`` is to have no twin, None when it is to have one."""
        if self.stays is not None:
            return self.stays(original, context)
        return reflectionpolicy.reason_to_stay(self.row.kind, original, context.policy)


# The parts of other objects that kinds read: caches keep nothing else of them ---------------------


class Metadata(Meta, gc=False, frozen=True):
    """Which object it is, and its labels."""

    labels: dict[str, str] | None = None


class Offering(Metadata, gc=False, frozen=True):
    """Of the annotations only that which says what a virtual node offers."""

    annotations: dict[str, str] | None = None

    def __post_init__(self) -> None:
        class_ = (self.annotations or {}).get(keys.OFFERED_STORAGE_CLASS)
        kept = None if class_ is None else {keys.OFFERED_STORAGE_CLASS: class_}
        msgspec.structs.force_setattr(self, "annotations", kept)


class Labelled(msgspec.Struct, gc=False, frozen=True):
    """A Node of which little but its labels matters."""

    metadata: Offering

    def is_node_of(self, cluster_id: str) -> bool:
        return ownership.cluster_in(self.metadata.labels or {}) == cluster_id

    def says_the_same(self, other: "Labelled | None") -> bool:
        return other is not None and self.metadata.labels == other.metadata.labels


_EMPTY: Final = msgspec.Raw(b"{}")


class Placed(msgspec.Struct, gc=False, frozen=True):
    """Where a pod runs, and the ConfigMaps and Secrets that it mentions."""

    metadata: Metadata
    spec: msgspec.Raw = _EMPTY
    node: str = ""
    mentions: frozenset[Mention] = frozenset()

    def __post_init__(self) -> None:
        spec = msgspec.json.decode(self.spec, type=dict[str, Any])
        msgspec.structs.force_setattr(self, "spec", _EMPTY)
        msgspec.structs.force_setattr(self, "node", str(spec.get("nodeName") or ""))
        msgspec.structs.force_setattr(self, "mentions", reflectionpolicy.mentioned(spec))

    def says_the_same(self, other: "Placed | None") -> bool:
        return other is not None and (self.node, self.mentions, self.metadata.uid) == (
            other.node,
            other.mentions,
            other.metadata.uid,
        )


# What all reflected objects share: name, ownership labels, filtered metadata, copied fields -------


def remote_object(
    kind: Kind,
    local: Object,
    context: ReflectionContext,
    *,
    keep: Iterable[str] = (),
    **rest: object,
) -> Object:
    """Return the twin of ``local``: its fields ``keep`` as they are, and ``rest``.

    Owners and finalizers mean something in their own cluster only and are left out.
    Source: docs/parity.md § 6.1.
    """
    hidden = context.settings.hidden
    left_out = _left_out(kind, local, context)
    labels = {
        name: text
        for name, text in allowlist.labels_of_shadow(hidden.labels(local)).items()
        if name not in _labels_left_out(kind, local, context)
    }
    metadata: Object = {"labels": {**labels, **context.pair.labels()}}
    annotations = {
        name: text for name, text in hidden.annotations(local).items() if name not in left_out
    }
    if annotations:
        metadata["annotations"] = annotations
    where = context.pair.twin_of(objects.key_of(local))
    kept = {name: local[name] for name in keep if local.get(name) is not None}
    return objects.named(kind, where, metadata=metadata, **kept, **rest)


def unsent(kind: Kind, local: Object, context: ReflectionContext) -> str:
    """Return which metadata of ``local`` the provider does not take, and which fields are not sent.

    Empty for nothing.
    """
    left_out = {
        "annotations": _left_out(kind, local, context) - _NEVER_SENT,
        "labels": _labels_left_out(kind, local, context),
    }
    told = [f"{field} {', '.join(sorted(names))}" for field, names in left_out.items() if names]
    where = context.pair.destination
    cure = (
        f"programs of {where} may obey them (spec.annotationDomains of its ProviderPolicy opens "
        f"domains), or they are more than {allowlist.SENT}"
    )
    metadata = f"without {' and '.join(told)}: {cure}" if told else ""
    return "; ".join(filter(None, (metadata, fields.unsent(kind, local, where))))


def lacks(kind: Kind) -> Callable[[Object, ReflectionContext], str]:
    """Return what tells the author of an object of ``kind`` what of its metadata is not sent."""
    return functools.partial(unsent, kind)


_NEVER_SENT: Final = frozenset({keys.INGRESS_CLASS, *keys.ANNOTATIONS_OF_CLAIMS})
"""What a cluster writes for itself: left out of twins, and told to nobody."""


def _left_out(kind: Kind, local: Object, context: ReflectionContext) -> frozenset[str]:
    """Return the annotations that are not sent; a provider that does not say decides itself."""
    if context.offers is None:
        return frozenset()
    sent = context.settings.hidden.annotations(local)
    return allowlist.unsent(kind, sent, context.offers.annotation_domains)


def _labels_left_out(kind: Kind, local: Object, context: ReflectionContext) -> frozenset[str]:
    if context.offers is None:
        return frozenset()
    sent = context.settings.hidden.labels(local)
    return allowlist.refused_labels(kind, sent, context.offers.annotation_domains)


def is_immutable(found: Object, wanted: Object, names: Iterable[str]) -> bool:
    """Whether ``found`` says that it is immutable, and its fields ``names`` differ."""
    is_other = any((found.get(name) or None) != (wanted.get(name) or None) for name in names)
    return bool(found.get("immutable")) and is_other
