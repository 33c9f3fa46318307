"""Lets a consumer in that proved who it is, and out again: rights first, then what it left."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from apis import authentication, keys, naming, objects, ownership
from apis.authentication import AuthParams, Binding, Tenant, TenantCondition
from apis.objects import Key, Kind, Object
from certs import identity, requests
from controllers import objectquotas, watches, writes
from controllers.authentication.issuing.forge import CertificateRequest
from controllers.authentication.issuing.issuer import IssuedCertificate, Issuer, NoAddressError
from controllers.authentication.tenant import forge
from controllers.authentication.tenant.forge import TenantRefusedError
from controllers.manager import Controller, Manager
from kube import localaddresses
from kube.cluster import Selection
from kube.controller import WatchSource
from kube.errors import BusyError
from kube.informer import Change

KIND: Final = keys.TENANT
FINALIZER: Final = keys.TENANT_FINALIZER
LEAVING_POLL_S: Final = 2.0
REFUSED_S: Final = 60.0
"""Until a Tenant that is refused is looked at again: what it rests on may have gone unseen."""
DRAINED: Final = TenantCondition.DRAINED.value
"""The reason of ``Ready`` once nothing of the consumer is left: ``liqoctl drain tenant`` waits."""

logger = logging.getLogger(__name__)


@dataclass
class _Left:
    """What is still there of a consumer."""

    objects: int
    failures: list[Exception]
    """Why rights or objects could not be taken away."""

    def __bool__(self) -> bool:
        return bool(self.objects or self.failures)


class TenantReconciler(Controller):
    """One Tenant. What is refused is a condition and an event, and signs nothing."""

    name = "tenant"
    is_parallel = True
    reads = (watches.ROLE_BINDINGS, localaddresses.NODES)

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self._issuer = Issuer(manager)

    def watches(self) -> Sequence[WatchSource[Any]]:
        return (
            self.watch(watches.TENANTS, watches.but_booked()),
            self.watch(watches.PEER_NAMESPACES, self.inside(watches.TENANTS)),
            self.watch(watches.RESOURCE_SLICES, self._by_slice),
            self.watch(watches.SECRETS, self._by_secret),
            *(self.watch(bindings, self._by_binding) for bindings in watches.ALL_BINDINGS),
        )

    def _by_slice(self, change: Change[Object]) -> Iterable[Key]:
        return self.beside(watches.TENANTS)(change) if change.old is None else ()

    def _by_secret(self, change: Change[Object]) -> Iterable[Key]:
        return self.beside(watches.TENANTS)(change) if _is_for_us(change.key) else ()

    def _by_binding(self, change: Change[Binding]) -> Iterable[Key]:
        """Return whom a binding names, and all whose own binding it is."""
        names = {name for each in (change.old, change.new) if each for name in each.names()}
        return [
            key
            for key, obj in self.informer(watches.TENANTS).items().items()
            if objects.spec(obj).get("clusterID") in names
        ]

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cached.get(KIND, key)
        if obj is None:
            return None
        if objects.is_terminating(obj):
            return await self._dismiss(obj)
        obj = await writes.add_finalizer(self.cached, KIND, obj, FINALIZER)
        again_s, failures = None, list[Exception]()
        try:
            tenant = await self._parsed(obj)
            if tenant.condition is TenantCondition.DRAINED:
                return await self._drain(obj, tenant)
            failures += await self._cordon(obj, tenant)
            again_s = await self._admit(obj, tenant)
        except TenantRefusedError as error:
            await self._refuse(obj, error)
            failures += error.failures
            again_s = REFUSED_S
        writes.raise_all(failures)
        return again_s

    async def _parsed(self, obj: Object) -> Tenant:
        key = objects.key_of(obj)
        try:
            tenant = Tenant.parse(obj)
        except ValueError as error:
            raise TenantRefusedError("InvalidTenant", f"tenant {key}: spec.{error}") from error
        if await watches.peer_in(self.cached, key.namespace) != tenant.cluster_id:
            message = f"namespace {key.namespace} is not the tenant namespace of "
            message += f"{tenant.cluster_id}: create the Tenant in that"
            raise TenantRefusedError("NotItsNamespace", message)
        return tenant

    async def _admit(self, obj: Object, tenant: Tenant) -> float | None:
        if why := await self._collision(tenant.cluster_id):
            failures = await self._expel_rights(obj, tenant)
            raise TenantRefusedError("NameCollision", why, failures)
        if not tenant.has_handshake:
            await self._bind(obj, tenant)
            await self._report(obj, None, "TenantReady", "it is let in without a handshake")
            return None
        obj = await self._authenticate(obj, tenant)
        issued = await self._issue(obj, tenant)
        await self._bind(obj, tenant)
        if issued.problem:
            self.events.event(KIND, obj, "Warning", "CertificateNotRenewed", issued.problem)
        message = "the consumer proved who it is, and has a certificate"
        await self._report(obj, issued.params, "TenantReady", message)
        await self._forget_nonce(obj)
        return issued.renew_in_s

    async def _collision(self, cluster_id: str) -> str:
        """Return why the cluster ID is somebody else's; by the server's word, not the cache's."""
        there = list[tuple[Kind, Binding]]()
        for kind, key in forge.colliding(cluster_id, await self.manager.all_bindings()):
            found = await self.cached.get_live(kind, key)
            there += [(kind, Binding.of(found))] if found else []
            if why := forge.collision(cluster_id, there):
                return why
        return forge.collision(cluster_id, [])

    async def _issue(self, obj: Object, tenant: Tenant) -> IssuedCertificate:
        """Return the certificate of the consumer, and how it gets in.

        Raises:
            KubeError: no certificate can be had now. A Tenant that was let in before gets an Event;
                any other says so in its condition ``Ready``.
        """
        try:
            return await self._issuer.issue(_request(obj, tenant))
        except BusyError as error:
            is_nowhere = isinstance(error, NoAddressError)
            reason = NoAddressError.reason if is_nowhere else "CertificateNotSigned"
            if objects.status(obj).get("authParams"):
                self.events.event(KIND, obj, "Warning", reason, str(error))
            else:
                is_good = False if is_nowhere else None
                await self._report(obj, None, reason, str(error), is_good=is_good)
            raise

    async def _authenticate(self, obj: Object, tenant: Tenant) -> Object:
        """Return the Tenant with the proof written down; what was proved once needs no nonce.

        Raises:
            TenantRefusedError: it is not proved, or the request is not for exactly this consumer.
        """
        _check_request(tenant)
        if forge.has_proved(obj, tenant):
            return obj
        where = Key(obj["metadata"]["namespace"], keys.NONCE_SECRET)
        nonce = forge.nonce_in(await self.cached.get_live(keys.SECRET, where))
        if not nonce:
            message = f"secret {where} holds no nonce: liqoctl create nonce, and sign that one"
            raise TenantRefusedError("NonceNotFound", message)
        if why := authentication.nonce_problem(
            nonce, tenant.cluster_id, self.manager.cluster_id, self.clock()
        ):
            raise TenantRefusedError("NonceRefused", f"nonce in secret {where}: {why}")
        if not identity.is_signed(tenant.public_key, nonce.encode(), tenant.signature):
            message = f"spec.signature is not that of the nonce in secret {where} by spec.publicKey"
            raise TenantRefusedError("SignatureVerificationFailed", f"{message}: sign that nonce")
        before = objects.status(obj).get("conditions")
        proof = forge.proof(tenant, nonce)
        proved = objects.set_condition(
            before, forge.AUTHENTICATED, "True", "NonceSigned", proof, self.clock()
        )
        status = forge.status(obj, proved, None)
        return await writes.write_status(self.cached, KIND, obj, status)

    async def _forget_nonce(self, obj: Object) -> None:
        """Delete the nonce that was signed: it is good for one use."""
        where = Key(obj["metadata"]["namespace"], keys.NONCE_SECRET)

        def is_used(found: Object) -> bool:
            nonce = forge.nonce_in(found)
            return bool(nonce) and forge.is_used(obj, nonce)

        cached = (await self.all(watches.SECRETS)).get(where)
        if cached is not None and is_used(cached):
            await writes.remove(self.cached, keys.SECRET, where, is_ours=is_used)

    async def _bind(self, obj: Object, tenant: Tenant) -> None:
        for grant in forge.grants(obj["metadata"]["namespace"], tenant):
            await writes.ensure(
                self.cached,
                grant.kind,
                grant.wanted,
                is_ours=partial(forge.is_of, tenant.cluster_id),
            )

    async def _expel_rights(self, obj: Object, tenant: Tenant) -> list[Exception]:
        """Take every right of the consumer away, also in its remote namespaces; return failures."""
        own = [
            (grant.kind, objects.key_of(grant.wanted))
            for grant in forge.grants(obj["metadata"]["namespace"], tenant)
        ]
        elsewhere = [
            (keys.ROLE_BINDING, key)
            for key, binding in (await self.all(watches.ROLE_BINDINGS)).items()
            if forge.is_of(tenant.cluster_id, binding)
        ]

        async def take(right: tuple[Kind, Key]) -> None:
            is_ours = partial(forge.is_of, tenant.cluster_id)
            await writes.remove(self.cached, *right, is_ours=is_ours)

        return await writes.each(dict.fromkeys([*own, *elsewhere]), take)

    async def _expel(self, obj: Object, tenant: Tenant) -> _Left:
        """Take the rights away, then delete what the consumer put here; one by one.

        No right comes back meanwhile: a Tenant that is drained, or goes, gets none in a remote
        namespace (``namespacemap.forge.check_welcome``). Source: X3.
        """
        left = _Left(0, await self._expel_rights(obj, tenant))
        where = obj["metadata"]["namespace"]

        async def send_off(kind: Kind) -> None:
            of = watches.written_by_consumers(kind, where)
            found = (await self.cached.list(of)).items.values()
            theirs = [each for each in found if forge.is_consumers(kind, each, tenant.cluster_id)]
            left.objects += len(theirs)
            left.failures += await writes.each(theirs, partial(self._send_off, kind))

        left.failures += await writes.each(forge.REPLICAS, send_off)
        return left

    async def _send_off(self, kind: Kind, replica: Object) -> None:
        key, uid = objects.key_of(replica), objects.uid(replica)
        if objects.is_outlined(replica):
            replica = await self.cached.get_live(kind, key) or replica
        if foreign := forge.foreign_finalizers(kind, replica):
            kept = [each for each in objects.finalizers(replica) if each not in foreign]
            await writes.set_finalizers(self.cached, kind, replica, kept)
            logger.info("Removed foreign finalizers", extra={"kind": str(kind), "key": str(key)})
        if not objects.is_terminating(replica):
            await writes.remove(self.cached, kind, key, is_ours=writes.same_uid(uid))

    async def _drain(self, obj: Object, tenant: Tenant) -> float | None:
        left = await self._expel(obj, tenant)
        await self._tell_left(obj, tenant, left, "Draining" if left else DRAINED)
        writes.raise_all(left.failures)
        return LEAVING_POLL_S if left else None

    async def _tell_left(self, obj: Object, tenant: Tenant, left: _Left, reason: str) -> None:
        are = "are being removed" if left.failures else "are removed"
        message = f"rights and objects of the consumer {are}"
        if left:
            twins = (await self.all(watches.PEER_NAMESPACES)).values()
            message += f"; {forge.going(left.objects, twins, tenant.cluster_id)}"
        if left.failures:
            message += f"; {forge.failing(left.failures)}"
        await self._report(obj, None, reason, message, is_good=False)

    async def _cordon(self, obj: Object, tenant: Tenant) -> list[Exception]:
        """Mark the slices; return of which that failed. Their Quotas follow the Tenant itself."""
        wanted = "true" if tenant.condition is TenantCondition.CORDONED else None
        own = obj["metadata"]["namespace"]
        where = watches.written_by_consumers(keys.RESOURCE_SLICE, own)
        changes = {"metadata": {"annotations": {keys.CORDON_TENANT: wanted}}}
        unmarked = [
            key
            for key, found in (await self.cached.list(where)).items.items()
            if ownership.is_foreign(found, tenant.cluster_id)
            and objects.annotations(found).get(keys.CORDON_TENANT) != wanted
        ]
        return await writes.each(
            unmarked, lambda key: self.cached.patch(keys.RESOURCE_SLICE, key, changes)
        )

    async def _dismiss(self, obj: Object) -> float | None:
        if FINALIZER not in objects.finalizers(obj):
            return None
        tenant = _as_it_was(obj)
        if left := await self._expel(obj, tenant):
            await self._tell_left(obj, tenant, left, "Leaving")
            writes.raise_all(left.failures)
            return LEAVING_POLL_S
        await self._forget(obj["metadata"]["namespace"], tenant.cluster_id)
        await writes.remove_finalizer(self.cached, KIND, obj, FINALIZER)
        return None

    async def _forget(self, where: str, consumer: str) -> None:
        """Delete certificates and bounds of the consumer; a namespace that goes takes them."""
        namespace = await self.cached.get(keys.NAMESPACE, Key("", where))
        if namespace is None or objects.is_terminating(namespace):
            return
        secrets = (await self.cached.list(Selection(keys.SECRET, Object, where))).items.values()
        failures = await writes.each(
            forge.certificate_secrets(where, secrets, consumer),
            lambda key: writes.remove(self.cached, keys.SECRET, key, is_ours=lambda _: True),
        )
        quota = Key(where, objectquotas.NAME)
        await writes.remove(self.cached, objectquotas.KIND, quota, is_ours=objectquotas.is_ours)
        writes.raise_all(failures)

    async def _refuse(self, obj: Object, error: TenantRefusedError) -> None:
        if not forge.is_told(obj, error.reason, str(error)):
            self.events.event(KIND, obj, "Warning", error.reason, str(error))
        await self._report(obj, None, error.reason, str(error), is_good=False)

    async def _report(
        self,
        obj: Object,
        params: AuthParams | None,
        reason: str,
        message: str,
        *,
        is_good: bool | None = True,
    ) -> None:
        told = forge.state(obj, reason, message, self.clock(), is_good=is_good)
        await writes.write_status(self.cached, KIND, obj, forge.status(obj, told, params))


def _check_request(tenant: Tenant) -> None:
    problems = requests.problems(
        tenant.csr, common_name=tenant.cluster_id, organization=keys.PEER_ORGANIZATION
    )
    if problems:
        raise TenantRefusedError("InvalidCSR", f"spec.csr: {'; '.join(problems)}")
    if not identity.is_key_of(tenant.csr, tenant.public_key):
        raise TenantRefusedError(
            "InvalidCSR", "spec.csr was made with another key than spec.publicKey"
        )


def _request(obj: Object, tenant: Tenant) -> CertificateRequest:
    where = Key(obj["metadata"]["namespace"], naming.remote_certificate())
    return CertificateRequest(
        where, tenant.csr, tenant.cluster_id, tenant.proxy_url, tenant.announced
    )


def _as_it_was(obj: Object) -> Tenant:
    """Return enough of a Tenant to take it apart, however malformed it is."""
    return Tenant(cluster_id=str(objects.spec(obj).get("clusterID") or ""))


# Which changes concern which Tenant --------------------------------------------------------------


def _is_for_us(secret: Key) -> bool:
    return secret.name == keys.NONCE_SECRET or secret.name.startswith(
        keys.REMOTE_CERTIFICATE_SECRET
    )
