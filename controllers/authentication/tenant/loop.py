"""Which changes concern which Tenant."""

from collections.abc import Callable, Iterable

from apis import keys, objects
from apis.authentication import Binding
from apis.objects import Key, Object
from controllers import concerns, selections, views
from controllers.authentication.tenant import reconciler
from controllers.manager import Manager, Term
from kube.informer import Change, Informer
from kube.runner import Runner, Source


def controller(manager: Manager) -> Term:
    tenants = manager.informer(selections.TENANTS)
    slices = manager.informer(selections.RESOURCE_SLICES)
    namespaces = manager.informer(selections.PEER_NAMESPACES)
    secrets = manager.tenant_secrets()
    ours = manager.informer(selections.ROLE_BINDINGS)
    everyones = manager.all_bindings()

    beside = concerns.beside(tenants)
    sources: list[Source[Object]] = [
        Source(tenants, concerns.but_booked()),
        Source(namespaces, concerns.inside(tenants)),
        Source(slices, lambda change: beside(change) if change.old is None else ()),
        Source(secrets, lambda change: beside(change) if _is_for_us(change.key) else ()),
    ]
    bindings = [Source(informer, _by_binding(tenants)) for informer in everyones.values()]

    def runner() -> Runner:
        made = reconciler.TenantReconciler(
            manager.cached,
            reconciler.Observed(
                all_bindings=lambda: views.each_of(everyones),
                our_bindings=views.cached(ours),
                secrets=views.cached(secrets),
                namespaces=views.cached(namespaces),
            ),
            manager.issuer,
            cluster_id=manager.cluster_id,
            events=manager.events,
            clock=manager.clock,
        )
        return Runner("tenant", made, [*sources, *bindings], workers=manager.limits.workers)

    return lambda: [runner()]


def _is_for_us(secret: Key) -> bool:
    return secret.name == keys.NONCE_SECRET or secret.name.startswith(
        keys.REMOTE_CERTIFICATE_SECRET
    )


def _by_binding(tenants: Informer[Object]) -> Callable[[Change[Binding]], Iterable[Key]]:
    """Return whom a binding names, and all whose own binding it is."""

    def keys_of(change: Change[Binding]) -> Iterable[Key]:
        names = {name for each in (change.old, change.new) if each for name in each.names()}
        return [
            key
            for key, obj in tenants.items().items()
            if objects.spec(obj).get("clusterID") in names
        ]

    return keys_of
