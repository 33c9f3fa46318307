"""Where the time goes between a write at home and what is seen of it on the provider; pure.

By the times that the provider's API server itself noted in its audit log, so that a slow answer of
it is not taken for a slow process of ours, nor the other way round.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sandbox.audit import Call

ASKED, THERE, TOLD = "asked", "there", "told"
SLOWEST: Final = "slowest"
VERBS: Final[Mapping[str, frozenset[str]]] = {
    "create": frozenset({"create", "patch"}),
    "update": frozenset({"update", "patch"}),
    "delete": frozenset({"delete"}),
}
_SUCCESS: Final = range(200, 300)
_MS: Final = 1000.0


class Written(NamedTuple):
    """A write of the load generator, and when its effect was seen; seconds of the wall clock."""

    verb: str
    resource: str
    name: str
    done: float
    """When it was over where it was written."""
    seen: float


class Way(NamedTuple):
    """The parts of the way of a write to the provider, in seconds."""

    asked: float
    """From its end at home until the provider's API server was asked: home's watch, and us."""
    there: float
    """In the provider's API server, its etcd included."""
    told: float
    """From that server's answer until the observer had been told."""

    @property
    def whole(self) -> float:
        """All of it."""
        return sum(self)


def way(written: Written, calls: Iterable[Call]) -> Way | None:
    """Return the way of ``written``; None where the log has no write that led to what was seen."""
    found = [
        (_time(call.received), _time(call.completed))
        for call in calls
        if (call.resource, call.name) == (written.resource, written.name)
        and call.verb in VERBS[written.verb]
        and call.code in _SUCCESS
    ]
    before = [times for times in found if times[0] <= written.seen]
    if not before:
        return None
    received, completed = max(before)
    there = min(completed, written.seen) - received
    return Way(max(received - written.done, 0.0), there, max(written.seen - completed, 0.0))


def ways(writes: Sequence[Written], calls: Sequence[Call]) -> dict[str, list[Way]]:
    """Return the ways of ``writes`` by verb; ``calls`` are of the provider."""
    found: dict[str, list[Way]] = {}
    for written in writes:
        if (its := way(written, calls)) is not None:
            found.setdefault(written.verb, []).append(its)
    return found


def times(found: Mapping[str, Sequence[Way]]) -> dict[str, list[float]]:
    """Return the parts, in seconds: ``create-there``, ..."""
    return {
        f"{verb}-{part}": [getattr(each, part) for each in of_verb]
        for verb, of_verb in found.items()
        for part in (ASKED, THERE, TOLD)
    }


def slowest(found: Mapping[str, Sequence[Way]]) -> dict[str, float]:
    """Return the parts of the slowest of each verb, in ms: ``create-slowest-there``, ..."""
    return {
        f"{verb}-{SLOWEST}-{part}": getattr(longest, part) * _MS
        for verb, of_verb in found.items()
        for longest in [max(of_verb, key=lambda each: each.whole)]
        for part in (ASKED, THERE, TOLD)
    }


def way_of_slowest(figures: Mapping[str, float], verb: str) -> Way | None:
    """Return what ``slowest`` put into ``figures``, in ms; None where it did not."""
    parts = [figures.get(f"{verb}-{SLOWEST}-{part}") for part in (ASKED, THERE, TOLD)]
    found = [part for part in parts if part is not None]
    return Way(*found) if len(found) == len(parts) else None


def _time(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()
