"""Decides on one CertificateSigningRequest, if it comes from one of our virtual kubelets."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from apis import keys, naming, objects
from apis.objects import Key, Object
from apis.offloading import VirtualNode
from certs import requests as certificate_requests
from controllers import watches
from controllers.manager import Controller
from controllers.offloading.csrapproval import forge
from controllers.offloading.virtualnode.forge import lifecycle
from kube.controller import WatchSource
from kube.informer import Change

KIND: Final = keys.CERTIFICATE_SIGNING_REQUEST
WAIT_S: Final = 1.0
"""Until the pod's address, which it is about to get, is there."""
REQUESTS: Final = watches.every(KIND, fields=f"spec.signerName={forge.SIGNER}")

logger = logging.getLogger(__name__)


class CsrApprovalReconciler(Controller):
    """Leaves alone what other kubelets ask for; denies one of ours that asks for anything else."""

    name = "csrapproval"

    def watches(self) -> Sequence[WatchSource[Any]]:
        return self.watch(REQUESTS), self.watch(watches.NODES, self._by_node)

    def _by_node(self, change: Change[Object]) -> Iterable[Key]:
        if change.old is not None:
            return []
        return [
            key
            for key, request in self.informer(REQUESTS).items().items()
            if forge.is_pending(request) and forge.node_of(request) == change.key.name
        ]

    async def reconcile(self, key: Key) -> float | None:
        request = await self.cached.get(KIND, key)
        if request is None or not forge.is_pending(request):
            return None
        account = forge.requestor(request)
        found = await self.cached.get(keys.VIRTUAL_NODE, account) if account else None
        if account is None or found is None:
            return None  # somebody else's kubelet, and somebody else's decision
        node = await self.cached.get(keys.NODE, Key("", account.name))
        pod = await self._pod(request, account)
        if node is None:
            return None  # its creation brings us back; createNode: false makes none
        if pod is not None and not forge.pod_address(pod):
            return WAIT_S
        findings = _findings(request, VirtualNode.parse(found), node, pod)
        await self._decide(request, found, findings)
        return None

    async def _pod(self, request: Object, account: Key) -> Object | None:
        name, uid = forge.pod_of(request)
        if not name:
            return None
        pod = await self.cached.get_live(keys.POD, Key(account.namespace, name))
        return pod if pod is not None and forge.is_pod_of(pod, account, uid) else None

    async def _decide(self, request: Object, owner: Object, findings: list[str]) -> None:
        key = objects.key_of(request)
        type_ = forge.DENIED if findings else forge.APPROVED
        message = "; ".join(findings) or "it asks for the serving certificate of its virtual node"
        changes = forge.verdict(request, type_, message, self.clock())
        await self.cached.patch(KIND, key, changes, subresource="approval")
        logger.info("Decided on signing request", extra={"csr": str(key), "verdict": type_})
        if findings:
            self.events.event(keys.VIRTUAL_NODE, owner, "Warning", "CertificateDenied", message)


def _findings(
    request: Object, virtual_node: VirtualNode, node: Object, pod: Object | None
) -> list[str]:
    """Return why ``request`` is not approved; [] when it asks for exactly what it may."""
    if not lifecycle.is_node_of(virtual_node, node):
        return [f"node {virtual_node.name} is not of this virtual node"]
    if pod is None:
        return ["it was not signed by the token of a pod of this virtual kubelet"]
    return [
        *forge.usage_problems(request),
        *certificate_requests.problems(
            forge.pem(request),
            common_name=naming.serving_name(virtual_node.name),
            organization=forge.ORGANIZATION,
            ips=[forge.pod_address(pod)],
        ),
    ]
