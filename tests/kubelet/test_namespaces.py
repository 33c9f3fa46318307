"""Namespaces come and go; nothing is judged before it is seen (docs/parity.md F-21, F-22)."""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final, cast

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object
from apis.offloading import NamespaceMap, OffloadingPatch
from kube import errors, informer
from kube.breaker import Breaker
from kube.cache import CachedCluster
from kube.cluster import Listing, Selection
from kube.controller import Runner, WatchSource
from kube.informer import Informer
from kube.slim import Packed
from kubelet import namespaces
from kubelet.namespaces import NamespaceMappings
from kubelet.pods import mapping, shadowpod
from kubelet.pods.mapping import HomeAndProvider, MappingState, NamespaceMapping
from kubelet.pods.reconcile import PodReconciler
from kubelet.pods.state import DeletionEvidence, PodsByNamespace, VirtualNodeContext
from tests import factories
from tests.conftest import size_of
from tests.controllers.support import Ledger
from tests.fakes import FakeCluster, Through
from tests.kubelet.worlds import (
    HOST,
    NODE,
    NOW,
    TWIN,
    WEB,
    Namespaces,
    ReasonRecorder,
    named_condition,
    running,
)

CLUSTERS = HomeAndProvider("rome", "milan")
CHANGES: Final = size_of("PYLIQO_TEST_CHANGES", 15, 1000)
MAP = Key("liqo-tenant-milan", "milan")


def namespace_map(phase: str | None = "Accepted", *, is_desired: bool = True) -> Object:
    current = {"shop": {"remoteNamespace": "shop-rome", "phase": phase}} if phase else {}
    spec = {"desiredMapping": {"shop": "shop-rome"} if is_desired else {}}
    return factories.namespace_map(MAP, spec=spec, status={"currentMapping": current})


@pytest.mark.parametrize(
    ("found", "state", "has_pair"),
    [
        (None, MappingState.WAITING, False),
        (namespace_map(), MappingState.OFFLOADED, True),
        (namespace_map(None), MappingState.WAITING, False),
        (namespace_map("CreationLoopBackOff"), MappingState.WAITING, False),
        (namespace_map("Terminating"), MappingState.WAITING, True),
        (namespace_map("Accepted", is_desired=False), MappingState.WITHDRAWN, True),
        (namespace_map("Terminating", is_desired=False), MappingState.WITHDRAWN, True),
        (namespace_map(None, is_desired=False), MappingState.WITHDRAWN, False),
    ],
)
def test_what_a_namespace_map_says(
    found: Object | None, state: MappingState, *, has_pair: bool
) -> None:
    parsed = NamespaceMap.parse(found) if found else None
    found_there = mapping.of(parsed, "shop", CLUSTERS)
    assert (found_there.state, found_there.pair is not None) == (state, has_pair)


def options_of(found: NamespaceMappings) -> shadowpod.Options:
    """Return what the virtual node does by what the provider says."""
    opened, granted = found.opened(), found.granted()
    return shadowpod.Options(NODE, OffloadingPatch(), opened=opened, granted=granted)


class Kubelet:
    """Runner, mappings and reconciler as ``kubelet.setup`` wires them."""

    def __init__(self, local: FakeCluster, remote: FakeCluster) -> None:
        self.local, self.remote = local, remote
        fields = f"spec.nodeName={NODE}"
        self.pods: Informer[Packed] = Informer(Selection(keys.POD, Packed, fields=fields))
        self.departures = DeletionEvidence()
        self.breaker = Breaker(lambda: None)
        self.pods.subscribe(self.departures.on_local)
        self.breaker.watch(self.pods)
        self.maps = namespaces.informer(MAP.namespace, CLUSTERS)
        cached = CachedCluster(remote)
        self.mappings = NamespaceMappings(
            local,
            cached,
            maps=self.maps,
            here=PodsByNamespace(self.pods),
            clusters=CLUSTERS,
            node=NODE,
            departures=self.departures,
            breaker=self.breaker,
        )
        self.recorder = ReasonRecorder()
        mappings_ = self.mappings
        reconciler = PodReconciler(
            CachedCluster(local, [self.pods]),
            cached,
            node=VirtualNodeContext(NODE, HOST, lambda: options_of(mappings_)),
            namespaces=self.mappings,
            recorder=self.recorder,
            clock=lambda: NOW,
            departures=self.departures,
            breaker=self.breaker,
        )
        self.runner = Runner(
            "test-pods", reconciler, [WatchSource(self.pods)], wait_for=[self.maps]
        )

    def coroutines(self) -> list[Callable[[], object]]:
        return [
            lambda: self.pods.run(self.local),
            lambda: self.maps.run(self.local),
            self.runner.run,
            lambda: self.mappings.run(self.runner),
        ]

    @contextlib.asynccontextmanager
    async def running(self, order: tuple[int, ...] = (0, 1, 2, 3)) -> AsyncIterator[None]:
        """Run all of it, begun in ``order``."""
        parts = self.coroutines()
        tasks = [asyncio.ensure_future(parts[index]()) for index in order]  # type: ignore[call-overload]  # coroutines all
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def clusters() -> tuple[FakeCluster, FakeCluster]:
    return FakeCluster(), FakeCluster()


async def bind(cluster: FakeCluster, phase: str = "", key: Key = WEB) -> Object:
    spec = {**factories.pod_spec(), "nodeName": NODE}
    made = await cluster.create(keys.POD, factories.pod(*key, spec=spec))
    return await cluster.patch_status(keys.POD, key, running(phase)) if phase else made


async def put_map(cluster: FakeCluster, found: Object) -> None:
    """Let the map be ``found``, in one write of each part: nothing is withdrawn in between."""
    there = await cluster.get(keys.NAMESPACE_MAP, MAP)
    if there is None:
        there = await cluster.create(keys.NAMESPACE_MAP, found)
    desired = _instead(there["spec"]["desiredMapping"], found["spec"]["desiredMapping"])
    await cluster.patch(keys.NAMESPACE_MAP, MAP, {"spec": {"desiredMapping": desired}})
    current = (there.get("status") or {}).get("currentMapping") or {}
    status = {"currentMapping": _instead(current, found["status"]["currentMapping"])}
    await cluster.patch_status(keys.NAMESPACE_MAP, MAP, status)


def _instead(old: Object, new: Object) -> Object:
    """Return the merge patch that makes ``old`` ``new``."""
    return {**dict.fromkeys(old), **new}


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not holds():  # noqa: ASYNC110  # several loops have to settle
            await asyncio.sleep(0)


def has_shadow(cluster: FakeCluster) -> bool:
    return (keys.SHADOW_POD, TWIN) in cluster.everything()


def phase_of_local(cluster: FakeCluster) -> str:
    return str(web(cluster)["status"]["phase"])


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_in_whatever_order_the_caches_fill_no_pod_fails(
    clusters: tuple[FakeCluster, FakeCluster], order: tuple[int, ...]
) -> None:
    local, remote = clusters
    await bind(local, "Running")
    await put_map(local, namespace_map())

    async with Kubelet(local, remote).running(order):
        await eventually(lambda: has_shadow(remote))

    assert phase_of_local(local) == "Running"


async def test_the_map_of_the_other_direction_is_not_ours(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    """Milan offloads to rome, too: the replica of its map lies in the same namespace."""
    local, remote = clusters
    theirs = namespace_map()
    labels = {**theirs["metadata"]["labels"], keys.REPLICATION: "false", keys.REPLICATED: "true"}
    desired = {"desiredMapping": {"shop": "shop-milan"}}
    current = {"currentMapping": {"shop": {"remoteNamespace": "shop-milan", "phase": "Accepted"}}}
    metadata = {"name": "rome", "namespace": MAP.namespace, "labels": labels}
    await local.create(keys.NAMESPACE_MAP, theirs | {"metadata": metadata, "spec": desired})
    await local.patch_status(keys.NAMESPACE_MAP, Key(MAP.namespace, "rome"), current)
    await bind(local)

    async with Kubelet(local, remote).running():
        await put_map(local, namespace_map())
        await eventually(lambda: has_shadow(remote))

    assert {call for call in remote.everything() if call[1].namespace == "shop-milan"} == set()


async def test_without_a_namespace_map_nothing_fails_and_with_one_it_goes_on(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    local, remote = clusters
    await bind(local, "Running")
    kubelet = Kubelet(local, remote)

    async with kubelet.running():
        await eventually(lambda: local.requests["get", "namespacemaps"] > 0)
        assert phase_of_local(local) == "Running"
        await put_map(local, namespace_map())
        await eventually(lambda: has_shadow(remote))

    assert phase_of_local(local) == "Running"


async def test_an_error_on_the_way_to_the_provider_aborts_nothing(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    local, remote = clusters
    await bind(local, "Running")
    await put_map(local, namespace_map())
    remote.fail("*", errors.BusyError("500"), times=2)
    local.fail("get", errors.BusyError("500"), kind=keys.NAMESPACE_MAP)

    async with Kubelet(local, remote).running():
        await eventually(lambda: has_shadow(remote))

    assert phase_of_local(local) == "Running"


async def test_what_a_provider_opens_is_sent_as_soon_as_it_says_so(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    local, remote = clusters
    made = await bind(local)
    ordered = {"k8s.v1.cni.cncf.io/networks": "fast", "iam.amazonaws.com/role": "a"}
    dedicated = {"key": "dedicated", "operator": "Exists"}
    tolerations = [dedicated, {"key": "node-role.kubernetes.io/master", "operator": "Exists"}]
    changed = {"metadata": {"annotations": ordered}, "spec": {"tolerations": tolerations}}
    await local.patch(keys.POD, WEB, changed)
    await put_map(local, namespace_map())
    await local.patch_status(keys.NAMESPACE_MAP, MAP, {"offered": {"serviceTypes": []}})
    kubelet = Kubelet(local, remote)

    def sent() -> set[str]:
        return ordered.keys() & objects.annotations(remote.everything()[keys.SHADOW_POD, TWIN])

    def tolerated() -> list[Object]:
        made = remote.everything()[keys.SHADOW_POD, TWIN]
        return list(made["spec"]["pod"].get("tolerations") or [])

    async with kubelet.running():
        await eventually(lambda: has_shadow(remote))
        assert not sent()
        assert tolerated() == []
        offered: Object = {"podAnnotationDomains": ["cni.cncf.io"], "podTolerations": [dedicated]}
        await local.patch_status(keys.NAMESPACE_MAP, MAP, {"offered": offered})
        await eventually(lambda: kubelet.mappings.opened() == frozenset({"cni.cncf.io"}))
        assert kubelet.mappings.granted() == (dedicated,)
        await local.patch(keys.POD, WEB, {"metadata": {"labels": {"a": "b"}}})
        await eventually(lambda: sent() == {"k8s.v1.cni.cncf.io/networks"})
        await eventually(lambda: tolerated() == [dedicated])
        for reason in ("AnnotationsNotSent", "TolerationsNotSent"):
            assert kubelet.recorder.told.count(("Normal", reason)) == 1
        closed = {"podAnnotationDomains": None}
        await local.patch_status(keys.NAMESPACE_MAP, MAP, {"offered": closed})
        await eventually(lambda: not kubelet.mappings.opened())
        await local.patch(keys.POD, WEB, {"metadata": {"labels": {"a": "c"}}})
        await eventually(lambda: not sent())

    assert kubelet.recorder.told.count(("Normal", "AnnotationsNotSent")) == 2
    assert objects.uid(made) == objects.uid(web(local))


async def test_an_entry_that_makes_no_sense_changes_nothing_and_blocks_nobody(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    local, remote = clusters
    await bind(local)
    await put_map(local, namespace_map())
    kubelet = Kubelet(local, remote)

    async with kubelet.running():
        await eventually(lambda: has_shadow(remote))
        nonsense = {"currentMapping": {"shop": {"phase": "Nonsense"}}}
        made = await local.patch_status(keys.NAMESPACE_MAP, MAP, nonsense)
        await eventually(lambda: kubelet.maps.get(MAP) == made)
        assert kubelet.mappings.is_synced("shop")
        assert (await kubelet.mappings.mapping("shop")).state is MappingState.OFFLOADED

        other = {"shelf": {"remoteNamespace": "shelf-rome", "phase": "Accepted"}}
        await local.patch_status(keys.NAMESPACE_MAP, MAP, {"currentMapping": other})
        await local.patch(keys.NAMESPACE_MAP, MAP, {"spec": {"desiredMapping": {"shelf": "s"}}})
        await eventually(lambda: kubelet.mappings.is_synced("shelf"))
        assert kubelet.mappings.is_synced("shop")


async def test_a_withdrawn_namespace_aborts_what_ran(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    local, remote = clusters
    await bind(local)
    await put_map(local, namespace_map())
    kubelet = Kubelet(local, remote)

    async with kubelet.running():
        await eventually(lambda: has_shadow(remote))
        await local.patch_status(keys.POD, WEB, running())
        await put_map(local, namespace_map("Terminating", is_desired=False))
        await eventually(lambda: phase_of_local(local) == "Failed")

    assert ("Warning", "ReflectionDisabled") in kubelet.recorder.told


async def test_a_shadow_left_over_goes_when_its_namespace_is_seen(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    local, remote = clusters
    pair = CLUSTERS.pair("shop", "shop-rome")
    labels = {**pair.labels(), keys.NODE_NAME: NODE}
    left = objects.named(keys.SHADOW_POD, TWIN, metadata={"labels": labels}, spec={"pod": {}})
    await remote.create(keys.SHADOW_POD, left)
    await put_map(local, namespace_map())

    async with Kubelet(local, remote).running():
        await eventually(lambda: not has_shadow(remote))


async def test_rights_that_go_are_told_on_the_pod_and_all_goes_on_when_they_are_back(
    clusters: tuple[FakeCluster, FakeCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a provider drains its tenant. Source: docs/parity.md F-34."""
    monkeypatch.setattr(informer, "MAX_BACKOFF_S", 0.01)
    local, remote = clusters
    await bind(local)
    await put_map(local, namespace_map())
    kubelet = Kubelet(local, remote)

    def told() -> Object:
        return named_condition(web(local).get("status", {}), keys.OFFLOADED_CONDITION)

    async with kubelet.running():
        await eventually(lambda: has_shadow(remote))
        await remote.create(keys.POD, twin_of(remote.everything()[keys.SHADOW_POD, TWIN]))
        await remote.patch_status(keys.POD, TWIN, running())
        await eventually(lambda: phase_of_local(local) == "Running")
        remote.fail("*", errors.ForbiddenError("pods is forbidden (403)"), times=10**9)
        remote.cut()
        await eventually(lambda: "pods is forbidden" in told().get("message", ""))
        assert named_condition(web(local)["status"], "Ready")["status"] == "False"

        remote.heal()
        await eventually(lambda: not told())
        await eventually(lambda: named_condition(web(local)["status"], "Ready")["status"] == "True")

    assert ("Warning", "FailedReflection") in kubelet.recorder.told


async def test_at_rest_nothing_is_listed_or_written(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    local, remote = clusters
    await bind(local)
    await put_map(local, namespace_map())
    kubelet = Kubelet(local, remote)

    async with kubelet.running():
        await eventually(lambda: has_shadow(remote))
        for _ in range(200):
            await asyncio.sleep(0)
        before = local.requests.copy(), remote.requests.copy()
        kubelet.pods.resync()
        for _ in range(500):
            await asyncio.sleep(0)
        after = local.requests - before[0], remote.requests - before[1]

    assert not [*after[0], *after[1]]


async def test_nothing_is_read_of_a_pod_whose_life_is_seen(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    local, remote = clusters
    await put_map(local, namespace_map())
    kubelet = Kubelet(local, remote)

    def reads() -> Counter[str]:
        found = Counter({f"{plural} here": n for (_, plural), n in gets(local).items()})
        return found + Counter({f"{plural} there": n for (_, plural), n in gets(remote).items()})

    async with kubelet.running():
        await eventually(lambda: kubelet.mappings.is_synced("shop"))
        begun = reads()
        made = await bind(local)
        await eventually(lambda: has_shadow(remote))
        shadow = remote.everything()[keys.SHADOW_POD, TWIN]
        await remote.create(keys.POD, twin_of(shadow))
        await remote.patch_status(keys.POD, TWIN, running())
        await eventually(lambda: phase_of_local(local) == "Running")
        assert SHADOWED.items() <= objects.labels(web(local)).items()
        up = reads() - begun
        await local.delete(keys.POD, WEB, uid=objects.uid(made))
        await eventually(lambda: not has_shadow(remote))
        await remote.delete(keys.POD, TWIN, uid=objects.uid(remote.everything()[keys.POD, TWIN]))
        await eventually(lambda: (keys.POD, WEB) not in local.everything())
        for _ in range(500):
            await asyncio.sleep(0)
        down = reads() - begun - up

    assert not up
    assert not down
    assert writes(local) == {("patch_status", "pods"): 1, ("delete", "pods"): 2}
    assert writes(remote)["create", "shadowpods"] == writes(remote)["delete", "shadowpods"] == 1


def writes(cluster: FakeCluster) -> dict[tuple[str, str], int]:
    """Return how often each verb that changes pods or ShadowPods was asked for."""
    return {
        (verb, plural): count
        for (verb, plural), count in cluster.requests.items()
        if verb in {"patch_status", "delete", "create"}
        and plural in {"pods", "shadowpods"}
        and (verb, plural) != ("create", "pods")
    }


async def test_a_pod_that_was_not_seen_to_go_is_asked_for_before_its_shadow_pod_goes(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    local, remote = clusters
    await put_map(local, namespace_map())
    kubelet = Kubelet(local, remote)
    made = await bind(local)
    async with kubelet.running():
        await eventually(lambda: has_shadow(remote))
        for _ in range(100):
            await asyncio.sleep(0)
        before = gets(local)["get", "pods"]
        local.cut(errors.ExpiredError("410"))
        await local.delete(keys.POD, WEB, uid=objects.uid(made), grace_s=0)
        await eventually(lambda: not has_shadow(remote))

    assert gets(local)["get", "pods"] == before + 1


async def test_a_cache_that_is_behind_deletes_nothing(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    local, remote = clusters
    await put_map(local, namespace_map())
    kubelet = Kubelet(local, remote)
    old = await bind(local)

    async with kubelet.running():
        await eventually(lambda: kubelet.pods.get(WEB) is not None)
        await eventually(lambda: has_shadow(remote))
    await local.delete(keys.POD, WEB, uid=objects.uid(old), grace_s=0)
    new = await bind(local)
    shadow = remote.everything()[keys.SHADOW_POD, TWIN]
    await remote.delete(keys.SHADOW_POD, TWIN, uid=objects.uid(shadow))
    theirs = {"annotations": {keys.LOCAL_POD_UID: objects.uid(new)}}
    made = await remote.create(
        keys.SHADOW_POD,
        objects.named(
            keys.SHADOW_POD,
            TWIN,
            metadata={"labels": objects.labels(shadow), **theirs},
            spec=shadow["spec"],
        ),
    )
    late = PodReconciler(  # which has seen the old pod, and no ShadowPod at all
        CachedCluster(local, [kubelet.pods]),
        CachedCluster(remote, [Informer(Selection(keys.SHADOW_POD, Object))]),
        node=VirtualNodeContext(NODE, HOST, lambda: shadowpod.Options(NODE, OffloadingPatch())),
        namespaces=Namespaces(
            NamespaceMapping(MappingState.OFFLOADED, CLUSTERS.pair("shop", "shop-rome"))
        ),
        recorder=ReasonRecorder(),
        clock=lambda: NOW,
    )

    await late.reconcile(WEB)

    assert objects.uid(remote.everything()[keys.SHADOW_POD, TWIN]) == objects.uid(made)


SHADOWED = {"liqo.io/shadowPod": "true"}


def gets(cluster: FakeCluster) -> Counter[tuple[str, str]]:
    return Counter({asked: count for asked, count in cluster.requests.items() if asked[0] == "get"})


def web(cluster: FakeCluster) -> Object:
    return cluster.everything()[keys.POD, WEB]


def twin_of(shadow: Object) -> Object:
    """Return what the provider makes of a ShadowPod."""
    metadata = {"labels": objects.labels(shadow), "annotations": objects.annotations(shadow)}
    return factories.pod(*objects.key_of(shadow), spec=shadow["spec"]["pod"], metadata=metadata)


class Lying(Through):
    """A cluster of which the next lists lack part of what there is."""

    def __init__(self, cluster: FakeCluster, part: float) -> None:
        super().__init__(cluster)
        self.part, self.lists = part, 0

    async def list(self, of: Selection[object]) -> Listing[object]:
        listed = await self._cluster.list(of)
        self.lists += 1
        kept = sorted(listed.items)[: round(len(listed.items) * (1 - self.part))]
        return Listing({key: listed.items[key] for key in kept}, listed.version)


@pytest.mark.parametrize("part", [1.0, 0.5])
@pytest.mark.parametrize("side", ["home", "provider"])
async def test_a_list_that_lacks_much_touches_no_pod(
    clusters: tuple[FakeCluster, FakeCluster], side: str, part: float
) -> None:
    local, remote = clusters
    await put_map(local, namespace_map())
    kubelet = Kubelet(local, remote)
    made = [await bind(local, key=Key("shop", f"web-{number}")) for number in range(20)]
    lied_about = local if side == "home" else remote
    lying = Lying(lied_about, 0.0)
    if side == "home":
        kubelet.local = lying  # type: ignore[assignment]  # a Cluster all the same
    else:
        kubelet.mappings._remote._live = lying  # type: ignore[assignment]  # noqa: SLF001  # as above
    async with kubelet.running():
        await eventually(lambda: len(shadows(remote)) == len(made))
        for _ in range(300):
            await asyncio.sleep(0)
        before = shadows(remote)
        lying.part = part
        asked = lying.lists
        lied_about.cut(errors.ExpiredError("410"))
        await eventually(lambda: lying.lists > asked and kubelet.breaker.is_open())
        for _ in range(500):
            await asyncio.sleep(0)
        assert shadows(remote) == before
        lying.part = 0.0
        lied_about.cut(errors.ExpiredError("410"))
        await eventually(lambda: not kubelet.breaker.is_open())
        for _ in range(500):
            await asyncio.sleep(0)

    assert shadows(remote) == before
    assert remote.requests["create", "shadowpods"] == len(made)


def shadows(cluster: FakeCluster) -> dict[Key, str]:
    """Return the UIDs of the ShadowPods."""
    return {
        key: objects.uid(obj)
        for (kind, key), obj in cluster.everything().items()
        if kind == keys.SHADOW_POD
    }


async def test_a_restart_reconciles_many_pods_without_a_write(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    local, remote = clusters
    await put_map(local, namespace_map())
    many = [Key("shop", f"web-{number}") for number in range(50)]
    for key in many:
        await bind(local, key=key)
    first = Kubelet(local, remote)
    async with first.running():
        await eventually(lambda: len(shadows(remote)) == len(many))
        for key in many:
            twin = Key(TWIN.namespace, key.name)
            await remote.create(keys.POD, twin_of(remote.everything()[keys.SHADOW_POD, twin]))
            await remote.patch_status(keys.POD, twin, running())
        await eventually(lambda: all(is_running(local, key) for key in many))
    before = local.requests.copy(), remote.requests.copy()

    second = Kubelet(local, remote)
    async with second.running():
        await eventually(lambda: second.mappings.is_synced("shop"))
        for _ in range(3000):
            await asyncio.sleep(0)

    asked = (local.requests - before[0]) + (remote.requests - before[1])
    assert {verb for verb, _ in asked} == {"list", "watch"}


async def test_what_changed_while_it_was_away_costs_two_writes_an_object_at_most(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    """``PYLIQO_TEST_CHANGES=1000`` is the full size. Source: docs/parity.md F-3."""
    local, remote = clusters
    await put_map(local, namespace_map())
    names = [f"web-{number}" for number in range(CHANGES)]
    labelled, restarted, deleted = names[::3], names[1::3], names[2::3]
    for name in names:
        await bind(local, key=Key("shop", name))
    first = Kubelet(local, remote)
    async with first.running():
        await eventually(lambda: len(shadows(remote)) == len(names))
        for key in shadows(remote):
            await remote.create(keys.POD, twin_of(remote.everything()[keys.SHADOW_POD, key]))
            await remote.patch_status(keys.POD, key, running())
        await eventually(lambda: all(is_running(local, Key("shop", name)) for name in names))

    for name in labelled:
        await local.patch(keys.POD, Key("shop", name), {"metadata": {"labels": {"tier": "b"}}})
    for name in restarted:
        await remote.patch_status(keys.POD, Key(TWIN.namespace, name), running(restarts=1))
    for name in deleted:
        pod = local.everything()[keys.POD, Key("shop", name)]
        await local.delete(keys.POD, Key("shop", name), uid=objects.uid(pod))
    for name in (made := [f"new-{number}" for number in range(CHANGES // 3)]):
        await bind(local, key=Key("shop", name))

    here, there = Ledger(local), Ledger(remote)
    second = Kubelet(cast("FakeCluster", here), cast("FakeCluster", there))
    async with second.running():
        await eventually(
            lambda: {key.name for key in shadows(remote)} == {*labelled, *restarted, *made}
        )
        for name in deleted:
            twin = Key(TWIN.namespace, name)
            uid = objects.uid(remote.everything()[keys.POD, twin])
            await remote.delete(keys.POD, twin, uid=uid, grace_s=0)
        await eventually(lambda: is_caught_up(local, remote, labelled, restarted, deleted))

    costs = Counter((kind, key.name) for _, kind, key in [*here.writes, *there.writes])
    assert max(costs.values()) <= 2
    assert len({name for _, name in costs}) == len(names) + len(made), "nothing else was written"


def is_caught_up(
    local: FakeCluster,
    remote: FakeCluster,
    labelled: list[str],
    restarted: list[str],
    deleted: list[str],
) -> bool:
    here = {key.name: obj for (kind, key), obj in local.everything().items() if kind == keys.POD}
    there = {
        key.name: obj for (kind, key), obj in remote.everything().items() if kind == keys.SHADOW_POD
    }
    return (
        not here.keys() & {*deleted}
        and all(objects.labels(there[name]).get("tier") == "b" for name in labelled)
        and all(here[name]["status"]["containerStatuses"][0]["restartCount"] for name in restarted)
    )


def is_running(cluster: FakeCluster, key: Key) -> bool:
    return bool(cluster.everything()[keys.POD, key].get("status", {}).get("phase") == "Running")


async def test_a_withdrawn_namespace_is_followed_until_its_pods_are_gone(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    """What became of each on the provider is seen: nobody asks for it."""
    local, remote = clusters
    await put_map(local, namespace_map())
    kubelet = Kubelet(local, remote)
    names = [Key("shop", f"web-{number}") for number in range(20)]
    async with kubelet.running():
        for key in names:
            await bind(local, key=key)
        await eventually(lambda: len(shadows(remote)) == len(names))
        made = dict(shadows(remote))
        for key in made:
            await remote.create(keys.POD, twin_of(remote.everything()[keys.SHADOW_POD, key]))
        for key in names:
            uid = objects.uid(local.everything()[keys.POD, key])
            await local.delete(keys.POD, key, uid=uid)
        await put_map(local, namespace_map("Terminating", is_desired=False))
        await eventually(lambda: not shadows(remote))
        assert kubelet.mappings.is_synced("shop")
        before = gets(local)["get", "namespacemaps"]
        for key in made:
            pod = remote.everything()[keys.POD, key]
            await remote.delete(keys.POD, key, uid=objects.uid(pod), grace_s=0)
        await eventually(lambda: not any((keys.POD, key) in local.everything() for key in names))
        await eventually(lambda: not kubelet.mappings.is_synced("shop"))

    assert gets(local)["get", "pods"] == gets(remote).total() == 0
    assert gets(local)["get", "namespacemaps"] - before <= 1


@pytest.mark.parametrize("first", [keys.SHADOW_POD, keys.POD])
async def test_what_goes_with_a_twin_namespace_that_ends_is_believed_in_whatever_order(
    clusters: tuple[FakeCluster, FakeCluster], first: Kind
) -> None:
    local, remote = clusters
    await put_map(local, namespace_map())
    kubelet = Kubelet(local, remote)
    async with kubelet.running():
        made = await bind(local)
        await eventually(lambda: has_shadow(remote))
        await remote.create(keys.POD, twin_of(remote.everything()[keys.SHADOW_POD, TWIN]))
        await put_map(local, namespace_map("Terminating", is_desired=False))
        remote.fail("delete", errors.ForbiddenError("vk cannot delete (403)"), times=10**9)
        await local.delete(keys.POD, WEB, uid=objects.uid(made))
        remote.heal()
        for kind in (first, keys.POD if first == keys.SHADOW_POD else keys.SHADOW_POD):
            if there := remote.everything().get((kind, TWIN)):
                await remote.delete(kind, TWIN, uid=objects.uid(there), grace_s=0)
        await eventually(lambda: (keys.POD, WEB) not in local.everything())

    assert gets(local)["get", "pods"] == gets(remote).total() == 0


async def test_a_change_of_the_map_is_read_once_for_all_pods_that_it_concerns(
    clusters: tuple[FakeCluster, FakeCluster],
) -> None:
    local, remote = clusters
    await put_map(local, namespace_map(None))
    kubelet = Kubelet(local, remote)
    for number in range(50):
        await bind(local, "Running", key=Key("shop", f"web-{number}"))
        await bind(local, "Running", key=Key("shelf", f"web-{number}"))
    async with kubelet.running():
        await eventually(lambda: phases(local, "shelf") == {"Failed"})
        for _ in range(2000):
            await asyncio.sleep(0)
        before = gets(local)["get", "namespacemaps"]
        blocked = {"currentMapping": {"shop": {"phase": "CreationLoopBackOff"}}}
        await local.patch_status(keys.NAMESPACE_MAP, MAP, blocked)
        for _ in range(500):
            await asyncio.sleep(0)
        unchanged = gets(local)["get", "namespacemaps"] - before
        await local.patch(keys.NAMESPACE_MAP, MAP, {"spec": {"desiredMapping": {"shop": None}}})
        await eventually(lambda: phases(local, "shop") == {"Failed"})
        for _ in range(500):
            await asyncio.sleep(0)

    assert unchanged == 0
    assert gets(local)["get", "namespacemaps"] - before == 1


def phases(cluster: FakeCluster, namespace: str) -> set[str]:
    return {
        str(obj["status"]["phase"])
        for (kind, key), obj in cluster.everything().items()
        if kind == keys.POD and key.namespace == namespace
    }
