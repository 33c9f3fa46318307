"""Which changes concern which Tenant."""

from collections.abc import Iterable, Iterator

from apis import keys
from apis.objects import Key, Kind, Object
from controllers import selections, views
from controllers.manager import Manager, Term
from controllers.tenant import reconciler
from controllers.tenant.forge import Binding
from kube.cluster import Selection
from kube.informer import Change, Informer
from kube.runner import Runner, Source


def controller(manager: Manager) -> Term:
    """Return the term of this controller."""
    tenants = manager.informer(selections.TENANTS)
    slices = manager.informer(selections.RESOURCE_SLICES)
    namespaces = manager.informer(selections.PEER_NAMESPACES)
    secrets = manager.tenant_secrets()
    ours = manager.informer(selections.ROLE_BINDINGS)
    everyones = {
        kind: manager.informer(Selection(kind, Binding))
        for kind in (keys.CLUSTER_ROLE_BINDING, keys.ROLE_BINDING)
    }

    def inside(namespace: str) -> list[Key]:
        return [key for key in tenants.items() if key.namespace == namespace]

    def by_namespace(change: Change[Object]) -> Iterable[Key]:
        return inside(change.key.name)

    def by_slice(change: Change[Object]) -> Iterable[Key]:
        return inside(change.key.namespace) if change.old is None else ()

    def by_secret(change: Change[Object]) -> Iterable[Key]:
        name = change.key.name
        is_for_us = name == keys.NONCE_SECRET or name.startswith(keys.REMOTE_CERTIFICATE_SECRET)
        return inside(change.key.namespace) if is_for_us else ()

    def by_binding(change: Change[Binding]) -> Iterable[Key]:
        """Return whom a binding names, and all whose own binding it is."""
        names = {name for each in (change.old, change.new) if each for name in each.names()}
        return [
            key
            for key, obj in tenants.items().items()
            if (obj.get("spec") or {}).get("clusterID") in names
        ]

    sources: list[Source[Object]] = [
        Source(tenants),
        Source(namespaces, by_namespace),
        Source(slices, by_slice),
        Source(secrets, by_secret),
    ]
    bindings = [Source(informer, by_binding) for informer in everyones.values()]

    def runner() -> Runner:
        made = reconciler.TenantReconciler(
            manager.cached,
            reconciler.Observed(
                all_bindings=lambda: _all(everyones),
                our_bindings=views.cached(ours),
                secrets=views.cached(secrets),
            ),
            manager.issuer,
            cluster_id=manager.cluster_id,
            events=manager.events,
            clock=manager.clock,
        )
        return Runner("tenant", made, [*sources, *bindings], workers=manager.limits.workers)

    return lambda: [runner()]


def _all(informers: dict[Kind, Informer[Binding]]) -> Iterator[tuple[Kind, Binding]]:
    for kind, informer in informers.items():
        for binding in informer.items().values():
            yield kind, binding
