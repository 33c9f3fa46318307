"""``python -m bench growth [ROW...] [--part N]``: what controllers compute in a large cluster.

Each row runs a controller of ours in a process of its own, on a cluster in memory: first until it
is calm, then while something changes. Printed are the looks at keys and the longest of them, and
the longest time in which nothing else had a turn, both in CPU time, since others may use this
machine; the calls of the API; and by how much memory grew, objects of the cluster included.
``--part 10`` takes a tenth of each size. It runs in any checkout with this file, so that two
commits can be compared.
"""

import argparse
import asyncio
import contextlib
import gc
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Sequence,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from apis import keys, naming, objects
from apis.objects import Key, Kind, Object, named
from controllers import watches
from controllers.granting.grants.capacity import Capacity
from controllers.granting.grants.reconciler import GrantsReconciler
from controllers.manager import Controller, ControllerSetup, Manager
from controllers.offloading.namespaceoffloading.reconciler import NamespaceOffloadingReconciler
from controllers.offloading.placement.reconciler import PlacementReconciler
from controllers.offloading.shadowendpointslice.reconciler import (
    PodIPIndex,
    ShadowEndpointSliceReconciler,
)
from controllers.offloading.shadowpod.reconciler import PODS, SHADOW_PODS
from kube.cluster import Event, Listing, Selection
from kube.informer import Informer
from tests import factories
from tests.controllers import support, whole
from tests.controllers.slicereplicas import AUTHENTICATED, replica
from tests.controllers.test_shadowendpointslice import shadow_slice
from tests.fakes import FakeCluster
from tests.kube.running import running, until

T = TypeVar("T")

TICK_S: Final = 0.002
PEERS: Final = ("turin", "rome")
READY: Final = [{"type": "Ready", "status": "True"}]


class Large(FakeCluster):
    """A cluster whose ``many`` objects are made when they are listed: they take no memory here."""

    def __init__(self) -> None:
        super().__init__()
        self.many: dict[Kind, Callable[[], Iterator[Object]]] = {}
        self._told: dict[Selection[Any], asyncio.Queue[Event[Any]]] = defaultdict(asyncio.Queue)
        self._last = 2

    async def list(self, of: Selection[T]) -> Listing[T]:
        """Return all, made anew; others have their turn meanwhile."""
        if of.kind not in self.many:
            return await super().list(of)
        self.requests["list", of.kind.plural] += 1
        items: dict[Key, T] = {}
        for obj in self.many[of.kind]():
            items[objects.key_of(obj)] = _shaped(of, obj)
            if len(items) % 100 == 0:
                await asyncio.sleep(0)
        return Listing(items, "2")

    async def watch(self, of: Selection[T], since: str) -> AsyncGenerator[Event[T], None]:
        """Yield what is told."""
        if of.kind not in self.many:
            async for event in super().watch(of, since):
                yield event
        while True:
            yield await self._told[of].get()

    def tell(self, kind: Kind, type_: str, obj: Object) -> None:
        """Have every watch of ``kind`` tell of ``obj``."""
        self._last += 1
        obj["metadata"]["resourceVersion"] = str(self._last)
        for of, told in self._told.items():
            if of.kind == kind:
                event = Event(type_, objects.key_of(obj), str(self._last), _shaped(of, obj))
                told.put_nowait(event)


def _shaped(of: Selection[T], obj: Object) -> T:
    return msgspec.json.decode(msgspec.json.encode(obj), type=of.shape)


@dataclass
class Seen:
    """What happened in a phase; Units: seconds of CPU."""

    looks: list[float] = field(default_factory=list)
    away: float = 0.0
    cpu: float = 0.0

    def __str__(self) -> str:
        longest = max(self.looks, default=0.0) * 1000
        looks = f"{len(self.looks):6} looks, longest {longest:6.0f} ms"
        return f"{looks}, away {self.away * 1000:6.0f} ms, {self.cpu:5.1f} s"


@contextlib.asynccontextmanager
async def measured() -> AsyncIterator[Seen]:
    """Yield what is seen of all looks of all controllers, and of the event loop."""
    kinds = [kind for kind in Controller.__subclasses__() if "reconcile" in vars(kind)]
    seen, looks = Seen(), {kind: kind.reconcile for kind in kinds}

    async def look(self: Controller, key: Key) -> float | None:
        began = time.thread_time()
        again_s = await looks[type(self)](self, key)
        seen.looks.append(time.thread_time() - began)
        return again_s

    async def tick() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.thread_time()
            seen.away, before = max(seen.away, now - before), now

    ticking = asyncio.create_task(tick())
    for kind in kinds:
        kind.reconcile = look  # type: ignore[method-assign]
    await asyncio.sleep(0)
    began = time.thread_time()
    try:
        yield seen
    finally:
        await asyncio.sleep(2 * TICK_S)
        seen.cpu = time.thread_time() - began
        for kind in kinds:
            kind.reconcile = looks[kind]  # type: ignore[method-assign]
        ticking.cancel()


async def calm(seen: Seen) -> None:
    """Wait until nothing was looked at for two seconds."""
    before = -1
    while before != len(seen.looks):
        before = len(seen.looks)
        await asyncio.sleep(2)


async def run(
    name: str,
    cluster: Large,
    setup: ControllerSetup,
    **changes: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Run a controller until it is calm, and then through each of ``changes``; print."""
    gc.set_threshold(100_000, 50, 50)  # as our daemons have it
    began = pss_mib()
    manager = support.manager_of(cluster, of=Manager, cluster_id="milan")
    manager.informer(watches.PEER_NAMESPACES)  # as other controllers have it
    term = setup(manager)
    async with contextlib.AsyncExitStack() as stack:
        async with measured() as seen:
            informers = manager.informers.all()
            await stack.enter_async_context(running(*(each.run(cluster) for each in informers)))
            await manager.informers.wait()
            await stack.enter_async_context(running(*(each.run() for each in term())))
            await calm(seen)
        print(f"{name}\n  start   {seen}, +{pss_mib() - began:.0f} MiB", flush=True)
        for what, change in changes.items():
            before = cluster.requests.total()
            async with measured() as seen:
                await change()
                await calm(seen)
            calls = cluster.requests.total() - before
            print(f"  {what:7} {seen}, {calls} API calls", flush=True)


def pss_mib() -> float:
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(text.split("Pss:")[1].split()[0]) / 1024


# The rows -----------------------------------------------------------------------------------------


async def capacity(part: int) -> None:
    """5,000 nodes, 50,000 pods, 100 slices of one selector; 200 pods a second come and go."""
    nodes, pods, slices = 5000 // part, 50_000 // part, 100 // part
    cluster = Large()
    status = {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}, "conditions": READY}

    def pod(number: int) -> Object:
        spec = factories.pod_spec(nodeName=f"node-{number % nodes}")
        spec["containers"][0]["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}}
        labels = {keys.CREATOR_USER: f"user-{number % slices}"}
        metadata = {"labels": labels, "uid": str(number), "resourceVersion": "2"}
        return factories.pod(name=f"pod-{number}", spec=spec, metadata=metadata)

    cluster.many = {
        keys.NODE: lambda: (factories.node(f"node-{n}", status=status) for n in range(nodes)),
        keys.POD: lambda: map(pod, range(pods)),
    }
    for number in range(slices):
        consumer = f"rome-{number}"
        home = naming.tenant_namespace(consumer)
        tenant = named(keys.TENANT, Key(home, consumer), spec={"clusterID": consumer})
        await cluster.create(keys.TENANT, tenant)
        asked = replica(Key(home, "pool"), consumer, "shared" if number % 2 else "", {})
        await support.make(cluster, keys.RESOURCE_SLICE, asked, status=AUTHENTICATED)

    async def pods_change() -> None:
        for number in range(1500):
            cluster.tell(keys.POD, "DELETED", pod(number))
            cluster.tell(keys.POD, "ADDED", pod(pods + number))
            await asyncio.sleep(0.01)

    await run(f"capacity: {nodes} nodes", cluster, GrantsReconciler.setup, pods=pods_change)


async def namespaces(part: int) -> None:
    """3,000 offloaded namespaces, one half at each of two providers; a grant and a label change."""
    count, cluster = 3000 // part, Large()
    entries: list[dict[str, str]] = [{}, {}]
    for number in range(count):
        name, pool = f"shop-{number}", number % 2
        labels = {keys.SCHEDULING_ENABLED: "true"}
        await cluster.create(keys.NAMESPACE, factories.namespace(name, **labels))
        expressions = [{"key": "pool", "operator": "In", "values": [str(pool)]}]
        selector = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        offloading = support.defaulted(name, clusterSelector=selector)
        offloading["metadata"]["finalizers"] = [keys.NAMESPACE_OFFLOADING_FINALIZER]
        await cluster.create(keys.NAMESPACE_OFFLOADING, offloading)
        entries[pool][name] = f"{name}-milan"
    for pool, peer in enumerate(PEERS):
        home = naming.tenant_namespace(peer)
        labels = {keys.TENANT_NAMESPACE: "true", keys.REMOTE_CLUSTER_ID: peer}
        await cluster.create(keys.NAMESPACE, factories.namespace(home, **labels))
        wanted = support.local_map(home, peer, **entries[pool])
        await cluster.create(keys.NAMESPACE_MAP, wanted)
        node = support.virtual_node(home, peer, peer, labels={"pool": str(pool)})
        await cluster.create(keys.VIRTUAL_NODE, node)

    async def change(**spec: Any) -> None:
        key = Key(naming.tenant_namespace(PEERS[0]), PEERS[0])
        await cluster.patch(keys.VIRTUAL_NODE, key, {"spec": spec})

    await run(
        f"namespaces: {count}",
        cluster,
        whole.together(NamespaceOffloadingReconciler, PlacementReconciler),
        grant=lambda: change(resourceQuota={"hard": {"cpu": "7"}}),
        label=lambda: change(labels={"pool": "0", "other": "label"}),
    )


async def addresses(part: int) -> None:
    """10,000 slices of 5 endpoints, 20,000 pods; 100 pods a second come, and none is named."""
    slices, pods, cluster = 10_000 // part, 20_000 // part, Large()
    await cluster.create(keys.NODE, factories.node("node"))
    twin = {keys.REMOTE_CLUSTER_ID: "rome"}
    await cluster.create(keys.NAMESPACE, factories.namespace("shop-rome", **twin))
    for number in range(slices):
        ends = [f"10.{200 + end}.{number // 250}.{number % 250 + 1}" for end in range(5)]
        shadow = shadow_slice("shop-rome", *ends)
        shadow["metadata"]["name"] = f"web-{number}"
        await cluster.create(keys.SHADOW_ENDPOINT_SLICE, shadow)

    def pod(number: int) -> Object:
        ips = [{"ip": f"10.{number // 62500}.{number // 250 % 250}.{number % 250 + 1}"}]
        spec, metadata = factories.pod_spec(nodeName="node"), {"uid": str(number)}
        return factories.pod(
            name=f"p-{number}", spec=spec, metadata=metadata, status={"podIPs": ips}
        )

    cluster.many = {keys.POD: lambda: map(pod, range(pods))}

    async def pods_change() -> None:
        for number in range(pods, pods + 300):
            cluster.tell(keys.POD, "ADDED", pod(number))
            await asyncio.sleep(0.01)

    name = f"addresses: {slices} slices"
    await run(name, cluster, ShadowEndpointSliceReconciler.setup, pods=pods_change)


async def pods(part: int) -> None:
    """50,000 offloaded pods of 1,000 Deployments in all caches of a provider's controllers."""
    count, cluster = 50_000 // part, Large()

    def pod(number: int) -> Object:
        app, uid = number // 50, f"0f9bd1a2-5e1b-4c36-9c1e-{number:012}"
        spec = factories.pod_spec(nodeName=f"node-{number % 5000}")
        spec["containers"][0]["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}}
        labels = {"app": f"web-{app}", "pod-template-hash": "5c9d8f7b6d", "tier": "front"}
        labels |= {keys.CREATOR_USER: f"rome-{app % 10}", keys.REMOTE_CLUSTER_ID: "rome"}
        labels[keys.MANAGED_BY] = keys.MANAGED_BY_SHADOW_POD
        owner = {"kind": "ShadowPod", "name": f"web-{number}", "uid": uid, "controller": True}
        metadata: Object = {"labels": labels, "uid": uid, "resourceVersion": str(number)}
        metadata["ownerReferences"] = [owner]
        ips = [{"ip": f"10.{number // 62500}.{number // 250 % 250}.{number % 250 + 1}"}]
        status = {"phase": "Running", "podIPs": ips}
        space, name = f"shop-{app % 100}-rome", f"web-{app}-5c9d8f7b6d-{number}"
        return factories.pod(space, name, spec=spec, metadata=metadata, status=status)

    def shadow(number: int) -> Object:
        made = pod(number)
        return {**made, "spec": {"pod": made["spec"]}}

    cluster.many = {
        keys.NODE: lambda: iter(()),
        keys.POD: lambda: map(pod, range(count)),
        keys.SHADOW_POD: lambda: map(shadow, range(count)),
    }
    gc.set_threshold(100_000, 50, 50)
    began, used, addresses_of = pss_mib(), Capacity(cluster), PodIPIndex(cluster)
    seen: list[Informer[Any]] = [Informer(SHADOW_PODS), Informer(PODS)]
    async with running(*(each.run(cluster) for each in seen), used.run(), addresses_of.run()):
        for informer in seen:
            await informer.synced.wait()
        await until(lambda: addresses_of.is_known() and used.free(()) is not None)
        gc.collect()
        grown = pss_mib() - began
    print(f"pods: {count}\n  +{grown:.0f} MiB, {grown * 1024 / count:.1f} KiB a pod", flush=True)


ROWS: Final[dict[str, Callable[[int], Coroutine[Any, Any, None]]]] = {
    "capacity": capacity,
    "namespaces": namespaces,
    "addresses": addresses,
    "pods": pods,
}


def main(argv: Sequence[str]) -> int:
    """Print what each row costs."""
    parser = argparse.ArgumentParser(prog="bench growth", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []])
    parser.add_argument("--part", type=int, default=1)
    given = parser.parse_args(argv)
    if len(given.rows) == 1:
        asyncio.run(ROWS[given.rows[0]](given.part))
        return 0
    again = [sys.executable, "-m", "bench", "growth", "--part", str(given.part)]
    return max(subprocess.run([*again, row], check=False).returncode for row in given.rows or ROWS)
