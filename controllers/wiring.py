"""Which caches there are, which loops run on them, and which change concerns whom."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from apis import keys, objects
from apis.objects import Key, Kind, Object
from apis.offloading import VirtualNode
from controllers import views
from controllers.csrapproval import forge as csr_forge
from controllers.csrapproval.reconciler import CsrApprovalReconciler
from controllers.namespacemap import forge as map_forge
from controllers.namespacemap.reconciler import NamespaceMapReconciler
from controllers.namespaceoffloading import forge as offloading_forge
from controllers.namespaceoffloading import reconciler as namespaceoffloading
from controllers.placement import forge as placement_forge
from controllers.placement import reconciler as placement
from controllers.quota import accounts
from controllers.quota.accounts import Accounts
from controllers.quota.additions import Additions
from controllers.quota.reconciler import QuotaReconciler
from controllers.replication import forge as replication_forge
from controllers.replication import peers
from controllers.shadowpod import slim
from controllers.shadowpod.reconciler import ShadowPodReconciler
from controllers.shadowpod.slim import SlimPod, SlimShadow
from controllers.virtualnode import reconciler as virtualnode
from controllers.virtualnode.forge import rights
from controllers.virtualnode.forge.deployment import Home
from kube.cache import CachedCluster
from kube.cluster import Cluster, Selection
from kube.events import Recorder
from kube.informer import Change, Informer
from kube.runner import Runner, Source

Keys = Callable[[Change[Object]], Iterable[Key]]

_OF_KUBELETS: Final = f"{keys.COMPONENT}={keys.VIRTUAL_KUBELET}"
_BINDINGS: Final = f"{keys.APP_MANAGED_BY}=liqo,{keys.REMOTE_CLUSTER_ID}"


@dataclass(frozen=True)
class Limits:
    """How much at once."""

    shadow_pod_workers: int = 10
    workers: int = 2
    max_twins: int = map_forge.MAX_TWINS


@dataclass(frozen=True)
class Place:
    """Where we are and what every loop uses; ``accounts`` where quotas are enforced."""

    live: Cluster
    cached: CachedCluster
    cluster_id: str
    namespace: str
    events: Recorder
    clock: Callable[[], datetime]
    user_agent: str
    accounts: Accounts | None = None


@dataclass(frozen=True)
class Caches:
    """One informer a selection, as narrow as the server can select, shared by all loops."""

    offloadings: Informer[Object]
    namespace_maps: Informer[Object]
    virtual_nodes: Informer[Object]
    templates: Informer[Object]
    nodes: Informer[Object]
    peer_namespaces: Informer[Object]
    enabled_namespaces: Informer[Object]
    role_bindings: Informer[Object]
    cluster_role_bindings: Informer[Object]
    roles: Informer[Object]
    service_accounts: Informer[Object]
    deployments: Informer[Object]
    shadow_pods: Informer[SlimShadow]
    pods: Informer[SlimPod]
    quotas: Informer[Object]
    limit_ranges: Informer[Object]
    runtime_classes: Informer[Object]
    signing_requests: Informer[Object]

    @classmethod
    def of(cls, namespace: str) -> "Caches":
        """Return empty caches; ``namespace`` is that of pyliqo itself."""
        return cls(
            offloadings=_all(
                keys.NAMESPACE_OFFLOADING, fields=f"metadata.name={keys.OFFLOADING_NAME}"
            ),
            namespace_maps=_all(keys.NAMESPACE_MAP),
            virtual_nodes=_all(keys.VIRTUAL_NODE),
            templates=_all(keys.VK_OPTIONS_TEMPLATE, namespace=namespace),
            nodes=_all(keys.NODE, labels=f"{keys.NODE_TYPE}={keys.VIRTUAL_NODE_TYPE}"),
            peer_namespaces=_all(keys.NAMESPACE, labels=keys.REMOTE_CLUSTER_ID),
            enabled_namespaces=_all(keys.NAMESPACE, labels=f"{keys.SCHEDULING_ENABLED}=true"),
            role_bindings=_all(keys.ROLE_BINDING, labels=_BINDINGS),
            cluster_role_bindings=_all(keys.CLUSTER_ROLE_BINDING, labels=_OF_KUBELETS),
            roles=_all(keys.ROLE, labels=_OF_KUBELETS),
            service_accounts=_all(keys.SERVICE_ACCOUNT, labels=_OF_KUBELETS),
            deployments=_all(keys.DEPLOYMENT, labels=_OF_KUBELETS),
            shadow_pods=Informer(Selection(keys.SHADOW_POD, SlimShadow)),
            pods=Informer(
                Selection(
                    keys.POD, SlimPod, labels=f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_POD}"
                )
            ),
            quotas=_all(keys.QUOTA),
            limit_ranges=_all(keys.LIMIT_RANGE),
            runtime_classes=_all(keys.RUNTIME_CLASSES),
            signing_requests=_all(
                keys.CERTIFICATE_SIGNING_REQUEST, fields=f"spec.signerName={csr_forge.SIGNER}"
            ),
        )

    def all(self) -> list[Informer[Any]]:
        """Return every informer."""
        return [getattr(self, field.name) for field in fields(self)]

    def whole(self) -> list[Informer[Object]]:
        """Return the informers that hold whole objects."""
        return [each for each in self.all() if each.selection.shape is Object]

    def accounts(self) -> Accounts:
        """Return the accounts of all users, which follow these caches from now on."""
        additions = Additions(self.limit_ranges, self.runtime_classes)
        return Accounts(self.quotas, self.shadow_pods, self.pods, additions)

    def is_synced(self) -> bool:
        """Whether everything is known."""
        return all(informer.synced.is_set() for informer in self.all())

    async def wait(self) -> None:
        """Wait until everything is known."""
        await asyncio.gather(*(informer.synced.wait() for informer in self.all()))


def _all(
    kind: Kind, *, namespace: str = "", labels: str = "", fields: str = ""
) -> Informer[Object]:
    return Informer(Selection(kind, Object, namespace, labels, fields))


def replication_home(place: Place, caches: Caches) -> peers.Home:
    """Return what replication needs to know of this cluster."""
    return peers.Home(
        cluster_id=place.cluster_id,
        live=place.live,
        cached=place.cached,
        informers={keys.NAMESPACE_MAP: caches.namespace_maps},
        events=place.events,
        user_agent=place.user_agent,
    )


def runners(place: Place, caches: Caches, limits: Limits) -> list[Runner]:
    """Return every loop but replication, none of them started."""
    shadow_pods = _shadow_pods(place, caches, limits)
    made = [
        _namespace_offloadings(place, caches, limits),
        _placements(place, caches, limits),
        _namespace_maps(place, caches, limits),
        _virtual_nodes(place, caches, limits),
        shadow_pods,
        _signing_requests(place, caches),
    ]
    if place.accounts is not None:
        made.append(_quotas(place, caches, place.accounts, shadow_pods))
    return made


def _namespace_offloadings(place: Place, caches: Caches, limits: Limits) -> Runner:
    world = namespaceoffloading.World(
        namespace_maps=views.cached(caches.namespace_maps),
        virtual_nodes=views.cached(caches.virtual_nodes),
        nodes=views.cached(caches.nodes),
        bindings=views.cached(caches.role_bindings),
    )

    def everyone() -> Iterable[Key]:
        return list(caches.offloadings.items())

    def by_map(change: Change[Object]) -> Iterable[Key]:
        if not any(replication_forge.destination(obj) for obj in change[1:] if obj):
            return []  # a replica, which is for the provider in us
        touched = offloading_forge.touched(change.old, change.new)
        return everyone() if touched is None else [_offloading_in(name) for name in touched]

    def by_node(change: Change[Object]) -> Iterable[Key]:
        return [] if offloading_forge.is_same_choice(change.old, change.new) else everyone()

    def by_binding(change: Change[Object]) -> Iterable[Key]:
        binding = change.new or change.old
        concerns = binding is not None and rights.is_for_offloading(binding)
        return [_offloading_in(change.key.namespace)] if concerns else []

    return Runner(
        "namespaceoffloading",
        namespaceoffloading.NamespaceOffloadingReconciler(
            place.cached, world, cluster_id=place.cluster_id, events=place.events, clock=place.clock
        ),
        [
            Source(caches.offloadings),
            Source(caches.enabled_namespaces, lambda change: [_offloading_in(change.key.name)]),
            Source(caches.namespace_maps, by_map),
            Source(caches.virtual_nodes, by_node),
            Source(caches.nodes, by_node),
            Source(caches.role_bindings, by_binding),
        ],
        workers=limits.workers,
    )


def _placements(place: Place, caches: Caches, limits: Limits) -> Runner:
    def by_offloading(change: Change[Object]) -> Iterable[Key]:
        is_same = placement_forge.is_same_question(change.old, change.new)
        return [] if is_same else [change.key]

    def by_node(change: Change[Object]) -> Iterable[Key]:
        is_same = offloading_forge.is_same_choice(change.old, change.new)
        return [] if is_same else list(caches.offloadings.items())

    return Runner(
        "placement",
        placement.PlacementReconciler(
            place.cached,
            placement.World(nodes=views.cached(caches.nodes)),
            events=place.events,
            clock=place.clock,
        ),
        [Source(caches.offloadings, by_offloading), Source(caches.nodes, by_node)],
        workers=limits.workers,
    )


def _offloading_in(namespace: str) -> Key:
    return Key(namespace, keys.OFFLOADING_NAME)


def _namespace_maps(place: Place, caches: Caches, limits: Limits) -> Runner:
    def by_owner(change: Change[Object]) -> Iterable[Key]:
        owners = {map_forge.owner_of(obj) for obj in (change.old, change.new) if obj}
        return [owner for owner in owners if owner]

    def by_namespace(change: Change[Object]) -> Iterable[Key]:
        inside = [key for key in caches.namespace_maps.items() if key.namespace == change.key.name]
        return [*by_owner(change), *inside]

    return Runner(
        "namespacemap",
        NamespaceMapReconciler(
            place.cached,
            views.cached(caches.peer_namespaces),
            events=place.events,
            max_twins=limits.max_twins,
        ),
        [
            Source(caches.namespace_maps),
            Source(caches.peer_namespaces, by_namespace),
            Source(caches.role_bindings, by_owner),
        ],
        workers=limits.workers,
    )


def _virtual_nodes(place: Place, caches: Caches, limits: Limits) -> Runner:
    def those(holds: Callable[[Key, Object], bool]) -> list[Key]:
        return [key for key, obj in caches.virtual_nodes.items().items() if holds(key, obj)]

    def by_label(change: Change[Object]) -> Iterable[Key]:
        obj = change.new or change.old or {"metadata": {}}
        name = rights.virtual_node_of(obj)
        return those(lambda key, _: key.name == name) if name else []

    def by_map(change: Change[Object]) -> Iterable[Key]:
        obj = change.new or change.old or {"metadata": {}}
        cluster_id = objects.labels(obj).get(keys.REMOTE_ID)
        return those(lambda _, node: VirtualNode.parse(node).cluster_id == cluster_id)

    return Runner(
        "virtualnode",
        virtualnode.VirtualNodeReconciler(
            place.cached,
            virtualnode.World(bindings=views.cached(caches.role_bindings)),
            home=Home(place.cluster_id, place.namespace),
            events=place.events,
            clock=place.clock,
        ),
        [
            Source(caches.virtual_nodes),
            Source(caches.nodes, lambda change: those(lambda key, _: key.name == change.key.name)),
            Source(caches.templates, lambda _: those(lambda _key, _node: True)),
            Source(caches.namespace_maps, by_map),
            *(
                Source(informer, by_label)
                for informer in (
                    caches.deployments,
                    caches.service_accounts,
                    caches.roles,
                    caches.role_bindings,
                    caches.cluster_role_bindings,
                )
            ),
        ],
        workers=limits.workers,
    )


def _shadow_pods(place: Place, caches: Caches, limits: Limits) -> Runner:
    ledger = place.accounts

    def by_quota(change: Change[Object]) -> Iterable[Key]:
        before, after = (accounts.booked(obj) if obj else {} for obj in (change.old, change.new))
        news = [key for uid, key in after.items() if uid not in before]
        users = {accounts.granted_to(obj) for obj in (change.old, change.new) if obj}
        if ledger is None or (change.old and change.new and len(users) == 1):
            return news
        return [*news, *(key for user in users for key in ledger.waiting(user))]

    reconciler = ShadowPodReconciler(
        place.cached,
        events=place.events,
        clock=place.clock,
        find=slim.seen(caches.shadow_pods, caches.pods),
        ledger=ledger,
    )
    sources: list[Source[Any]] = [Source(caches.shadow_pods), Source(caches.pods)]
    if ledger is not None:
        sources.append(Source(caches.quotas, by_quota))
    return Runner("shadowpod", reconciler, sources, workers=limits.shadow_pod_workers)


def _quotas(place: Place, caches: Caches, ledger: Accounts, shadow_pods: Runner) -> Runner:
    def of_user(change: Change[Any]) -> Iterable[Key]:
        if not accounts.is_news(change.old, change.new):
            return []
        users = {accounts.creator(obj) for obj in (change.old, change.new) if obj}
        return [key for user in users if (key := ledger.quota_of(user))]

    reconciler = QuotaReconciler(
        place.live,
        ledger,
        term=secrets.token_hex(8),
        tell=shadow_pods.enqueue,
        tick=time.monotonic,
    )
    sources: list[Source[Any]] = [
        Source(caches.quotas),
        Source(caches.shadow_pods, of_user),
        Source(caches.pods, of_user),
        *(
            Source(informer, lambda _: list(caches.quotas.items()))
            for informer in (caches.limit_ranges, caches.runtime_classes)
        ),
    ]
    return Runner("quota", reconciler, sources)


def _signing_requests(place: Place, caches: Caches) -> Runner:
    reconciler = CsrApprovalReconciler(place.cached, events=place.events, clock=place.clock)
    return Runner("csrapproval", reconciler, [Source(caches.signing_requests)])
