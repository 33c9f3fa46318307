"""Which changes concern which claim of the virtual class."""

from collections.abc import Iterable
from typing import Any, Final

from apis import conditions, keys, objects
from apis.objects import Key, Object
from controllers import selections, views
from controllers.concerns import Keys
from controllers.manager import Manager, Term
from controllers.offloading.namespaceoffloading.forge import READY
from controllers.offloading.storage import forge
from controllers.offloading.storage.reconciler import (
    LeftClaimReconciler,
    LeftVolumeReconciler,
    PlaceholderReconciler,
    StorageReconciler,
)
from controllers.offloading.storage.slim import Claim
from kube.cluster import Selection
from kube.informer import Change, Informer
from kube.runner import Runner, Source

CLAIMS: Final = Selection(keys.PERSISTENT_VOLUME_CLAIM, Claim)
VOLUMES: Final = selections.every(keys.PERSISTENT_VOLUME)


def controller(manager: Manager) -> Term:
    claims, volumes = manager.informer(CLAIMS), manager.informer(VOLUMES)
    maps = manager.informer(selections.NAMESPACE_MAPS)
    offloadings = manager.informer(selections.OFFLOADINGS)

    def by_real(change: Change[Claim]) -> Iterable[Key]:
        if change.key.namespace != keys.STORAGE_NAMESPACE:
            is_ours = change.new is not None and forge.is_ours(change.new.to_object())
            return [change.key] if is_ours else []
        uid = change.key.name
        return [key for key, claim in claims.items().items() if uid == claim.metadata.uid]

    def by_volume(change: Change[Object]) -> Iterable[Key]:
        claim = forge.claim_of(change.new or change.old or {"spec": {}})
        real = claims.get(claim)
        return by_real(Change(claim, None, real)) if real else []

    def runners() -> list[Runner]:
        provided = StorageReconciler(
            manager.cached, events=manager.events, real_class=manager.limits.real_storage_class
        )
        return [
            Runner("storage", provided, [Source(claims, by_real), Source(volumes, by_volume)]),
            Runner(
                "storage-placeholders",
                PlaceholderReconciler(
                    manager.cached, maps=views.cached(maps), events=manager.events
                ),
                [Source(volumes), Source(offloadings, _withdrawn(volumes))],
            ),
            Runner("storage-left", LeftVolumeReconciler(manager.cached), [Source(volumes)]),
            Runner(
                "storage-left-claims",
                LeftClaimReconciler(manager.cached),
                _left(claims, volumes),
            ),
        ]

    return lambda: [*runners()]


def _withdrawn(volumes: Informer[Object]) -> Keys:
    """Return what tells of the volumes of a namespace that a cluster has no longer."""

    def keys_of(change: Change[Object]) -> Iterable[Key]:
        if change.old is None or _where(change.old) <= _where(change.new):
            return []
        namespace = change.key.namespace
        return [
            key
            for key, found in volumes.items().items()
            if forge.placeholder_of(found) and forge.claim_of(found).namespace == namespace
        ]

    return keys_of


def _where(offloading: Object | None) -> set[str]:
    """Return the clusters that have, or are asked for, a namespace."""
    told = objects.status(offloading).get("remoteNamespacesConditions") or {}
    return {cluster for cluster, found in told.items() if conditions.find(found, READY)}


def _left(claims: Informer[Claim], volumes: Informer[Object]) -> list[Source[Any]]:
    """Return what tells that a real claim may be left: it, its claim, or that one's volume."""

    def left(change: Change[Claim]) -> Iterable[Key]:
        """Yield the real claim itself, at first, and that of a claim that has gone."""
        if change.key.namespace == keys.STORAGE_NAMESPACE:
            return [change.key] if change.old is None else []
        if change.old is None or change.new is not None:
            return []
        real = Key(keys.STORAGE_NAMESPACE, change.old.metadata.uid)
        return [real] if claims.get(real) else []

    def left_by_volume(change: Change[Object]) -> Iterable[Key]:
        real = Key(keys.STORAGE_NAMESPACE, forge.claim_uid(change.old or {"spec": {}}))
        return [real] if change.new is None and claims.get(real) else []

    return [Source(claims, left), Source(volumes, left_by_volume)]
