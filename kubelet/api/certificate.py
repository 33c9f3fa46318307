"""The serving certificate of the kubelet API, and whose client certificates it accepts.

The private key is only in memory. Without an approved certificate nothing listens; pods work.
Client certificates are those that the home API server accepts.
Source: docs/parity.md § 2.5, 4.18, 5.7; SEC-C3.
"""

import base64
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from apis import keys, objects
from apis.objects import Key, Object
from certs import childprocess, keypair
from certs.keypair import Keypair
from kube.clock import Deadline
from kube.cluster import Cluster
from kube.informer import Informer

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
DENIED_S: Final = 300.0
MAX_LOOKS: Final = 900
"""Looks at a request before another is made: one that nobody judges is forgotten after a day."""


@dataclass(frozen=True)
class Pending:
    """A request that is on its way, with the key it is for."""

    name: str
    key: bytes = field(repr=False)
    looks: int = 0


class CertificateReconciler:
    """Has a certificate for the node, hands it to ``install``, and comes back in time."""

    def __init__(  # noqa: PLR0913  # all but one by name
        self,
        cluster: Cluster,
        *,
        node: str,
        address: str,
        install: Callable[[Keypair], Awaitable[None]],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._node, self._address = cluster, node, address
        self._install, self._clock, self._monotonic = install, clock, monotonic
        self._pending: Pending | None = None
        self._renewal: Deadline | None = None

    async def reconcile(self, key: Key) -> float | None:
        logger.debug("Looks at the serving certificate", extra={"node": key.name})
        if self._renewal is not None and (left_s := self._left_s(self._renewal)) > 0:
            return left_s
        if self._pending is None:
            self._pending = await self._request()
            return LOOK_S
        return await self._look(self._pending)

    async def _request(self) -> Pending:
        request = await childprocess.request(self._node, ips=[self._address])
        made = await self._cluster.create(
            keys.CERTIFICATE_SIGNING_REQUEST, _request(self._node, request.csr)
        )
        name = objects.key_of(made).name
        logger.info("Requested serving certificate", extra={"csr": name})
        return Pending(name, request.key)

    async def _look(self, pending: Pending) -> float:
        found = await self._cluster.get_live(
            keys.CERTIFICATE_SIGNING_REQUEST, Key("", pending.name)
        )
        if found is None or pending.looks > MAX_LOOKS:
            self._pending = None
            return LOOK_S
        status: Object = objects.status(found)
        if issued := status.get("certificate"):
            return await self._take(Keypair(base64.b64decode(issued), pending.key))
        if reason := _denial(status):
            logger.warning("Serving certificate was denied", extra={"reason": reason})
            self._pending = None
            return DENIED_S
        self._pending = Pending(pending.name, pending.key, pending.looks + 1)
        return min(LOOK_S * (1 + pending.looks // 30), 60.0)

    async def _take(self, pair: Keypair) -> float:
        self._pending = None
        renew_at = await childprocess.renewal(pair, self._clock())
        if renew_at is None:
            return DENIED_S
        await self._install(pair)
        self._renewal = Deadline.noted(renew_at, self._clock(), self._monotonic())
        logger.info("Installed serving certificate", extra={"renewal": str(renew_at)})
        return max(LOOK_S, self._left_s(self._renewal))

    def _left_s(self, renewal: Deadline) -> float:
        return renewal.left_s(self._clock(), self._monotonic())


def _request(node: str, request: bytes) -> Object:
    kind = keys.CERTIFICATE_SIGNING_REQUEST
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "generateName": f"vk-{node[:200]}-",
            "labels": {keys.VIRTUAL_NODE_LABEL: node, keys.LIQO_MANAGED: "true"},
        },
        "spec": {
            "request": base64.b64encode(request).decode(),
            "signerName": keypair.SIGNER,
            "usages": list(keypair.USAGES),
        },
    }


def _denial(status: Object) -> str:
    for item in status.get("conditions") or []:
        if item.get("type") in {"Denied", "Failed"}:
            return f"{item.get('reason', '')}: {item.get('message', '')}"
    return ""


# Whose client certificates the kubelet API accepts: those that the home API server accepts --------

CLIENT_CA: Final = Key("kube-system", "extension-apiserver-authentication")
CLIENT_CA_FIELD: Final = "client-ca-file"


class TrustReconciler:
    """Lets the kubelet API trust whom the home API server trusts."""

    def __init__(
        self, config_maps: Informer[Object], trust: Callable[[str], Awaitable[None]]
    ) -> None:
        self._config_maps, self._trust = config_maps, trust

    async def reconcile(self, key: Key) -> float | None:
        found = self._config_maps.get(key) or {}
        await self._trust((found.get("data") or {}).get(CLIENT_CA_FIELD, ""))
        return None
