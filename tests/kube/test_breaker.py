"""When so much is missing at once that nothing may rest on it."""

from collections.abc import Mapping

import pytest

from apis import keys
from apis.objects import Key, Object, named
from kube.breaker import HOLD_S, Breaker
from kube.cluster import Listing, Selection
from kube.informer import Informer


class Cache(Informer[Object]):
    """An informer that is told what its lists have, without a server."""

    def __init__(self) -> None:
        super().__init__(Selection(keys.POD, Object))
        self.synced.set()

    def lists(self, count: int) -> None:
        """Let a list have the first ``count`` pods."""
        listed = {Key("shop", f"web-{number}"): pod(number) for number in range(count)}
        for change in [*self._gone(listed), *self._there(Listing(listed, ""))]:
            self._tell(change)


def pod(number: int) -> Object:
    made = named(keys.POD, Key("shop", f"web-{number}"))
    made["metadata"] |= {"uid": str(number), "resourceVersion": "1"}
    return made


@pytest.mark.parametrize(
    ("before", "after", "is_open"),
    [
        (20, 20, False),
        (20, 15, False),
        (20, 14, True),
        (20, 0, True),
        (100, 81, False),
        (5, 0, False),
    ],
)
def test_more_than_five_and_more_than_a_fifth(before: int, after: int, *, is_open: bool) -> None:
    told: list[bool] = []
    breaker = Breaker(lambda: told.append(True))
    cache = Cache()
    breaker.watch(cache)
    cache.lists(before)

    cache.lists(after)

    assert breaker.is_open() is is_open
    assert bool(told) is is_open


@pytest.mark.parametrize("after", [39, 0])
def test_of_a_restored_server_one_that_is_missing_is_enough(after: int) -> None:
    now, told = [0.0], list[bool]()
    breaker = Breaker(lambda: told.append(breaker.is_open()), clock=lambda: now[0])
    cache = Cache()
    breaker.watch(cache)
    cache.lists(40)
    assert not breaker.is_after_restore

    cache.went_back = True
    cache.lists(after)

    assert (breaker.is_open(), breaker.missing()) == (True, 40 - after)
    assert breaker.is_after_restore
    now[0] += HOLD_S + 1
    assert not breaker.is_open()


def test_it_closes_when_all_is_there_again_or_after_a_while() -> None:
    now, told = [0.0], list[bool]()
    breaker = Breaker(lambda: told.append(breaker.is_open()), clock=lambda: now[0])
    cache = Cache()
    stop = breaker.watch(cache)
    cache.lists(20)
    cache.lists(0)
    assert (breaker.is_open(), breaker.missing()) == (True, 20)
    cache.lists(20)
    assert (breaker.is_open(), told) == (False, [True, False])

    cache.lists(0)
    now[0] += HOLD_S + 1
    assert not breaker.is_open()

    cache.lists(20)
    cache.lists(0)
    stop()
    assert not breaker.is_open()


def test_what_time_closed_is_told_and_what_is_missing_next_is_another_alarm() -> None:
    now, told = [0.0], list[bool]()
    breaker = Breaker(lambda: told.append(breaker.is_open()), clock=lambda: now[0])
    cache = Cache()
    breaker.watch(cache)
    cache.lists(40)
    cache.lists(20)
    now[0] += HOLD_S + 1
    assert (breaker.is_open(), breaker.missing()) == (False, 0)

    cache.lists(0)

    assert (breaker.missing(), told) == (20, [True, False, True])


def test_a_decision_looks_only_at_what_misses_something() -> None:
    asked: list[object] = []

    class Counted(Cache):
        def items(self) -> Mapping[Key, Object]:
            asked.append(self)
            return super().items()

    breaker, caches = Breaker(lambda: None), [Counted() for _ in range(100)]
    for cache in caches:
        breaker.watch(cache)
        cache.lists(40)
    caches[7].lists(10)
    asked.clear()

    assert breaker.is_open()

    assert asked == [caches[7]]
