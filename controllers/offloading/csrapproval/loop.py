"""Which CertificateSigningRequests are looked at."""

from collections.abc import Iterable
from typing import Final

from apis import keys
from apis.objects import Key, Object
from controllers import selections
from controllers.concerns import Keys
from controllers.manager import Manager, Term
from controllers.offloading.csrapproval import forge
from controllers.offloading.csrapproval.reconciler import CsrApprovalReconciler
from kube.informer import Change, Informer
from kube.runner import Runner, Source

SIGNING_REQUESTS: Final = selections.every(
    keys.CERTIFICATE_SIGNING_REQUEST, fields=f"spec.signerName={forge.SIGNER}"
)


def controller(manager: Manager) -> Term:
    requests = manager.informer(SIGNING_REQUESTS)
    nodes = manager.informer(selections.NODES)
    sources = [Source(requests), Source(nodes, by_node(requests))]

    def runner() -> Runner:
        reconciler = CsrApprovalReconciler(
            manager.cached, events=manager.events, clock=manager.clock
        )
        return Runner("csrapproval", reconciler, sources)

    return lambda: [runner()]


def by_node(requests: Informer[Object]) -> Keys:
    """Return who waits for a Node that is created."""

    def keys_of(change: Change[Object]) -> Iterable[Key]:
        if change.old is not None:
            return []
        return [
            key
            for key, request in requests.items().items()
            if forge.is_pending(request) and forge.node_of(request) == change.key.name
        ]

    return keys_of
