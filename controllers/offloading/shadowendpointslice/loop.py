"""Which changes concern which ShadowEndpointSlice."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from apis import keys, remap, whose
from apis.objects import Key, Object
from controllers import concerns, fabric, selections, views
from controllers.manager import Manager, Term
from controllers.offloading.shadowendpointslice import forge
from controllers.offloading.shadowendpointslice.forge import Addressed, Own, Reach
from controllers.offloading.shadowendpointslice.pods import PodAddresses
from controllers.offloading.shadowendpointslice.reconciler import ShadowEndpointSliceReconciler
from kube import errors
from kube.cluster import Selection
from kube.informer import Change, Informer
from kube.process import Loop
from kube.runner import Runner, Source

WORKERS: Final = 10
SHADOWS: Final = selections.every(keys.SHADOW_ENDPOINT_SLICE)
SLICES: Final = selections.every(
    keys.ENDPOINT_SLICE, labels=f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_ENDPOINT_SLICE}"
)
API_SERVERS: Final = selections.every(
    keys.ENDPOINT_SLICE, namespace="default", labels=f"{keys.SERVICE_NAME}=kubernetes"
)
NODES: Final = Selection(keys.NODE, Addressed, labels=f"{keys.NODE_TYPE}!={keys.VIRTUAL_NODE_TYPE}")
SERVICE_CIDRS: Final = selections.every(keys.SERVICE_CIDR)
PEERS: Final = selections.every(keys.FOREIGN_CLUSTER)


@dataclass(frozen=True)
class _Known:
    """What this process knows of addresses."""

    nodes: Informer[Addressed]
    api_servers: Informer[Object]
    service_cidrs: Informer[Object]
    service_flags: tuple[str, ...]
    configurations: Informer[Object] | None

    def reach(self, consumer: str, pods: PodAddresses) -> Reach | None:
        """Return what ``consumer`` may name; None while it is not known which pods there are."""
        if self.configurations:
            known = self.configurations.items().values()
            return Reach(self._own(), remap.of_peer(known, consumer))
        if not pods.is_known():
            return None
        return Reach(self._own(), is_pods=lambda address: self._is_own(pods.nodes_of(address)))

    def _own(self) -> Own:
        said = map(forge.service_networks, self.service_cidrs.items().values())
        services = [*self.service_flags, *itertools.chain.from_iterable(said)]
        return forge.own(self.nodes.items().values(), self.api_servers.items().values(), services)

    def _is_own(self, names: Iterable[str]) -> bool:
        """Whether one of the nodes so called is no virtual one."""
        return any(Key("", name) in self.nodes.items() for name in names)


def controller(manager: Manager) -> Term:
    """Return the term of this controller."""
    shadows, slices = manager.informer(SHADOWS), manager.informer(SLICES)
    peers = manager.informer(PEERS)
    namespaces = manager.informer(selections.PEER_NAMESPACES)
    known = _Known(
        nodes=manager.informer(NODES),
        api_servers=manager.informer(API_SERVERS),
        service_cidrs=manager.informer(SERVICE_CIDRS, may_lack=(errors.NotFoundError,)),
        service_flags=manager.limits.service_cidrs,
        configurations=fabric.configurations(manager),
    )
    all_of_them = concerns.all_of(shadows)
    everything = (known.api_servers, known.service_cidrs, known.configurations)

    def by_node(change: Change[Addressed]) -> Iterable[Key]:
        before, after = (each.texts() if each else [] for each in (change.old, change.new))
        return [] if before == after else all_of_them(change)

    def by_peer(change: Change[Any]) -> Iterable[Key]:
        before, after = map(forge.is_reachable, (change.old, change.new))
        return [] if before == after else all_of_them(change)

    def by_namespace(change: Change[Any]) -> Iterable[Key]:
        before, after = map(whose.consumer_of, (change.old, change.new))
        return [] if before == after else concerns.inside(shadows)(change)

    sources: list[Source[Any]] = [
        Source(shadows),
        Source(namespaces, by_namespace),
        Source(slices),
        Source(known.nodes, by_node),
        Source(peers, by_peer),
        *(Source(each, all_of_them) for each in everything if each),
    ]

    def loops() -> list[Loop]:
        pods = PodAddresses(manager.live)
        reconciler = ShadowEndpointSliceReconciler(
            manager.cached,
            consumer=views.consumers(namespaces),
            reach=lambda consumer: known.reach(consumer, pods),
            peers=peers.items,
            events=manager.events,
        )
        runner = Runner("shadowendpointslice", reconciler, sources, workers=WORKERS)
        pods.subscribe(lambda changed: _look_again(shadows, changed, runner))
        return [runner, pods]

    return loops


def _look_again(shadows: Informer[Object], changed: frozenset[str], runner: Runner) -> None:
    """Judge anew what names an address that a pod has now, or has no more."""
    for key, shadow in shadows.items().items():
        if not changed.isdisjoint(forge.named(shadow)):
            runner.enqueue(key)
