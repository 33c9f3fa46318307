"""Stands in for kube-controller-manager on a cluster in a dict: signs what is approved."""

import asyncio
import base64
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable

from apis import keys
from apis.objects import Key, Object
from certs import pki
from certs.pki import Keypair
from kube.cluster import Cluster, Selection
from kube.informer import Change, Informer


@contextlib.asynccontextmanager
async def signing(
    cluster: Cluster, ca: Keypair, now: Callable[[], dt.datetime]
) -> AsyncIterator[None]:
    """Sign every approved CertificateSigningRequest for as long as it says."""
    kind = keys.CERTIFICATE_SIGNING_REQUEST
    informer: Informer[Object] = Informer(Selection(kind, Object))
    seen = asyncio.Event()
    informer.subscribe(lambda _: seen.set())
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(informer.run(cluster))

        async def work() -> None:
            while True:
                await seen.wait()
                seen.clear()
                for key, request in list(informer.items().items()):
                    await _sign(cluster, key, request, ca, now())

        working = tasks.create_task(work())
        try:
            yield
        finally:
            watching.cancel()
            working.cancel()


async def _sign(cluster: Cluster, key: Key, request: Object, ca: Keypair, now: dt.datetime) -> None:
    status = request.get("status") or {}
    approved = any(one["type"] == "Approved" for one in status.get("conditions") or [])
    if not approved or status.get("certificate"):
        return
    lifetime = dt.timedelta(seconds=request["spec"]["expirationSeconds"])
    signed = pki.sign(
        ca, base64.b64decode(request["spec"]["request"]), client=True, now=now, lifetime=lifetime
    )
    changes = {"certificate": base64.b64encode(signed).decode()}
    await cluster.patch_status(keys.CERTIFICATE_SIGNING_REQUEST, key, changes)


@contextlib.asynccontextmanager
async def refusing(cluster: Cluster) -> AsyncIterator[None]:
    """Let every request fail once it is approved, as a signer does that cannot sign it."""
    kind = keys.CERTIFICATE_SIGNING_REQUEST
    failed = {"type": "Failed", "status": "True", "reason": "SignerError", "message": "cannot"}
    informer: Informer[Object] = Informer(Selection(kind, Object))
    async with asyncio.TaskGroup() as tasks:

        def fail(change: Change[Object]) -> None:
            told = ((change.new or {}).get("status") or {}).get("conditions") or []
            if [one["type"] for one in told] == ["Approved"]:
                status = {"conditions": [*told, failed]}
                tasks.create_task(cluster.patch_status(kind, change.key, status))

        informer.subscribe(fail)
        watching = tasks.create_task(informer.run(cluster))
        await informer.synced.wait()
        try:
            yield
        finally:
            watching.cancel()
