"""Keeps the EndpointSlice of each ShadowEndpointSlice; it needs the consumer for nothing."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from apis import apply, keys, networks, objects, ownership
from apis.networks import NodeAddresses
from apis.objects import Key, Object
from controllers import watches
from controllers.manager import Controller, Manager
from controllers.offloading.shadowendpointslice import forge
from controllers.offloading.shadowendpointslice.forge import EndpointAddresses
from kube import errors, localaddresses
from kube.cluster import NO_VERSION, Cluster, Selection
from kube.controller import Runner, TerminalError, WatchSource
from kube.informer import Change, Informer
from kube.process import Runnable
from kube.slim import Version

KIND: Final = keys.SHADOW_ENDPOINT_SLICE
REFUSED_RETRY_S: Final = 300.0
"""What this API server calls invalid it may take some day: newer, or by another policy."""

NOT_YET_S: Final = 0.2
"""So soon it is looked at again while it is not known yet which addresses are this cluster's."""

FOREIGN_RETRY_S: Final = 15.0
"""Somebody else's slice is not in our watch; so look now and then whether it has gone."""
_TERMINATING: Final = "being terminated"
WORKERS: Final = 10
SHADOWS: Final = Selection(keys.SHADOW_ENDPOINT_SLICE, Object, whole_up_to=watches.WHOLE)
SLICES: Final = watches.every(
    keys.ENDPOINT_SLICE, labels=f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_ENDPOINT_SLICE}"
)

logger = logging.getLogger(__name__)


class ShadowEndpointSliceReconciler(Controller):
    """Reads one object, writes one: the owner reference takes it along when the first goes."""

    name = "shadowendpointslice"

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self._pods = PodIPIndex(self.live)
        self.consumer = watches.consumers(manager.informer(watches.PEER_NAMESPACES))
        """Returns whose the twin of a name is."""
        self.reach: Callable[[str], EndpointAddresses | None] = self._may_name
        """Returns what a consumer may name; None while that is not known."""

    def watches(self) -> Sequence[WatchSource[Any]]:
        own, everyone = self.manager.own_addresses, self.all_of(SHADOWS)
        telling = (own.api_servers, own.service_cidrs, self.manager.configurations())
        return (
            self.watch(SHADOWS),
            self.watch(watches.PEER_NAMESPACES, self._by_namespace),
            self.watch(SLICES),
            WatchSource(own.nodes, self._by_node),
            self.watch(watches.FOREIGN_CLUSTERS, self._by_peer),
            *(WatchSource(each, everyone) for each in telling if each),
        )

    def _by_node(self, change: Change[NodeAddresses]) -> Iterable[Key]:
        return self.all_of(SHADOWS)(change) if localaddresses.is_moved(change) else []

    def _by_peer(self, change: Change[Object]) -> Iterable[Key]:
        before, after = map(forge.is_reachable, (change.old, change.new))
        return [] if before == after else self.all_of(SHADOWS)(change)

    def _by_namespace(self, change: Change[Object]) -> Iterable[Key]:
        before, after = map(ownership.consumer_of, (change.old, change.new))
        return [] if before == after else self.inside(SHADOWS)(change)

    def runner(self) -> Runner:
        def line(key: Key) -> str:
            return self.consumer(key.namespace)

        return Runner(self.name, self, self.watches(), workers=WORKERS, line=line)

    def loops(self) -> Sequence[Runnable]:
        runner, naming = self.runner(), self.manager.informers.index(SHADOWS, _named)

        def look_again(changed: frozenset[str]) -> None:
            """Look again at what names an address that a pod has now, or no longer has."""
            for address in (*changed, _ANY):
                for key in naming.keys(address):
                    runner.enqueue(key)

        self._pods.subscribe(look_again)
        return [runner, self._pods]

    def _may_name(self, consumer: str) -> EndpointAddresses | None:
        own, configurations = self.manager.own_addresses, self.manager.configurations()
        if configurations:
            known = configurations.items().values()
            return EndpointAddresses(own.own(), networks.remap_of_peer(known, consumer))
        if not self._pods.is_known():
            return None
        return EndpointAddresses(own.own(), is_pods=self._is_own)

    def _is_own(self, address: str) -> bool:
        """Whether one of the nodes of its pods is no virtual one."""
        nodes = self.manager.own_addresses.nodes.items()
        return any(Key("", name) in nodes for name in self._pods.nodes_of(address))

    async def reconcile(self, key: Key) -> float | None:
        shadow = await self.cached.get(KIND, key)
        if shadow is None or objects.is_terminating(shadow):
            return None
        origin = self._whose(shadow)
        reach = self._known(shadow, origin)
        if reach is None:
            return NOT_YET_S
        if refused := forge.refused(shadow, reach):
            message = (
                "addresses of this cluster, of no peer, that nobody or every node has, or not in "
                f"the one spelling of an IPv4 or IPv6 address are left out: "
                f"{', '.join(refused[:5])}"
            )
            self.events.event(KIND, shadow, "Warning", "AddressRefused", message)
        wanted = apply.stamped(
            forge.endpoint_slice(
                shadow, reach, is_reachable=forge.is_reachable(await self._peer(origin))
            )
        )
        found = await self.cached.get(keys.ENDPOINT_SLICE, key)
        if found is not None and not objects.is_controlled_by(found, shadow):
            message = f"endpointslice {key} exists and is not the ShadowEndpointSlice's"
            self._fail(shadow, message)
            return FOREIGN_RETRY_S
        if found is None or not apply.is_current(wanted, wanted, found):
            return await self._write(shadow, wanted, found)
        return None

    async def _write(self, shadow: Object, wanted: Object, found: Object | None) -> float | None:
        """Write the slice; one that is refused is reported, and tried again seldom."""
        # The very slice that was looked at; where there was none, a new one; or a conflict.
        only = {"uid": objects.uid(found)} if found else {"resourceVersion": NO_VERSION}
        sent = {**wanted, "metadata": {**wanted["metadata"], **only}}
        manager, key = keys.SHADOW_ENDPOINT_SLICE_MANAGER, str(objects.key_of(shadow))
        try:
            await self.cached.apply(keys.ENDPOINT_SLICE, sent, manager=manager)
        except (errors.InvalidError, errors.ForbiddenError) as error:
            if _TERMINATING not in str(error):  # else the shadow is about to go, too
                self._fail(shadow, f"no endpointslice is made of it: {error}")
            if isinstance(error, errors.ForbiddenError):
                raise
            return REFUSED_RETRY_S
        logger.info("Wrote an EndpointSlice", extra={"endpointslice": key})
        return None

    def _fail(self, shadow: Object, message: str) -> None:
        self.events.event(KIND, shadow, "Warning", "FailedCreateEndpointSlice", message)
        extra = {"endpointslice": str(objects.key_of(shadow)), "said": message}
        logger.warning("No EndpointSlice is made", extra=extra)

    def _whose(self, shadow: Object) -> str:
        """Return the consumer that the namespace names, whose addresses are meant."""
        key = objects.key_of(shadow)
        consumer = self.consumer(key.namespace)
        if consumer and ownership.shadow_origin(shadow, consumer) == consumer:
            return consumer
        message = f"{KIND} {key} names another origin than its namespace, which is "
        message += f"of cluster {consumer}" if consumer else "no twin of any cluster"
        self.events.event(KIND, shadow, "Warning", "OriginMismatch", message)
        raise TerminalError("OriginMismatch", message)

    def _known(self, shadow: Object, origin: str) -> EndpointAddresses | None:
        try:
            return self.reach(origin)
        except ValueError as error:
            self.events.event(KIND, shadow, "Warning", "InvalidConfiguration", str(error))
            raise TerminalError("InvalidConfiguration", str(error)) from error

    async def _peer(self, cluster_id: str) -> Object | None:
        found = (await self.all(watches.FOREIGN_CLUSTERS)).values()
        return next((peer for peer in found if peer["spec"].get("clusterID") == cluster_id), None)


_ANY: Final = ""
"""Named by what is kept in outline, of which nobody knows what it names."""


def _named(_: Key, shadow: Object) -> Iterable[str]:
    return [_ANY] if objects.is_outlined(shadow) else forge.named(shadow)


# The addresses of this cluster's pods, which no consumer may stand in for -------------------------


class _PodIPSpec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    node_name: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "node_name", sys.intern(self.node_name))


class _Ip(msgspec.Struct, gc=False, frozen=True):
    ip: str = ""


class _PodIPStatus(msgspec.Struct, gc=False, frozen=True, rename={"pod_ips": "podIPs"}):
    pod_ips: tuple[_Ip, ...] = ()


class PodIPs(msgspec.Struct, gc=False, frozen=True):
    """A Pod of which only where it is counts."""

    metadata: Version
    spec: _PodIPSpec = _PodIPSpec()
    status: _PodIPStatus = _PodIPStatus()

    def texts(self) -> frozenset[str]:
        return frozenset(each.ip for each in self.status.pod_ips)


PODS: Final = Selection(
    keys.POD, PodIPs, fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
)


class PodIPIndex(Runnable):
    """Which address a pod has, and on which node it is; a ``Loop``.

    Many networks of pods are in no ``spec.podCIDRs``. Nothing is watched before somebody asks: a
    cluster to which nobody sends endpoints pays nothing.
    """

    name = "pod-addresses"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked = asyncio.Event()
        self._pods = Informer(PODS)
        self._nodes: dict[str, dict[Key, str]] = {}
        self._pods.subscribe(self._on_pod)

    def subscribe(self, changed: Callable[[frozenset[str]], None]) -> None:
        """Call ``changed`` with the addresses that a pod has now and had not, or the reverse."""

        def on_change(change: Change[PodIPs]) -> None:
            before, after = (
                each.texts() if each else frozenset[str]() for each in (change.old, change.new)
            )
            if before ^ after and self._pods.synced.is_set():  # before that, nobody was judged
                changed(before ^ after)

        self._pods.subscribe(on_change)

    async def run(self) -> None:
        """Follow pods for ever, once somebody has asked."""
        await self._asked.wait()
        await self._pods.run(self._cluster)

    def is_known(self) -> bool:
        """Whether all pods are known; asks for them."""
        self._asked.set()
        return self._pods.synced.is_set()

    def nodes_of(self, address: str) -> Iterable[str]:
        return self._nodes.get(address, {}).values()

    def _on_pod(self, change: Change[PodIPs]) -> None:
        for text in change.old.texts() if change.old else ():
            held = self._nodes.get(text, {})
            held.pop(change.key, None)
            if not held:
                self._nodes.pop(text, None)
        if change.new:
            for text in change.new.texts():
                self._nodes.setdefault(text, {})[change.key] = change.new.spec.node_name
