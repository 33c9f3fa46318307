"""What slices are granted: defaults filled in, answers, Quotas; sums that hold at each revision."""

import asyncio
import contextlib
import itertools
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest

from apis import keys, naming, objects, resources
from apis.objects import Key, Kind, Object, named
from apis.providerpolicy import GrantDefaults
from apis.resources import Resources
from controllers import watches
from controllers.granting.grants.reconciler import ALL, FREE, GrantsReconciler, everything
from kube import client, errors
from kube.cluster import Cluster, Selection
from kube.controller import TerminalError
from kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotReachableError,
)
from kube.informer import Change, Informer
from sandbox.controlplane import Plane
from tests import factories
from tests.controllers.slicereplicas import AUTHENTICATED, replica
from tests.controllers.support import (
    LATER,
    Ledger,
    Told,
    ensure_namespace,
    make,
    manager_of,
    settle,
    there,
)
from tests.fakes import FakeCluster

ROME = "rome"


@pytest.fixture
def tick() -> "Tick":
    return Tick()


class Tick:
    """A clock that only a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Provider:
    """Milan, with a loop that grants; ``free`` is what class ``shared`` finds."""

    def __init__(self, cluster: Cluster, unique: str, tick: Tick) -> None:
        self.cluster = Ledger(cluster)
        self.unique = unique
        self.told = Told(cluster)
        self.free: Resources | None = resources.parse_resources({"cpu": "100", "memory": "100Gi"})
        self._tick = tick
        self._terms = itertools.count(1)
        self.loop = self.elected()

    def elected(self, standard: GrantDefaults | None = None) -> GrantsReconciler:
        """Return the loop of a new leader."""
        manager = manager_of(
            self.cluster,
            standard=standard or GrantDefaults(),
            events=self.told.recorder,
            clock=lambda: LATER,
        )
        loop = GrantsReconciler(manager, f"{self.unique}-{next(self._terms)}", self._tick)
        loop.free = lambda _: self.free
        return loop

    def space(self, tenant: str = ROME) -> str:
        return naming.tenant_namespace(f"{tenant}-{self.unique}")

    async def add_tenant(self, tenant: str = ROME, **spec: Any) -> None:
        cluster_id = f"{tenant}-{self.unique}"
        await ensure_namespace(self.cluster, self.space(tenant))
        body = {"clusterID": cluster_id, **spec}
        obj = named(keys.TENANT, Key(self.space(tenant), cluster_id), spec=body)
        await self.cluster.create(keys.TENANT, obj)

    async def tenant(self, tenant: str = ROME) -> Object:
        key = Key(self.space(tenant), f"{tenant}-{self.unique}")
        return await there(self.cluster, keys.TENANT, key)

    async def condition(self, condition: str, tenant: str = ROME) -> None:
        key = Key(self.space(tenant), f"{tenant}-{self.unique}")
        await self.cluster.patch(keys.TENANT, key, {"spec": {"tenantCondition": condition}})

    async def ask(
        self, name: str = "pool", class_: str = "", *, tenant: str = ROME, **wanted: str
    ) -> Key:
        """Put a slice there as replication and authentication leave it."""
        key = Key(self.space(tenant), name)
        made = replica(key, f"{tenant}-{self.unique}", class_, wanted)
        await make(self.cluster, keys.RESOURCE_SLICE, made, status=AUTHENTICATED)
        return key

    async def settle(self) -> None:
        await settle(self.loop, ALL, self.cluster)

    async def slice(self, key: Key) -> Object:
        return await there(self.cluster, keys.RESOURCE_SLICE, key)

    async def granted(self, key: Key) -> dict[str, str]:
        found: dict[str, str] = (await self.slice(key)).get("status", {}).get("resources", {})
        return found

    async def answer(self, key: Key) -> tuple[str, str, str]:
        status = (await self.slice(key)).get("status", {})
        found = objects.find_condition(status.get("conditions"), "Resources") or {}
        return found.get("status", ""), found.get("reason", ""), found.get("message", "")

    async def quota(self, key: Key) -> Object | None:
        tenant = key.namespace.removeprefix("liqo-tenant-")
        return await self.cluster.get_live(
            keys.QUOTA, Key(key.namespace, naming.quota_name(key.name, tenant))
        )

    async def policy(self, name: str, **spec: Any) -> None:
        obj = named(keys.PROVIDER_POLICY, Key("", name), spec=spec)
        await self.cluster.apply(keys.PROVIDER_POLICY, obj, manager="tests")


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Yield a cluster of this module's own: the loop looks at all tenants that there are."""
    if request.param == "fake":
        yield FakeCluster(strict=True)
        return
    own: Plane = request.getfixturevalue("own_plane")
    async with client.connect(own.kubeconfig, user_agent="pyliqo-tests") as real:
        yield real


@pytest.fixture
async def granter(cluster: Cluster, namespace: str, tick: Tick) -> AsyncIterator[Provider]:
    made = Provider(cluster, namespace, tick)
    await made.add_tenant()
    yield made
    for kind in (keys.RESOURCE_SLICE, keys.QUOTA, keys.PROVIDER_POLICY, keys.TENANT):
        for key, obj in (await cluster.list(Selection(kind, dict))).items.items():
            await cluster.delete(kind, key, uid=obj["metadata"]["uid"])


async def test_the_provider_fills_in_what_was_not_asked_for(granter: Provider) -> None:
    key = await granter.ask(cpu="2")

    await granter.settle()

    assert await granter.granted(key) == {
        "cpu": "2",
        "memory": "8Gi",
        "pods": "110",
        "ephemeral-storage": "20Gi",
    }
    assert (await granter.answer(key))[:2] == ("Accepted", "ResourceSliceResourcesAccepted")
    quota = await granter.quota(key)
    assert quota is not None
    assert quota["spec"] == {
        "user": quota["metadata"]["name"],
        "limitsEnforcement": "None",
        "resources": await granter.granted(key),
    }
    (owner,) = quota["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ResourceSlice", "pool", True)


def test_the_quota_is_called_as_in_the_documents() -> None:
    assert naming.quota_name("mypool", "wispy-firefly") == "mypool-c34af51dd912"


async def test_more_than_there_is_may_be_granted_and_what_was_not_known_before(
    granter: Provider,
) -> None:
    key = await granter.ask(cpu="100000", **{"nvidia.com/gpu": "8"})

    await granter.settle()

    granted = await granter.granted(key)
    assert (granted["cpu"], granted["nvidia.com/gpu"]) == ("100k", "8")


async def test_a_change_reaches_status_and_quota_and_what_is_not_asked_any_more_goes(
    granter: Provider,
) -> None:
    key = await granter.ask(cpu="2", **{"nvidia.com/gpu": "1"})
    await granter.settle()

    changes = {"spec": {"resources": {"cpu": "6", "nvidia.com/gpu": None}}}
    await granter.cluster.patch(keys.RESOURCE_SLICE, key, changes)
    await granter.settle()

    granted = await granter.granted(key)
    assert granted["cpu"] == "6"
    assert "nvidia.com/gpu" not in granted
    assert (await granter.quota(key) or {})["spec"]["resources"] == granted


async def test_a_quota_that_somebody_edits_is_put_right(granter: Provider) -> None:
    key = await granter.ask()
    await granter.settle()
    quota = await granter.quota(key)
    assert quota
    where = Key(key.namespace, quota["metadata"]["name"])

    edited = {"spec": {"resources": {"cpu": "1000"}, "cordoned": True}}
    await granter.cluster.patch(keys.QUOTA, where, edited)
    await granter.settle()

    assert (await granter.quota(key) or {})["spec"] == quota["spec"]


async def test_nobody_is_granted_anything_who_is_not_authenticated(granter: Provider) -> None:
    key = Key(granter.space(), "stranger")
    origin = f"{ROME}-{granter.unique}"
    await granter.cluster.create(keys.RESOURCE_SLICE, replica(key, origin, "", {}))

    await granter.settle()

    assert await granter.granted(key) == {}
    assert await granter.quota(key) is None


async def test_a_slice_in_the_name_of_another_is_denied(granter: Provider) -> None:
    key = Key(granter.space(), "theirs")
    made = replica(key, "somebody-else", "", {})
    await make(granter.cluster, keys.RESOURCE_SLICE, made, status=AUTHENTICATED)

    await granter.settle()

    status, reason, message = await granter.answer(key)
    assert (status, reason) == ("Denied", "ResourceSliceResourcesDenied")
    assert "spec.consumerClusterID 'somebody-else'" in message


async def test_a_slice_that_cannot_be_read_does_not_stop_the_others(granter: Provider) -> None:
    bad = await granter.ask("bad", cpu="-1")
    good = await granter.ask("good")

    await granter.settle()

    assert (await granter.answer(bad))[:2] == ("Denied", "ResourceSliceUnreadable")
    assert "spec.resources.cpu is below zero" in (await granter.answer(bad))[2]
    assert (await granter.answer(good))[0] == "Accepted"


async def test_a_slice_beyond_every_bound_is_denied_and_stops_no_other(granter: Provider) -> None:
    """As may lie there from before the bounds: it is known in outline only."""
    large = await granter.ask("large")
    annotations = {f"example.org/{number}": "x" * 2**10 for number in range(2**7)}
    await granter.cluster.patch(
        keys.RESOURCE_SLICE, large, {"metadata": {"annotations": annotations}}
    )
    good = await granter.ask("good")

    await granter.settle()

    assert (await granter.answer(large))[:2] == ("Denied", "ResourceSliceUnreadable")
    assert (await granter.answer(good))[0] == "Accepted"


async def test_a_custom_class_is_left_to_its_controller_and_gets_its_quota(
    granter: Provider,
) -> None:
    key = await granter.ask(class_="gold", cpu="5")
    await granter.settle()
    assert (await granter.answer(key))[0] == ""
    assert await granter.quota(key) is None

    found = await granter.slice(key)
    theirs = {"type": "Resources", "status": "Accepted", "reason": "Gold", "message": "",
              "lastTransitionTime": "2025-01-01T00:00:00Z"}  # fmt: skip
    status = {"resources": {"cpu": "3"}, "conditions": [*found["status"]["conditions"], theirs]}
    await granter.cluster.patch_status(keys.RESOURCE_SLICE, key, status)
    await granter.settle()

    quota = await granter.quota(key)
    assert quota is not None
    assert quota["spec"]["resources"] == {"cpu": "3"}


async def test_a_class_that_is_switched_off_says_so(granter: Provider) -> None:
    granter.loop = granter.elected(GrantDefaults(is_default_class_enabled=False))
    key = await granter.ask()

    await granter.settle()

    assert (await granter.answer(key))[:2] == ("Denied", "DefaultResourceSliceClassDisabled")
    assert "DefaultResourceSliceClassDisabled" in granter.told.reasons


async def test_a_cordoned_tenant_keeps_its_slices_and_gets_no_new_ones(granter: Provider) -> None:
    old = await granter.ask("old", cpu="2")
    await granter.settle()
    await granter.condition("Cordoned")
    new = await granter.ask("new")
    await granter.cluster.patch(keys.RESOURCE_SLICE, old, {"spec": {"resources": {"cpu": "9"}}})
    await granter.settle()

    assert (await granter.answer(new))[:2] == ("Denied", "ResourceSliceResourcesDenied")
    assert (await granter.granted(old))["cpu"] == "2"
    assert (await granter.quota(old) or {})["spec"]["cordoned"] is True

    await granter.condition("Active")
    await granter.settle()

    assert (await granter.answer(new))[0] == "Accepted"
    assert (await granter.granted(old))["cpu"] == "9"
    assert "cordoned" not in (await granter.quota(old) or {})["spec"]


async def test_a_quota_is_cordoned_with_its_tenant_whatever_became_of_its_slice(
    granter: Provider,
) -> None:
    """The slice says no more whose it is, or that it was let in."""
    key = await granter.ask(cpu="2")
    await granter.settle()
    labels = {keys.REPLICATED: None, keys.ORIGIN_ID: None}
    where = keys.RESOURCE_SLICE, key
    await granter.cluster.patch(*where, {"metadata": {"labels": labels}})
    await granter.cluster.patch_status(*where, {"conditions": []})

    await granter.condition("Cordoned")
    await granter.settle()

    assert (await granter.quota(key) or {})["spec"]["cordoned"] is True


@pytest.mark.parametrize("annotation", [keys.CORDON, keys.CORDON_TENANT])
async def test_a_cordoned_slice_has_a_cordoned_quota(granter: Provider, annotation: str) -> None:
    key = await granter.ask()
    await granter.settle()

    async def mark(value: str | None) -> bool:
        changes = {"metadata": {"annotations": {annotation: value}}}
        await granter.cluster.patch(keys.RESOURCE_SLICE, key, changes)
        await granter.settle()
        return "cordoned" in (await granter.quota(key) or {})["spec"]

    assert await mark("true") is True
    assert await mark("false") is False
    assert await mark("") is True
    assert await mark(None) is False


# Class shared -------------------------------------------------------------------------------------


async def test_nothing_is_said_before_it_is_known_what_is_free(granter: Provider) -> None:
    granter.free = None
    key = await granter.ask(class_="shared")

    await granter.settle()

    assert await granter.answer(key) == ("", "", "")


async def test_a_percentage_that_is_changed_holds_at_once(granter: Provider) -> None:
    key, other = await granter.ask(class_="shared"), f"{ROME}-{granter.unique}"
    await granter.settle()

    await granter.policy("default", sharing={"percentage": 50})
    await granter.settle()
    assert (await granter.granted(key))["cpu"] == "50"

    await granter.policy(other, sharing={"percentage": 10, "resources": {"memory": 20}})
    await granter.settle()
    assert (await granter.granted(key)) == {"cpu": "10", "memory": "20Gi"}


async def test_pods_that_leave_as_much_free_ask_the_server_nothing(tick: Tick) -> None:
    cluster = FakeCluster()
    granter = Provider(cluster, "x", tick)
    await granter.add_tenant()
    key = await granter.ask(class_="shared")
    await granter.settle()
    before = cluster.requests.copy()

    await granter.loop.reconcile(FREE)
    assert cluster.requests == before

    granter.free = resources.parse_resources({"cpu": "50", "memory": "100Gi"})
    cluster.fail("patch*", errors.BusyError("away"), times=1)
    with pytest.raises(errors.BusyError):
        await granter.loop.reconcile(FREE)
    for _ in range(3):
        await granter.loop.reconcile(FREE)
    assert (await granter.granted(key))["cpu"] == "45"


async def test_what_rounding_takes_is_in_condition_and_event(granter: Provider) -> None:
    granter.free = resources.parse_resources({"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"})
    await granter.policy("default", sharing={"percentage": 90, "rounding": "Down"})
    key = await granter.ask(class_="shared")

    await granter.settle()

    assert (await granter.granted(key))["nvidia.com/gpu"] == "0"
    note = "nvidia.com/gpu: 90% of 1 free is 0.9, granted 0 (rounding Down)"
    assert note in (await granter.answer(key))[2]
    assert granter.told.reasons == ["ResourceSliceResourcesAccepted"]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (errors.refusal(404, {}), "the provider does not serve the kind quotas.offloading.liqo.io"),
        (errors.refusal(403, {"message": "quotas may not be listed"}), "quotas may not be listed"),
    ],
    ids=["kind", "right"],
)
async def test_what_the_provider_lacks_is_told_on_the_slice_that_waits_until_it_is_there(
    error: errors.KubeError, why: str
) -> None:
    """F34; a slice that was answered keeps its answer."""
    fake = FakeCluster(strict=True)
    provider = Provider(fake, "lacking", Tick())
    await provider.add_tenant()
    served = await provider.ask("served")
    await provider.settle()
    waiting = await provider.ask("waiting")
    fake.fail("list", error, kind=keys.QUOTA, times=2)

    for _ in range(2):
        with pytest.raises(type(error)):
            await provider.loop.reconcile(ALL)

    cure = "its administrator runs liqoctl install, then the slice is granted by itself"
    assert await provider.answer(waiting) == ("Denied", "ProviderIncomplete", f"{why}: {cure}")
    assert (await provider.answer(served))[0] == "Accepted"
    assert provider.told.reasons.count("ProviderIncomplete") == 1
    await provider.settle()
    assert (await provider.answer(waiting))[0] == "Accepted"
    assert await provider.quota(waiting) is not None


async def test_nothing_to_share_is_a_no_that_becomes_a_yes(granter: Provider) -> None:
    granter.free = resources.parse_resources({"cpu": "0", "memory": "1Gi"})
    key = await granter.ask(class_="shared")
    await granter.settle()
    assert (await granter.answer(key))[:2] == ("Denied", "NothingToGrant")

    granter.free = resources.parse_resources({"cpu": "10", "memory": "1Gi"})
    await granter.settle()

    assert (await granter.answer(key))[0] == "Accepted"


# Sums ---------------------------------------------------------------------------------------------


async def test_thirty_slices_race_and_no_revision_shows_more_than_the_policy(
    cluster: Cluster, namespace: str, tick: Tick
) -> None:
    """Two leaders at once, slices that come and change while they divide, calls that get lost."""
    provider = Provider(cluster, namespace, tick)
    tenants = ("rome", "turin", "bari")
    for tenant in tenants:
        await provider.add_tenant(tenant)
    await provider.policy("default", limits={"cpu": "70"}, sharing={"percentage": 90})
    async with watched_sums(cluster, provider.unique) as most:
        loops = [provider.elected(), provider.elected()]
        async with asyncio.TaskGroup() as tasks:
            for number in range(30):
                class_ = "shared" if number % 2 else ""
                wanted = {} if number % 3 else {"cpu": str(number)}
                tenant = tenants[number % 3]
                tasks.create_task(asked(provider, f"s{number}", class_, tenant, wanted))
            done = dict.fromkeys(loops, 0)
            for loop in loops:
                tasks.create_task(rounds(loop, cluster, tick, done))
        if isinstance(cluster, FakeCluster):
            cluster.heal()  # of an answer that was to be lost yet
        for _ in range(3):  # slices may come late, and what a leader before may write counts on
            await provider.settle()
            tick.now += 60

    assert most() <= resources.parse_resources({"cpu": "70"})["cpu"].nanos
    shared = [
        one
        for one in (await cluster.list(Selection(keys.RESOURCE_SLICE, dict))).items.values()
        if provider.unique in one["metadata"]["namespace"]
    ]
    assert len(shared) == 30
    answers = [objects.find_condition(one["status"]["conditions"], "Resources") for one in shared]
    assert all(answers), "a slice has no answer, and nothing is left to do"
    for kind in (keys.RESOURCE_SLICE, keys.QUOTA, keys.PROVIDER_POLICY, keys.TENANT):
        for key, obj in (await cluster.list(Selection(kind, dict))).items.items():
            await cluster.delete(kind, key, uid=obj["metadata"]["uid"])


async def asked(
    provider: Provider, name: str, class_: str, tenant: str, wanted: dict[str, str]
) -> None:
    with contextlib.suppress(NotReachableError):  # meant for the loops: it was done all the same
        await provider.ask(name, class_, tenant=tenant, **wanted)


async def rounds(
    loop: GrantsReconciler, cluster: Cluster, tick: Tick, done: dict[GrantsReconciler, int]
) -> None:
    """Divide again and again, as a queue does that forgets no failure.

    Beside a real server the clock waits for the slower of the loops in ``done``: no write takes as
    long as a leader's may, however busy the machine is.
    """
    for number in range(25):
        if isinstance(cluster, FakeCluster) and number % 5 == 0:
            lost = NotReachableError("the answer is lost")
            cluster.fail("patch_status", lost, kind=keys.RESOURCE_SLICE, after=True)
        with contextlib.suppress(
            AlreadyExistsError, ConflictError, NotReachableError, ExceptionGroup
        ):
            await loop.reconcile(ALL)
        done[loop] += 1
        tick.now = tick.now + 10 if isinstance(cluster, FakeCluster) else 20 * min(done.values())
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def watched_sums(cluster: Cluster, unique: str) -> AsyncIterator[Callable[[], int]]:
    """Add up, at each revision of slices and Quotas, what is granted; yield the most so far."""
    kinds = (keys.RESOURCE_SLICE, keys.QUOTA)
    sums = dict.fromkeys(kinds, 0)
    informers: list[Informer[Object]] = []

    def amounts(kind: Any, informer: Informer[Object]) -> Iterator[int]:
        part = "status" if kind == keys.RESOURCE_SLICE else "spec"
        for key, obj in informer.items().items():
            if unique in key.namespace:
                said = ((obj.get(part) or {}).get("resources") or {}).get("cpu", "0")
                yield resources.parse_resources({"cpu": said})["cpu"].nanos

    async with asyncio.TaskGroup() as tasks:
        running = []
        for kind in kinds:
            informer: Informer[Object] = Informer(Selection(kind, dict))

            def add_up(_: Any, kind: Any = kind, informer: Informer[Object] = informer) -> None:
                sums[kind] = max(sums[kind], sum(amounts(kind, informer)))

            informer.subscribe(add_up)
            informers.append(informer)
            running.append(tasks.create_task(informer.run(cluster)))
        for informer in informers:
            await informer.synced.wait()
        yield lambda: max(sums.values())
        await asyncio.gather(*(seen_to_the_end(cluster, informer) for informer in informers))
        for task in running:
            task.cancel()


async def seen_to_the_end(cluster: Cluster, informer: Informer[Object]) -> None:
    """Wait until ``informer`` has been told everything; nothing is written any more meanwhile."""

    def versions(found: Mapping[Key, Object]) -> dict[Key, str]:
        return {key: obj["metadata"]["resourceVersion"] for key, obj in found.items()}

    last = versions((await cluster.list(informer.selection)).items)
    async with asyncio.timeout(300):
        while versions(informer.items()) != last:  # noqa: ASYNC110  # it tells of changes, not of ends
            await asyncio.sleep(0.01)
    assert versions((await cluster.list(informer.selection)).items) == last


async def test_what_a_process_before_may_still_write_counts_for_a_while(
    granter: Provider, tick: Tick
) -> None:
    key = await granter.ask("a", "shared")
    await granter.settle()
    assert (await granter.granted(key))["cpu"] == "90"
    other = await granter.ask("b", "shared")
    granter.loop = granter.elected()

    await granter.settle()
    assert (await granter.granted(key))["cpu"] == "45"
    assert "cpu" not in {name for name, at in (await granter.granted(other)).items() if at != "10"}
    tick.now += 60
    await granter.settle()

    assert (await granter.granted(other))["cpu"] == "45"


async def test_a_slice_that_is_refused_for_ever_does_not_hold_up_the_others(
    granter: Provider,
) -> None:
    """A Quota of somebody else has the name of one slice's."""
    await granter.policy("default", limits={"cpu": "100"})
    bad, good = await granter.ask("bad"), await granter.ask("good", cpu="1")
    taken = Key(bad.namespace, naming.quota_name("bad", f"{ROME}-{granter.unique}"))
    theirs = named(keys.QUOTA, taken, spec={"user": "x", "resources": {}})
    await granter.cluster.create(keys.QUOTA, theirs)

    for amount in ("1", "2", "3"):
        changes = {"spec": {"resources": {"cpu": amount}}}
        await granter.cluster.patch(keys.RESOURCE_SLICE, good, changes)
        for _ in range(2):
            with contextlib.suppress(TerminalError):
                await granter.loop.reconcile(ALL)
        assert (await granter.granted(good))["cpu"] == amount
        assert (await granter.quota(good) or {})["spec"]["resources"]["cpu"] == amount


async def test_what_is_done_is_not_done_again(granter: Provider) -> None:
    await granter.ask("a", "shared")
    await granter.ask("b")
    await granter.settle()
    before = len(granter.cluster.writes)

    await granter.loop.reconcile(ALL)

    assert granter.cluster.writes[before:] == []


# What beside resources is offered -----------------------------------------------------------------


async def test_classes_and_labels_are_those_of_the_policy_else_those_there_are(
    granter: Provider,
) -> None:
    for name, default in ((f"z-{granter.unique}", "false"), (f"a-{granter.unique}", "true")):
        marks = {keys.DEFAULT_STORAGE_CLASS: default}
        await granter.cluster.create(
            keys.STORAGE_CLASS,
            factories.made(
                keys.STORAGE_CLASS,
                Key("", name),
                metadata={"annotations": marks},
                provisioner="example.com/none",
            ),
        )
    ours = factories.made(
        keys.STORAGE_CLASS, Key("", f"m-{granter.unique}"), provisioner=keys.STORAGE_PROVISIONER
    )
    await granter.cluster.create(keys.STORAGE_CLASS, ours)
    granter.loop = granter.elected(GrantDefaults(cluster_labels={"region": "lombardy"}))
    key = await granter.ask()
    await granter.settle()
    status = (await granter.slice(key))["status"]
    assert status["storageClasses"] == [
        {"storageClassName": f"a-{granter.unique}", "default": True},
        {"storageClassName": f"z-{granter.unique}"},
    ]
    assert status["nodeLabels"] == {"region": "lombardy"}

    await granter.policy(
        "default",
        storageClasses=[{"storageClassName": "fast", "default": True}],
        ingressClasses=[{"ingressClassName": "nginx"}],
        loadBalancerClasses=[{"loadBalancerClassName": "metal"}],
        nodeLabels={"region": "sicily"},
        limitsEnforcement="Hard",
    )
    await granter.settle()

    status = (await granter.slice(key))["status"]
    assert status["storageClasses"] == [{"storageClassName": "fast", "default": True}]
    assert status["ingressClasses"] == [{"ingressClassName": "nginx"}]
    assert status["loadBalancerClasses"] == [{"loadBalancerClassName": "metal"}]
    assert status["nodeLabels"] == {"region": "sicily"}
    assert (await granter.quota(key) or {})["spec"]["limitsEnforcement"] == "Hard"
    for name in (f"z-{granter.unique}", f"a-{granter.unique}", f"m-{granter.unique}"):
        obj = await there(granter.cluster, keys.STORAGE_CLASS, Key("", name))
        await granter.cluster.delete(keys.STORAGE_CLASS, Key("", name), uid=obj["metadata"]["uid"])


async def test_a_policy_says_which_classes_there_are_and_what_no_class_means(
    granter: Provider,
) -> None:
    await granter.policy(
        "default", resourceSliceClasses={"allowed": ["shared"], "default": "shared"}
    )
    unnamed, named_ = await granter.ask("unnamed"), await granter.ask("named", "default")
    other = await granter.ask("other", "gold")

    await granter.settle()

    for key in (unnamed, named_):
        assert (await granter.granted(key))["cpu"] == "45"
        assert (await granter.answer(key))[2] == "class shared, 90% of what is free"
    status, reason, message = await granter.answer(other)
    assert (status, reason) == ("Denied", "ResourceSliceClassNotAllowed")
    assert message == "spec.class gold is not for this tenant, choose one of: shared"


async def test_class_default_is_fixed_until_the_provider_makes_it_a_share(
    granter: Provider,
) -> None:
    key = await granter.ask(cpu="2")
    await granter.settle()
    fixed = await granter.granted(key)
    said = "class default, as asked and fixed amounts for the rest"
    assert (fixed["cpu"], fixed["memory"]) == ("2", "8Gi")
    assert (await granter.answer(key))[2] == said

    await granter.policy("default", resourceSliceClasses={"default": "shared"})
    await granter.settle()

    assert (await granter.granted(key))["cpu"] == "2"
    assert (await granter.granted(key))["memory"] != "8Gi"
    assert (await granter.answer(key))[2] == "class shared, 90% of what is free"

    await granter.policy("default")
    await granter.settle()

    assert await granter.granted(key) == fixed


async def test_limits_bound_what_all_tenants_are_granted_together(granter: Provider) -> None:
    await granter.policy("default", limits={"cpu": "5"})
    first = await granter.ask("first", cpu="4")
    await granter.settle()
    second = await granter.ask("second", cpu="4")
    await granter.settle()

    assert (await granter.granted(first))["cpu"] == "4"
    assert (await granter.granted(second))["cpu"] == "1"
    message = (await granter.answer(second))[2]
    assert message.endswith("; cpu: 1 of 4, policy default grants 5 in all")


# Slices that their consumer spoils, hides or makes again
# -------------------------------------------


def judged_slice(status: str, reason: str) -> Object:
    """Return what authentication says of a slice."""
    (said,) = AUTHENTICATED["conditions"]
    return {"conditions": [{**said, "status": status, "reason": reason}]}


SPOILED = judged_slice("Denied", "ResourceSliceAuthenticationDenied")


async def test_what_a_spoiled_slice_holds_counts_and_lets_no_more_in(granter: Provider) -> None:
    """Its pods stay; a limit is not had twice by making the request nonsense."""
    await granter.policy("default", limits={"cpu": "5"})
    first = await granter.ask("first", cpu="5")
    await granter.settle()
    quota = await granter.quota(first)
    await granter.cluster.patch(
        keys.RESOURCE_SLICE, first, {"spec": {"csr": "AAAA", "consumerClusterID": None}}
    )
    await granter.cluster.patch_status(keys.RESOURCE_SLICE, first, SPOILED)
    second = await granter.ask("second", cpu="5")
    await granter.settle()

    assert await granter.granted(second) == {}
    assert (await granter.answer(second))[1] == "NothingToGrant"
    closed = await granter.quota(first)
    assert closed
    assert closed["spec"] == {**(quota or {})["spec"], "cordoned": True}

    await granter.cluster.patch(
        keys.RESOURCE_SLICE, first, {"spec": {"consumerClusterID": f"{ROME}-{granter.unique}"}}
    )
    await granter.cluster.patch_status(keys.RESOURCE_SLICE, first, AUTHENTICATED)
    await granter.settle()
    assert "cordoned" not in (await granter.quota(first) or {})["spec"]


async def test_a_slice_that_waits_for_the_signer_stays_open_and_follows_its_tenant(
    granter: Provider,
) -> None:
    key = await granter.ask()
    await granter.settle()

    async def is_cordoned() -> bool:
        await granter.settle()
        return "cordoned" in (await granter.quota(key) or {})["spec"]

    away = judged_slice("Denied", "AuthParamsFailed")
    await granter.cluster.patch_status(keys.RESOURCE_SLICE, key, away)
    assert not await is_cordoned()
    await granter.condition("Cordoned")
    assert await is_cordoned()
    await granter.condition("Active")
    assert not await is_cordoned()


async def test_a_slice_that_hides_keeps_a_quota_that_counts_and_is_closed(
    granter: Provider,
) -> None:
    await granter.policy("default", limits={"cpu": "5"})
    first = await granter.ask("first", cpu="5")
    await granter.settle()
    unlabelled = {"metadata": {"labels": {keys.REPLICATED: None}}}
    await granter.cluster.patch(keys.RESOURCE_SLICE, first, unlabelled)
    second = await granter.ask("second", cpu="5")
    await granter.settle()

    assert await granter.granted(second) == {}
    assert (await granter.quota(first) or {})["spec"]["cordoned"] is True


async def made_anew(provider: Provider, key: Key) -> None:
    """Do what its consumer may: delete the slice, and ask again."""
    await gone(provider, key)
    await provider.ask(cpu="1")
    await provider.settle()


async def gone(provider: Provider, key: Key) -> None:
    """Delete the slice, with which its Quota goes."""
    quota = await provider.quota(key)
    for kind, obj in ((keys.RESOURCE_SLICE, await provider.slice(key)), (keys.QUOTA, quota)):
        if obj:
            await provider.cluster.delete(kind, objects.key_of(obj), uid=objects.uid(obj))
    await provider.settle()


@pytest.mark.parametrize("marks", [[keys.CORDON], [keys.CORDON, keys.DRAIN]])
async def test_a_slice_that_is_made_anew_is_cordoned_or_drained_as_before(
    granter: Provider, marks: list[str]
) -> None:
    key = await granter.ask(cpu="1")
    await granter.settle()

    async def mark(value: str | None) -> None:
        changes = {"metadata": {"annotations": dict.fromkeys(marks, value)}}
        await granter.cluster.patch(keys.RESOURCE_SLICE, key, changes)
        await granter.settle()

    async def kept() -> set[str]:
        return set(objects.annotations(await granter.slice(key))) & set(marks)

    await mark("true")
    for _ in range(2):
        await made_anew(granter, key)
        assert await kept() == set(marks)
        if keys.DRAIN in marks:
            assert (await granter.answer(key))[1] == "ResourceSliceDrained"
        else:
            assert (await granter.quota(key) or {})["spec"]["cordoned"] is True

    await mark(None)
    await made_anew(granter, key)
    assert await kept() == set()
    assert "cordoned" not in (await granter.quota(key) or {})["spec"]


@pytest.mark.parametrize("kind", [InvalidError, ForbiddenError])
async def test_a_slice_without_room_for_its_cordon_is_closed_and_holds_up_no_other(
    granter: Provider, kind: type[KubeError]
) -> None:
    """X1: it is filled up to the last byte, so that the API server has no room for the mark.

    Or an admission policy of somebody's forbids it.
    """
    await granter.add_tenant("naples")
    key = await granter.ask(cpu="1")
    await granter.settle()
    changes = {"metadata": {"annotations": {keys.CORDON: "true"}}}
    await granter.cluster.patch(keys.RESOURCE_SLICE, key, changes)
    await granter.settle()
    await gone(granter, key)
    full = replica(key, f"{ROME}-{granter.unique}", "", {"cpu": "1"})
    full["metadata"]["annotations"] = {"a.b/x": "x" * (256 * 1024 - len("a.b/x"))}
    await make(granter.cluster, keys.RESOURCE_SLICE, full, status=AUTHENTICATED)
    other = await granter.ask(tenant="naples", cpu="1")
    refused = kind("metadata.annotations: Too long")  # as an API server says of itself
    granter.cluster.refuses["patch", str(keys.RESOURCE_SLICE), key] = refused

    for _ in range(3):  # the ledger, statuses and Quotas
        with pytest.raises(kind):
            await granter.settle()

    assert (await granter.answer(other))[0] == "Accepted"
    assert await granter.quota(other)
    assert (await granter.answer(key))[:2] == ("Denied", "ResourceSliceUnreadable")
    assert await granter.quota(key) is None, "without one its virtual kubelet gets no pod"


async def test_what_nobody_limits_takes_no_room_in_the_ledger(granter: Provider) -> None:
    """X8: a tenant may ask for 64 resources by long names in each of its slices."""
    names = {f"{'x' * 60}.example/{'y' * 55}{number}": "1" for number in range(60)}
    await granter.policy("default", limits={"cpu": "100"})
    keys_ = [await granter.ask(f"pool{number}", cpu="1", **names) for number in range(16)]
    await granter.ask("share", "shared", **names)

    await granter.settle()

    assert all([(await granter.answer(key))[0] == "Accepted" for key in keys_])
    ledger = (await granter.tenant())["status"]["ledger"]
    booked = {name for entry in ledger["grants"] for name in entry["resources"]}
    assert "cpu" in booked
    assert booked.isdisjoint(names)
    assert len(objects.canonical(ledger)) < 400 * len(ledger["grants"])


async def test_a_status_that_cannot_be_written_keeps_no_quota_open(granter: Provider) -> None:
    """X12: what protects goes first."""
    spoiled = await granter.ask("spoiled", cpu="1")
    cordoned = await granter.ask("cordoned", cpu="1")
    await granter.settle()
    await granter.cluster.patch_status(keys.RESOURCE_SLICE, spoiled, SPOILED)
    changes = {
        "metadata": {"annotations": {keys.CORDON: "true"}},
        "spec": {"resources": {"cpu": "2"}},
    }
    await granter.cluster.patch(keys.RESOURCE_SLICE, cordoned, changes)
    for key in (cordoned, await granter.ask("new", cpu="1")):
        what = ("patch_status", str(keys.RESOURCE_SLICE), key)
        granter.cluster.refuses[what] = InvalidError("too large")

    with pytest.RaisesGroup(InvalidError, InvalidError):
        await granter.loop.reconcile(ALL)

    for key in (spoiled, cordoned):
        assert (await granter.quota(key) or {})["spec"]["cordoned"] is True


async def test_slices_of_a_tenant_that_was_drained_come_back_unmarked(granter: Provider) -> None:
    """The drain of a tenant drains its slices, and takes them away."""
    key = await granter.ask(cpu="1")
    await granter.settle()
    marks = dict.fromkeys((keys.CORDON, keys.DRAIN), "true")
    await granter.cluster.patch(keys.RESOURCE_SLICE, key, {"metadata": {"annotations": marks}})
    await granter.settle()
    await granter.condition("Drained")
    await gone(granter, key)

    await granter.condition("Active")
    await granter.ask(cpu="1")
    await granter.settle()

    assert not objects.annotations(await granter.slice(key)).keys() & marks.keys()
    assert (await granter.answer(key))[0] == "Accepted"


async def test_what_is_kept_of_a_slice_goes_with_its_tenant(granter: Provider) -> None:
    key = await granter.ask(cpu="1")
    changes = {"metadata": {"annotations": {keys.CORDON: "true"}}}
    await granter.cluster.patch(keys.RESOURCE_SLICE, key, changes)
    await granter.settle()

    await gone(granter, key)
    tenant = await granter.tenant()
    await granter.cluster.delete(keys.TENANT, objects.key_of(tenant), uid=objects.uid(tenant))
    await granter.settle()
    await granter.add_tenant()
    await granter.ask()
    await granter.settle()

    assert keys.CORDON not in objects.annotations(await granter.slice(key))
    assert (await granter.answer(key))[0] == "Accepted"


# One ledger a tenant ------------------------------------------------------------------------------


async def test_what_all_tenants_share_stays_small_whatever_they_ask_for(granter: Provider) -> None:
    """X8: what is written for every division has no part that a tenant makes larger."""
    await granter.policy("default", limits={"cpu": "1000"})
    sizes = []
    for tenant in ("turin", "bari"):
        await granter.add_tenant(tenant)
        for number in range(8):
            await granter.ask(f"pool{number}", tenant=tenant, cpu="1")
        await granter.settle()
        found = await there(granter.cluster, keys.PROVIDER_POLICY, Key("", "default"))
        sizes.append(found["status"].keys())
        ledger = (await granter.tenant(tenant))["status"]["ledger"]
        assert [one["name"] for one in ledger["grants"]] == [f"pool{n}" for n in range(8)]

    assert sizes == [{"keeper", "round"}] * 2


async def test_who_gets_less_costs_no_write_of_its_ledger(granter: Provider) -> None:
    """What is free changes with each local pod, and all shares with it."""
    tenants = [f"t{number}" for number in range(5)]
    for tenant in tenants:
        await granter.add_tenant(tenant)
        await granter.ask(class_="shared", tenant=tenant)
    await granter.settle()
    statuses = []

    for cpus in ("50", "100", "40"):
        before = len(granter.cluster.writes)
        granter.free = resources.parse_resources({"cpu": cpus, "memory": "100Gi"})
        await granter.settle()
        written = [kind for _, kind, _ in granter.cluster.writes[before:]]
        statuses.append(written.count(str(keys.RESOURCE_SLICE)))
        assert not {str(keys.TENANT), str(keys.PROVIDER_POLICY)} & {*written}

    assert statuses == [5, 5, 5]
    await granter.add_tenant("new")
    new = await granter.ask(class_="shared", tenant="new", cpu="1")
    before = len(granter.cluster.writes)
    await granter.settle()
    booked = [key for _, kind, key in granter.cluster.writes[before:] if kind == str(keys.TENANT)]
    assert {key.namespace for key in booked} == {new.namespace}
    assert (await granter.granted(new))["cpu"] == "1"


async def test_what_is_booked_has_no_other_loop_look_again(granter: Provider) -> None:
    """Else each division would ask for every Secret of every slice of its tenants."""
    await granter.policy("default", limits={"cpu": "10"})
    where = keys.PROVIDER_POLICY, Key("", "default")
    before = await granter.tenant(), await there(granter.cluster, *where)
    key = await granter.ask(cpu="1")
    await granter.settle()
    after = await granter.tenant(), await there(granter.cluster, *where)
    heard = watches.but_booked()

    for old, new in zip(before, after, strict=True):
        what = objects.key_of(new)
        assert old["metadata"]["resourceVersion"] != new["metadata"]["resourceVersion"]
        assert list(heard(Change(what, old, new))) == []
        assert list(everything(Change(what, old, new))) == []
        other = {**new, "spec": {**new["spec"], "tenantCondition": "Cordoned"}}
        for change in (Change(what, None, new), Change(what, old, other), Change(what, new, new)):
            assert list(heard(change)) == [what]
    assert (await granter.granted(key))["cpu"] == "1"


async def test_a_ledger_that_cannot_be_written_holds_up_its_own_tenant_only(
    granter: Provider,
) -> None:
    await granter.policy("default", limits={"cpu": "10"})
    old = await granter.ask("old", cpu="2")
    await granter.settle()
    what = ("patch_status", str(keys.TENANT), objects.key_of(await granter.tenant()))
    granter.cluster.refuses[what] = InvalidError("too large")
    new = await granter.ask("new", cpu="3")
    changes = {"metadata": {"annotations": {keys.CORDON: "true"}}}
    await granter.cluster.patch(keys.RESOURCE_SLICE, old, changes)
    await granter.add_tenant("naples")
    other = await granter.ask(tenant="naples", cpu="4")

    for _ in range(3):
        with pytest.raises(InvalidError, match="too large"):
            await granter.settle()

    assert (await granter.answer(new))[0] == ""
    assert (await granter.quota(old) or {})["spec"]["cordoned"] is True
    assert (await granter.granted(other))["cpu"] == "4"
    granter.cluster.refuses.clear()
    await granter.settle()
    assert (await granter.granted(new))["cpu"] == "3"


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("has_policy", [True, False])
@pytest.mark.parametrize("tenants", [("rome", "naples"), ("naples", "rome")])
async def test_of_two_leaders_in_any_order_none_grants_what_the_other_did(
    tick: Tick, tenants: tuple[str, str], *, has_policy: bool, is_new: bool
) -> None:
    """Each stops before one of its writes; between them a tenant asks whom the first never saw."""
    for first, second in itertools.product(range(1, 7), range(1, 9)):
        cluster = FakeCluster(strict=True)
        provider = Provider(cluster, "x", tick)
        for tenant in tenants:
            await provider.add_tenant(tenant)
        if has_policy:
            await provider.policy("default")
        leaders = [Leader(provider), Leader(provider)]
        provider.free = resources.parse_resources({"cpu": "10", "memory": "10Gi"})
        one = await provider.ask(class_="shared")
        if not is_new:
            await settle(leaders[0].loop, ALL, leaders[0].cluster)
        async with watched_sums(cluster, provider.unique) as most:
            provider.free = resources.parse_resources({"cpu": "100", "memory": "100Gi"})
            await leaders[0].divide(before=first)
            other = await provider.ask(class_="shared", tenant="naples")
            await leaders[1].divide(before=second)
            for leader in leaders:
                await leader.go_on()
            for _ in range(3):
                await provider.settle()
                tick.now += 60
            assert most() <= resources.parse_resources({"cpu": "90"})["cpu"].nanos, (first, second)
        for key in (one, other):
            assert (await provider.granted(key))["cpu"] == "45", (first, second)


class Leader:
    """One that divides, and stops before one of its writes."""

    def __init__(self, provider: Provider) -> None:
        self.cluster = Halting(provider.cluster)
        whole, provider.cluster = provider.cluster, self.cluster
        self.loop = provider.elected()
        provider.cluster = whole

    async def divide(self, *, before: int) -> None:
        """Divide until it has come to that write, or to the end."""
        self.cluster.left = before
        self._task = asyncio.create_task(self.loop.reconcile(ALL))
        reached = asyncio.create_task(self.cluster.reached.wait())
        await asyncio.wait([self._task, reached], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()

    async def go_on(self) -> None:
        self.cluster.goes_on.set()
        with contextlib.suppress(AlreadyExistsError, ConflictError, ExceptionGroup):
            await self._task


class Halting(Ledger):
    """A cluster of which a write waits, and all that come after it."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.left = math.inf
        self.reached, self.goes_on = asyncio.Event(), asyncio.Event()

    async def _halt(self) -> None:
        self.left -= 1
        if self.left <= 0:
            self.reached.set()
            await self.goes_on.wait()

    async def create(self, kind: Kind, obj: Object) -> Object:
        await self._halt()
        return await super().create(kind, obj)

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        await self._halt()
        return await super().patch(kind, key, changes, subresource=subresource)

    async def patch_status(
        self, kind: Kind, key: Key, status: Object, *, metadata: Object | None = None
    ) -> Object:
        await self._halt()
        return await super().patch_status(kind, key, status, metadata=metadata)


async def test_the_ledger_of_all_tenants_is_moved_into_theirs_and_nothing_is_lost(
    granter: Provider, tick: Tick
) -> None:
    """As a version before left it: a grant that may still be written, a slice that is away."""
    await granter.add_tenant("naples")
    asking = await granter.ask("asking", "shared", tenant="naples")
    space = granter.space()
    old = {
        "keeper": "of-before",
        "grants": [
            {
                "namespace": space, "name": "late", "clusterID": f"{ROME}-{granter.unique}",
                "class": "shared", "resources": {"cpu": "80"},
            },
        ],
        "cordoned": [{"namespace": space, "name": "away", "uid": "1", "cordoned": True}],
    }  # fmt: skip
    await granter.policy("default")
    where = keys.PROVIDER_POLICY, Key("", "default")
    await granter.cluster.patch_status(*where, old)
    what = ("patch_status", str(keys.TENANT), objects.key_of(await granter.tenant()))
    granter.cluster.refuses[what] = InvalidError("too large")

    with pytest.raises(InvalidError, match="too large"):
        await granter.settle()

    kept = (await there(granter.cluster, *where))["status"]
    assert (kept["grants"], kept["cordoned"]) == (old["grants"], old["cordoned"])
    assert (await granter.granted(asking))["cpu"] == "10", "all that is not given to the other"

    granter.cluster.refuses.clear()
    granter.loop = granter.elected()
    await granter.settle()

    assert (await there(granter.cluster, *where))["status"].keys() == {"keeper", "round"}
    ledger = (await granter.tenant())["status"]["ledger"]
    assert ledger["grants"] == [{"name": "late", "class": "shared", "resources": {"cpu": "80"}}]
    assert ledger["cordoned"] == [{"name": "away", "uid": "1", "cordoned": True}]
    assert (await granter.granted(asking))["cpu"] == "10"
    away = await granter.ask("away")
    tick.now += 60
    await granter.settle()
    assert objects.annotations(await granter.slice(away))[keys.CORDON] == "true"
    assert (await granter.granted(asking))["cpu"] == "90"
    assert "grants" not in (await granter.tenant())["status"]["ledger"]


async def test_where_tenants_can_have_no_ledger_it_says_so_and_grants_nothing(
    granter: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CRD of an older version: its API server drops the field without a word."""
    await granter.policy("default", limits={"cpu": "10"})
    key = await granter.ask(cpu="1")
    patch_status = granter.cluster.patch_status

    async def pruned(kind: Kind, where: Key, status: Object, **of: Any) -> Object:
        known = {name: value for name, value in status.items() if name != "ledger"}
        return await patch_status(kind, where, known if kind == keys.TENANT else status, **of)

    monkeypatch.setattr(granter.cluster, "patch_status", pruned)
    with pytest.raises(InvalidError, match=r"status\.ledger: run liqoctl install"):
        await granter.settle()

    assert (await granter.answer(key))[0] == ""
