"""The parts of objects that kinds look at besides their own: caches keep nothing else of them."""

from typing import Any, Final

import msgspec

from apis import keys, ownership, reflectionpolicy
from apis.objects import Meta
from apis.reflectionpolicy import Mention


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
        """Whether it is a virtual node of that provider."""
        return ownership.cluster_in(self.metadata.labels or {}) == cluster_id

    def says_the_same(self, other: "Labelled | None") -> bool:
        """Whether nothing that matters differs."""
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
        """Whether nothing that matters differs."""
        return other is not None and (self.node, self.mentions, self.metadata.uid) == (
            other.node,
            other.mentions,
            other.metadata.uid,
        )
