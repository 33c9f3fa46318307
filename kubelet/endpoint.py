"""The kubelet API of one virtual node, in a loop of its own, and what keeps it trusted.

What copies bytes has a loop of its own: no stream makes a lease or a watch wait.
Source: docs/parity.md § 5.7; SEC-B8, SEC-B10.
"""

from typing import Any

from apis import keys
from apis.objects import Key, Object
from certs.keypair import Keypair
from certs.listener import Server
from kube import clock
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.controller import Runner, WatchSource
from kube.informer import Informer
from kubelet import serving
from kubelet.apart import Apart, Caller, Likeness
from kubelet.api.certificate import CLIENT_CA, CertificateReconciler, TrustReconciler
from kubelet.lookups import Lookups
from kubelet.settings import Settings


class Endpoint:
    """Listens once it has a certificate; ``lookups`` belong to the loop that makes this."""

    def __init__(
        self, settings: Settings, home: ClusterClient, provider: ClusterClient, lookups: Lookups
    ) -> None:
        self._settings, self._home = settings, home
        self._apart = Apart("kubelet-api")
        self._likeness = Likeness(provider)
        self._client_ca: Informer[Object] = Informer(
            Selection(
                keys.CONFIG_MAP,
                Object,
                CLIENT_CA.namespace,
                fields=f"metadata.name={CLIENT_CA.name}",
            )
        )
        api = serving.Api(
            lookups,
            Caller(),
            self._likeness,
            consumer=settings.home_cluster_id,
            clock=clock.now,
            started=clock.now(),
        )
        self._server = Server(serving.application(api), settings.listen_port)

    @property
    def informers(self) -> list[Informer[Any]]:
        """Return what has to run for its loops."""
        return [self._client_ca] if self._settings.node_ip else []

    def runners(self) -> list[Runner]:
        """Return the loops that keep its certificate and whom it trusts; none without address."""
        settings = self._settings
        if not settings.node_ip:
            return []
        certificates = CertificateReconciler(
            self._home,
            node=settings.node_name,
            address=settings.node_ip,
            install=self._certify,
            clock=clock.now,
        )
        trust = TrustReconciler(self._client_ca, self._trust)
        serving_certificate = Runner("serving-certificate", certificates, [])
        serving_certificate.enqueue(Key("", settings.node_name))
        client_ca = Runner("client-ca", trust, [WatchSource(self._client_ca)])
        client_ca.enqueue(CLIENT_CA)
        return [serving_certificate, client_ca]

    async def close(self) -> None:
        """End all streams, and no longer listen."""
        await self._apart.run(self._shut())
        await self._apart.close()

    async def _shut(self) -> None:
        await self._server.close()
        await self._likeness.close()

    async def _certify(self, pair: Keypair) -> None:
        await self._apart.run(self._server.certify(pair))

    async def _trust(self, client_ca: str) -> None:
        await self._apart.run(self._server.trust(client_ca))
