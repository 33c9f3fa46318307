"""What a consumer may write into the metadata of this project's kinds, as a table.

``manifests/70-policies/consumer-marks.yaml`` has an API server judge by it, the replicator sends no
more than it lets through, and ``docs/what-a-consumer-may-say.md`` shows it.
Source: docs/parity.md SEC-A7, SEC-A20; § 2.1, 2.2, 4.12.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from apis import keys, objects
from apis.objects import Kind, Object


class Says(Enum):
    """What the value of a mark has to be; the text is that of the page."""

    TRUE = "`true`"
    FALSE = "`false`"
    CONSUMER = "the cluster ID that the namespace names"
    ANYTHING = "anything"
    NOTHING = "is the provider's to set: absent, or as it was"


@dataclass(frozen=True)
class Mark:
    """One label or annotation, and what it may say."""

    key: str
    says: Says
    is_needed: bool = False
    """Whether nothing is created without it."""


REPLICAS: Final[tuple[Kind, ...]] = (keys.NAMESPACE_MAP, keys.RESOURCE_SLICE, keys.RENEW)
"""What the control plane of a consumer puts into its tenant namespace."""
SHADOWS: Final[tuple[Kind, ...]] = (keys.SHADOW_POD, keys.SHADOW_ENDPOINT_SLICE)
"""What its virtual kubelets put into its twins."""

REPLICA_LABELS: Final = (
    Mark(keys.REPLICATED, Says.TRUE, is_needed=True),
    Mark(keys.ORIGIN_ID, Says.CONSUMER, is_needed=True),
    Mark(keys.REMOTE_CLUSTER_ID, Says.CONSUMER),
    Mark(keys.REPLICATION, Says.FALSE),
    Mark(keys.REMOTE_ID, Says.ANYTHING),
    Mark(keys.LIQO_MANAGED, Says.ANYTHING),
    Mark(keys.RESOURCE_SLICE_NAME, Says.ANYTHING),
    Mark(keys.IDENTITY_TYPE, Says.ANYTHING),
)
"""Any other label of the domains below is refused."""
REPLICA_ANNOTATIONS: Final = (
    Mark(keys.CREATE_VIRTUAL_NODE, Says.ANYTHING),
    Mark(keys.CONSUMER_VERSION, Says.ANYTHING),
    Mark(keys.CORDON, Says.NOTHING),
    Mark(keys.CORDON_TENANT, Says.NOTHING),
    Mark(keys.DRAIN, Says.NOTHING),
    Mark(keys.PROVIDER_VERSION, Says.NOTHING),
)
"""Any other annotation of the domains below is refused."""
SHADOW_LABELS: Final = (
    Mark(keys.ORIGIN, Says.CONSUMER),
    Mark(keys.REMOTE_CLUSTER_ID, Says.CONSUMER),
    Mark(keys.ORIGIN_ID, Says.CONSUMER),
    Mark(keys.REPLICATED, Says.NOTHING),
    Mark(keys.REPLICATION, Says.NOTHING),
    Mark(keys.REMOTE_ID, Says.NOTHING),
)
"""Any other label or annotation passes: users write them on pods and Services, and nobody here
takes them for a mark."""

MOST: Final = 16384
"""Characters of all annotations of a replica, names included: its provider adds some of its own."""

MOST_LABELS: Final = 90
"""A provider takes 100 labels; this project adds its own."""

_OURS: Final = re.compile(r"([^/]+[.])?(py)?liqo[.]io/")
_NEVER: Final = frozenset({Says.NOTHING})


def is_ours(name: str) -> bool:
    """Whether a label or annotation is of the domains in which names mean something to us."""
    return _OURS.match(name) is not None


def labels_of_replica(found: Mapping[str, str]) -> dict[str, str]:
    """Return those labels of a local object that a provider takes on its replica."""
    return _few(_taken(found, REPLICA_LABELS))


def annotations_of_replica(found: Mapping[str, str]) -> dict[str, str]:
    """Return those annotations of a local object that a provider takes on its replica.

    What kubectl applied is none of its business. Of more than ``MOST`` characters in all, ours go
    first, then the shortest.
    """
    kept, left = dict[str, str](), MOST
    taken = _taken(found, REPLICA_ANNOTATIONS)
    taken.pop(keys.LAST_APPLIED, None)
    for name, value in sorted(
        taken.items(), key=lambda one: (not is_ours(one[0]), len("".join(one)))
    ):
        left -= len(name) + len(value)
        if left >= 0:
            kept[name] = value
    return {name: value for name, value in taken.items() if name in kept}


def labels_of_shadow(found: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a user's object that may follow it: none that says whose a shadow is."""
    marks = {mark.key for mark in SHADOW_LABELS}
    return _few({name: value for name, value in found.items() if name not in marks})


def _few(labels: dict[str, str]) -> dict[str, str]:
    """Return as many of ``labels`` as a provider takes, ours first."""
    first = sorted(labels, key=lambda name: (not is_ours(name), name))[:MOST_LABELS]
    return labels if len(first) == len(labels) else {name: labels[name] for name in first}


def _taken(found: Mapping[str, str], table: tuple[Mark, ...]) -> dict[str, str]:
    known = {mark.key for mark in table if mark.says not in _NEVER}
    return {name: value for name, value in found.items() if name in known or not is_ours(name)}


KEPT: Final = frozenset(
    {mark.key for mark in (*REPLICA_LABELS, *SHADOW_LABELS, *REPLICA_ANNOTATIONS)}
    | {keys.APP_MANAGED_BY, keys.COMPONENT}
)
SMALL: Final = 1024
"""Characters of what stays: a label, an annotation, a field of a spec."""


def emptied(obj: Object) -> Object:
    """Return the merge patch that takes out of an object what may fill it.

    Marks, finalizers and status stay. For what has no room for its own deletion any more.
    """
    metadata: Object = {"uid": objects.uid(obj), **objects.UNTRACKED}
    found = {"labels": objects.labels(obj), "annotations": objects.annotations(obj)}
    for part, notes in found.items():
        fills = [key for key, said in notes.items() if key not in KEPT or len(said) > SMALL]
        metadata |= {part: dict.fromkeys(fills)} if fills else {}
    spec = objects.spec(obj)
    large = [name for name, said in spec.items() if len(objects.canonical(said)) > SMALL]
    return {"metadata": metadata, **({"spec": dict.fromkeys(large)} if large else {})}
