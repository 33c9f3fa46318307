"""Percentiles, medians, fits: the arithmetic of all figures; pure."""

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

SHOWN: Final = (50, 90, 99, 100)
WARM_UP: Final = 0.1
"""The part of a soak that does not count as growth."""
_WHOLE: Final = 100
_TWO: Final = 2


class Spread(NamedTuple):
    """A figure over the repetitions of a run."""

    median: float
    low: float
    high: float

    def __truediv__(self, other: float) -> "Spread":
        return Spread(*(each / other for each in self))


class Line(NamedTuple):
    """``fixed + slope * size``: a cost over sizes."""

    fixed: float
    slope: float

    def at(self, size: float) -> float:
        """Return the cost of ``size``."""
        return self.fixed + self.slope * size


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the value that ``percent`` of ``samples`` do not exceed, interpolated.

    Raises:
        ValueError: there are no samples.
    """
    if not samples:
        raise ValueError("no samples have no percentile")
    ordered = sorted(samples)
    place = (len(ordered) - 1) * percent / _WHOLE
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def quantiles(samples: Sequence[float]) -> list[float]:
    """Return the percentiles 0 to 100: all that a result keeps of ``samples``; [] for none."""
    if not samples:
        return []
    ordered = sorted(samples)
    return [round(percentile(ordered, percent), 2) for percent in range(_WHOLE + 1)]


def at(kept: Sequence[float], percent: int) -> float:
    """Return a percentile of what ``quantiles`` kept.

    Raises:
        ValueError: nothing was kept.
    """
    if not kept:
        raise ValueError("no samples have no percentile")
    return kept[percent]


def spread(values: Sequence[float]) -> Spread:
    """Return median and range of the repetitions.

    Raises:
        ValueError: there are none.
    """
    if not values:
        raise ValueError("no repetitions have no median")
    return Spread(statistics.median(values), min(values), max(values))


def fit(points: Sequence[tuple[float, float]]) -> Line | None:
    """Return the line of least squares through (size, cost); None for less than two sizes."""
    if len({size for size, _ in points}) < _TWO:
        return None
    slope, fixed = statistics.linear_regression(*zip(*points, strict=True))
    return Line(fixed, slope)


def growth(samples: Sequence[float]) -> float:
    """Return by which part the level rose after the warm-up: medians of first and last tenth.

    Raises:
        ValueError: too few samples to speak of growth.
    """
    counted = samples[int(len(samples) * WARM_UP) :]
    tenth = len(counted) // 10
    if tenth == 0:
        raise ValueError(f"{len(samples)} samples are too few to tell growth from noise")
    first, last = statistics.median(counted[:tenth]), statistics.median(counted[-tenth:])
    return last / first - 1


def added(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Return by how much each counter grew; one that is new began at 0."""
    return {name: value - before.get(name, 0.0) for name, value in after.items()}


def zigzag(arms: Sequence[str], repetitions: int) -> Iterator[tuple[int, str]]:
    """Yield (repetition, arm): A B C, C B A, A B C, ..., so that a drift hits all arms alike."""
    for repetition in range(repetitions):
        yield from zip(itertools.repeat(repetition), order(arms, repetition), strict=False)


def order(arms: Sequence[str], repetition: int) -> Sequence[str]:
    """Return the arms forwards, in every second repetition backwards."""
    return arms if repetition % 2 == 0 else list(reversed(arms))


def histogram(buckets: Sequence[tuple[str, float]], part: float) -> float:
    """Return the upper bound of the bucket in which the quantile ``part`` lies.

    Shape: (le, cumulated count) as Prometheus writes them, in order.
    """
    wanted = part * buckets[-1][1]
    bound = next(le for le, count in buckets if count >= wanted)
    return float(bound)
