"""A consumer with virtual nodes, whose namespaces are offloaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from apis import keys
from apis.objects import Key, Kind, Object
from controllers import watches
from controllers.offloading.namespaceoffloading.reconciler import (
    NamespaceOffloadingListers,
    NamespaceOffloadingReconciler,
)
from kube.cluster import Selection
from tests.controllers.support import (
    NOW,
    Ledger,
    Told,
    live_lister,
    local_map,
    offloading,
    settle,
    tenant_namespace,
    there,
    virtual_node,
)


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
        self.reconciler = NamespaceOffloadingReconciler(
            self.cluster,
            self.world(),
            cluster_id="rome",
            events=self.told.recorder,
            clock=self.clock,
            tick=lambda: self.now.timestamp() + self.set_back_s,
        )

    def set_back(self, seconds: float) -> None:
        """Set the time of day back, as NTP does: durations go on."""
        self.now -= timedelta(seconds=seconds)
        self.set_back_s += seconds

    def world(self) -> NamespaceOffloadingListers:
        def of(selection: Selection[Object]) -> watches.Lister:
            return live_lister(self.cluster, selection)

        virtual_nodes = f"{keys.NODE_TYPE}={keys.VIRTUAL_NODE_TYPE}"
        return NamespaceOffloadingListers(
            namespace_maps=self.of_tenants(keys.NAMESPACE_MAP),
            virtual_nodes=self.of_tenants(keys.VIRTUAL_NODE),
            nodes=of(Selection(keys.NODE, Object, labels=virtual_nodes)),
            bindings=of(Selection(keys.ROLE_BINDING, Object, self.namespace)),
        )

    def of_tenants(self, kind: Kind) -> watches.Lister:
        """Return what is in the tenant namespaces of this test."""

        async def items() -> Mapping[Key, Object]:
            found = (await self.cluster.list(Selection(kind, Object))).items
            return {key: obj for key, obj in found.items() if key.namespace.startswith(self.tenant)}

        return items

    def home(self, cluster_id: str) -> str:
        """Return the tenant namespace of that cluster."""
        return f"{self.tenant}-{cluster_id}"

    @property
    def key(self) -> Key:
        return Key(self.namespace, "offloading")

    async def settle(self) -> None:
        await settle(self.reconciler, self.key, self.cluster)

    async def offload(self, **spec: object) -> None:
        await self.cluster.create(keys.NAMESPACE_OFFLOADING, offloading(self.namespace, **spec))
        await self.settle()

    async def peer(self, cluster_id: str, **spec: object) -> None:
        home = self.home(cluster_id)
        await self.cluster.create(keys.NAMESPACE, tenant_namespace(home, cluster_id))
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
