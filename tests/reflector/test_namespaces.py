"""Pairs of namespaces that come and go."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from apis import keys, objects, reflection, reflectionpolicy
from apis.objects import Key, Kind, Object, named
from apis.offloading import ReflectionPolicy as Policy
from kube import errors
from kube.cache import CachedCluster
from kube.cluster import Selection
from kube.controller import TerminalError
from kube.slim import Packed, Partial
from reflector.informers import CommonInformers
from reflector.kinds import configuration
from reflector.kinds.table import KIND_REFLECTIONS
from reflector.namespaces import KindController, ReflectedNamespaces, Rules
from tests import factories
from tests.fakes import FakeCluster
from tests.kube.running import running as looping
from tests.kube.running import turns, until, until_so
from tests.reflector.mapped import IDENTITY, MAP, WITHIN_S, both_fakes, tell
from tests.reflector.pairs import PAIR
from tests.world import existing, offload, remove

WRITES = ("create", "apply", "patch", "patch_status", "delete", "post")
WORKERS = 2


async def there(cluster: FakeCluster, namespace: str, name: str = "settings") -> bool:
    return await cluster.get(keys.CONFIG_MAP, Key(namespace, name)) is not None


@contextlib.asynccontextmanager
async def reflecting(home: FakeCluster, foreign: FakeCluster) -> AsyncIterator[ReflectedNamespaces]:
    loops = [
        KindController(forge, Rules(Policy.DENY_LIST), tell, WORKERS)
        for forge in KIND_REFLECTIONS.values()
    ]
    namespaces = ReflectedNamespaces(IDENTITY, loops, home, foreign)
    running = asyncio.create_task(namespaces.run())
    try:
        yield namespaces
    finally:
        running.cancel()
        await asyncio.wait([running])


def test_a_cluster_answers_from_informers_of_whole_objects_alone() -> None:
    home = CachedCluster(FakeCluster())
    for kind, shape in ((keys.NAMESPACE, Partial), (keys.NODE, Packed)):
        CommonInformers(home).informer(Selection(kind, shape))
    assert home.may_have(keys.NAMESPACE, Key("", "a"))
    assert not home.may_have(keys.NODE, Key("", "a"))


async def test_an_accepted_namespace_is_reflected_and_followed() -> None:
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})

    async with reflecting(home, foreign):
        await until_so(lambda: there(foreign, "foo-rome"))
        await home.create(keys.CONFIG_MAP, factories.config_map("foo", "later"))
        await until_so(lambda: there(foreign, "foo-rome", "later"))


async def test_a_twin_that_a_leader_before_us_made_late_goes() -> None:
    """Its original went meanwhile, and nothing else of its kind is there."""
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})
    late = named(
        keys.INGRESS,
        Key("foo-rome", "web"),
        metadata={"labels": PAIR.labels()},
    )

    async with reflecting(home, foreign) as namespaces:
        await until_so(lambda: there(foreign, "foo-rome"))
        await foreign.create(keys.INGRESS, late)
        namespaces._common.settled.set()  # noqa: SLF001  # it takes a minute
        await until(lambda: (keys.INGRESS, Key("foo-rome", "web")) not in foreign.everything())

    assert foreign.requests["delete", "ingresses"] == 1
    assert foreign.requests["list", "secrets"] == 2, "one more of what rests"


async def test_nothing_leaves_before_the_provider_accepted() -> None:
    home, foreign = await both_fakes()
    await home.create(keys.CONFIG_MAP, factories.config_map("bar"))
    await offload(home, MAP, {"foo": "foo-rome"}, phase="CreationLoopBackOff")

    async with reflecting(home, foreign):
        await home.create(keys.CONFIG_MAP, factories.config_map("foo", "more"))
        await offload(home, MAP, {"bar": "bar-rome"})
        await until_so(lambda: there(foreign, "bar-rome"))

    assert {key.namespace for _, key in foreign.everything()} == {"bar-rome"}


async def test_namespaces_that_are_not_offloaded_are_not_even_read() -> None:
    home, foreign = await both_fakes()
    await home.create(keys.SECRET, factories.secret("private"))
    await offload(home, MAP, {"foo": "foo-rome"})

    async with reflecting(home, foreign):
        await until_so(lambda: there(foreign, "foo-rome"))

    assert home.requests["list", "secrets"] == 1
    assert foreign.requests["list", "secrets"] == 1
    assert all(key.namespace == "foo-rome" for _, key in foreign.everything())


async def test_drift_on_the_provider_is_repaired() -> None:
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})

    async with reflecting(home, foreign):
        await until_so(lambda: there(foreign, "foo-rome"))
        await remove(foreign, keys.CONFIG_MAP, Key("foo-rome", "settings"))
        await until_so(lambda: there(foreign, "foo-rome"))


async def test_a_namespaceoffloading_says_by_which_policy_its_namespace_is_reflected() -> None:
    home, foreign = await both_fakes()
    await home.create(keys.CONFIG_MAP, factories.config_map("bar"))
    asked = {"metadata": {"annotations": {keys.REFLECTION_POLICY: "Referenced"}}}
    here = Key("foo", keys.OFFLOADING_NAME)
    await home.patch(keys.NAMESPACE_OFFLOADING, here, asked)
    await home.create(keys.SERVICE, factories.service("foo"))
    await offload(home, MAP, {"foo": "foo-rome", "bar": "bar-rome"})

    def twins() -> set[tuple[Kind, Key]]:
        there = set(foreign.everything())
        return {(kind, key) for kind, key in there if key.namespace == "foo-rome"}

    service = (keys.SERVICE, Key("foo-rome", "web"))
    settings = (keys.CONFIG_MAP, Key("foo-rome", "settings"))
    async with reflecting(home, foreign):
        await until(lambda: service in twins())
        await until_so(lambda: there(foreign, "bar-rome"))
        assert twins() == {service}

        asked["metadata"]["annotations"][keys.REFLECTION_POLICY] = "DenyList"
        await home.patch(keys.NAMESPACE_OFFLOADING, here, asked)
        await until(lambda: settings in twins())

        asked["metadata"]["annotations"][keys.REFLECTION_POLICY] = "AllowList"
        await home.patch(keys.NAMESPACE_OFFLOADING, here, asked)
        await until(lambda: settings not in twins())

    assert twins() == {service}


async def test_nothing_leaves_before_the_namespaceoffloading_is_seen() -> None:
    """It may ask for another policy."""
    home, foreign = await both_fakes()
    await home.create(keys.CONFIG_MAP, factories.config_map("new"))
    await offload(home, MAP, {"foo": "foo-rome", "new": "new-rome"})

    async with reflecting(home, foreign) as namespaces:
        await until_so(lambda: there(foreign, "foo-rome"))
        assert {pair.local_namespace for pair in namespaces.running} == {"foo"}
        assert not await there(foreign, "new-rome")

        await home.create(keys.NAMESPACE_OFFLOADING, factories.offloading("new"))
        await until_so(lambda: there(foreign, "new-rome"))


async def test_leftovers_of_what_went_while_nobody_watched_are_removed() -> None:
    home, foreign = await both_fakes()
    labelled = {"metadata": {"labels": PAIR.labels()}}
    for row in (row for row in KIND_REFLECTIONS if row.is_outward):
        await foreign.create(row.twin, named(row.twin, Key("foo-rome", "gone"), **labelled))
    await foreign.create(keys.CONFIG_MAP, factories.config_map("foo-rome", "theirs"))
    await offload(home, MAP, {"foo": "foo-rome"})

    async with reflecting(home, foreign):
        await until(lambda: not any(key.name == "gone" for _, key in foreign.everything()))

    assert await there(foreign, "foo-rome", "theirs")


async def test_stopping_a_namespace_deletes_nothing() -> None:
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})

    async with reflecting(home, foreign) as namespaces:
        await until_so(lambda: there(foreign, "foo-rome"))
        await offload(home, MAP, {"foo": None})
        await until(lambda: not namespaces.running)
        await remove(home, keys.CONFIG_MAP, Key("foo", "settings"))

    assert await there(foreign, "foo-rome")


async def test_another_remote_name_starts_anew() -> None:
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})

    async with reflecting(home, foreign) as namespaces:
        await until_so(lambda: there(foreign, "foo-rome"))
        await offload(home, MAP, {"foo": "other"})
        await until_so(lambda: there(foreign, "other"))

        assert [pair.remote_namespace for pair in namespaces.running] == ["other"]


async def test_the_map_of_the_other_direction_is_not_ours() -> None:
    home, foreign = await both_fakes()
    replica = factories.namespace_map(Key(MAP.namespace, "rome"), is_replica=True)
    await home.create(keys.NAMESPACE_MAP, replica)
    await offload(home, MAP, {"foo": "foo-rome"})

    async with reflecting(home, foreign) as namespaces:
        await until_so(lambda: there(foreign, "foo-rome"))

        assert len(namespaces.running) == 1


async def test_a_second_map_of_the_provider_ends_nothing_and_is_told() -> None:
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})

    async with reflecting(home, foreign) as namespaces:
        await until_so(lambda: there(foreign, "foo-rome"))
        await home.create(keys.NAMESPACE_MAP, factories.namespace_map(Key(MAP.namespace, "other")))
        await until(lambda: len(namespaces.maps.items()) > 1)

        with pytest.raises(TerminalError, match=f"2 NamespaceMaps in {MAP.namespace}: keep one"):
            await namespaces.reconcile(MAP)
        assert len(namespaces.running) == 1


async def test_idle_it_neither_lists_nor_writes() -> None:
    home, foreign = await both_fakes()
    await home.create(keys.SERVICE, factories.service("foo"))
    await home.create(keys.SECRET, factories.secret("foo"))
    await offload(home, MAP, {"foo": "foo-rome"})

    async with reflecting(home, foreign):
        await until(lambda: len(foreign.everything()) == 3)
        before = costs(home, foreign)
        await home.create(keys.CONFIG_MAP, factories.config_map("foo", "last"))
        await until_so(lambda: there(foreign, "foo-rome", "last"))
        after = costs(home, foreign)

    # The one ConfigMap was created here by the test, and applied there once.
    assert {name: after[name] - before.get(name, 0) for name in after if after[name]} == {
        **dict.fromkeys(before, 0),
        "create configmaps": 1,
        "apply configmaps": 1,
    }


async def test_kinds_without_twins_are_not_followed_on_the_provider_until_there_is_one() -> None:
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})

    async with reflecting(home, foreign):
        await until_so(lambda: there(foreign, "foo-rome"))
        begun = watched(foreign)
        await home.create(keys.SECRET, factories.secret("foo", "mine"))
        twin = Key("foo-rome", "mine")
        await until(lambda: (keys.SECRET, twin) in foreign.everything())
        await remove(foreign, keys.SECRET, twin)
        await until(lambda: (keys.SECRET, twin) in foreign.everything())

    assert begun == {"configmaps", "events"}
    assert watched(foreign) == {"configmaps", "events", "secrets"}


class Stuck:
    """A cluster that never answers what it is asked about Events."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.held = 0

    def __getattr__(self, name: str) -> Any:
        known = getattr(self._cluster, name)
        return functools.partial(self._call, known) if name in {"get", "apply", "create"} else known

    async def _call(self, known: Any, kind: Kind, *args: Any, **rest: Any) -> Any:
        if kind == keys.EVENT:
            self.held += 1
            await asyncio.Event().wait()
        return await known(kind, *args, **rest)


async def test_what_is_ordinary_passes_by_while_a_flood_of_events_waits() -> None:
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})
    stuck = Stuck(home)
    for number in range(200):
        involved = {"apiVersion": "v1", "kind": "ConfigMap", "name": "settings"}
        body = {"involvedObject": {**involved, "namespace": "foo-rome"}, "type": "Warning"}
        flood = named(keys.EVENT, Key("foo-rome", f"flood.{number}"), reason="Flood", **body)
        await foreign.create(keys.EVENT, flood)

    async def all_are_there() -> bool:
        twins = {kind for kind, key in foreign.everything() if key == Key("foo-rome", "later")}
        return twins == {keys.CONFIG_MAP, keys.SECRET, keys.SERVICE}

    async with reflecting(cast("FakeCluster", stuck), foreign):
        await until(lambda: stuck.held == WORKERS)
        for make, kind in (
            (factories.config_map, keys.CONFIG_MAP),
            (factories.secret, keys.SECRET),
            (factories.service, keys.SERVICE),
        ):
            await home.create(kind, make("foo", "later"))
        await until_so(all_are_there)

    assert stuck.held == WORKERS


def warned_reasons(of: Object, reason: str, message: str) -> Object:
    """Return the Event by which a reflector told that."""
    about = {"kind": "ConfigMap", "uid": objects.uid(of)}
    about |= {"namespace": "foo", "name": objects.key_of(of).name}
    return named(
        keys.EVENT,
        Key("foo", f"{about['name']}.1"),
        metadata={"labels": {keys.REMOTE_CLUSTER_ID: "milan"}},
        involvedObject=about,
        reportingComponent=reflectionpolicy.reflector_component("configmap"),
        reason=reason,
        message=message,
        lastTimestamp="2026-01-01T00:00:00Z",
    )


async def test_what_was_told_before_a_restart_is_over_or_not_told_again() -> None:
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})
    failed = await existing(home, keys.CONFIG_MAP, Key("foo", "settings"))
    body = factories.config_map("foo", "skipped")
    body["metadata"]["annotations"] = {keys.SKIP_REFLECTION: "true"}
    skipped = await home.create(keys.CONFIG_MAP, body)
    stay = reflectionpolicy.reason_to_stay(keys.CONFIG_MAP, skipped, Policy.DENY_LIST)
    assert stay
    await home.create(keys.EVENT, warned_reasons(failed, keys.FAILED_REFLECTION, "it exists"))
    await home.create(keys.EVENT, warned_reasons(skipped, keys.REFLECTION_DISABLED, stay.reason))
    told: list[tuple[str, str]] = []

    def tell(of: Object, _type: str, reason: str, _message: str) -> None:
        told.append((objects.key_of(of).name, reason))

    loops = [KindController(KIND_REFLECTIONS[reflection.CONFIG_MAP], Rules(), tell, WORKERS)]
    async with looping(ReflectedNamespaces(IDENTITY, loops, home, foreign).run()):
        await until(lambda: told)
        await home.create(keys.CONFIG_MAP, factories.config_map("foo", "later"))
        await until_so(lambda: there(foreign, "foo-rome", "later"))

    assert told == [("settings", reflectionpolicy.SUCCESSFUL)]


@pytest.mark.parametrize("was_told", [True, False])
async def test_that_a_right_came_is_told_though_a_restart_was_between(*, was_told: bool) -> None:
    home, foreign = await both_fakes()
    row = reflection.custom(Kind("example.com", "v1", "Widget", "widgets"))
    await offload(home, MAP, {"foo": "foo-rome"})
    offloading = await existing(home, keys.NAMESPACE_OFFLOADING, Key("foo", keys.OFFLOADING_NAME))
    if was_told:
        event = warned_reasons(offloading, keys.FAILED_REFLECTION, "widgets cannot be followed")
        event["involvedObject"]["kind"] = keys.NAMESPACE_OFFLOADING.kind
        event["reportingComponent"] = reflectionpolicy.reflector_component(row.name)
        await home.create(keys.EVENT, event)
    warned: list[tuple[Key, str]] = []

    def warn(of: Object, _type: str, reason: str, _message: str) -> None:
        warned.append((objects.key_of(of), reason))

    loop = KindController(configuration.custom_resource(row), Rules(), tell, WORKERS, warn=warn)
    async with looping(ReflectedNamespaces(IDENTITY, [loop], home, foreign).run()):
        await home.create(row.kind, named(row.kind, Key("foo", "one"), spec={}))
        await until(lambda: (row.kind, Key("foo-rome", "one")) in foreign.everything())
        await until(lambda: len(warned) >= was_told)
        await turns(200)

    over = (Key("foo", keys.OFFLOADING_NAME), reflectionpolicy.SUCCESSFUL)
    assert warned == [over] * was_told


async def test_a_right_that_is_missing_still_after_a_restart_is_not_told_to_be_there() -> None:
    home, foreign = await both_fakes()
    row = reflection.custom(Kind("example.com", "v1", "Widget", "widgets"))
    await offload(home, MAP, {"foo": "foo-rome"})
    event = warned_reasons(factories.offloading("foo"), keys.FAILED_REFLECTION, "widgets cannot")
    event["involvedObject"]["kind"] = keys.NAMESPACE_OFFLOADING.kind
    event["reportingComponent"] = reflectionpolicy.reflector_component(row.name)
    await home.create(keys.EVENT, event)
    warned: list[str] = []

    def warn(_of: Object, _type: str, reason: str, _message: str) -> None:
        warned.append(reason)

    withheld = errors.ForbiddenError('cannot list resource "widgets"')
    foreign.fail("list", withheld, kind=row.twin, times=10**6)
    loop = KindController(configuration.custom_resource(row), Rules(), tell, WORKERS, warn=warn)
    async with looping(ReflectedNamespaces(IDENTITY, [loop], home, foreign).run()):
        await until(lambda: warned)
        assert warned == [keys.FAILED_REFLECTION]
        foreign.heal()
        await home.create(row.kind, named(row.kind, Key("foo", "one"), spec={}))
        await until(lambda: len(warned) > 1)

    assert warned == [keys.FAILED_REFLECTION, reflectionpolicy.SUCCESSFUL]


async def test_one_kind_whose_right_is_missing_holds_up_no_other_and_is_told() -> None:
    """The provider's administrator took it away before this reflector started."""
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})
    told: list[tuple[str, str]] = []

    def warn(_of: Object, _type: str, reason: str, message: str) -> None:
        told.append((reason, message))

    withheld = errors.ForbiddenError('cannot list resource "ingresses"')
    foreign.fail("list", withheld, kind=keys.INGRESS, times=10**6)
    loops = [
        KindController(KIND_REFLECTIONS[row], Rules(), tell, WORKERS, warn=warn)
        for row in (reflection.CONFIG_MAP, reflection.INGRESS)
    ]
    async with looping(ReflectedNamespaces(IDENTITY, loops, home, foreign).run()):
        await until_so(lambda: there(foreign, "foo-rome"))
        await home.create(keys.INGRESS, factories.ingress("foo"))
        await until(lambda: told)

    assert told[0][0] == keys.FAILED_REFLECTION
    assert "ingresses.networking.k8s.io cannot be followed on milan" in told[0][1]


async def test_much_that_is_missing_at_once_takes_no_twin_along_for_a_while() -> None:
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})
    names = {f"n{number}" for number in range(20)}
    for name in names:
        await home.create(keys.CONFIG_MAP, factories.config_map("foo", name))
    told: list[tuple[str, str]] = []

    def warn(of: Object, _type: str, reason: str, message: str) -> None:
        told.append((reason, message))
        assert objects.key_of(of) == Key("foo", keys.OFFLOADING_NAME)

    def twins() -> set[str]:
        return {key.name for _, key in foreign.everything()} & names

    loop = KindController(
        KIND_REFLECTIONS[reflection.CONFIG_MAP], Rules(), tell, WORKERS, warn=warn
    )
    async with looping(ReflectedNamespaces(IDENTITY, [loop], home, foreign).run()):
        await until(lambda: twins() == names)
        home.fail("watch", errors.NotReachableError("away"), kind=keys.CONFIG_MAP, times=10**6)
        home.cut()
        for name in names:  # as an older state has it, to which its etcd was restored
            await remove(home, keys.CONFIG_MAP, Key("foo", name))
        home.expire()
        home.heal()
        await until(lambda: told)
        await turns(200)
        assert twins() == names

        await home.create(keys.CONFIG_MAP, factories.config_map("foo", "later"))
        await until_so(lambda: there(foreign, "foo-rome", "later"))
        assert twins() == names

    assert [reason for reason, _ in told] == [keys.MASS_ABSENCE]
    assert told[0][1].startswith("more than a fifth of the configmaps is missing from a list")


async def test_much_that_went_while_nobody_reflected_takes_no_twin_along_for_a_while() -> None:
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})
    names = {f"n{number}" for number in range(20)}
    for name in names:
        await home.create(keys.CONFIG_MAP, factories.config_map("foo", name))
    told: list[str] = []

    def warn(_of: Object, _type: str, reason: str, _message: str) -> None:
        told.append(reason)

    def twins() -> set[str]:
        return {key.name for _, key in foreign.everything()} & names

    async with reflecting(home, foreign):
        await until(lambda: twins() == names)
    for name in names:  # home comes back from an older state, and all its processes are new
        await remove(home, keys.CONFIG_MAP, Key("foo", name))

    loop = KindController(
        KIND_REFLECTIONS[reflection.CONFIG_MAP], Rules(), tell, WORKERS, warn=warn
    )
    async with looping(ReflectedNamespaces(IDENTITY, [loop], home, foreign).run()):
        await until(lambda: told)
        await home.create(keys.CONFIG_MAP, factories.config_map("foo", "later"))
        await until_so(lambda: there(foreign, "foo-rome", "later"))
        await turns(200)
        assert twins() == names

    assert told == [keys.MASS_ABSENCE]


async def test_a_few_that_went_while_nobody_reflected_take_their_twins_along() -> None:
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})
    async with reflecting(home, foreign):
        await until_so(lambda: there(foreign, "foo-rome"))
    await remove(home, keys.CONFIG_MAP, Key("foo", "settings"))

    async with reflecting(home, foreign):
        async with asyncio.timeout(WITHIN_S):
            while await there(foreign, "foo-rome"):  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.005)


def watched(cluster: FakeCluster) -> set[str]:
    return {plural for verb, plural in cluster.requests if verb == "watch"}


async def test_what_comes_and_is_seen_to_go_costs_no_read() -> None:
    home, foreign = await both_fakes()
    await offload(home, MAP, {"foo": "foo-rome"})
    here, twin = (keys.CONFIG_MAP, Key("foo", "more")), (keys.CONFIG_MAP, Key("foo-rome", "more"))

    async def settle() -> tuple[int, int]:
        for _ in range(200):
            await asyncio.sleep(0)
        return home.requests["get", "configmaps"], foreign.requests["get", "configmaps"]

    async with reflecting(home, foreign):
        await until_so(lambda: there(foreign, "foo-rome"))
        begun = await settle()
        made = await home.create(keys.CONFIG_MAP, factories.config_map("foo", "more"))
        await until(lambda: twin in foreign.everything())
        created = await settle()
        await home.delete(*here, uid=made["metadata"]["uid"])
        await until(lambda: twin not in foreign.everything())
        gone = await settle()

    assert begun == created == gone


def costs(*clusters: FakeCluster) -> dict[str, int]:
    found: dict[str, int] = {}
    for cluster in clusters:
        for (verb, plural), count in cluster.requests.items():
            if verb in {*WRITES, "list"}:
                name = f"{verb} {plural}"
                found[name] = found.get(name, 0) + count
    return found
