"""Both halves: the consumer takes over what came back, the provider answers what is asked.

Source: docs/parity.md § 1.11, 4.8; F-25, F-26.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from apis import keys, objects, ownership
from apis.authentication import AuthParams, Identity, IdentityType, Tenant, TenantCondition
from apis.objects import Key, Object
from certs import pki
from controllers import watches, writes
from controllers.authentication.identity import forge as identity_forge
from controllers.authentication.identity.forge import IdentityRefusedError
from controllers.manager import Controller
from kube.controller import WatchSource

KIND: Final = keys.RENEW

AHEAD: Final = timedelta(minutes=10)
"""So far may the clock of a provider be ahead of ours."""
AGAIN_S: Final = 600.0
"""Units: seconds. A certificate that begins too late is looked at again after this."""

logger = logging.getLogger(__name__)


class _TooEarlyError(IdentityRefusedError):
    """The certificate begins in the future: it may be taken over later."""


class LocalRenewReconciler(Controller):
    """The Renew of one control-plane Identity, called like it."""

    name = "renewal"

    def watches(self) -> Sequence[WatchSource[Any]]:
        return self.watch(watches.IDENTITIES), self.watch(watches.RENEWS)

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cached.get(keys.IDENTITY, key)
        if obj is None or objects.is_terminating(obj):
            return None
        try:
            identity = Identity.parse(obj)
        except ValueError:
            return None  # its own controller says so
        if identity.type is not IdentityType.CONTROL_PLANE:
            return None
        renew = await writes.ensure(
            self.cached,
            KIND,
            _renew(obj, identity, self.manager.cluster_id),
            is_ours=writes.owned_by(obj),
        )
        try:
            await self._take_over(obj, identity, renew)
        except (ValueError, IdentityRefusedError) as error:
            reason = (
                error.reason if isinstance(error, IdentityRefusedError) else "InvalidAuthParams"
            )
            self.events.event(KIND, renew, "Warning", reason, f"status.authParams: {error}")
            return AGAIN_S if isinstance(error, _TooEarlyError) else None
        return None

    async def _take_over(self, obj: Object, identity: Identity, renew: Object) -> None:
        shown = objects.status(renew).get("authParams")
        if not shown:
            return
        said, held = AuthParams.parse(shown), identity.params
        params = identity_forge.adopted(said, held)
        if params != held and self._is_newer(identity, params):
            changes = {
                "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
                "spec": {"authParams": params.shown()},
            }
            await self.cached.patch(keys.IDENTITY, objects.key_of(obj), changes)
            logger.info("Renewed the identity", extra={"cluster": identity.cluster_id})
        if changed := identity_forge.change(said, held):
            raise IdentityRefusedError(identity_forge.SERVER_CHANGED, changed)

    def _is_newer(self, identity: Identity, params: AuthParams) -> bool:
        """Whether ``params`` are not older than those of ``identity``, or these are not for us.

        Raises:
            IdentityRefusedError: they cannot get us in, or begin in the future.
        """
        held = identity.params
        if params.certificate == held.certificate:
            return True  # another authority of the same server
        identity_forge.check(replace(identity, params=params), self.manager.private_key)
        self._check_begun(params)
        return self._begins_later(params, held)

    def _check_begun(self, params: AuthParams) -> None:
        """Refuse a certificate that begins in the future: all honest ones would begin before it.

        Raises:
            IdentityRefusedError: the message names both times.
        """
        begun, latest = pki.started(params.certificate), self.clock() + AHEAD
        if begun > latest:
            message = (
                f"signedCRT begins at {begun.isoformat()}, later than {latest.isoformat()} "
                f"(10 minutes from now): compare the clocks of both clusters"
            )
            raise _TooEarlyError("InvalidAuthParams", message)

    def _begins_later(self, params: AuthParams, held: AuthParams) -> bool:
        """Whether ``params`` were signed after those that are ``held``, or these are not for us."""
        try:
            is_usable = pki.fits_key(held.certificate, self.manager.private_key)
        except ValueError:
            return True
        begun, before = pki.started(params.certificate), pki.started(held.certificate)
        is_ahead = before > self.clock() + AHEAD  # taken over before this was checked
        return not is_usable or is_ahead or begun > before


class RemoteRenewReconciler(Controller):
    """The replica of a consumer's Renew: what its Tenant has now, or its slice.

    A consumer of ours asks for its control plane only; one that runs Liqo for each identity.
    """

    name = "renewalanswer"

    def watches(self) -> Sequence[WatchSource[Any]]:
        beside = self.beside(watches.RENEWS)
        return (
            self.watch(watches.RENEWS),
            self.watch(watches.TENANTS, watches.but_booked(beside)),
            self.watch(watches.RESOURCE_SLICES, beside),
        )

    async def reconcile(self, key: Key) -> float | None:
        renew = await self.cached.get(KIND, key)
        if renew is None or objects.is_terminating(renew):
            return None
        consumer = await watches.peer_in(self.cached, key.namespace)
        if not consumer or not ownership.origin(renew, consumer):
            return None
        params = await self._params(key.namespace, consumer)
        if params and _is_for_slice(renew):
            params = await self._params_of_slice(renew, consumer)
        if params:
            await writes.write_status(self.cached, KIND, renew, {"authParams": params})
        return None

    async def _params_of_slice(self, renew: Object, consumer: str) -> Object | None:
        ref = renew["spec"].get("resourceSliceRef") or {}
        where = Key(objects.key_of(renew).namespace, str(ref.get("name") or ""))
        found = where.name and await self.cached.get(keys.RESOURCE_SLICE, where)
        if not found or not ownership.origin(found, consumer):
            return None
        params: Object | None = objects.status(found).get("authParams")
        return params

    async def _params(self, namespace: str, consumer: str) -> Object | None:
        for key, obj in (await self.all(watches.TENANTS)).items():
            if key.namespace != namespace or not _is_active(obj, consumer):
                continue
            params: Object | None = objects.status(obj).get("authParams")
            return params
        return None


def _is_for_slice(renew: Object) -> bool:
    return objects.spec(renew).get("identityType") == IdentityType.RESOURCE_SLICE.value


def _is_active(obj: Object, consumer: str) -> bool:
    try:
        tenant = Tenant.parse(obj)
    except ValueError:
        return False
    return tenant.cluster_id == consumer and tenant.condition is not TenantCondition.DRAINED


def _renew(obj: Object, identity: Identity, cluster_id: str) -> Object:
    metadata = {
        "labels": {
            **ownership.original(identity.cluster_id),
            keys.LIQO_MANAGED: "true",
        },
        "ownerReferences": [objects.owner_reference(keys.IDENTITY, obj)],
    }
    spec = {"consumerClusterID": cluster_id, "identityType": identity.type.value}
    return objects.named(KIND, objects.key_of(obj), metadata=metadata, spec=spec)
