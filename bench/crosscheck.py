"""Holds what the audit logs say against what the API servers themselves have counted; pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sandbox.audit import Call

COMPARED: Final = frozenset({
    "pods", "pods/binding", "pods/status", "shadowpods", "shadowpods/status",
})  # fmt: skip
"""What a pod costs; the API servers ask themselves for other things, which their logs leave out."""
TOLERANCE: Final = 0.02
_FEW: Final = 20
"""So many may have been under way when one of the two was looked at."""
_LINE: Final = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_VERBS: Final = {
    "POST": "create", "PUT": "update", "PATCH": "patch", "APPLY": "patch", "DELETE": "delete",
    "DELETECOLLECTION": "deletecollection", "GET": "get", "LIST": "list",
}  # fmt: skip
Totals = Counter[tuple[str, str]]
"""(verb, resource) -> requests."""


class Difference(NamedTuple):
    """Where log and counter are farthest apart."""

    what: str
    logged: int
    counted: int

    @property
    def part(self) -> float:
        """The difference as a part of what was counted."""
        return abs(self.logged - self.counted) / max(self.counted, 1)

    @property
    def is_tolerable(self) -> bool:
        """Whether it is small."""
        return abs(self.logged - self.counted) <= max(_FEW, TOLERANCE * self.counted)

    def __str__(self) -> str:
        return f"{self.what}: {self.logged} in the audit log, {self.counted} by the API server"


def counted(text: str) -> Totals:
    """Return what an API server has counted since its start, out of its metrics."""
    totals: Totals = Counter()
    for found, value in _LINE.findall(text):
        labels = dict(_LABEL.findall(found))
        resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
        verb = _VERBS.get(labels["verb"])
        if verb and resource in COMPARED:
            totals[verb, resource] += round(float(value))
    return totals


def logged(calls: Iterable[Call]) -> Totals:
    """Return what an audit log says, whoever asked."""
    return Counter(
        (call.verb, call.resource)
        for call in calls
        if call.resource in COMPARED and call.verb in _VERBS.values()
    )


def differences(log: Totals, before: Totals, after: Totals) -> list[Difference]:
    """Return for each verb and resource what the log has, and by how much the counter grew."""
    return [
        Difference(" ".join(what), log[what], after[what] - before[what])
        for what in sorted(log.keys() | after.keys())
    ]


def judged(found: Mapping[str, Iterable[Difference]]) -> tuple[float, list[str]]:
    """Return the largest difference, of those that are many, as a part; and what is too much."""
    everything = [(cluster, each) for cluster, of in found.items() for each in of]
    parts = [each.part for _, each in everything if each.counted > _FEW]
    wrong = [f"{cluster}: {each}" for cluster, each in everything if not each.is_tolerable]
    return max(parts, default=0.0), wrong
