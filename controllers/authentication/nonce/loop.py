"""Which Secrets hold nonces: those of two names, in tenant namespaces only."""

import secrets as dice
from collections.abc import Iterable

from apis import keys, whose
from apis.objects import Key, Object
from controllers import selections, views
from controllers.authentication.nonce.reconciler import NonceReconciler
from controllers.manager import Manager, Term
from kube.informer import Change
from kube.runner import Runner, Source

_NAMES = (keys.NONCE_SECRET, keys.SIGNED_NONCE_SECRET)


def controller(manager: Manager) -> Term:
    secrets = manager.tenant_secrets()
    namespaces = manager.informer(selections.PEER_NAMESPACES)

    def runner() -> Runner:
        reconciler = NonceReconciler(
            manager.cached,
            views.cached(secrets),
            manager.cluster_id,
            manager.private_key,
            manager.events,
            manager.clock,
            dice.token_bytes,
        )
        sources = [
            Source(secrets, lambda change: [change.key] if change.key.name in _NAMES else []),
            Source(namespaces, _inside),
        ]
        return Runner("nonce", reconciler, sources)

    return lambda: [runner()]


def _inside(change: Change[Object]) -> Iterable[Key]:
    if not any(whose.peer_of(each) for each in (change.old, change.new) if each):
        return []  # twins hold the Secrets of others
    return [Key(change.key.name, name) for name in _NAMES]
