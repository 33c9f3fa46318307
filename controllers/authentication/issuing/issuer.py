"""Has a consumer's request signed by the API server's own signer, once for each two thirds."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from apis import keys, objects
from apis.authentication import AuthParams
from apis.objects import Object
from certs import pki, policy
from controllers.authentication.issuing import forge
from controllers.authentication.issuing.forge import CertificateRequest, StoredCertificate
from controllers.manager import Manager
from kube import informer, localaddresses
from kube.cluster import Selection
from kube.controller import TerminalError
from kube.errors import BusyError, KubeError

WAIT_S: Final = 30.0
REFUSED_RETRY_S: Final = 30.0
"""How late at most a signer that gives no certificate is asked again.

Source: docs/parity.md F-26.
"""
ALARM_PART: Final = 0.8
LOOK_S: Final = 3600.0
"""How late at most a consumer is told of another CA, or of another address."""

logger = logging.getLogger(__name__)


class NoAddressError(BusyError):
    """Nothing says where consumers reach this API server: a node or a flag may, later."""

    reason = "NoAddress"
    retry_after_s = 30.0


@dataclass(frozen=True)
class IssuedCertificate:
    """How a consumer gets in, and when its certificate, or what it is told, is looked at again."""

    params: AuthParams
    renew_in_s: float
    is_new: bool
    problem: str = ""
    """Why the certificate could not be renewed; it is still the old one then."""


class Issuer:
    """``issue`` is for the one who has checked the request; nothing is checked here."""

    def __init__(self, manager: Manager, *, lifetime: timedelta = forge.LIFETIME) -> None:
        self._manager = manager
        self._cluster, self._clock = manager.live, manager.clock
        self._lifetime = lifetime

    async def issue(self, request: CertificateRequest) -> IssuedCertificate:
        """Return how ``request.consumer`` gets in: by the certificate it has, or by a new one.

        Raises:
            KubeError: the cluster, or its signer, does not answer: retry.
            NoAddressError: no node and no flag says where this API server is.
            TerminalError: the Secret for the certificate is somebody else's.
        """
        found = await self._cluster.get_live(keys.SECRET, request.secret)
        if found is not None and not forge.is_for(found, request.consumer):
            message = f"secret {request.secret} is not for {request.consumer}: remove or rename it"
            raise TerminalError("NameTaken", message)
        stored = StoredCertificate.parse(found)
        if stored is not None and stored.csr == request.csr:
            return await self._kept_or_renewed(request, found, stored)
        certificate = await self._renew(request, found)
        return await self._issued(request, certificate, self._clock(), is_new=True)

    async def _kept_or_renewed(
        self, request: CertificateRequest, found: Object | None, stored: StoredCertificate
    ) -> IssuedCertificate:
        now = self._clock()
        if now < policy.renewal(stored.certificate, stored.issued_at, now):
            return await self._issued(request, stored.certificate, stored.issued_at, is_new=False)
        try:
            certificate = await self._renew(request, found)
        except KubeError as error:
            self._alarm(request, stored, str(error))
            kept = await self._issued(request, stored.certificate, stored.issued_at, is_new=False)
            return IssuedCertificate(
                kept.params, self._retry_s(stored), is_new=False, problem=str(error)
            )
        return await self._issued(request, certificate, self._clock(), is_new=True)

    async def _renew(self, request: CertificateRequest, found: Object | None) -> bytes:
        certificate = await self._sign(request)
        wanted = forge.secret(request, certificate, self._clock())
        if found is None:
            await self._cluster.create(keys.SECRET, wanted)
            return certificate
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        changes = {"metadata": {**wanted["metadata"], **version}, "data": wanted["data"]}
        await self._cluster.patch(keys.SECRET, request.secret, changes)
        return certificate

    async def _sign(self, request: CertificateRequest) -> bytes:
        kind = keys.CERTIFICATE_SIGNING_REQUEST
        wanted = forge.signing_request(request, self._lifetime)
        made = await self._pending(wanted) or await self._cluster.create(kind, wanted)
        key = objects.key_of(made)
        if not forge.is_approved(made):
            approval = forge.approval(made, self._clock())
            await self._cluster.patch(kind, key, approval, subresource="approval")
        try:
            async with asyncio.timeout(WAIT_S):
                decided = await informer.until(self._cluster, kind, key, forge.is_decided)
        except TimeoutError:
            message = f"signer {keys.CLIENT_SIGNER} gave no certificate for {key} in {WAIT_S:g} s"
            raise BusyError(message) from None
        if decided is None or forge.refusal(decided):
            why = forge.refusal(decided) if decided else "it was deleted"
            raise BusyError(f"certificatesigningrequest {key} got no certificate: {why}")
        logger.info("Signed certificate", extra={"csr": key.name, "cluster": request.consumer})
        return forge.certificate_in(decided)

    async def _pending(self, wanted: Object) -> Object | None:
        """Return a request for the same that nobody has answered yet: ours, from an earlier try."""
        labels = ",".join(f"{name}={value}" for name, value in objects.labels(wanted).items())
        asked = Selection(keys.CERTIFICATE_SIGNING_REQUEST, Object, labels=labels)
        found = (await self._cluster.list(asked)).items.values()
        return next((each for each in found if forge.is_same_and_pending(each, wanted)), None)

    async def _issued(
        self,
        request: CertificateRequest,
        certificate: bytes,
        issued_at: datetime | None,
        *,
        is_new: bool,
    ) -> IssuedCertificate:
        params = AuthParams(
            api_server=await self._api_server(request.announced),
            ca=self._manager.endpoint.ca(),
            certificate=certificate,
            proxy_url=request.proxy_url,
        )
        now = self._clock()
        left_s = (policy.renewal(certificate, issued_at, now) - now).total_seconds()
        return IssuedCertificate(params, min(max(left_s, 1.0), LOOK_S), is_new)

    async def _api_server(self, announced: str) -> str:
        if address := self._manager.endpoint.address:
            return forge.overridden(address)
        nodes = (await self._manager.all(localaddresses.NODES)).values()
        planes = [msgspec.to_builtins(node) for node in nodes if node.is_control_plane()]
        try:
            return forge.api_server(planes, announced)
        except ValueError as error:
            raise NoAddressError(str(error)) from error

    def _retry_s(self, stored: StoredCertificate) -> float:
        """Return a tenth of what is left of the certificate: it has to be had before that ends."""
        left = (pki.expiry(stored.certificate) - self._clock()).total_seconds()
        return min(max(left / 10, 1.0), REFUSED_RETRY_S) if left > 0 else REFUSED_RETRY_S

    def _alarm(self, request: CertificateRequest, stored: StoredCertificate, reason: str) -> None:
        begin = stored.issued_at or pki.started(stored.certificate)
        life = pki.expiry(stored.certificate) - begin
        is_late = self._clock() >= begin + life * ALARM_PART
        level = logging.ERROR if is_late else logging.WARNING
        fields = {"cluster": request.consumer, "secret": str(request.secret), "reason": reason}
        logger.log(level, "certificate of a consumer could not be renewed", extra=fields)
