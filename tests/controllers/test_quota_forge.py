"""Who may have a Pod now, and what the Quota's status says of it. Pure."""

from typing import Any, Final, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis import keys, quotas, resources
from apis.objects import Key, Object, named
from apis.quotas import Demand, QuotaGrant
from apis.resources import Quantity
from controllers.offloading.quota import forge
from controllers.offloading.quota.forge import Account, Plan, Reservation, Running, ShadowPodDemand

SPACE = "shop-rome"


def grant(cpu: str = "4", **spec: Any) -> QuotaGrant:
    wanted = {"user": "rome", "resources": {"cpu": cpu}, **spec}
    return QuotaGrant.parse(named(keys.QUOTA, Key("liqo-tenant-rome", "x"), spec=wanted))


def demand(cpu: str = "1") -> Demand:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return Demand.of({"containers": [container]})


def claim(name: str, cpu: str = "1", **rest: Any) -> ShadowPodDemand:
    return ShadowPodDemand(
        Key(SPACE, name), f"uid-{name}", rest.pop("created", name), demand(cpu), **rest
    )


def running(name: str, cpu: str = "1", *, is_over: bool = False) -> Running:
    return Running(f"uid-{name}", demand(cpu).usage, is_over)


def booking(name: str, cpu: str = "1") -> Reservation:
    return Reservation(Key(SPACE, name), f"uid-{name}", demand(cpu).usage)


def account(*claims: ShadowPodDemand, **pods: Running) -> Account:
    made = Account()
    for one in claims:
        made.ask(one)
    for name, pod in pods.items():
        made.put(Key(SPACE, name), pod)
    return made


def booked(plan: Plan) -> list[str]:
    return [one["name"] for one in plan.status["bookings"]]


def test_the_oldest_is_booked_first_and_the_others_are_told_why() -> None:
    made = forge.plan(grant("2"), [], account(claim("c"), claim("a"), claim("b")), set())

    assert booked(made) == ["a", "b"]
    assert made.status["used"] == {"cpu": "0"}
    assert made.status["booked"] == {"cpu": "2", "pods": "2"}
    (refused,) = made.refused.values()
    assert refused.reason == "QuotaExceeded"
    assert refused.message == (
        "the pod asks for 1 of cpu, quota liqo-tenant-rome/x has 0 free of 2: "
        "it starts as soon as it fits; delete other pods, or ask for less"
    )


def test_who_is_too_large_keeps_nobody_waiting() -> None:
    made = forge.plan(grant("2"), [], account(claim("a", "3"), claim("b")), set())

    assert booked(made) == ["b"]
    assert "has 2 in all: ask for less" in made.refused["uid-a"].message


def test_what_is_booked_counts_until_its_pod_is_seen_and_then_the_pod_does() -> None:
    held = [booking("a")]
    before = forge.plan(grant("2"), held, account(claim("a")), set())
    after = forge.plan(grant("2"), held, account(claim("a"), a=running("a", "1500m")), set())

    assert (booked(before), before.status["used"]["cpu"], before.status["booked"]["cpu"]) == (
        ["a"],
        "0",
        "1",
    )
    assert (booked(after), after.status["used"]["cpu"]) == ([], "1500m")


def test_a_pod_that_has_ended_takes_nothing_and_gets_no_second_one() -> None:
    made = forge.plan(
        grant("1"), [], account(claim("a"), claim("b"), a=running("a", is_over=True)), set()
    )

    assert booked(made) == ["b"]
    assert made.status["used"] == {"cpu": "0"}


def test_who_ran_before_comes_first() -> None:
    old = claim("z", was_admitted=True)

    assert booked(forge.plan(grant("1"), [], account(claim("a"), old), set())) == ["z"]


def test_a_lowered_quota_evicts_nothing_and_admits_nobody() -> None:
    pods = {name: running(name) for name in ("a", "b")}
    made = forge.plan(grant("1"), [], account(claim("a"), claim("b"), claim("c"), **pods), set())

    assert booked(made) == []
    assert made.status["used"]["cpu"] == "2"
    assert "has 0 free of 1" in made.refused["uid-c"].message


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"cordoned": True}, quotas.CORDONED), ({"limitsEnforcement": "Soft"}, quotas.ENFORCED)],
)
def test_only_who_ran_before_is_welcome_whatever_changed(spec: Object, reason: str) -> None:
    both = account(claim("old", was_admitted=True), claim("new"))
    made = forge.plan(grant(**spec), [], both, set())

    assert booked(made) == ["old"]
    assert made.refused["uid-new"].reason == reason


def test_what_cannot_be_read_waits_and_is_told_so() -> None:
    odd = ShadowPodDemand(
        Key(SPACE, "odd"), "uid-odd", "", None, "spec.pod.containers must be a list"
    )

    made = forge.plan(grant(), [], account(odd), set())

    assert booked(made) == []
    assert made.refused["uid-odd"].reason == quotas.UNREADABLE


def test_an_orphan_is_released_once_it_is_known_to_be_one() -> None:
    held = [booking("gone")]

    assert [one.uid for one in forge.orphans(held, account())] == ["uid-gone"]
    assert forge.orphans(held, account(claim("gone"))) == []
    assert booked(forge.plan(grant(), held, account(), set())) == ["gone"]
    assert booked(forge.plan(grant(), held, account(), {"uid-gone"})) == []


def test_one_write_is_bounded() -> None:
    many = account(*(claim(f"{number:04}", "0") for number in range(forge.MOST + 9)))
    made = forge.plan(grant(), [], many, set())

    assert len(booked(made)) == forge.MOST
    assert made.refused == {}


def test_a_booking_reads_as_it_was_written() -> None:
    made = forge.plan(grant(), [], account(claim("a", "300m")), set())

    assert forge.bookings({"status": made.status}) == [booking("a", "300m")]


def test_only_what_somebody_waits_for_is_urgent() -> None:
    first = forge.plan(grant(), [], account(claim("a")), set()).status
    seen = forge.plan(grant(), [booking("a")], account(claim("a"), a=running("a")), set()).status

    assert forge.is_urgent({}, first)
    assert not forge.is_urgent(first, seen)
    assert not forge.is_urgent(seen, forge.plan(grant(), [], account(), set()).status)
    foreign = forge.plan(grant(), [], account(a=running("a"), b=running("b")), set()).status
    assert forge.is_urgent(seen, foreign)
    assert not forge.is_urgent(seen, foreign, {"uid-c"})
    assert forge.is_urgent({**seen, "booked": {"cpu": "lots"}}, seen)
    assert forge.is_urgent(first, forge.plan(grant(), [], account(), set()).status)


names = st.sampled_from("abcdefgh")
cpus = st.integers(0, 5).map(str)


@given(
    total=st.integers(0, 8),
    claims=st.dictionaries(names, cpus),
    pods=st.dictionaries(names, cpus),
    held=st.dictionaries(names, cpus),
    over=st.sets(names),
)
def test_nothing_is_added_beyond_the_quota_and_nobody_waits_who_fits(
    total: int, claims: dict[str, str], pods: dict[str, str], held: dict[str, str], over: set[str]
) -> None:
    there = {name: running(name, cpu, is_over=name in over) for name, cpu in pods.items()}
    all_ = account(*(claim(name, cpu) for name, cpu in claims.items()), **there)
    before = [booking(name, cpu) for name, cpu in held.items()]

    made = forge.plan(grant(str(total)), before, all_, set())

    taken = resources.parse_resources(made.status["booked"])
    old = {one.uid for one in before}
    news = [one for one in forge.bookings({"status": made.status}) if one.uid not in old]
    asked = resources.total(one.requests for one in news).get("cpu", Quantity())
    assert taken["cpu"] >= resources.parse_resources(made.status["used"])["cpu"]
    assert not asked or taken["cpu"] <= Quantity(total * 10**9)
    left = Quantity(max(0, total * 10**9 - taken["cpu"].nanos))
    for one in all_.claims.values():
        if one.uid in made.refused and one.demand:
            assert one.demand.usage["cpu"] > left
    again = forge.plan(grant(str(total)), forge.bookings({"status": made.status}), all_, set())
    assert again.status == made.status
    assert again.refused.keys() == made.refused.keys()  # what is free now is said again


class Unread(dict[Any, Any]):
    """What nobody may go through: a look at one user would cost what all his pods do."""

    def _fail(self) -> NoReturn:
        raise AssertionError("all of them are read")

    __iter__ = values = items = _fail


def test_a_plan_reads_who_waits_or_grows_and_no_other() -> None:
    all_ = account(claim("a"), claim("b"), claim("c"), a=running("a"), b=running("b"))
    all_.claims, all_.pods, all_.by_uid = (
        Unread(all_.claims),
        Unread(all_.pods),
        Unread(all_.by_uid),
    )
    held = [booking("b"), booking("gone")]

    made = forge.plan(grant("5"), held, all_, set())

    assert booked(made) == ["gone", "c"]
    assert (forge.orphans(held, all_), forge.idle(held, all_)) == ([booking("gone")], [])


STEPS: Final = st.lists(st.tuples(st.sampled_from(["ask", "leave", "put", "drop"]), names))


@given(STEPS)
def test_those_without_a_pod_wait(steps: list[tuple[str, str]]) -> None:
    made = Account()
    for step, name in steps:
        key = Key(SPACE, name)
        {
            "ask": lambda: made.ask(claim(name)),  # noqa: B023
            "leave": lambda: made.leave(key),  # noqa: B023
            "put": lambda: made.put(key, running(name)),  # noqa: B023
            "drop": lambda: made.drop(key),  # noqa: B023
        }[step]()

    assert made.waiting.keys() == {
        one.uid for key, one in made.claims.items() if key not in made.pods
    }
    assert made.by_uid == {one.uid: one for one in made.claims.values()}


PODS: Final = st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "250m", "3"]), st.booleans())


@given(st.lists(PODS | st.sampled_from("abc")))
def test_what_is_used_is_what_the_pods_take_in_any_order(steps: list[Any]) -> None:
    found = account()
    for step in steps:
        if isinstance(step, str):
            found.drop(Key(SPACE, step))
        else:
            name, cpu, is_over = step
            found.put(Key(SPACE, name), running(name, cpu, is_over=is_over))

    there = [pod.usage for pod in found.pods.values() if not pod.is_over]
    assert found.used == resources.total(there)


def test_half_of_what_is_free_is_booked_ahead_and_what_another_has_is_taken() -> None:
    others = resources.parse_resources({"cpu": "1"})

    made = forge.plan(grant("4"), [], account(claim("a", "2"), claim("b", "2")), set(), others)

    assert booked(made) == ["a"]
    assert resources.to_json(made.ahead) == {"cpu": "1"}
    found, left = forge.drawn(grant("4"), made.made, resources.parse_resources({"cpu": "2500m"}))
    assert [one.uid for one in found] == [one.uid for one in made.made]
    assert resources.to_json(left) == {"cpu": "500m"}
    assert forge.drawn(grant("4"), made.made, made.ahead) == ([], made.ahead)
