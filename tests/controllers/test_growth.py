"""A Pod grows in place once its quota has booked it, and is told where it does not fit.

Source: docs/parity.md § 4.10, 5.5.2; SEC-A12.
"""

from typing import Final

from apis import keys, objects, quotas
from apis.objects import Key, Object
from controllers.offloading.quota.reconciler import ORPHAN_S, SETTLE_S
from tests.controllers.quotaworld import World, following, sized
from tests.controllers.support import there
from tests.controllers.test_quota import world

__all__ = ["world"]

QUOTAS: Final = str(keys.QUOTA)


async def ask_for(world: World, name: str, cpu: str) -> None:
    """Let the ShadowPod ask for another size, as its consumer does."""
    key = Key(world.namespace, name)
    changes = {"spec": {"pod": {"containers": sized(cpu)["containers"]}}}
    await world.cluster.patch(keys.SHADOW_POD, key, changes)


async def cpu_of(world: World, name: str) -> str:
    pod = await there(world.cluster, keys.POD, Key(world.namespace, name))
    return str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


async def updated(world: World, name: str) -> Object:
    """Return what the ShadowPod says of its last change."""
    shadow = await there(world.cluster, keys.SHADOW_POD, Key(world.namespace, name))
    found = (shadow.get("status") or {}).get("conditions")
    return objects.find_condition(found, keys.UPDATED_CONDITION) or {}


async def have(world: World, granted: str, *names: str) -> None:
    """Grant so much, and let Pods of 1 CPU run."""
    await world.grant(granted)
    for name in names:
        await world.ask(name)
    await world.settle()
    world.now += SETTLE_S
    await world.settle()


async def test_it_is_booked_and_then_grows(world: World) -> None:
    await have(world, "3", "a", "b")
    uid = objects.uid(await there(world.cluster, keys.POD, Key(world.namespace, "a")))
    world.ledger.writes.clear()

    await ask_for(world, "a", "2")
    await world.settle()

    assert await cpu_of(world, "a") == "2"
    assert objects.uid(await there(world.cluster, keys.POD, Key(world.namespace, "a"))) == uid
    assert [kind for _, kind, _ in world.ledger.writes][:2] == [QUOTAS, str(keys.POD)]
    world.now += SETTLE_S
    await world.settle()
    status = await world.status()
    assert status["used"] == status["booked"] == {"cpu": "3", "pods": "2"}
    assert status["bookings"] == []


async def test_what_does_not_fit_waits_and_grows_when_another_ends(world: World) -> None:
    await have(world, "2", "a", "b")

    await ask_for(world, "a", "2")
    await world.settle()
    refused, small = await updated(world, "a"), await cpu_of(world, "a")
    writes = len(world.ledger.writes)
    await world.settle()
    again = len(world.ledger.writes) - writes
    await world.remove("b")
    await world.settle()

    assert small == "1"
    assert (refused["status"], refused["reason"]) == ("False", quotas.EXCEEDED)
    assert "the pod asks for 1 more of cpu" in refused["message"]
    assert "has 0 free of 2: it grows as soon as it fits" in refused["message"]
    assert again == 0, "it is told once"
    assert await cpu_of(world, "a") == "2"
    assert (await updated(world, "a"))["status"] == "True"


async def test_what_never_fits_is_told_so(world: World) -> None:
    await have(world, "2", "a")

    await ask_for(world, "a", "5")
    await world.settle()

    assert await cpu_of(world, "a") == "1"
    message = (await updated(world, "a"))["message"]
    assert "asks for 5 of cpu" in message
    assert "has 2 in all: ask for less" in message


async def test_what_it_gives_back_by_shrinking_others_have(world: World) -> None:
    await have(world, "2", "a")
    await ask_for(world, "a", "2")
    await world.settle()
    await world.ask("b")
    await world.settle()
    before = await world.running()

    await ask_for(world, "a", "1")
    await world.settle()

    assert before == ["a"]
    assert await cpu_of(world, "a") == "1"
    assert await world.running() == ["a", "b"]


async def test_a_growth_that_was_booked_ends_with_its_pod(world: World) -> None:
    await have(world, "2", "a")
    await ask_for(world, "a", "2")
    await world.book()
    booked = await world.status()
    await world.caught_up()
    await world.quota.reconcile(world.key)  # what it wrote brings it back

    await world.remove("a")
    await world.settle()
    world.now += SETTLE_S
    await world.settle()

    assert booked["booked"]["cpu"] == "2"
    status = await world.status()
    assert status["booked"] == {"cpu": "0"}
    assert status["bookings"] == []


async def test_a_growth_that_is_asked_for_no_more_is_given_back(world: World) -> None:
    await have(world, "2", "a")
    await ask_for(world, "a", "2")
    await world.book()
    await ask_for(world, "a", "1")
    await world.ask("b")
    await world.settle()
    at_once = await world.running()

    world.now += ORPHAN_S
    await world.settle()

    assert at_once == ["a"], "a request of somebody who was killed may be on its way"
    assert await cpu_of(world, "a") == "1"
    assert await world.running() == ["a", "b"]


async def test_a_successor_goes_on_where_somebody_was_killed(world: World) -> None:
    await have(world, "2", "a")
    await ask_for(world, "a", "2")
    await world.book()

    async with following(World(world.cluster, world.namespace, term="second")) as successor:
        await successor.settle()
        assert await cpu_of(successor, "a") == "2"


async def test_a_shadow_pod_that_grew_before_its_pod_existed_is_judged_anew(world: World) -> None:
    await world.grant("2")
    key = await world.ask("a")
    await world.book()
    await ask_for(world, "a", "5")
    await world.caught_up()

    await world.loop.reconcile(key)
    nothing = await world.running()
    await world.settle()

    assert nothing == await world.running() == []
    assert "asks for 5 of cpu" in (await world.why("a"))["message"]

    await ask_for(world, "a", "2")
    await world.settle()
    assert await cpu_of(world, "a") == "2"
