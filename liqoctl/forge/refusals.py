"""Pods that never came into being: what their owners' events say. Pure.

Source: Kubernetes, events ``FailedCreate`` and ``SuccessfulCreate`` of the workload controllers.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from apis.objects import Object

FAILED: Final = "FailedCreate"
CREATED: Final = "SuccessfulCreate"

_OWNERS: Final = frozenset(
    {"ReplicaSet", "Job", "StatefulSet", "DaemonSet", "ReplicationController"}
)
_DENIED: Final = re.compile(r'admission webhook "([^"]+)" denied the request: (.*)', re.DOTALL)
_UNASKED: Final = re.compile(r'failed calling webhook "([^"]+)": (.*)', re.DOTALL)
_PREFIX: Final = re.compile(r"^(?:Error creating|create Pod \S+ in StatefulSet \S+ failed error): ")
_ORDINAL: Final = re.compile(r"\d+")
_SUFFIX: Final = re.compile(r"(?:\d+-)?[a-z0-9]+")


@dataclass(frozen=True)
class Refusal:
    """That pods of ``owner`` were not created, and why."""

    kind: str
    owner: str
    message: str
    webhook: str = ""
    """Who refused; empty for the API server itself."""
    is_unasked: bool = False
    """The webhook gave no answer."""
    at: str = ""
    count: int = 1
    is_over: bool = False
    """The owner created a pod since."""


def find(events: Iterable[Object], pod: str = "") -> list[Refusal]:
    """Return the refusals in ``events``, the newest first, of whatever would own ``pod``.

    ``pod`` may also be the name of the owner, or of the Deployment or CronJob above it.
    """
    known = [event for event in events if _about(event).get("kind") in _OWNERS]
    created = _newest(known, CREATED, lambda _: "")
    failed = _newest(known, FAILED, lambda event: _message(event).message)
    found = [
        _refusal(event, created.get((kind, name, "")))
        for (kind, name, _), event in failed.items()
        if not pod or is_named(kind, name, pod)
    ]
    return sorted(found, key=lambda refusal: refusal.at, reverse=True)


def is_named(kind: str, owner: str, asked: str) -> bool:
    """Whether ``asked`` is ``owner``, a pod that it would make, or what made it."""
    if asked == owner:
        return True
    if asked.startswith(f"{owner}-"):
        suffix = _ORDINAL if kind == "StatefulSet" else _SUFFIX
        return bool(suffix.fullmatch(asked.removeprefix(f"{owner}-")))
    made = kind in ("ReplicaSet", "Job") and owner.startswith(f"{asked}-")
    return made and "-" not in owner.removeprefix(f"{asked}-")


def time_of(event: Object) -> str:
    """Return when ``event`` happened last; the form of the API sorts by time."""
    series = event.get("series") or {}
    names = ("lastTimestamp", "eventTime", "firstTimestamp")
    times = [series.get("lastObservedTime"), *(event.get(name) for name in names)]
    return next((str(time)[:19] + "Z" for time in times if time), "")


def _newest(
    events: Iterable[Object], reason: str, apart: Callable[[Object], str]
) -> dict[tuple[str, str, str], Object]:
    found: dict[tuple[str, str, str], Object] = {}
    for event in sorted(events, key=time_of):
        if event.get("reason") == reason:
            about = _about(event)
            found[str(about["kind"]), str(about.get("name")), apart(event)] = event
    return found


def _about(event: Object) -> Object:
    return event.get("involvedObject") or {}


@dataclass(frozen=True)
class _Message:
    message: str
    webhook: str = ""
    is_unasked: bool = False


def _message(event: Object) -> _Message:
    text = str(event.get("message") or "no message")
    for pattern in (_DENIED, _UNASKED):
        if match := pattern.search(text):
            return _Message(match[2], match[1], pattern is _UNASKED)
    return _Message(_PREFIX.sub("", text))


def _refusal(event: Object, created: Object | None) -> Refusal:
    said, at = _message(event), time_of(event)
    return Refusal(
        kind=_about(event)["kind"],
        owner=str(_about(event).get("name")),
        message=said.message,
        webhook=said.webhook,
        is_unasked=said.is_unasked,
        at=at,
        count=event.get("count") or (event.get("series") or {}).get("count") or 1,
        is_over=created is not None and time_of(created) > at,
    )
