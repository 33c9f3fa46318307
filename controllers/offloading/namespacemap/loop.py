"""Which changes concern which NamespaceMap of a consumer."""

from collections.abc import Iterable

from apis import keys
from apis.objects import Key, Object
from controllers import concerns, selections, views
from controllers.concerns import Keys
from controllers.manager import Manager, Term
from controllers.offloading.namespacemap import forge
from controllers.offloading.namespacemap.reconciler import NamespaceMapReconciler, Observed
from kube.informer import Change, Informer
from kube.runner import Runner, Source


def controller(manager: Manager) -> Term:
    namespace_maps = manager.informer(selections.NAMESPACE_MAPS)
    namespaces = manager.informer(selections.PEER_NAMESPACES)
    bindings = manager.informer(selections.ROLE_BINDINGS)
    policies = manager.informer(selections.PROVIDER_POLICIES)
    tenants = manager.informer(selections.TENANTS)
    everyones = manager.all_bindings()

    sources = [
        Source(namespace_maps),
        Source(namespaces, _by_owner),
        Source(namespaces, concerns.inside(namespace_maps)),
        Source(bindings, _by_owner),
        Source(policies, _by_policy(namespace_maps)),
        Source(tenants, concerns.but_booked(concerns.beside(namespace_maps))),
    ]

    def runner() -> Runner:
        reconciler = NamespaceMapReconciler(
            manager.cached,
            Observed(
                views.cached(namespaces),
                views.cached(bindings),
                views.cached(policies),
                views.cached(tenants),
                lambda: views.each_of(everyones),
            ),
            account=Key(manager.namespace, keys.CONTROLLER_MANAGER),
            events=manager.events,
        )
        return Runner("namespacemap", reconciler, sources, workers=manager.limits.workers)

    return lambda: [runner()]


def _by_policy(namespace_maps: Informer[Object]) -> Keys:
    def keys_of(change: Change[Object]) -> Iterable[Key]:
        old, new = ((each or {}).get("spec") for each in (change.old, change.new))
        return [] if old == new else list(namespace_maps.items())  # its status is another loop's

    return keys_of


def _by_owner(change: Change[Object]) -> Iterable[Key]:
    owners = {forge.owner_of(obj) for obj in (change.old, change.new) if obj}
    return [owner for owner in owners if owner]
