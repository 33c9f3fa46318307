"""The arithmetic of figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import figures
from bench.figures import Line, Spread

SAMPLES = st.lists(st.floats(0, 1e6), min_size=1, max_size=300)


@given(SAMPLES)
def test_percentiles_stay_within_the_samples_and_rise(samples: list[float]) -> None:
    kept = figures.quantiles(samples)

    assert len(kept) == 101
    assert kept == sorted(kept)
    assert kept[0] == pytest.approx(min(samples), abs=0.01)
    assert kept[100] == pytest.approx(max(samples), abs=0.01)


def test_a_percentile_lies_between_its_neighbours() -> None:
    assert figures.percentile([10, 20], 50) == 15
    assert figures.percentile([10, 20, 30], 100) == 30


def test_no_samples_have_no_percentile() -> None:
    assert figures.quantiles([]) == []
    with pytest.raises(ValueError, match="no samples"):
        figures.percentile([], 50)
    with pytest.raises(ValueError, match="no samples"):
        figures.at([], 50)


def test_a_spread_is_median_and_range() -> None:
    assert figures.spread([3, 1, 2]) == Spread(2, 1, 3)
    assert figures.spread([3, 1, 2]) / 2 == Spread(1, 0.5, 1.5)


def test_a_line_is_found_in_its_points() -> None:
    line = figures.fit([(size, 5 + 0.25 * size) for size in (100, 1000, 5000)])

    assert line
    assert line == pytest.approx(Line(5, 0.25))
    assert line.at(400) == pytest.approx(105)


def test_one_size_makes_no_line() -> None:
    assert figures.fit([(100, 1.0), (100, 2.0)]) is None


def test_growth_leaves_the_warm_up_out() -> None:
    warm_up, level = [50.0] * 10, [100.0] * 90

    assert figures.growth(warm_up + level) == 0
    assert figures.growth(warm_up + [100.0] * 45 + [110.0] * 45) == pytest.approx(0.1)


def test_few_samples_tell_no_growth() -> None:
    with pytest.raises(ValueError, match="too few"):
        figures.growth([1.0, 2.0])


def test_counters_grow_from_what_they_were() -> None:
    assert figures.added({"old": 5.0, "new": 2.0}, {"old": 3.0}) == {"old": 2.0, "new": 2.0}


def test_arms_go_forwards_and_backwards() -> None:
    order = [arm for _, arm in figures.zigzag(["a", "b", "c"], 3)]

    assert order == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]


def test_a_histogram_tells_the_bound_of_a_quantile() -> None:
    buckets = [("0.001", 90.0), ("0.002", 98.0), ("0.004", 100.0), ("+Inf", 100.0)]

    assert figures.histogram(buckets, 0.5) == 0.001
    assert figures.histogram(buckets, 0.99) == 0.004
