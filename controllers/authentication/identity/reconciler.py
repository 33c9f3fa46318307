"""Turns Identities into kubeconfigs, and accepted slices into Identities."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from apis import keys, naming, objects, ownership
from apis.authentication import AuthParams, Identity
from apis.objects import Key, Object
from controllers import watches, writes
from controllers.authentication.identity import forge
from controllers.authentication.identity.forge import IdentityRefusedError
from controllers.manager import Controller
from kube import kubeconfig
from kube.controller import WatchSource
from kube.informer import Change

KIND: Final = keys.IDENTITY
SLICE: Final = keys.RESOURCE_SLICE
_ACCEPTED: Final = "Accepted"
_DENIED: Final = "Denied"

logger = logging.getLogger(__name__)


class IdentityReconciler(Controller):
    """One Identity: its Secret is always what its spec says, and goes when nothing needs it."""

    name = "identity"
    is_parallel = True

    def watches(self) -> Sequence[WatchSource[Any]]:
        return (
            self.watch(watches.IDENTITIES),
            self.watch(watches.SECRETS, _by_secret),
            *(self.watch(selection, _by_replicated) for selection in watches.REPLICATED),
        )

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cached.get(KIND, key)
        if obj is None or objects.is_terminating(obj):
            await self._release(key)
            return None
        try:
            identity = Identity.parse(obj)
            forge.check(identity, self.manager.private_key)
            text = forge.config(identity, self.manager.private_key)
            kubeconfig.parse(text)  # as anybody who uses it will read it
        except (ValueError, IdentityRefusedError) as error:
            reason = error.reason if isinstance(error, IdentityRefusedError) else "InvalidIdentity"
            self.events.event(KIND, obj, "Warning", reason, str(error))
            return None
        await self._make_room(obj)
        wanted = forge.secret(obj, identity, text)
        await writes.ensure(self.cached, keys.SECRET, wanted, is_ours=writes.owned_by(obj))
        status = {"kubeconfigSecretRef": {"name": wanted["metadata"]["name"]}}
        await writes.write_status(self.cached, KIND, obj, status)
        return None

    async def _make_room(self, obj: Object) -> None:
        """Let the Secret of a namesake go that was deleted before; this one's follows it."""
        found = await self.cached.get(keys.SECRET, forge.secret_of(objects.key_of(obj)))
        if found and objects.is_terminating(found) and not objects.is_controlled_by(found, obj):
            await self._unhold(found)

    async def _release(self, key: Key) -> None:
        found = (await self.all(watches.SECRETS)).get(forge.secret_of(key))
        if found and objects.is_terminating(found):
            replicated = [
                each for of in watches.REPLICATED for each in (await self.all(of)).values()
            ]
            if not forge.is_needed(found, replicated):
                await self._unhold(found)

    async def _unhold(self, secret: Object) -> None:
        finalizer = keys.REPLICATION_SECRET_FINALIZER
        await writes.remove_finalizer(self.cached, keys.SECRET, secret, finalizer)


class SliceIdentityReconciler(Controller):
    """One slice of this cluster: an Identity as long as its provider accepts it."""

    name = "sliceidentity"
    is_parallel = True

    def watches(self) -> Sequence[WatchSource[Any]]:
        beside = self.beside(watches.RESOURCE_SLICES)
        return self.watch(watches.RESOURCE_SLICES), self.watch(watches.IDENTITIES, beside)

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cached.get(SLICE, key)
        if obj is None or objects.is_terminating(obj):
            return None
        provider = await watches.peer_in(self.cached, key.namespace)
        if not ownership.is_for(obj, provider):
            return None
        answer = _answer(obj)
        if answer == _DENIED:
            where = Key(key.namespace, naming.resourceslice_identity(key.name))
            await writes.remove(self.cached, KIND, where, is_ours=writes.owned_by(obj))
        if answer == _ACCEPTED:
            await self._accept(obj, provider)
        return None

    async def _accept(self, obj: Object, provider: str) -> None:
        try:
            params = AuthParams.parse(objects.status(obj).get("authParams"))
            trusted = await self._trusted(obj, provider)
        except (ValueError, IdentityRefusedError) as error:
            reason = (
                error.reason if isinstance(error, IdentityRefusedError) else "InvalidAuthParams"
            )
            self.events.event(SLICE, obj, "Warning", reason, f"status.authParams: {error}")
            return
        if changed := forge.change(params, trusted):
            message = f"status.authParams: {changed}"
            self.events.event(SLICE, obj, "Warning", forge.SERVER_CHANGED, message)
        await writes.ensure(
            self.cached,
            KIND,
            forge.of_slice(obj, provider, forge.adopted(params, trusted)),
            is_ours=writes.owned_by(obj),
        )

    async def _trusted(self, obj: Object, provider: str) -> AuthParams:
        """Return how this cluster connects to ``provider`` since they peered.

        Raises:
            IdentityRefusedError: they did not.
        """
        where = Key(objects.key_of(obj).namespace, naming.controlplane_identity(provider))
        found = await self.cached.get(KIND, where)
        if found is None:
            message = f"identity {where} does not exist: peer with {provider} first"
            raise IdentityRefusedError("NotPeered", message)
        return Identity.parse(found).params


def _answer(obj: Object) -> str:
    status = objects.status(obj)
    found = objects.find_condition(status.get("conditions"), "Authentication")
    return str(found["status"]) if found else ""


# Which changes concern which Identity, and which slice -------------------------------------------


def _by_secret(change: Change[Object]) -> Iterable[Key]:
    key = forge.identity_of(change.key)
    return [key] if key else []


def _by_replicated(change: Change[Object]) -> Iterable[Key]:
    """Return the Identity whose kubeconfig may no longer be needed, when an object is gone."""
    peer = ownership.destination(change.old) if change.old else ""
    if change.new is not None or not peer:
        return []
    return [Key(change.key.namespace, naming.controlplane_identity(peer))]
