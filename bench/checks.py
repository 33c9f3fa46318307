"""Correctness checks: a run that breaks one measured something else, and is void; pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bench import counters
from bench.counters import Component
from bench.observe import Life
from bench.result import Request

_FOR_GOOD: Final = ("400", "401", "403", "405", "413", "415", "422")
"""Others are a race that somebody lost, or a busy server: a call more, which is counted."""
_SHOWN: Final = 3
_SKEW_S: Final = 1.0
"""So much later than that of the other cluster a busy watch may tell what it saw."""


def restarts(before: Iterable[Component], after: Iterable[Component]) -> list[str]:
    """Return which processes of what offloads ended during a block."""
    lost = set(counters.system(before)) - set(counters.system(after))
    return [f"{one.name} of {one.cluster} (process {one.pid}) ended" for one in sorted(lost)]


def refusals(requests: Iterable[Request]) -> list[str]:
    """Return the requests of ours that an API server refused for good."""
    return [
        f"{one.count} x {one.verb} {one.resource} by {one.agent} in {one.cluster}"
        for one in requests
        if counters.is_ours(one.agent) and one.verb.endswith(")") and one.verb[-4:-1] in _FOR_GOOD
    ]


def logged(pods: int, requests: Iterable[Request]) -> list[str]:
    """Return what is wrong with the counters: the logs must show each pod's creation."""
    created = sum(one.count for one in requests if (one.verb, one.resource) == ("create", "pods"))
    return [f"the audit logs show {created} of {pods} pods"] if created < pods else []


def arrived(
    size: int, local: Mapping[str, Life], remote: Mapping[str, Life] | None = None
) -> list[str]:
    """Return what is wrong with ``size`` pods that should all run: lost, doubled, ahead."""
    ready = [name for name, life in local.items() if life.ready is not None]
    found = [] if len(ready) == size else [f"{len(ready)} of {size} pods became ready"]
    if remote is None:
        return found
    return [*found, *_twins(local, remote), *_ahead(local, remote)]


def gone(*sides: Mapping[str, Life]) -> list[str]:
    """Return what is left of what should all be gone."""
    left = [name for side in sides for name, life in side.items() if life.gone is None]
    return [f"left behind: {_some(left)}"] if left else []


def doubled(names: Sequence[str]) -> list[str]:
    """Return which objects were made twice under one name."""
    return [f"made twice: {_some(names)}"] if names else []


def delivered(wanted: Mapping[str, str], local: Mapping[str, Life]) -> list[str]:
    """Return whose last state was not delivered."""
    lost = [name for name, last in wanted.items() if local[name].latest != last]
    return [f"the last state was not delivered: {_some(lost)}"] if lost else []


def lost(packets: int) -> list[str]:
    """Return what is wrong where the way between the clusters is made longer, and nothing else."""
    return [f"{packets} packets between the clusters were lost"] if packets else []


def _twins(local: Mapping[str, Life], remote: Mapping[str, Life]) -> list[str]:
    missing = sorted(local.keys() - remote.keys())
    foreign = sorted(remote.keys() - local.keys())
    return [
        *([f"without a remote pod: {_some(missing)}"] if missing else []),
        *([f"remote pods without a local one: {_some(foreign)}"] if foreign else []),
    ]


def _ahead(local: Mapping[str, Life], remote: Mapping[str, Life]) -> list[str]:
    ahead = [
        name
        for name in local.keys() & remote.keys()
        if (ready := local[name].ready) is not None and ready + _SKEW_S < remote[name].created
    ]
    return [f"ready before there was a remote pod: {_some(sorted(ahead))}"] if ahead else []


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
