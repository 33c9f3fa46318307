"""Turns Identities into kubeconfigs, and accepted slices into Identities."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from apis import keys, naming, objects, ownership
from apis.authentication import AuthParams, Identity
from apis.objects import Key, Object
from controllers import watches, writes
from controllers.authentication.identity import forge
from controllers.authentication.identity.forge import IdentityRefusedError
from controllers.manager import Manager, Setup
from controllers.watches import Lister
from kube import kubeconfig
from kube.cluster import Cluster
from kube.controller import Runner, WatchSource
from kube.events import EventRecorder
from kube.informer import Change

KIND: Final = keys.IDENTITY
SLICE: Final = keys.RESOURCE_SLICE
_ACCEPTED: Final = "Accepted"
_DENIED: Final = "Denied"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class IdentityReconciler:
    """One Identity: its Secret is always what its spec says, and goes when nothing needs it."""

    cluster: Cluster
    secrets: Lister
    """Those of tenant namespaces: one that is not seen yet brings us back."""
    private_key: bytes = field(repr=False)
    events: EventRecorder
    replicated: Callable[[], Iterable[Object]]
    """All objects of the kinds that go to peers, as the process knows them."""

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cluster.get(KIND, key)
        if obj is None or objects.is_terminating(obj):
            await self._release(key)
            return None
        try:
            identity = Identity.parse(obj)
            forge.check(identity, self.private_key)
            text = forge.config(identity, self.private_key)
            kubeconfig.parse(text)  # as anybody who uses it will read it
        except (ValueError, IdentityRefusedError) as error:
            reason = error.reason if isinstance(error, IdentityRefusedError) else "InvalidIdentity"
            self.events.event(KIND, obj, "Warning", reason, str(error))
            return None
        await self._make_room(obj)
        wanted = forge.secret(obj, identity, text)
        await writes.ensure(
            self.cluster,
            keys.SECRET,
            wanted,
            is_ours=lambda found: objects.is_controlled_by(found, obj),
        )
        status = {"kubeconfigSecretRef": {"name": wanted["metadata"]["name"]}}
        await writes.write_status(self.cluster, KIND, obj, status)
        return None

    async def _make_room(self, obj: Object) -> None:
        """Let the Secret of a namesake go that was deleted before; this one's follows it."""
        found = await self.cluster.get(keys.SECRET, forge.secret_of(objects.key_of(obj)))
        if found and objects.is_terminating(found) and not objects.is_controlled_by(found, obj):
            await self._unhold(found)

    async def _release(self, key: Key) -> None:
        found = (await self.secrets()).get(forge.secret_of(key))
        if (
            found
            and objects.is_terminating(found)
            and not forge.is_needed(found, self.replicated())
        ):
            await self._unhold(found)

    async def _unhold(self, secret: Object) -> None:
        finalizer = keys.REPLICATION_SECRET_FINALIZER
        await writes.remove_finalizer(self.cluster, keys.SECRET, secret, finalizer)


@dataclass(frozen=True)
class SliceIdentityReconciler:
    """One slice of this cluster: an Identity as long as its provider accepts it."""

    cluster: Cluster
    events: EventRecorder

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cluster.get(SLICE, key)
        if obj is None or objects.is_terminating(obj):
            return None
        provider = await watches.peer_in(self.cluster, key.namespace)
        if not ownership.is_for(obj, provider):
            return None
        answer = _answer(obj)
        if answer == _DENIED:
            where = Key(key.namespace, naming.resourceslice_identity(key.name))
            await writes.remove(
                self.cluster,
                KIND,
                where,
                is_ours=lambda found: objects.is_controlled_by(found, obj),
            )
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
            self.cluster,
            KIND,
            forge.of_slice(obj, provider, forge.adopted(params, trusted)),
            is_ours=lambda found: objects.is_controlled_by(found, obj),
        )

    async def _trusted(self, obj: Object, provider: str) -> AuthParams:
        """Return how this cluster connects to ``provider`` since they peered.

        Raises:
            IdentityRefusedError: they did not.
        """
        where = Key(objects.key_of(obj).namespace, naming.controlplane_identity(provider))
        found = await self.cluster.get(KIND, where)
        if found is None:
            message = f"identity {where} does not exist: peer with {provider} first"
            raise IdentityRefusedError("NotPeered", message)
        return Identity.parse(found).params


def _answer(obj: Object) -> str:
    status = objects.status(obj)
    found = objects.find_condition(status.get("conditions"), "Authentication")
    return str(found["status"]) if found else ""


# Which changes concern which Identity, and which slice -------------------------------------------


def controller(manager: Manager) -> Setup:
    identities = manager.informer(watches.IDENTITIES)
    slices = manager.informer(watches.RESOURCE_SLICES)
    replicated = [
        manager.informer(each)
        for each in (watches.NAMESPACE_MAPS, watches.RESOURCE_SLICES, watches.RENEWS)
    ]
    secrets = manager.tenant_secrets()

    def all_replicated() -> Iterator[Object]:
        for informer in replicated:
            yield from informer.items().values()

    def runners() -> tuple[Runner, Runner]:
        whole = IdentityReconciler(
            manager.cached,
            watches.cached(secrets),
            manager.private_key,
            manager.events,
            all_replicated,
        )
        sources = [
            WatchSource(identities),
            WatchSource(secrets, _by_secret),
            *(WatchSource(each, _by_replicated) for each in replicated),
        ]
        slice_ = SliceIdentityReconciler(manager.cached, manager.events)
        of_slices = [WatchSource(slices), WatchSource(identities, watches.beside(slices))]
        workers = manager.limits.workers
        return (
            Runner("identity", whole, sources, workers=workers),
            Runner("sliceidentity", slice_, of_slices, workers=workers),
        )

    return runners


def _by_secret(change: Change[Object]) -> Iterable[Key]:
    key = forge.identity_of(change.key)
    return [key] if key else []


def _by_replicated(change: Change[Object]) -> Iterable[Key]:
    """Return the Identity whose kubeconfig may no longer be needed, when an object is gone."""
    peer = ownership.destination(change.old) if change.old else ""
    if change.new is not None or not peer:
        return []
    return [Key(change.key.namespace, naming.controlplane_identity(peer))]
