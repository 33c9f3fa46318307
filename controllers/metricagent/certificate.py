"""With what the agent serves: a certificate of its own making, which the API server is told of.

Neither authority nor key is stored: a new process makes new ones. The bundle that the API server
is given has the last authority too, until the next time.
"""

import base64
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from apis import keys
from apis.objects import Key
from certs import pki
from controllers.metricagent import forge
from kube.cluster import Cluster

MANAGER: Final = "liqo-metric-agent"
LIFETIME: Final = timedelta(days=90)
RENEWED: Final = timedelta(days=60)


class CertificateReconciler:
    """Has a certificate for the Service, hands it to ``install``, and comes back in time."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        service: Key,
        install: Callable[[pki.KeyPair], Awaitable[None]],
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster, self._install, self._clock = cluster, install, clock
        self._name = f"{service.name}.{service.namespace}.svc"
        self._last = b""
        self._made: datetime | None = None

    async def reconcile(self, _key: Key) -> float | None:
        now = self._clock()
        if self._made is None or now >= self._made + RENEWED:
            await self._renew(now)
        return 3600.0

    async def _renew(self, now: datetime) -> None:
        ca = pki.new_ca("liqo-metric-agent-ca", now=now, lifetime=LIFETIME)
        pair = pki.issue(
            ca, common_name=self._name, dns=[self._name], server=True, now=now, lifetime=LIFETIME
        )
        bundle = base64.b64encode(ca.certificate + self._last).decode()
        await self._cluster.apply(keys.API_SERVICE, forge.injected(bundle), manager=MANAGER)
        await self._install(pair)
        self._last, self._made = ca.certificate, now
