"""Which changes ask for a new division of what is granted."""

import secrets
import time
from collections.abc import Iterable
from typing import Final

from apis import keys, objects
from apis.objects import Key, Object
from controllers import selections, views
from controllers.granting.grants.capacity import Capacity
from controllers.granting.grants.reconciler import ALL, GrantsReconciler, Observed
from controllers.granting.grants.room import ROOM_S, RoomReconciler
from controllers.manager import Manager, Term
from kube.informer import Change
from kube.process import Loop
from kube.runner import Runner, Source

_BY_SPEC: Final = frozenset(kind.kind for kind in (keys.QUOTA, keys.TENANT, keys.PROVIDER_POLICY))
"""Of these the status is nothing to us: what pods have booked, and what we write ourselves."""
_VERSIONS: Final = frozenset({"resourceVersion", "managedFields"})
BACK_OFF_S: Final = 10.0
"""So soon all are looked at again, where one slice cannot be written for ever."""
SETTLE_S: Final = 0.5
"""Changes of local pods are looked at together: each look reads all slices and Quotas."""


def controller(manager: Manager) -> Term:
    slices = manager.informer(selections.RESOURCE_SLICES)
    tenants = manager.informer(selections.TENANTS)
    policies = manager.informer(selections.PROVIDER_POLICIES)
    storage_classes = manager.informer(selections.STORAGE_CLASSES)
    others = (manager.informer(selections.QUOTAS), tenants, policies, storage_classes)
    sources = [Source(slices, _of_slice), *(Source(each, everything) for each in others)]

    def loops() -> list[Loop]:
        capacity = Capacity(manager.live)
        reconciler = GrantsReconciler(
            manager.live,
            Observed(
                tenants=views.cached(tenants),
                policies=views.cached(policies),
                storage_classes=views.cached(storage_classes),
                free=capacity.free,
            ),
            standard=manager.standard,
            term=secrets.token_hex(8),
            events=manager.events,
            clock=manager.clock,
            tick=time.monotonic,
        )
        runner = Runner("grants", reconciler, sources, back_off_s=BACK_OFF_S)
        told = RoomReconciler(manager.cached, capacity.largest)
        room = Runner("room", told, [Source(slices)])

        def on_change() -> None:
            if reconciler.is_shared:
                runner.enqueue(ALL, SETTLE_S)
            for key in slices.items():
                room.enqueue(key, ROOM_S)

        capacity.subscribe(on_change)
        return [runner, room, capacity]

    return loops


def everything(change: Change[Object]) -> Iterable[Key]:
    kind = (change.new or change.old or {}).get("kind")
    if kind in _BY_SPEC and change.old and change.new and change.old["spec"] == change.new["spec"]:
        return []
    return [ALL]


def _of_slice(change: Change[Object]) -> Iterable[Key]:
    """Return nothing for what only tells of the room on nodes, which is told every few seconds."""
    if change.old is change.new or change.old is None or change.new is None:
        return [ALL]
    return [] if _what_counts(change.old) == _what_counts(change.new) else [ALL]


def _what_counts(obj: Object) -> Object:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _VERSIONS}
    status = {**objects.status(obj), "largestPod": None}
    return {**obj, "metadata": metadata, "status": status}
