"""What the webhook notes on a pod, written and read."""

import itertools

import pytest

from apis.judgement import NODE_AFFINITY, TOLERATION, Judgement
from apis.offloading import NamespaceOffloading
from apis.offloading import PodOffloadingStrategy as Strategy

ADDED = [frozenset(), frozenset({TOLERATION}), frozenset({TOLERATION, NODE_AFFINITY})]


@pytest.mark.parametrize(("strategy", "added"), [*itertools.product(Strategy, ADDED)])
def test_what_is_written_is_read(strategy: Strategy, added: frozenset[str]) -> None:
    said = Judgement(strategy, 12, added)

    assert Judgement.parse(str(said)) == said
    assert len(str(said)) < 80


@pytest.mark.parametrize(
    "text",
    [
        "",
        "strategy=Remote",
        "strategy=Nowhere generation=1 added=nothing",
        "strategy=Remote generation=x added=nothing",
        "strategy=Remote generation=1 added=everything",
        "strategy=Remote generation=1 added=nothing more",
        "strategy=Remote generation=1 added=nothing\n",
        f"strategy=Remote generation={'9' * 5000} added=nothing",
    ],
)
def test_what_others_write_is_none(text: str) -> None:
    assert Judgement.parse(text) is None


def test_it_is_of_one_generation_of_one_strategy() -> None:
    offloading = NamespaceOffloading(Strategy.REMOTE, generation=2)
    said = Judgement.by(offloading, frozenset())

    assert said.is_of(offloading)
    assert not said.is_of(NamespaceOffloading(Strategy.REMOTE, generation=3))
    assert not said.is_of(NamespaceOffloading(Strategy.LOCAL, generation=2))
