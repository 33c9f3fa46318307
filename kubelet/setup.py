"""All loops of one virtual node, wired: what runs while this pod leads.

The loops do not wait for each other: a lease is renewed whatever pods or the provider do.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from msgspec import structs

from apis import keys, objects, reflectionpolicy
from apis.objects import Key, Object
from apis.offloading import OffloadingPatch, ReflectionPolicy, VirtualNode
from apis.reflection import AWAITED
from apis.resources import Resources
from kube import clock, errors, process
from kube.authz import Authorizer
from kube.breaker import Breaker
from kube.cache import CachedCluster
from kube.client import ClusterClient
from kube.cluster import LeaderOnlyCluster, Selection
from kube.controller import Runner, WatchSource
from kube.events import EventRecorder
from kube.informer import Change, Informer
from kube.process import Process
from kube.ratelimit import Buckets
from kubelet import namespaces
from kubelet.api.server import ApiEndpoint, PodLookups
from kubelet.namespaces import NamespaceMappings
from kubelet.node import (
    Heartbeat,
    NodeReconciler,
    PingReconciler,
    ProviderHealth,
)
from kubelet.nodeobject import Health, NodeIdentity
from kubelet.options import KubeletOptions
from kubelet.pods import apiserver, decide, shadowpod
from kubelet.pods.addresses import IpReconciler, PodAddressBook
from kubelet.pods.mapping import HomeAndProvider
from kubelet.pods.reconcile import PodReconciler
from kubelet.pods.state import DeletionEvidence, NodePod, PodsByNamespace, VirtualNodeContext

logger = logging.getLogger(__name__)

COMPONENT: Final = "liqo-pod-reflection"
EVENTS_PER_SECOND: Final = 50.0
EVENTS_BURST: Final = 1000.0
"""Of all that is told of a provider: more waits, and at last is dropped."""
NODE_BACK_OFF_S: Final = 10.0
"""What a server could not take of the Node's status is tried again so soon: pods go by it."""


class VirtualKubelet:
    """Made again each time this pod becomes the leader, ``instance`` by name.

    What ``may_write`` forbids is written neither here nor on the provider.
    """

    def __init__(
        self,
        settings: KubeletOptions,
        instance: str,
        home: ClusterClient,
        provider: ClusterClient,
        may_write: Callable[[], bool],
    ) -> None:
        self._settings, self._home, self._provider = settings, home, provider
        self._key = Key("", settings.node_name)
        bound = f"spec.nodeName={settings.node_name}"
        self._pods_here = Informer(Selection(keys.POD, NodePod, fields=bound))
        self._node = _named(keys.NODE, self._key)
        virtual = Key(settings.tenant_namespace, settings.node_name)
        self._virtual_nodes = _named(keys.VIRTUAL_NODE, virtual)
        self._read: tuple[Object | None, OffloadingPatch] = None, self._patch_of(None)
        self._offloadings = _informer(
            keys.NAMESPACE_OFFLOADING, fields=f"metadata.name={keys.OFFLOADING_NAME}"
        )
        self._addresses = PodAddressBook(settings)
        self._clusters = HomeAndProvider(settings.home_cluster_id, settings.foreign_cluster_id)
        self._maps = namespaces.informer(settings.tenant_namespace, self._clusters)
        self._local = CachedCluster(
            LeaderOnlyCluster(home, may_write), [self._pods_here, self._node]
        )
        self._remote = CachedCluster(LeaderOnlyCluster(provider, may_write))
        self._recorder = EventRecorder(home, COMPONENT, instance, pace=_of_events())
        self._provider_health = ProviderHealth(
            self._on_health,
            threshold=settings.ping_failures,
            successes=settings.ping_successes,
            is_pinged=bool(settings.ping_interval_s),
        )
        self._was_reachable = True
        self._breaker = Breaker(self._on_breaker)
        self._breaker.watch(self._pods_here)
        self._departures = DeletionEvidence()
        self._pods_here.subscribe(self._departures.on_local)
        self._here = PodsByNamespace(self._pods_here)
        self._mappings = NamespaceMappings(
            home,
            self._remote,
            maps=self._maps,
            here=self._here,
            clusters=self._clusters,
            node=settings.node_name,
            departures=self._departures,
            breaker=self._breaker,
        )
        self._endpoint = ApiEndpoint(settings, home, provider, self._lookups())
        self._pods = self._pod_runner()
        self._nodes: Runner | None = None
        self._heartbeat = Heartbeat(
            home, settings.node_name, duration_s=settings.lease_s, may_write=may_write
        )

    async def run(self, running: Process) -> None:
        """Run all loops for ever."""
        runners = await self._runners()
        running.health.ready_when("synced", self._pods.is_synced)
        stops = [
            reach.subscribe(runner.server_is_back)
            for reach, runner in itertools.product(
                (self._home.reach, self._provider.reach), runners
            )
        ]
        try:
            with running.works([*runners, *self._heartbeats()]):
                await self._run(running, runners)
        finally:
            for stop in stops:
                stop()
            running.health.forget("synced")
            await self._endpoint.close()

    async def _run(self, running: Process, runners: Sequence[Runner]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers():
                tasks.create_task(informer.run(self._home))
            for runner in runners:
                tasks.create_task(runner.run())
            for heartbeat in self._heartbeats():
                tasks.create_task(heartbeat.run())
            tasks.create_task(self._mappings.run(self._pods))
            tasks.create_task(self._recorder.run())
            await self._pods_here.synced.wait()
            running.settled()

    def _informers(self) -> list[Informer[Any]]:
        return [
            self._pods_here,
            self._maps,
            self._virtual_nodes,
            self._offloadings,
            *self._addresses.informers,
            *([self._node] if self._settings.create_node else []),
            *self._endpoint.informers,
        ]

    def _heartbeats(self) -> list[Heartbeat]:
        return [self._heartbeat] if self._settings.create_node else []

    async def _runners(self) -> list[Runner]:
        pinged = [self._ping_runner()] if self._settings.ping_interval_s else []
        node = await self._node_runners() if self._settings.create_node else []
        return [self._pods, *pinged, *node, *self._endpoint.runners(), *self._ip_runners()]

    # Pods ------------------------------------------------------------------------------------

    def _pod_runner(self) -> Runner:
        settings = self._settings
        node = VirtualNodeContext(
            settings.node_name,
            settings.node_ip,
            self._options,
            lambda: not self._provider_health.health.is_reachable,
            self._forbids,
            self._lacks,
            self._policy,
            self._addresses.known,
            self._offloading,
        )
        self._reconciler = PodReconciler(
            self._local,
            self._remote,
            node=node,
            namespaces=self._mappings,
            recorder=self._recorder,
            clock=clock.now,
            departures=self._departures,
            breaker=self._breaker,
        )
        return Runner(
            "pods",
            self._reconciler,
            [
                WatchSource(self._pods_here),
                WatchSource(self._offloadings, self._of_namespace),
                *self._addresses.sources(self._here.all),
            ],
            workers=settings.workers,
            wait_for=[self._maps, self._virtual_nodes, *self._addresses.informers],
        )

    def _ip_runners(self) -> list[Runner]:
        if not self._addresses.has_fabric:
            return []
        return [Runner("ips", IpReconciler(self._local), [WatchSource(self._pods_here)], workers=3)]

    def _of_namespace(self, change: Change[Object]) -> Iterable[Key]:
        return self._here.of(change.key.namespace)

    def _policy(self, kind: objects.Kind, namespace: str) -> ReflectionPolicy | None:
        row = next(row for row in AWAITED if row.kind == kind)
        said = self._settings.policies[row.name]
        offloading = self._offloadings.get(Key(namespace, keys.OFFLOADING_NAME))
        if said is None or offloading is None:
            return said
        return reflectionpolicy.in_namespace(row, said, reflectionpolicy.asked_policy(offloading))

    def _forbids(self, local: Object) -> str:
        offloading = self._offloading(objects.key_of(local).namespace)
        return decide.forbids(local, offloading, self._node.get(self._key))

    def _offloading(self, namespace: str) -> Object | None:
        return self._offloadings.get(Key(namespace, keys.OFFLOADING_NAME))

    def _lacks(self, local: Object) -> str:
        claims = (each.claim for each in self._pods_here.items().values() if each.claim)
        return decide.lacking(local, self._node.get(self._key), claims)

    def _options(self) -> shadowpod.Options:
        found = next(iter(self._virtual_nodes.items().values()), None)
        if found is not self._read[0]:  # read once: it is asked for at every look at a pod
            self._read = found, self._patch_of(found)
        settings, patch = self._settings, self._read[1]
        said = self._mappings
        return shadowpod.Options(
            settings.node_name,
            patch,
            settings.api_server,
            opened=said.opened(),
            granted=said.granted(),
        )

    def _patch_of(self, virtual_node: Object | None) -> OffloadingPatch:
        said = VirtualNode.parse(virtual_node) if virtual_node else None
        patch, settings = said.offloading_patch if said else OffloadingPatch(), self._settings
        labels = (*patch.labels_not_reflected, *settings.hidden_labels)
        annotations = (*patch.annotations_not_reflected, *settings.hidden_annotations)
        return structs.replace(
            patch, labels_not_reflected=labels, annotations_not_reflected=annotations
        )

    # Node ------------------------------------------------------------------------------------

    async def _node_runners(self) -> list[Runner]:
        settings = self._settings
        version = await self._version()
        identity = NodeIdentity(
            name=settings.node_name,
            cluster_id=settings.foreign_cluster_id,
            address=settings.node_ip,
            port=settings.listen_port,
            version=version or NodeIdentity.version,
            labels=settings.extra_labels,
            annotations={
                **settings.extra_annotations,
                **apiserver.told_by_node(settings.api_server),
            },
            runtime=process.own_version(),
        )
        node = NodeReconciler(
            self._local,
            identity,
            virtual_nodes=self._virtual_nodes.items,
            health=self._health,
            version=self._version,
            recorder=self._recorder,
            clock=clock.now,
            held_back=self._held_back,
        )
        sources: list[WatchSource[Any]] = [
            WatchSource(self._node),
            WatchSource(self._virtual_nodes, self._to_node),
            WatchSource(self._pods_here, self._if_held_back),
        ]
        self._nodes = Runner("node", node, sources, back_off_s=NODE_BACK_OFF_S)
        return [self._nodes]

    async def _version(self) -> str:
        return str((await self._home.version()).get("gitVersion") or "")

    def _to_node(self, _: Change[Object]) -> Iterable[Key]:
        return (self._key,)

    def _held_back(self) -> Resources:
        return decide.held_back(each.claim for each in self._pods_here.items().values())

    def _if_held_back(self, change: Change[NodePod]) -> Iterable[Key]:
        before, after = (
            decide.held_back([each.claim]) if each else {} for each in (change.old, change.new)
        )
        return (self._key,) if before != after else ()

    def _ping_runner(self) -> Runner:
        pings = PingReconciler(
            self._ping, self._provider_health, interval_s=self._settings.ping_interval_s
        )
        runner = Runner("ping", pings, [])
        runner.enqueue(self._key)
        return runner

    async def _ping(self) -> timedelta:
        try:
            async with asyncio.timeout(self._settings.ping_timeout_s):
                said = await self._provider.ping()
        except TimeoutError:
            self._provider.reach.doubt()  # others would wait for its answers
            raise
        if excess := self._mappings.excess():
            raise errors.TooMuchError(excess)
        return objects.clock_skew(said, clock.now())

    def _health(self) -> Health:
        return replace(self._provider_health.health, missing=self._breaker.missing())

    def _on_breaker(self) -> None:
        logger.warning(
            "Much is missing at once" if self._breaker.is_open() else "Nothing much is missing",
            extra={"missing": self._breaker.missing()},
        )
        if self._nodes is not None:
            self._nodes.enqueue(self._key)

    def _on_health(self, health: Health) -> None:
        if self._nodes is not None:
            self._nodes.enqueue(self._key)
        if health.is_reachable == self._was_reachable:
            return
        self._was_reachable = health.is_reachable
        waiting = self._reconciler.after_silence() if health.is_reachable else ()
        for key in {*self._here.all(), *waiting}:  # none waits for the end of its back-off
            self._pods.enqueue(key)

    # Kubelet API -----------------------------------------------------------------------------

    def _lookups(self) -> PodLookups:
        return PodLookups(
            node=self._settings.node_name,
            local=self._local,
            remote=self._remote,
            namespaces=self._mappings,
            pods_here=self._pods_here.items,
            gate=Authorizer(self._home, self._settings.node_name),
        )


def _of_events() -> Buckets:
    return Buckets(time.monotonic, per_second=EVENTS_PER_SECOND, burst=EVENTS_BURST)


def _informer(kind: objects.Kind, **selected: Any) -> Informer[Object]:
    return Informer(Selection(kind, Object, **selected))


def _named(kind: objects.Kind, key: Key) -> Informer[Object]:
    return _informer(kind, namespace=key.namespace, fields=f"metadata.name={key.name}")
