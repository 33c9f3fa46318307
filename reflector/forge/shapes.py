"""The parts of objects that kinds look at besides their own: caches keep nothing else of them."""

from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from apis import keys
from apis.objects import Kind


class Metadata(msgspec.Struct, gc=False, frozen=True):
    """Which object it is, and its labels."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815  # as on the wire
    labels: dict[str, str] | None = None


class Labelled(msgspec.Struct, gc=False, frozen=True):
    """An object of which only the labels matter."""

    metadata: Metadata

    def is_node_of(self, cluster_id: str) -> bool:
        """Whether it is a virtual node of that provider."""
        return (self.metadata.labels or {}).get(keys.REMOTE_CLUSTER_ID) == cluster_id

    def says_the_same(self, other: "Labelled | None") -> bool:
        """Whether nothing that matters differs."""
        return other is not None and self.metadata.labels == other.metadata.labels


_EMPTY: Final = msgspec.Raw(b"{}")


class _Named(msgspec.Struct):
    name: str = ""


class _Secret(msgspec.Struct):
    secretName: str = ""  # noqa: N815  # as on the wire


class _Reference(msgspec.Struct):
    configMap: _Named = msgspec.field(default_factory=_Named)  # noqa: N815  # as on the wire
    secret: _Named = msgspec.field(default_factory=_Named)


class _Projected(msgspec.Struct):
    sources: list[_Reference] = []


class _Volume(msgspec.Struct):
    configMap: _Named = msgspec.field(default_factory=_Named)  # noqa: N815  # as on the wire
    secret: _Secret = msgspec.field(default_factory=_Secret)
    projected: _Projected = msgspec.field(default_factory=_Projected)


class _From(msgspec.Struct):
    configMapKeyRef: _Named = msgspec.field(default_factory=_Named)  # noqa: N815  # as on the wire
    secretKeyRef: _Named = msgspec.field(default_factory=_Named)  # noqa: N815  # as on the wire


class _Env(msgspec.Struct):
    valueFrom: _From = msgspec.field(default_factory=_From)  # noqa: N815  # as on the wire


class _EnvFrom(msgspec.Struct):
    configMapRef: _Named = msgspec.field(default_factory=_Named)  # noqa: N815  # as on the wire
    secretRef: _Named = msgspec.field(default_factory=_Named)  # noqa: N815  # as on the wire


class _Container(msgspec.Struct):
    env: list[_Env] = []
    envFrom: list[_EnvFrom] = []  # noqa: N815  # as on the wire


class _PodSpec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815  # as on the wire
    containers: list[_Container] = []
    initContainers: list[_Container] = []  # noqa: N815  # as on the wire
    imagePullSecrets: list[_Named] = []  # noqa: N815  # as on the wire
    volumes: list[_Volume] = []


_POD_SPEC: Final = msgspec.json.Decoder(_PodSpec)
Mention: TypeAlias = tuple[Kind, str]


class Placed(msgspec.Struct, gc=False, frozen=True):
    """Where a pod runs, and the ConfigMaps and Secrets that it mentions."""

    metadata: Metadata
    spec: msgspec.Raw = _EMPTY
    node: str = ""
    mentions: frozenset[tuple[str, str]] = frozenset()
    """Plural of the kind, and name."""

    def __post_init__(self) -> None:
        spec = _POD_SPEC.decode(self.spec)
        found = frozenset((kind.plural, name) for kind, name in _mentions(spec) if name)
        msgspec.structs.force_setattr(self, "spec", _EMPTY)
        msgspec.structs.force_setattr(self, "node", spec.nodeName)
        msgspec.structs.force_setattr(self, "mentions", found)

    def says_the_same(self, other: "Placed | None") -> bool:
        """Whether nothing that matters differs."""
        return other is not None and (self.node, self.mentions, self.metadata.uid) == (
            other.node,
            other.mentions,
            other.metadata.uid,
        )


def _mentions(spec: _PodSpec) -> Iterator[Mention]:
    """Yield the kind and name of all that the pod of ``spec`` reads; names may be empty."""
    yield from ((keys.SECRET, one.name) for one in spec.imagePullSecrets)
    for volume in spec.volumes:
        yield keys.CONFIG_MAP, volume.configMap.name
        yield keys.SECRET, volume.secret.secretName
        for source in volume.projected.sources:
            yield keys.CONFIG_MAP, source.configMap.name
            yield keys.SECRET, source.secret.name
    for container in (*spec.containers, *spec.initContainers):
        yield from _read_by(container)


def _read_by(container: _Container) -> Iterator[Mention]:
    for variable in container.env:
        yield keys.CONFIG_MAP, variable.valueFrom.configMapKeyRef.name
        yield keys.SECRET, variable.valueFrom.secretKeyRef.name
    for all_of in container.envFrom:
        yield keys.CONFIG_MAP, all_of.configMapRef.name
        yield keys.SECRET, all_of.secretRef.name
