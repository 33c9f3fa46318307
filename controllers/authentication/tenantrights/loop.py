"""Which changes concern the rights in which tenant namespace."""

from collections.abc import Iterable

from apis import keys, whose
from apis.objects import Key, Object
from controllers import selections
from controllers.authentication.tenantrights import forge
from controllers.authentication.tenantrights.reconciler import TenantRightsReconciler
from controllers.manager import Manager, Term
from kube.informer import Change
from kube.runner import Runner, Source


def controller(manager: Manager) -> Term:
    namespaces = manager.informer(selections.PEER_NAMESPACES)
    bindings = manager.informer(selections.ROLE_BINDINGS)
    account = Key(manager.namespace, keys.CONTROLLER_MANAGER)

    def runner() -> Runner:
        sources = [Source(namespaces, by_namespace), Source(bindings, by_binding)]
        reconciler = TenantRightsReconciler(manager.cached, account)
        return Runner("tenantrights", reconciler, sources)

    return lambda: [runner()]


def by_namespace(change: Change[Object]) -> Iterable[Key]:
    """Return the namespace if it is, or was, a tenant's."""
    is_one = any(whose.peer_of(each) for each in (change.old, change.new) if each)
    return [change.key] if is_one else []


def by_binding(change: Change[Object]) -> Iterable[Key]:
    is_one = any(forge.is_one(each) for each in (change.old, change.new) if each)
    return [Key("", change.key.namespace)] if is_one else []
