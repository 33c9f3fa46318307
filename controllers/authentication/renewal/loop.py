"""Which changes concern which Renew."""

from controllers import concerns, selections
from controllers.authentication.renewal.reconciler import (
    LocalRenewReconciler,
    RemoteRenewReconciler,
)
from controllers.manager import Manager, Term
from kube.runner import Runner, Source


def controller(manager: Manager) -> Term:
    renews = manager.informer(selections.RENEWS)
    identities = manager.informer(selections.IDENTITIES)
    tenants = manager.informer(selections.TENANTS)
    slices = manager.informer(selections.RESOURCE_SLICES)
    beside = concerns.beside(renews)

    def runners() -> tuple[Runner, Runner]:
        local = LocalRenewReconciler(
            manager.cached,
            manager.cluster_id,
            manager.private_key,
            manager.events,
            manager.clock,
        )
        remote = RemoteRenewReconciler(manager.cached, tenants.items)
        return (
            Runner("renewal", local, [Source(identities), Source(renews)]),
            Runner(
                "renewalanswer",
                remote,
                [
                    Source(renews),
                    Source(tenants, concerns.but_booked(beside)),
                    Source(slices, beside),
                ],
            ),
        )

    return lambda: [*runners()]
