"""Which changes concern which Identity, and which slice."""

from collections.abc import Iterable, Iterator

from apis import naming, whose
from apis.objects import Key, Object
from controllers import concerns, selections, views
from controllers.authentication.identity import forge
from controllers.authentication.identity.reconciler import (
    IdentityReconciler,
    SliceIdentityReconciler,
)
from controllers.manager import Manager, Term
from kube.informer import Change
from kube.runner import Runner, Source


def controller(manager: Manager) -> Term:
    identities = manager.informer(selections.IDENTITIES)
    slices = manager.informer(selections.RESOURCE_SLICES)
    replicated = [
        manager.informer(each)
        for each in (selections.NAMESPACE_MAPS, selections.RESOURCE_SLICES, selections.RENEWS)
    ]
    secrets = manager.tenant_secrets()

    def all_replicated() -> Iterator[Object]:
        for informer in replicated:
            yield from informer.items().values()

    def runners() -> tuple[Runner, Runner]:
        whole = IdentityReconciler(
            manager.cached,
            views.cached(secrets),
            manager.private_key,
            manager.events,
            all_replicated,
        )
        sources = [
            Source(identities),
            Source(secrets, _by_secret),
            *(Source(each, _by_replicated) for each in replicated),
        ]
        slice_ = SliceIdentityReconciler(manager.cached, manager.events)
        of_slices = [Source(slices), Source(identities, concerns.beside(slices))]
        workers = manager.limits.workers
        return (
            Runner("identity", whole, sources, workers=workers),
            Runner("sliceidentity", slice_, of_slices, workers=workers),
        )

    return lambda: [*runners()]


def _by_secret(change: Change[Object]) -> Iterable[Key]:
    key = forge.identity_of(change.key)
    return [key] if key else []


def _by_replicated(change: Change[Object]) -> Iterable[Key]:
    """Return the Identity whose kubeconfig may no longer be needed, when an object is gone."""
    peer = whose.destination(change.old) if change.old else ""
    if change.new is not None or not peer:
        return []
    return [Key(change.key.namespace, naming.controlplane_identity(peer))]
