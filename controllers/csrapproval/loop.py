"""Which CertificateSigningRequests are looked at."""

from typing import Final

from apis import keys
from controllers import selections
from controllers.csrapproval import forge
from controllers.csrapproval.reconciler import CsrApprovalReconciler
from controllers.manager import Manager, Term
from kube.runner import Runner, Source

SIGNING_REQUESTS: Final = selections.every(
    keys.CERTIFICATE_SIGNING_REQUEST, fields=f"spec.signerName={forge.SIGNER}"
)


def controller(manager: Manager) -> Term:
    """Return the term of this controller."""
    sources = [Source(manager.informer(SIGNING_REQUESTS))]

    def runner() -> Runner:
        reconciler = CsrApprovalReconciler(
            manager.cached, events=manager.events, clock=manager.clock
        )
        return Runner("csrapproval", reconciler, sources)

    return lambda: [runner()]
