"""What is kept of each claim of the cluster: what says whether it concerns us, and nothing large.

Anybody who may create claims chooses how large they are and how many; the rest is read from the
server where it is needed. Source: docs/parity.md H18.
"""

import msgspec

from apis import keys
from apis.objects import Key, Meta, Object

MOST: int = 253
"""Characters of a text, as many as a name may have."""


class Annotations(msgspec.Struct, gc=False, omit_defaults=True):
    """Those of provisioning, the others left out."""

    older: str = msgspec.field(default="", name=keys.STORAGE_PROVISIONERS[0])
    newer: str = msgspec.field(default="", name=keys.STORAGE_PROVISIONERS[1])
    node: str = msgspec.field(default="", name=keys.SELECTED_NODE)

    def __post_init__(self) -> None:
        self.older, self.newer = self.older[:MOST], self.newer[:MOST]
        self.node = self.node[:MOST]


class ClaimMeta(Meta, gc=False, frozen=True, omit_defaults=True):
    """Which claim it is."""

    annotations: Annotations | None = None


class Spec(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """Its class, and whether it has a volume."""

    storage_class_name: str | None = None
    volume_name: str = ""

    def __post_init__(self) -> None:
        self.storage_class_name = (self.storage_class_name or "")[:MOST]
        self.volume_name = self.volume_name[:MOST]


class Claim(msgspec.Struct, gc=False):
    """A claim as the cache keeps it."""

    metadata: ClaimMeta
    spec: Spec = msgspec.field(default_factory=Spec)

    @property
    def key(self) -> Key:
        """Return where it is."""
        return Key(self.metadata.namespace, self.metadata.name)

    def to_object(self) -> Object:
        """Return it as an object: a new dict each time."""
        made: Object = msgspec.to_builtins(self)
        return made
