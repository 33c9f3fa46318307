"""The one algorithm, on two clusters."""

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from apis.offloading import ReflectionPolicy as Policy
from apis.reflection import custom as custom_row
from apis.reflectionpolicy import MetadataFilter, NotReflected
from kube import errors
from kube.breaker import HOLD_S, Breaker
from kube.controller import TerminalError
from reflector.kinds import configuration
from reflector.kinds.contract import ReflectionContext, RemoteObjectOptions
from reflector.reflection import (
    ABSENT_RETRY_S,
    REFUSED_RETRY_S,
    ReflectionReporter,
)
from tests import factories
from tests.kube.test_ratelimit import Cache
from tests.reflector.pairs import HERE, PAIR, SIMPLE, THERE, WRITES, World, original
from tests.world import existing, remove

WIDGET = Kind("tests.example", "v1", "Widget", "widgets")
SKIP = {"metadata": {"annotations": {"liqo.io/skip-reflection": "true"}}}


DRIFT: dict[Kind, tuple[str, Object]] = {
    keys.SERVICE: ("spec", {"selector": {"app": "other"}}),
    keys.INGRESS: ("spec", {"rules": []}),
}


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("kind", SIMPLE, ids=str)
async def test_a_new_object_gets_a_twin_by_one_write(world: World, kind: Kind) -> None:
    await world.home.create(kind, original(kind))
    before = world.writes()

    await world.reflection(kind).reconcile(HERE)

    twin = await existing(world.foreign, kind, THERE)
    assert PAIR.reflects(twin)
    assert world.writes() == before + 1
    assert world.told == []


@pytest.mark.parametrize("kind", SIMPLE, ids=str)
async def test_twice_is_once(world: World, kind: Kind) -> None:
    await world.home.create(kind, original(kind))
    reflection = world.reflection(kind)
    await reflection.reconcile(HERE)
    before, told = world.writes(), list(world.told)

    await reflection.reconcile(HERE)

    assert world.writes() == before
    assert world.told == told


@pytest.mark.parametrize("kind", SIMPLE, ids=str)
async def test_a_restart_writes_nothing(world: World, kind: Kind) -> None:
    await world.home.create(kind, original(kind))
    await world.reflection(kind).reconcile(HERE)
    before, told = world.writes(), list(world.told)

    await world.reflection(kind).reconcile(HERE)

    assert world.writes() == before
    assert world.told == told


@pytest.mark.parametrize("kind", SIMPLE, ids=str)
async def test_what_goes_at_home_goes_there(world: World, kind: Kind) -> None:
    made = await world.home.create(kind, original(kind))
    reflection = world.reflection(kind)
    await reflection.reconcile(HERE)
    await world.home.delete(kind, HERE, uid=made["metadata"]["uid"])
    before = world.writes()

    await reflection.reconcile(HERE)

    assert await world.foreign.get(kind, THERE) is None
    assert world.writes() == before + 1


async def test_what_is_missing_with_much_else_goes_when_it_is_believed(world: World) -> None:
    made = await world.home.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP))
    reflection, now = world.reflection(), [0.0]
    await reflection.reconcile(HERE)
    await world.home.delete(keys.CONFIG_MAP, HERE, uid=made["metadata"]["uid"])
    reflection.breaker = Breaker(lambda: None, clock=lambda: now[0])
    cache = Cache()
    reflection.breaker.watch(cache)
    cache.lists(20)
    cache.lists(0)

    assert await reflection.reconcile(HERE) == ABSENT_RETRY_S
    assert await world.foreign.get(keys.CONFIG_MAP, THERE)
    now[0] += HOLD_S + 1
    await reflection.reconcile(HERE)

    assert await world.foreign.get(keys.CONFIG_MAP, THERE) is None


async def test_changes_follow_and_what_is_dropped_goes(world: World) -> None:
    await world.home.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP))
    reflection = world.reflection()
    await reflection.reconcile(HERE)
    changes = {"data": {"a": "3", "b": None}, "metadata": {"labels": {"tier": "front"}}}
    await world.home.patch(keys.CONFIG_MAP, HERE, changes)
    before = world.writes()

    await reflection.reconcile(HERE)

    twin = await existing(world.foreign, keys.CONFIG_MAP, THERE)
    assert twin["data"] == {"a": "3"}
    assert twin["metadata"]["labels"] == {"tier": "front", **PAIR.labels()}
    assert world.writes() == before + 1


@pytest.mark.parametrize("kind", SIMPLE, ids=str)
async def test_drift_is_repaired(world: World, kind: Kind) -> None:
    await world.home.create(kind, original(kind))
    reflection = world.reflection(kind)
    await reflection.reconcile(HERE)
    field, drift = DRIFT.get(kind, ("data", {"a": "b3RoZXI="}))
    await world.foreign.patch(kind, THERE, {field: drift})

    await reflection.reconcile(HERE)

    twin, local = await world.foreign.get(kind, THERE), await world.home.get(kind, HERE)
    assert twin
    assert local
    name = next(iter(drift))
    assert twin[field][name] == local[field][name]


async def test_a_deleted_twin_is_restored(world: World) -> None:
    await world.home.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP))
    reflection = world.reflection()
    await reflection.reconcile(HERE)
    await remove(world.foreign, keys.CONFIG_MAP, THERE)

    await reflection.reconcile(HERE)

    assert await world.foreign.get(keys.CONFIG_MAP, THERE)


async def test_what_the_provider_adds_stays_and_costs_no_write_a_look(world: World) -> None:
    await world.home.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP))
    reflection = world.reflection()
    await reflection.reconcile(HERE)
    await world.foreign.patch(keys.CONFIG_MAP, THERE, {"metadata": {"labels": {"theirs": "1"}}})
    await reflection.reconcile(HERE)
    before = world.writes()

    for _ in range(100):
        await reflection.reconcile(HERE)

    twin = await existing(world.foreign, keys.CONFIG_MAP, THERE)
    assert twin["metadata"]["labels"]["theirs"] == "1"
    assert world.writes() == before


@pytest.mark.parametrize("is_there", [True, False], ids=["original", "no original"])
@pytest.mark.parametrize(
    "labels",
    [{}, {"offloading.liqo.io/origin": "naples", "offloading.liqo.io/destination": "milan"}],
    ids=["unlabelled", "another consumer's"],
)
async def test_somebody_elses_object_is_not_touched(
    world: World, *, labels: dict[str, str], is_there: bool
) -> None:
    theirs = named(keys.CONFIG_MAP, THERE, metadata={"labels": labels}, data={"theirs": "1"})
    before = await world.foreign.create(keys.CONFIG_MAP, theirs)
    if is_there:
        await world.home.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP))
    writes = world.writes()

    again_s = await world.reflection().reconcile(HERE)

    assert await world.foreign.get(keys.CONFIG_MAP, THERE) == before
    assert world.writes() == writes
    assert world.reasons() == ([("Warning", "FailedReflection")] if is_there else [])
    assert (again_s is not None) is is_there


async def test_tokens_that_the_kubelet_keeps_are_not_touched(world: World) -> None:
    metadata = {
        "labels": {**PAIR.labels(), "offloading.liqo.io/service-account-name": "default"},
        "annotations": {"offloading.liqo.io/service-account-for-pod-name": "web"},
    }
    await world.foreign.create(keys.SECRET, named(keys.SECRET, THERE, metadata=metadata))

    await world.reflection(keys.SECRET).reconcile(HERE)

    assert await world.foreign.get(keys.SECRET, THERE)


async def test_skipping_later_removes_the_twin_and_says_so_once(world: World) -> None:
    await world.home.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP))
    reflection = world.reflection()
    await reflection.reconcile(HERE)
    await world.home.patch(keys.CONFIG_MAP, HERE, SKIP)

    await reflection.reconcile(HERE)
    await reflection.reconcile(HERE)

    assert await world.foreign.get(keys.CONFIG_MAP, THERE) is None
    assert world.reasons() == [("Normal", "ReflectionDisabled")]


def test_why_nothing_is_reflected_is_said_again_once_it_was_otherwise() -> None:
    events: list[str] = []
    reporter = ReflectionReporter(lambda *event: events.append(event[2]), keys.CONFIG_MAP, "milan")
    for stay in (NotReflected("skipped"), NotReflected("skipped"), None, NotReflected("skipped")):
        reporter.disabled(HERE, original(keys.CONFIG_MAP), stay)
    assert events == ["ReflectionDisabled"] * 2


async def test_unskipping_brings_it_back(world: World) -> None:
    await world.home.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP))
    await world.home.patch(keys.CONFIG_MAP, HERE, SKIP)
    reflection = world.reflection()
    await reflection.reconcile(HERE)
    await world.home.patch(
        keys.CONFIG_MAP, HERE, {"metadata": {"annotations": {"liqo.io/skip-reflection": "false"}}}
    )

    await reflection.reconcile(HERE)

    assert await world.foreign.get(keys.CONFIG_MAP, THERE)


async def test_under_allow_list_only_what_asks_for_it_leaves(world: World) -> None:
    await world.home.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP))
    reflection = world.reflection(policy=Policy.ALLOW_LIST)

    await reflection.reconcile(HERE)
    assert await world.foreign.get(keys.CONFIG_MAP, THERE) is None

    asks = {"metadata": {"annotations": {"liqo.io/allow-reflection": "true"}}}
    await world.home.patch(keys.CONFIG_MAP, HERE, asks)
    await reflection.reconcile(HERE)
    assert await world.foreign.get(keys.CONFIG_MAP, THERE)


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize(
    "type_",
    ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1"],
)
async def test_protected_secrets_are_never_sent_nor_talked_about(
    world: World, policy: Policy, type_: str
) -> None:
    canary = original(keys.SECRET, type=type_, data={"token": "Y2FuYXJ5"})
    canary["metadata"]["annotations"] = {"liqo.io/allow-reflection": "true"}
    await world.home.create(keys.SECRET, canary)

    await world.reflection(keys.SECRET, policy).reconcile(HERE)

    assert world.foreign.everything() == {}
    assert not any(verb in WRITES for verb, _ in world.foreign.requests)
    assert world.told == []


async def test_last_applied_and_managed_fields_are_never_sent(world: World) -> None:
    canary = original(keys.SECRET)
    canary["metadata"]["annotations"] = {keys.LAST_APPLIED: "canary", "mine": "1"}
    await world.home.create(keys.SECRET, canary)

    await world.reflection(keys.SECRET).reconcile(HERE)

    twin = await existing(world.foreign, keys.SECRET, THERE)
    assert set(twin["metadata"]["annotations"]) == {"mine", keys.APPLIED}


async def test_hidden_labels_go_when_they_become_hidden(world: World) -> None:
    asked = original(keys.CONFIG_MAP)
    asked["metadata"]["labels"] = {"team": "a", "app": "web"}
    await world.home.create(keys.CONFIG_MAP, asked)
    await world.reflection().reconcile(HERE)

    settings = RemoteObjectOptions(MetadataFilter(frozenset({"team"})))
    await world.reflection(settings=settings).reconcile(HERE)

    twin = await existing(world.foreign, keys.CONFIG_MAP, THERE)
    assert twin["metadata"]["labels"] == {"app": "web", **PAIR.labels()}


async def test_the_root_certificates_have_their_own_name(world: World) -> None:
    root = factories.config_map("foo", "kube-root-ca.crt", **{"ca.crt": "PEM"})
    await world.home.create(keys.CONFIG_MAP, root)
    reflection = world.reflection(policy=Policy.ALLOW_LIST)
    twin = Key("foo-rome", "kube-root-ca.crt.rome")

    await reflection.reconcile(Key("foo", "kube-root-ca.crt"))

    assert await world.foreign.get(keys.CONFIG_MAP, twin)
    assert reflection.original_of(twin) == Key("foo", "kube-root-ca.crt")


async def test_contradictory_annotations_are_told_to_the_author(world: World) -> None:
    root = factories.config_map("foo", "kube-root-ca.crt")
    both = {"liqo.io/skip-reflection": "true", "liqo.io/allow-reflection": "true"}
    root["metadata"]["annotations"] = both
    await world.home.create(keys.CONFIG_MAP, root)

    with pytest.raises(TerminalError, match="contradict"):
        await world.reflection().reconcile(Key("foo", "kube-root-ca.crt"))

    assert world.reasons() == [("Warning", "FailedReflection")]


async def test_an_immutable_twin_of_what_was_made_anew_is_made_anew(world: World) -> None:
    fixed = original(keys.CONFIG_MAP, immutable=True)
    made = await world.home.create(keys.CONFIG_MAP, fixed)
    await world.reflection().reconcile(HERE)
    await world.home.delete(keys.CONFIG_MAP, HERE, uid=made["metadata"]["uid"])
    await world.home.create(keys.CONFIG_MAP, {**fixed, "data": {"a": "other"}})

    assert await world.reflection().reconcile(HERE) is None

    twin = await existing(world.foreign, keys.CONFIG_MAP, THERE)
    assert twin["data"] == {"a": "other"}
    assert world.told == []


async def test_a_twin_that_a_provider_fixed_is_kept_and_told(world: World) -> None:
    """Making it again would never end where the provider's own rules fix all of a kind."""
    await world.home.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP))
    await world.reflection().reconcile(HERE)
    await world.foreign.patch(keys.CONFIG_MAP, THERE, {"data": {"a": "theirs"}})
    fixed = await world.foreign.patch(keys.CONFIG_MAP, THERE, {"immutable": True})

    assert await world.reflection().reconcile(HERE) == REFUSED_RETRY_S

    assert await world.foreign.get(keys.CONFIG_MAP, THERE) == fixed
    assert world.reasons() == [("Warning", "FailedReflection")]
    assert "immutable" in world.told[0][2]


@pytest.mark.parametrize(
    ("error", "again_s"),
    [
        (errors.refusal(422, {"message": "status.replicas: Invalid value"}), REFUSED_RETRY_S),
        (errors.refusal(403, {"message": "cannot patch widgets/status"}), None),
        (errors.refusal(404, {"message": "widgets have no status"}), None),
    ],
    ids=["invalid", "no right", "no subresource"],
)
async def test_what_comes_home_and_is_refused_is_told_and_its_end_too(
    world: World, error: errors.KubeError, again_s: float | None
) -> None:
    forge = configuration.custom_resource(custom_row(WIDGET))
    reflection = world.reflected(forge, ReflectionContext(PAIR))
    await world.home.create(WIDGET, named(WIDGET, HERE, spec={"a": 1}))
    await reflection.reconcile(HERE)
    await world.foreign.patch_status(WIDGET, THERE, {"replicas": 1})
    world.home.fail("patch_status", error)

    if again_s is None:
        with pytest.raises(type(error)):
            await reflection.reconcile(HERE)
    else:
        assert await reflection.reconcile(HERE) == again_s
    (failed,) = world.told
    assert failed[:2] == ("Warning", "FailedReflection")
    assert error.said in failed[2]

    assert await reflection.reconcile(HERE) is None
    assert world.reasons()[1:] == [("Normal", "SuccessfulReflection")]
    local = await existing(world.home, WIDGET, HERE)
    assert local["status"] == {"replicas": 1}


async def test_of_a_claim_whose_volume_is_not_seen_nothing_is_done_or_told(world: World) -> None:
    """It may be of this cluster, which is no failure, or one that is on its way to the cache."""
    kind, spec = keys.PERSISTENT_VOLUME_CLAIM, {"storageClassName": "liqo", "volumeName": "pvc-7"}
    await world.home.create(kind, named(kind, HERE, spec=spec))
    twin = named(kind, THERE, metadata={"labels": PAIR.labels()}, spec={})
    before = await world.foreign.create(kind, twin)

    assert await world.reflection(kind).reconcile(HERE) is None

    assert await world.foreign.get(kind, THERE) == before
    assert world.told == []


async def test_while_the_twin_namespace_goes_it_waits_quietly(world: World) -> None:
    await world.home.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP))
    message = "unable to create new content in namespace foo-rome because it is being terminated"
    world.foreign.fail("apply", errors.refusal(403, {"message": message}))

    again_s = await world.reflection().reconcile(HERE)

    assert again_s is not None
    assert world.told == []


async def test_missing_rights_are_told_and_retried(world: World) -> None:
    await world.home.create(keys.CONFIG_MAP, original(keys.CONFIG_MAP))
    world.foreign.fail("apply", errors.refusal(403, {"message": "user cannot patch configmaps"}))

    with pytest.raises(errors.ForbiddenError):
        await world.reflection().reconcile(HERE)

    assert world.reasons() == [("Warning", "FailedReflection")]
