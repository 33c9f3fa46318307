"""Which changes concern which claim of the virtual class."""

from collections.abc import Iterable
from typing import Final

from apis import keys
from apis.objects import Key, Object
from controllers import selections
from controllers.manager import Manager, Term
from controllers.storage import forge
from controllers.storage.reconciler import LeftVolumeReconciler, StorageReconciler
from kube.informer import Change
from kube.runner import Runner, Source

CLAIMS: Final = selections.every(keys.PERSISTENT_VOLUME_CLAIM)
VOLUMES: Final = selections.every(keys.PERSISTENT_VOLUME)


def controller(manager: Manager) -> Term:
    """Return the term of both controllers."""
    claims, volumes = manager.informer(CLAIMS), manager.informer(VOLUMES)

    def by_real(change: Change[Object]) -> Iterable[Key]:
        if change.key.namespace != keys.STORAGE_NAMESPACE:
            return [change.key]
        uid = change.key.name
        of_it = (key for key, claim in claims.items().items() if uid == claim["metadata"]["uid"])
        return list(of_it)

    def by_volume(change: Change[Object]) -> Iterable[Key]:
        claim = forge.claim_of(change.new or change.old or {"spec": {}})
        real = claims.get(claim) if claim.namespace == keys.STORAGE_NAMESPACE else None
        return by_real(Change(claim, None, real)) if real else []

    def runners() -> list[Runner]:
        provided = StorageReconciler(
            manager.cached, events=manager.events, real_class=manager.limits.real_storage_class
        )
        return [
            Runner("storage", provided, [Source(claims, by_real), Source(volumes, by_volume)]),
            Runner("storage-left", LeftVolumeReconciler(manager.cached), [Source(volumes)]),
        ]

    return lambda: [*runners()]
