"""Which changes concern which ShadowEndpointSlice."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from apis import keys, objects, remap, whose
from apis.objects import Key, Object
from apis.own import Addressed
from controllers import concerns, fabric, selections, views
from controllers.manager import Manager, Term
from controllers.offloading.shadowendpointslice import forge
from controllers.offloading.shadowendpointslice.forge import Reach
from controllers.offloading.shadowendpointslice.pods import PodAddresses
from controllers.offloading.shadowendpointslice.reconciler import ShadowEndpointSliceReconciler
from kube import ownaddresses
from kube.cluster import Selection
from kube.informer import Change, Informer
from kube.ownaddresses import OwnAddresses
from kube.process import Loop
from kube.runner import Runner, Source

WORKERS: Final = 10
SHADOWS: Final = Selection(keys.SHADOW_ENDPOINT_SLICE, Object, whole_up_to=selections.WHOLE)
SLICES: Final = selections.every(
    keys.ENDPOINT_SLICE, labels=f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_ENDPOINT_SLICE}"
)
PEERS: Final = selections.every(keys.FOREIGN_CLUSTER)


@dataclass(frozen=True)
class _Known:
    """What this process knows of addresses."""

    own: OwnAddresses
    configurations: Informer[Object] | None

    def reach(self, consumer: str, pods: PodAddresses) -> Reach | None:
        """Return what ``consumer`` may name; None while it is not known which pods there are."""
        if self.configurations:
            known = self.configurations.items().values()
            return Reach(self.own.own(), remap.of_peer(known, consumer))
        if not pods.is_known():
            return None
        return Reach(self.own.own(), is_pods=lambda address: self._is_own(pods.nodes_of(address)))

    def _is_own(self, names: Iterable[str]) -> bool:
        """Whether one of the nodes so called is no virtual one."""
        return any(Key("", name) in self.own.nodes.items() for name in names)


def controller(manager: Manager) -> Term:
    shadows, slices = manager.informer(SHADOWS), manager.informer(SLICES)
    peers = manager.informer(PEERS)
    namespaces = manager.informer(selections.PEER_NAMESPACES)
    consumer = views.consumers(namespaces)
    own = manager.own_addresses()
    known = _Known(own, fabric.configurations(manager))
    all_of_them = concerns.all_of(shadows)
    everything = (own.api_servers, own.service_cidrs, known.configurations)

    def by_node(change: Change[Addressed]) -> Iterable[Key]:
        return all_of_them(change) if ownaddresses.is_moved(change) else []

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
        Source(own.nodes, by_node),
        Source(peers, by_peer),
        *(Source(each, all_of_them) for each in everything if each),
    ]

    def loops() -> list[Loop]:
        pods = PodAddresses(manager.live)
        reconciler = ShadowEndpointSliceReconciler(
            manager.cached,
            consumer=consumer,
            reach=lambda consumer: known.reach(consumer, pods),
            peers=peers.items,
            events=manager.events,
        )
        runner = Runner(
            "shadowendpointslice",
            reconciler,
            sources,
            workers=WORKERS,
            line=lambda key: consumer(key.namespace),
        )
        pods.subscribe(lambda changed: _look_again(shadows, changed, runner))
        return [runner, pods]

    return loops


def _look_again(shadows: Informer[Object], changed: frozenset[str], runner: Runner) -> None:
    """Judge again what names an address that a pod has now, or no longer has."""
    for key, shadow in shadows.items().items():
        if objects.is_outlined(shadow) or not changed.isdisjoint(forge.named(shadow)):
            runner.enqueue(key)
