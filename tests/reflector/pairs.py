"""A pair of namespaces, and the reflection of one kind between them."""

from typing import Any

from apis import keys
from apis.objects import Key, Kind, Object, named
from apis.offloading import MappedNamespace
from apis.offloading import ReflectionPolicy as Policy
from kube.cache import CachedCluster
from reflector.kinds.contract import KindReflection, ReflectionContext, RemoteObjectOptions
from reflector.kinds.table import KIND_REFLECTIONS
from reflector.reflection import Reflection, ReflectionClients
from tests import factories
from tests.fakes import FakeCluster

PAIR = MappedNamespace("rome", "milan", "foo", "foo-rome")
HERE = Key("foo", "mine")
THERE = Key("foo-rome", "mine")
WRITES = ("create", "apply", "patch", "patch_status", "delete", "post")
SIMPLE = (keys.CONFIG_MAP, keys.SECRET, keys.SERVICE, keys.INGRESS)
"""Kinds whose twins are of the same kind and depend on nothing else."""


def forge_of(kind: Kind) -> KindReflection:
    (found,) = (forge for forge in KIND_REFLECTIONS.values() if forge.row.kind == kind)
    return found


class World:
    """Two clusters, and what was told to authors."""

    def __init__(self) -> None:
        self.home, self.foreign = FakeCluster(), FakeCluster()
        self.told: list[tuple[str, str, str]] = []

    def reflection(
        self,
        kind: Kind = keys.CONFIG_MAP,
        policy: Policy = Policy.DENY_LIST,
        settings: RemoteObjectOptions | None = None,
    ) -> Reflection:
        context = ReflectionContext(PAIR, policy, settings or RemoteObjectOptions())
        return self.reflected(forge_of(kind), context)

    def reflected(self, forge: KindReflection, context: ReflectionContext) -> Reflection:
        here, there = CachedCluster(self.home), CachedCluster(self.foreign)
        ends = (here, there) if forge.row.is_outward else (there, here)
        return Reflection(forge, context, ReflectionClients(*ends, self.tell))

    def writes(self) -> int:
        return sum(
            count
            for cluster in (self.home, self.foreign)
            for (verb, _), count in cluster.requests.items()
            if verb in WRITES
        )

    def reasons(self) -> list[tuple[str, str]]:
        return [(type_, reason) for type_, reason, _ in self.told]

    def tell(self, obj: Object, type_: str, reason: str, message: str) -> None:
        self.told.append((type_, reason, message))


def original(kind: Kind, key: Key = HERE, **rest: Any) -> Object:
    """Return an object of which there is to be a twin."""
    endpoints = [{"addresses": ["192.0.2.1"], "conditions": {"ready": True}}]
    bodies: dict[Kind, Object] = {
        keys.CONFIG_MAP: factories.config_map(*key, a="1", b="2"),
        keys.SECRET: factories.secret(*key, a="eA=="),
        keys.SERVICE: factories.service(*key),
        keys.INGRESS: factories.ingress(*key),
        keys.ENDPOINT_SLICE: named(
            keys.ENDPOINT_SLICE, key, addressType="IPv4", endpoints=endpoints, ports=[]
        ),
        keys.PERSISTENT_VOLUME_CLAIM: factories.claim(*key, node="milan"),
    }
    return {**bodies[kind], **rest}
