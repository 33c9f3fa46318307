"""A consumer with virtual nodes, whose namespaces are offloaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from apis import keys
from apis.objects import Key, Object
from controllers.offloading.namespaceoffloading.reconciler import NamespaceOffloadingReconciler
from kube.cluster import Selection
from tests import factories
from tests.controllers.support import (
    NOW,
    Ledger,
    LiveManager,
    T,
    Told,
    defaulted,
    local_map,
    manager_of,
    settle,
    there,
    virtual_node,
)


@dataclass(frozen=True)
class OfTenants(LiveManager):
    """Of maps and virtual nodes only those in the tenant namespaces of a test."""

    tenant: str = ""

    async def all(self, selection: Selection[T]) -> Mapping[Key, T]:
        found = await super().all(selection)
        if selection.kind not in {keys.NAMESPACE_MAP, keys.VIRTUAL_NODE}:
            return found
        return {key: one for key, one in found.items() if key.namespace.startswith(self.tenant)}


@dataclass
class Rome:
    """A consumer with one peer, all in namespaces of this test."""

    cluster: Ledger
    namespace: str
    tenant: str
    told: Told
    now: datetime = NOW
    set_back_s: float = 0.0
    clock: Callable[[], datetime] = field(init=False)

    def __post_init__(self) -> None:
        self.clock = lambda: self.now
        manager = manager_of(
            self.cluster,
            of=partial(OfTenants, tenant=self.tenant),
            cluster_id="rome",
            events=self.told.recorder,
            clock=self.clock,
        )
        self.reconciler = NamespaceOffloadingReconciler(
            manager, lambda: self.now.timestamp() + self.set_back_s
        )

    def set_back(self, seconds: float) -> None:
        """Set the time of day back, as NTP does: durations go on."""
        self.now -= timedelta(seconds=seconds)
        self.set_back_s += seconds

    def home(self, cluster_id: str) -> str:
        """Return the tenant namespace of that cluster."""
        return f"{self.tenant}-{cluster_id}"

    @property
    def key(self) -> Key:
        return Key(self.namespace, "offloading")

    async def settle(self) -> None:
        await settle(self.reconciler, self.key, self.cluster)

    async def offload(self, **spec: object) -> None:
        await self.cluster.create(keys.NAMESPACE_OFFLOADING, defaulted(self.namespace, **spec))
        await self.settle()

    async def peer(self, cluster_id: str, **spec: object) -> None:
        home = self.home(cluster_id)
        await self.cluster.create(keys.NAMESPACE, factories.tenant_namespace(home, cluster_id))
        node = virtual_node(home, f"{cluster_id}-{self.namespace}", cluster_id, **spec)
        await self.cluster.create(keys.VIRTUAL_NODE, node)
        await self.cluster.create(keys.NAMESPACE_MAP, local_map(home, cluster_id))

    async def answer(self, cluster_id: str, phase: str | None, **rest: str) -> None:
        entry = {"remoteNamespace": f"{self.namespace}-rome", "phase": phase, **rest}
        mapping = {self.namespace: entry if phase else None}
        key = Key(self.home(cluster_id), cluster_id)
        await self.cluster.patch_status(keys.NAMESPACE_MAP, key, {"currentMapping": mapping})

    async def desired(self, cluster_id: str) -> dict[str, str]:
        found = await there(
            self.cluster, keys.NAMESPACE_MAP, Key(self.home(cluster_id), cluster_id)
        )
        return found["spec"].get("desiredMapping") or {}

    async def status(self) -> Object:
        found = await there(self.cluster, keys.NAMESPACE_OFFLOADING, self.key)
        status: Object = found["status"]
        return status

    async def label(self) -> str | None:
        found = await there(self.cluster, keys.NAMESPACE, Key("", self.namespace))
        return (found["metadata"].get("labels") or {}).get(keys.SCHEDULING_ENABLED)

    async def bound(self) -> list[str]:
        listing = await self.cluster.list(Selection(keys.ROLE_BINDING, Object, self.namespace))
        return sorted(key.name for key in listing.items)
