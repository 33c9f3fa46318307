"""With what an agent serves: a certificate of its own making, which the API server is told of.

Neither authority nor key is stored: a new process makes new ones, and each replica has its own.
The bundle of the APIService holds those of all.
"""

import base64
import binascii
import datetime as dt
import time
from collections.abc import Awaitable, Callable
from typing import Final

from apis import authentication, keys, objects
from apis.objects import Key, Object
from certs import bundle, pki
from controllers.metricagent import forge
from kube.clock import Deadline
from kube.cluster import Cluster

MANAGER: Final = keys.METRIC_AGENT
LIFETIME: Final = dt.timedelta(days=90)
RENEWED: Final = dt.timedelta(days=60)
AGAIN_S: Final = 3600.0
MOST: Final = 8
"""Authorities in the bundle, the last first: of Pods that are gone some stay until they end."""


class CertificateReconciler:
    """Has a certificate for the Service, and hands it to ``install`` once it is trusted.

    Its key is that of the APIService. Where that is away the certificate is served all the same:
    the APIService is made once an agent is ready.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        service: Key,
        install: Callable[[pki.KeyPair], Awaitable[None]],
        clock: Callable[[], dt.datetime],
        tick: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._install = cluster, install
        self._clock, self._tick = clock, tick
        self._name = f"{service.name}.{service.namespace}.svc"
        self._ca = b""
        self._renewal: Deadline | None = None

    async def reconcile(self, key: Key) -> float | None:
        now, renewal = self._clock(), self._renewal
        if renewal is not None and renewal.left_s(now, self._tick()) > 0:
            await self._tell(key, self._ca, now)
            return AGAIN_S
        ca = pki.new_ca("liqo-metric-agent-ca", now=now, lifetime=LIFETIME)
        pair = pki.issue(
            ca, common_name=self._name, dns=[self._name], server=True, now=now, lifetime=LIFETIME
        )
        await self._tell(key, ca.certificate, now)
        await self._install(pair)
        self._ca = ca.certificate
        self._renewal = Deadline.noted(now + RENEWED, now, self._tick())
        return AGAIN_S

    async def _tell(self, key: Key, ca: bytes, now: dt.datetime) -> None:
        """Have ``ca`` in the bundle beside those of other replicas; no write when it is there."""
        found = await self._cluster.get_live(keys.API_SERVICE, key)
        if found is None or ca in authentication.certificates(had := _bundle(found)):
            return
        trusted = authentication.certificates(bundle.merge(ca, had, now=now))[:MOST]
        wanted = forge.injected(base64.b64encode(b"".join(trusted)).decode())
        wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        wanted["metadata"]["uid"] = objects.uid(found)
        await self._cluster.apply(keys.API_SERVICE, wanted, manager=MANAGER)


def _bundle(service: Object) -> bytes:
    try:
        return base64.b64decode(objects.spec(service).get("caBundle") or "")
    except (binascii.Error, ValueError, TypeError):
        return b""
