"""When the APIService of the metric agent goes, and when it comes back. Pure.

An APIService that nobody serves stops the end of every namespace of its cluster, since the
namespace controller cannot list what is in it. Source: docs/decisions/0013 (29); Kubernetes,
"Configure the aggregation layer".
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from apis import keys, objects
from apis.objects import Object

AWAY: Final = timedelta(seconds=30)
"""How long nobody may answer before the APIService goes."""
AGAIN: Final = timedelta(minutes=10)
"""When it is tried again while agents are ready and the API server does not reach them."""
_LABELS: Final = {"app.kubernetes.io/name": keys.METRIC_AGENT, "app.kubernetes.io/part-of": "liqo"}


class Do(Enum):
    """What is to be done."""

    NOTHING = auto()
    REMOVE = auto()
    MAKE = auto()
    FORGET = auto()
    """It answers: no mark is needed."""


@dataclass(frozen=True)
class MetricsServiceStep:
    """What is to be done now, and in how many seconds to look again."""

    do: Do
    again_s: float | None = None


@dataclass(frozen=True)
class MetricsServiceState:
    """What is there."""

    service: Object | None
    """The APIService."""
    agent: Object | None
    """The Deployment."""
    after: datetime | None
    """The mark: the APIService was taken away here, and may be made again from then on."""


def step(found: MetricsServiceState, namespace: str, now: datetime) -> MetricsServiceStep:
    """Return what to do about the APIService.

    Only one that was taken away here is made again: an administrator may have deleted it.
    """
    if found.service is None:
        if found.after is None or not is_ready(found.agent):
            return MetricsServiceStep(Do.NOTHING)
        return _when(Do.MAKE, found.after - now)
    if not is_ours(found.service, namespace):
        return MetricsServiceStep(Do.NOTHING)
    away = away_since(found.service)
    if away is None:
        return MetricsServiceStep(Do.FORGET if found.after else Do.NOTHING)
    return _when(Do.REMOVE, away + AWAY - now)


def _when(do: Do, left: timedelta) -> MetricsServiceStep:
    return (
        MetricsServiceStep(do)
        if left <= timedelta()
        else MetricsServiceStep(Do.NOTHING, left.total_seconds())
    )


def is_ours(service: Object, namespace: str) -> bool:
    where = objects.spec(service).get("service") or {}
    return (where.get("namespace"), where.get("name")) == (namespace, keys.METRIC_AGENT)


def away_since(service: Object) -> datetime | None:
    """Return since when the API server reaches nobody, or None while somebody answers."""
    found = objects.condition(service, "Available")
    if found.get("status") == "True":
        return None
    since = found.get("lastTransitionTime") or service["metadata"]["creationTimestamp"]
    return datetime.fromisoformat(since)


def is_ready(agent: Object | None) -> bool:
    return bool(objects.status(agent).get("availableReplicas"))


def marked(where: Object | None) -> datetime | None:
    """Return from when on the APIService may be made again; None if it was not taken away here."""
    said = objects.annotations(where) if where else {}
    return objects.parse_time(said.get(keys.METRICS_API_AFTER, ""))


def mark(agent: Object | None, now: datetime) -> str:
    return objects.timestamp(now + AGAIN if is_ready(agent) else now)


def why(service: Object) -> str:
    """Return what the API server says of the agent that it does not reach."""
    found = objects.condition(service, "Available")
    return f"{found.get('reason') or 'Unknown'}: {found.get('message') or 'not judged yet'}"


def wanted(namespace: str) -> Object:
    """Return the APIService as the manifests have it; the agents add their authorities."""
    spec = {
        "group": keys.METRICS_GROUP,
        "version": keys.METRICS_VERSION,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": {"name": keys.METRIC_AGENT, "namespace": namespace, "port": 443},
    }
    made = objects.named(keys.API_SERVICE, keys.METRICS_API, spec=spec)
    made["metadata"]["labels"] = dict(_LABELS)
    return made
