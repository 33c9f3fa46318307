"""What a provider may have the reflector do here, whatever it says.

Source: docs/parity.md H13, H16.
"""

import asyncio
import contextlib
import heapq
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from apis.offloading import ReflectionPolicy as Policy
from kube.cache import CachedCluster
from kube.cluster import Selection
from kube.informer import Change, Informer
from kube.ratelimit import (
    LONGEST_WAIT_S,
    LOOKS_BURST,
    LOOKS_PER_SECOND,
    WRITES_BURST,
    WRITES_PER_SECOND,
    Budget,
    Turns,
)
from kube.slim import Packed
from reflector.kinds import events
from reflector.kinds.contract import KindReflection, ReflectionContext
from reflector.kinds.table import KIND_REFLECTIONS
from reflector.reflection import Reflection, ReflectionClients, ReflectionReporter
from tests import factories
from tests.fakes import FakeCluster
from tests.kube.running import running
from tests.reflector.looks import Seen, lived
from tests.reflector.pairs import PAIR
from tests.reflector.test_events import told

BY_KIND = {forge.row.kind: forge for forge in KIND_REFLECTIONS.values()}
SECONDS = 60


class Here:
    """The reflector of a consumer, with caches of both sides, and a provider that says anything."""

    def __init__(self) -> None:
        self.now, self.home, self.foreign = 0.0, FakeCluster(), FakeCluster()
        self.budget = Budget(lambda: self.now)
        self._caches = CachedCluster(self.home), CachedCluster(self.foreign)

    def reflection(self, forge: KindReflection, of: ReflectionContext | None = None) -> Reflection:
        here, there = self._caches
        originals, twins = (here, there) if forge.row.is_outward else (there, here)
        ends = ReflectionClients(originals, twins, lambda *_: None, self.budget)
        return Reflection(forge, of or ReflectionContext(PAIR, lister=Seen()), ends)

    @contextlib.asynccontextmanager
    async def cached(self, *kinds: Kind) -> AsyncIterator[None]:
        """Let both sides of these kinds be followed, and count requests from then on.

        Of twins there are outlines: nothing is known of them here.
        """
        work: list[tuple[Informer[Any], FakeCluster]] = []
        for kind in kinds:
            twins = Selection(kind, Packed, keeps=lambda _: False)
            work.append((Informer(Selection(kind, Object)), self.home))
            work.append((Informer(twins), self.foreign))
        for informer, live in work:
            self._caches[live is self.foreign].add(informer)
        async with running(*(informer.run(live) for informer, live in work)):
            for informer, _ in work:
                await asyncio.wait_for(informer.synced.wait(), 60)
            self.home.requests.clear()
            self.foreign.requests.clear()
            yield

    async def shows(self, kind: Kind, numbers: range) -> None:
        """Let the provider show twins of which nothing is known here."""
        metadata = {"labels": PAIR.labels()}
        for number in numbers:
            twin = named(kind, Key("foo-rome", f"n{number}"), metadata=metadata)
            await self.foreign.create(kind, twin)

    def asked(self, *verbs: str, is_there: bool = False) -> int:
        requests = (self.foreign if is_there else self.home).requests
        return sum(count for (verb, _), count in requests.items() if verb in verbs)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "A", "a b", "x" * 254, "a?watch=1"])
async def test_a_twin_without_a_proper_name_is_no_request(name: str) -> None:
    here = Here()
    for forge in KIND_REFLECTIONS.values():
        reflection = here.reflection(forge)
        assert await reflection.reconcile(Key(reflection.namespace, name)) is None

    assert not here.home.requests
    assert not here.foreign.requests


async def test_twins_of_invented_names_cost_ten_looks_a_second_in_all() -> None:
    """Each is told again and again; nothing is listed, and all are gone in the end."""
    here, kinds, names = Here(), (keys.CONFIG_MAP, keys.SECRET), range(200)
    reflections = [here.reflection(BY_KIND[kind]) for kind in kinds]
    for kind in kinds:
        await here.shows(kind, names)

    async with here.cached(*kinds):
        for second in range(SECONDS):
            here.now = float(second)
            for reflection in reflections:
                for number in names:
                    await reflection.reconcile(Key("foo", f"n{number}"))
            turns = LOOKS_BURST + second * LOOKS_PER_SECOND
            assert here.asked("get") <= turns
            assert here.asked("get", is_there=True) <= 2 * turns, "once to know it, once to end it"

        assert here.asked("list") == 0
    assert not here.foreign.everything()


async def test_what_was_seen_to_go_waits_for_no_turn() -> None:
    """A user deletes 500 objects at once: their twins go at once, and nobody is asked."""
    here, names = Here(), range(500)
    reflection = here.reflection(BY_KIND[keys.CONFIG_MAP])
    await here.shows(keys.CONFIG_MAP, names)

    async with here.cached(keys.CONFIG_MAP):
        for number in names:
            key = Key("foo", f"n{number}")
            reflection.saw(Change(key, {}, None, was_seen=True))
            assert await reflection.reconcile(key) is None

        assert here.asked("get", "list") == 0
    assert not here.foreign.everything()


async def test_events_about_many_objects_come_at_fifty_a_second_after_a_burst() -> None:
    here, pods = Here(), 1500
    reflection = here.reflection(
        events.EVENT_REFLECTION, ReflectionContext(PAIR, Policy.RELEVANT, lister=Everything())
    )
    for number in range(pods):
        made = told(name=f"web-{number}")
        made["metadata"]["name"] = f"e{number}"
        await here.foreign.create(keys.EVENT, made)
    left = dict.fromkeys(range(pods), 0.0)

    for second in range(SECONDS):
        here.now = float(second)
        for number, due in list(left.items()):
            if due <= here.now:
                again_s = await reflection.reconcile(Key("foo-rome", f"e{number}"))
                if again_s is None:
                    del left[number]
                else:
                    left[number] = here.now + again_s
        written = here.asked("apply", "patch", "create")
        assert written <= WRITES_BURST + second * WRITES_PER_SECOND

    assert not left, "each came in the end"
    assert here.asked("apply") == pods


class Everything(Seen):
    """A look at a namespace in which there is a pod of each name."""

    def recent(self, key: Key) -> Any:
        return lived({"metadata": {"name": key.name, "namespace": key.namespace, "uid": "here"}})


def test_who_waits_waits_longer_the_more_there_are_but_not_for_ever() -> None:
    turns = Turns(lambda: 0.0, per_second=10, burst=1)

    assert turns.left_s("first", "shop") == 0
    waits = [turns.left_s(number, "shop") for number in range(10_000)]

    assert waits[:100] == sorted(waits[:100])
    assert 0 < min(waits) < 1
    assert max(waits) == LONGEST_WAIT_S


class Line:
    """Writes that one provider asks for, each looked at when it was told to come back."""

    def __init__(self) -> None:
        self.now = 0.0
        self._turns = Budget(lambda: self.now).writes
        self._due: list[tuple[float, int, str, int]] = []
        self._begun: dict[tuple[str, int], float] = {}
        self.waited: dict[str, list[float]] = {}
        self.order: list[tuple[str, int]] = []

    def comes(self, at: float, namespace: str) -> None:
        number = len(self._begun)
        self._begun[namespace, number] = at
        heapq.heappush(self._due, (at, number, namespace, number))

    def run(self) -> None:
        """Let time pass until each has had its turn."""
        while self._due:
            self.now, _, namespace, number = heapq.heappop(self._due)
            left_s = self._turns.left_s(number, namespace, is_urgent=namespace == "claims")
            if left_s:
                again = self.now + left_s + 0.001  # workers have others to look at
                heapq.heappush(self._due, (again, number, namespace, number))
                continue
            begun = self._begun[namespace, number]
            self.waited.setdefault(namespace, []).append(self.now - begun)
            self.order.append((namespace, number))


@pytest.mark.parametrize("per_second", [100, 200])
def test_a_flood_of_events_holds_up_no_claim_and_no_other_namespace(per_second: int) -> None:
    line, seconds = Line(), 60
    for _ in range(int(WRITES_BURST)):
        line.comes(0.0, "flood")
    for number in range(seconds * per_second):
        line.comes(number / per_second, "flood")
    for second in range(1, seconds):
        line.comes(float(second), "claims")
        line.comes(float(second), "quiet")

    line.run()

    assert max(line.waited["claims"]) < 1, "5 s are allowed"
    assert max(line.waited["quiet"]) < 1
    assert len(line.waited["flood"]) == WRITES_BURST + seconds * per_second, "each came"


def test_turns_are_given_in_the_order_of_waiting() -> None:
    line = Line()
    for number in range(int(WRITES_BURST) + 1000):
        line.comes(0.0 if number < WRITES_BURST else number / 200, "flood")

    line.run()

    numbers = [number for _, number in line.order]
    assert all(abs(place - number) <= 1 for place, number in enumerate(numbers))


def test_who_never_comes_back_costs_its_own_turn_alone() -> None:
    now = 0.0
    turns = Turns(lambda: now, per_second=10, burst=1)
    turns.left_s("first", "shop")
    for number in range(20):
        turns.left_s(number, "gone")

    assert 0 < turns.left_s("last", "shop") < 0.3, "namespace by namespace"
    now = 0.3
    assert turns.left_s("last", "shop") == 0


def test_what_a_provider_says_is_told_bounded_and_escaped() -> None:
    """Its refusals reach Events of the consumer."""
    said: list[str] = []
    teller = ReflectionReporter(lambda *what: said.append(what[3]), keys.CONFIG_MAP, "milan")

    teller.failed(factories.config_map("foo", "mine"), "no\x1b[2J" + "x" * 100_000)

    assert said[0].startswith("no\\u001b[2J")
    assert len(said[0]) == 1024
