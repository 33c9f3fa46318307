"""What the webhook notes on a pod, written and read."""

import itertools

import pytest

from apis.offloading import NamespaceOffloading
from apis.offloading import PodOffloadingStrategy as Strategy
from apis.placement import NODE_AFFINITY, TOLERATION, PlacementAnnotation

ADDED = [frozenset(), frozenset({TOLERATION}), frozenset({TOLERATION, NODE_AFFINITY})]


NODES = [None, "", "liqo.io/type In virtual-node", "a In 1,2 and b Exists or c Gt 4"]


@pytest.mark.parametrize(
    ("strategy", "added", "nodes"), [*itertools.product(Strategy, ADDED, NODES)]
)
def test_what_is_written_is_read(
    strategy: Strategy, added: frozenset[str], nodes: str | None
) -> None:
    said = PlacementAnnotation(strategy, 12, added, nodes)

    assert PlacementAnnotation.parse(str(said)) == said
    assert len(str(said)) < 120


def test_many_nodes_are_not_noted() -> None:
    offloading = NamespaceOffloading(Strategy.REMOTE, generation=2)

    assert PlacementAnnotation.by(offloading, frozenset(), "x" * 400).nodes
    assert PlacementAnnotation.by(offloading, frozenset(), "x" * 401).nodes is None


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
        'strategy=Remote generation=1 added=nothing nodes="a"b"',
        'strategy=Remote generation=1 added=nothing nodes="a" nodes="b"',
        f"strategy=Remote generation={'9' * 5000} added=nothing",
    ],
)
def test_what_others_write_is_none(text: str) -> None:
    assert PlacementAnnotation.parse(text) is None


def test_it_is_of_one_generation_of_one_strategy() -> None:
    offloading = NamespaceOffloading(Strategy.REMOTE, generation=2)
    said = PlacementAnnotation.by(offloading, frozenset())

    assert said.is_of(offloading)
    assert not said.is_of(NamespaceOffloading(Strategy.REMOTE, generation=3))
    assert not said.is_of(NamespaceOffloading(Strategy.LOCAL, generation=2))
