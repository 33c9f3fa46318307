"""A slice of a consumer: its request is signed, or it is said why not."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from apis import keys, naming, objects, whose
from apis.authentication import Tenant, TenantCondition
from apis.objects import Key, Object
from controllers import tenants, upkeep
from controllers.authentication.issuing.issuer import Issuer, NoAddressError
from controllers.granting.resourceslice import forge
from controllers.views import View
from kube.cluster import Cluster
from kube.events import Recorder

KIND: Final = keys.RESOURCE_SLICE


@dataclass(frozen=True)
class Observed:
    """What the process knows of whole kinds, read only."""

    tenants: View
    secrets: View
    """Those of tenant namespaces."""


@dataclass(frozen=True)
class ReplicaReconciler:
    """One replica. Nothing is signed for whom the Tenant's own controller does not let in."""

    cluster: Cluster
    observed: Observed
    issuer: Issuer
    events: Recorder
    clock: Callable[[], datetime]

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cluster.get(KIND, key)
        if obj is None:
            await self._forget(key)
            return None
        if objects.is_terminating(obj):
            return None
        if not objects.spec(obj).get("csr"):
            return None  # the consumer's controllers are about to add it
        consumer = await tenants.peer_in(self.cluster, key.namespace)
        if not consumer or not whose.origin(obj, consumer):
            return None
        tenant = await self._tenant(obj, consumer)
        return await self._answer(obj, tenant) if tenant else None

    async def _tenant(self, obj: Object, consumer: str) -> Tenant | None:
        where = objects.key_of(obj).namespace
        found = [
            one for key, one in (await self.observed.tenants()).items() if key.namespace == where
        ]
        for one in found:
            try:
                tenant = Tenant.parse(one)
            except ValueError:
                continue  # its own controller tells
            if tenant.cluster_id == consumer and forge.is_let_in(one):
                return None if tenant.condition is TenantCondition.DRAINED else tenant
        if not found:
            message = f"there is no tenant in namespace {where}: nothing is signed before"
            self.events.event(KIND, obj, "Warning", "TenantNotFound", message)
        return None  # when it is let in, that brings us back

    async def _answer(self, obj: Object, tenant: Tenant) -> float | None:
        if why := forge.problem(obj, tenant):
            self.events.event(KIND, obj, "Warning", "InvalidCSR", why)
            await self._write(obj, forge.denied(obj, why, self.clock()))
            return None
        try:
            issued = await self.issuer.issue(forge.request(obj, tenant))
        except NoAddressError as error:
            self.events.event(KIND, obj, "Warning", error.reason, str(error))
            raise
        if issued.problem:
            self.events.event(KIND, obj, "Warning", "CertificateNotRenewed", issued.problem)
        was_signed = bool(objects.status(obj).get("authParams"))
        if issued.is_new and was_signed:
            self.events.event(KIND, obj, "Normal", "CertificateRenewed", "it has a new certificate")
        await self._write(obj, forge.accepted(obj, issued.params, self.clock()))
        return issued.renew_in_s

    async def _write(self, obj: Object, status: Object) -> None:
        """Write the status of that very version: the other condition in it is somebody else's."""
        changes = objects.merge_patch(objects.status(obj), status)
        if changes:
            version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            await self.cluster.patch_status(KIND, objects.key_of(obj), changes, metadata=version)

    async def _forget(self, key: Key) -> None:
        """Delete the certificate of a slice that is gone."""
        where = Key(key.namespace, naming.remote_certificate(key.name))
        if where not in await self.observed.secrets():
            return
        consumer = await tenants.peer_in(self.cluster, key.namespace)
        if consumer and await self.cluster.get_live(KIND, key) is None:
            await upkeep.remove(
                self.cluster,
                keys.SECRET,
                where,
                is_ours=lambda found: forge.is_certificate(found, consumer),
            )
