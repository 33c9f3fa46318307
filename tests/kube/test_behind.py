"""A server whose watch broke is asked for its version once, and believed no later one of its own.

What comes of it on a real server: ``tests/reflector/test_etcd.py``.
"""

from dataclasses import dataclass
from typing import Final

import pytest

from apis import keys
from apis.objects import Object
from kube import cluster
from kube.cluster import RollbackDetector, Selection


@dataclass
class Clock:
    """A clock that tests move."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


OF: Final = Selection(keys.CONFIG_MAP, Object, "default")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def doubts(clock: Clock) -> RollbackDetector:
    return RollbackDetector(clock)


def test_it_is_in_doubt_from_the_loss_of_its_watch_until_the_server_was_asked(
    doubts: RollbackDetector,
) -> None:
    assert OF not in doubts

    doubts.lost(OF)
    assert OF in doubts
    assert Selection(keys.SECRET, Object, "default") not in doubts

    doubts.asked(OF)
    assert OF not in doubts


def test_an_outage_puts_all_in_doubt_that_were_followed(doubts: RollbackDetector) -> None:
    doubts.asked(OF)

    doubts.all_lost()

    assert OF in doubts


def test_what_waited_before_it_is_followed_again_is_in_doubt(
    doubts: RollbackDetector, clock: Clock
) -> None:
    doubts.asked(OF)
    clock.now += cluster.AT_ONCE_S
    assert OF not in doubts

    clock.now += 1

    assert OF in doubts


@pytest.mark.parametrize(
    ("version", "since", "expected"),
    [("9", "10", True), ("10", "10", False), ("11", "10", False), ("", "10", False),
     ("9", "", False), ("zz-9", "10", False), ("9", "1" * 5_000, False), ("\u0663", "10", False)],
)  # fmt: skip
def test_only_versions_that_are_numbers_are_compared(
    version: str, since: str, *, expected: bool
) -> None:
    assert cluster.is_behind(version, since) is expected
