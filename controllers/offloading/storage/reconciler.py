"""Provides for claims of the virtual class whose first pod runs on a node of this cluster."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from apis import keys, objects, ownership
from apis.claims import has_grown, storage_amount
from apis.objects import Key, Meta, Object
from controllers import watches, writes
from controllers.manager import Controller
from controllers.offloading.namespaceoffloading.forge import READY
from controllers.offloading.storage import forge
from kube.cluster import Selection
from kube.controller import WatchSource
from kube.informer import Change
from kube.slim import Partial

KIND: Final = keys.PERSISTENT_VOLUME_CLAIM
SOURCE_RETRY_S: Final = 15.0
"""How often a claim is looked at that waits for the claim of which it wants a copy."""

VOLUME_LOST: Final = "VolumeLost"

logger = logging.getLogger(__name__)


# What is kept of each claim of the cluster: whether it concerns us, and nothing large -------------
# Anybody who may create claims chooses how large they are and how many; the rest is read from the
# server where it is needed. Source: docs/parity.md H18.

MOST_OF_TEXT: int = 253
"""Characters of a text, as many as a name may have."""


class ProvisioningAnnotations(msgspec.Struct, gc=False, omit_defaults=True):
    """Those of provisioning, the others left out."""

    older: str = msgspec.field(default="", name=keys.STORAGE_PROVISIONERS[0])
    newer: str = msgspec.field(default="", name=keys.STORAGE_PROVISIONERS[1])
    node: str = msgspec.field(default="", name=keys.SELECTED_NODE)

    def __post_init__(self) -> None:
        self.older, self.newer = self.older[:MOST_OF_TEXT], self.newer[:MOST_OF_TEXT]
        self.node = self.node[:MOST_OF_TEXT]


class ClaimMeta(Meta, gc=False, frozen=True, omit_defaults=True):
    """Which claim it is."""

    annotations: ProvisioningAnnotations | None = None


class ClaimSpec(msgspec.Struct, gc=False, omit_defaults=True, rename="camel"):
    """Its class, and whether it has a volume."""

    storage_class_name: str | None = None
    volume_name: str = ""

    def __post_init__(self) -> None:
        self.storage_class_name = (self.storage_class_name or "")[:MOST_OF_TEXT]
        self.volume_name = self.volume_name[:MOST_OF_TEXT]


class SlimClaim(msgspec.Struct, gc=False):
    """A claim as the cache keeps it."""

    metadata: ClaimMeta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)

    def to_object(self) -> Object:
        """Return it as an object: a new dict each time."""
        made: Object = msgspec.to_builtins(self)
        return made


CLAIMS: Final = Selection(keys.PERSISTENT_VOLUME_CLAIM, SlimClaim)
VOLUMES: Final = watches.every(keys.PERSISTENT_VOLUME)


# Provides for claims ------------------------------------------------------------------------------


class StorageReconciler(Controller):
    """One claim; what is on virtual nodes is provided by their reflectors."""

    name = "storage"

    def watches(self) -> Sequence[WatchSource[Any]]:
        return self.watch(CLAIMS, self._by_real), self.watch(VOLUMES, self._by_volume)

    def _by_real(self, change: Change[SlimClaim]) -> Iterable[Key]:
        if change.key.namespace != keys.STORAGE_NAMESPACE:
            is_ours = change.new is not None and forge.is_ours(change.new.to_object())
            return [change.key] if is_ours else []
        uid, claims = change.key.name, self.informer(CLAIMS).items()
        return [key for key, claim in claims.items() if uid == claim.metadata.uid]

    def _by_volume(self, change: Change[Object]) -> Iterable[Key]:
        claim = forge.claim_of(change.new or change.old or {"spec": {}})
        real = self.informer(CLAIMS).get(claim)
        return self._by_real(Change(claim, None, real)) if real else []

    async def reconcile(self, key: Key) -> float | None:
        claim = await self.cached.get(KIND, key)
        if claim is None or not forge.is_ours(claim):
            return None
        if claim["spec"].get("volumeName"):
            await self._grow(key, claim)
            return None
        name = forge.selected_node(claim)
        node = await self.cached.get(keys.NODE, Key("", name)) if name else None
        if node is None or objects.labels(node).get(keys.NODE_TYPE) == keys.VIRTUAL_NODE_TYPE:
            return None
        real = await self.cached.get(KIND, forge.real_key(claim))
        if real is None:
            found = await self.cached.get_live(KIND, key)
            if found is None or not forge.is_waiting(found, objects.uid(claim)):
                return None
            claim = found
            real = await self._create(claim) if await self._has_room(claim) else None
        if real is None:
            return SOURCE_RETRY_S
        await self._bind(claim, real)
        return None

    async def _has_room(self, claim: Object) -> bool:
        """Whether the namespace has fewer real claims than virtual ones; tell if it has not.

        Real claims of volumes that an administrator retains are not counted.
        Source: docs/parity.md H5.
        """
        where = objects.key_of(claim).namespace
        label = f"{keys.VIRTUAL_CLAIM_NAMESPACE}={where}"
        real = await self.cached.list(Selection(KIND, Partial, keys.STORAGE_NAMESPACE, label))
        near = await self.cached.list(Selection(KIND, SlimClaim, where))
        virtual = {
            one.metadata.uid
            for one in near.items.values()
            if one.spec.storage_class_name == keys.VIRTUAL_STORAGE_CLASS
        }
        held = 0
        for key in real.items:
            held += key.name in virtual or not await self._is_retained(key.name)
        if held < len(virtual):
            return True
        message = (
            f"namespace {where} has {held} claim(s) in {keys.STORAGE_NAMESPACE} and {len(virtual)} "
            f"of class {keys.VIRTUAL_STORAGE_CLASS}: waits until one of a deleted claim is removed"
        )
        self.events.event(KIND, claim, "Warning", "TooManyRealClaims", message)
        return False

    async def _is_retained(self, uid: str) -> bool:
        found = await self.cached.get(keys.PERSISTENT_VOLUME, Key("", f"pvc-{uid}"))
        return found is not None and forge.is_retained(found)

    async def _create(self, claim: Object) -> Object | None:
        """Create the real claim, and tell what it has not; None if its source is waited for."""
        where = forge.source_key(claim)
        named = await self.cached.get(KIND, where) if where else None
        if where and forge.is_awaited(named):
            message = f"waits for the data of persistentvolumeclaim {where}, spec.dataSource"
            self.events.event(KIND, claim, "Normal", "WaitForDataSource", message)
            return None
        source = await self.cached.get(KIND, forge.real_key(named)) if named else None
        wanted = forge.real_claim(claim, self.limits.real_storage_class, source)
        real = await self.cached.create(KIND, wanted)
        logger.info("Created a real claim", extra={"claim": str(objects.key_of(claim))})
        if message := forge.left_out(claim, source):
            self.events.event(KIND, claim, "Warning", "FieldsLeftOut", message)
        return real

    async def _bind(self, claim: Object, real: Object) -> None:
        name = real["spec"].get("volumeName")
        if not name or objects.status(real).get("phase") != "Bound":
            return  # its change brings us back
        behind = await self.cached.get(keys.PERSISTENT_VOLUME, Key("", name))
        if behind is None:
            return
        found = await self.cached.get(keys.PERSISTENT_VOLUME, forge.volume_key(claim))
        if found is None:
            await self.cached.create(keys.PERSISTENT_VOLUME, forge.volume(claim, behind))
            message = f"provided by claim {forge.real_key(claim)}"
            self.events.event(KIND, claim, "Normal", "ProvisioningSucceeded", message)

    async def _grow(self, key: Key, claim: Object) -> None:
        """Let the real claim ask for as much, and tell what its volume has by now."""
        where = forge.volume_key(claim)
        real = await self.cached.get(KIND, forge.real_key(claim))
        volume = await self.cached.get(keys.PERSISTENT_VOLUME, where)
        if real is None or volume is None:
            return
        if refused := forge.no_amount(claim):
            self.events.event(KIND, claim, "Warning", "InvalidAmount", refused)
        if changes := forge.larger(claim, real):
            await self.cached.patch(KIND, objects.key_of(real), changes)
        capacity = objects.status(real).get("capacity")
        said = storage_amount(capacity)
        if has_grown(capacity, volume["spec"]):
            grown = {"metadata": {"uid": objects.uid(volume)}, "spec": {"capacity": said}}
            await self.cached.patch(keys.PERSISTENT_VOLUME, where, grown)
        if has_grown(capacity, objects.status(claim)):
            only = {"uid": objects.uid(claim)}
            await self.cached.patch_status(KIND, key, {"capacity": said}, metadata=only)


class LeftClaimReconciler(Controller):
    """One real claim whose claim of the virtual class has gone before it had a volume.

    While there is a volume for that claim, what becomes of both is up to ``LeftVolumeReconciler``
    and, where it is retained, to an administrator. Source: docs/parity.md H5.
    """

    name = "storage-left-claims"

    def watches(self) -> Sequence[WatchSource[Any]]:
        return self.watch(CLAIMS, self._by_claim), self.watch(VOLUMES, self._by_volume)

    def _by_claim(self, change: Change[SlimClaim]) -> Iterable[Key]:
        """Return the real claim itself, at first, and that of a claim that has gone."""
        if change.key.namespace == keys.STORAGE_NAMESPACE:
            return [change.key] if change.old is None else []
        if change.old is None or change.new is not None:
            return []
        return self._real(change.old.metadata.uid)

    def _by_volume(self, change: Change[Object]) -> Iterable[Key]:
        uid = forge.claim_uid(change.old or {"spec": {}})
        return self._real(uid) if change.new is None else []

    def _real(self, uid: str) -> list[Key]:
        real = Key(keys.STORAGE_NAMESPACE, uid)
        return [real] if self.informer(CLAIMS).get(real) else []

    async def reconcile(self, key: Key) -> float | None:
        real = await self.cached.get(KIND, key)
        if real is None or not forge.is_real(real) or await self._is_needed(real):
            return None
        if await self.cached.get_live(keys.PERSISTENT_VOLUME, forge.volume_of(real)):
            return None
        await writes.remove(
            self.cached,
            KIND,
            key,
            is_ours=lambda found: forge.is_real(found) and objects.uid(found) == objects.uid(real),
        )
        return None

    async def _is_needed(self, real: Object) -> bool:
        where = forge.virtual_key(real)
        if where is not None:
            return forge.is_for(real, await self.cached.get_live(KIND, where))
        namespace = objects.labels(real).get(keys.VIRTUAL_CLAIM_NAMESPACE, "")
        near = await self.cached.list(Selection(KIND, SlimClaim, namespace))
        return any(forge.is_for(real, one.to_object()) for one in near.items.values())


class LeftVolumeReconciler(Controller):
    """One volume of ours whose claim has gone: the real claim goes first, then the volume."""

    name = "storage-left"

    def watches(self) -> Sequence[WatchSource[Any]]:
        return [self.watch(VOLUMES)]

    async def reconcile(self, key: Key) -> float | None:
        volume = await self.cached.get(keys.PERSISTENT_VOLUME, key)
        if volume is None or not forge.is_left(volume):
            return None
        real = Key(keys.STORAGE_NAMESPACE, forge.claim_uid(volume))
        await writes.remove(
            self.cached,
            KIND,
            real,
            is_ours=lambda found: keys.VIRTUAL_CLAIM_NAME in objects.labels(found),
        )
        await writes.remove(self.cached, keys.PERSISTENT_VOLUME, key, is_ours=forge.is_left)
        return None


class PlaceholderReconciler(Controller):
    """One volume that stands for a claim on a provider to which its namespace no longer goes.

    As long as the namespace goes there, the reflector keeps the volume. After that the claim on the
    provider is gone, and its data with it: a claim that stayed Bound would keep pods waiting for
    ever. Source: Kubernetes, "Storage Object in Use Protection".
    """

    name = "storage-placeholders"
    reads = (watches.NAMESPACE_MAPS,)

    def watches(self) -> Sequence[WatchSource[Any]]:
        return self.watch(VOLUMES), self.watch(watches.OFFLOADINGS, self._by_offloading)

    def _by_offloading(self, change: Change[Object]) -> Iterable[Key]:
        """Return the volumes of a namespace that a cluster has no longer."""
        if change.old is None or _where(change.old) <= _where(change.new):
            return []
        namespace, volumes = change.key.namespace, self.informer(VOLUMES).items()
        return [
            key
            for key, found in volumes.items()
            if forge.placeholder_of(found) and forge.claim_of(found).namespace == namespace
        ]

    async def reconcile(self, key: Key) -> float | None:
        volume = await self.cached.get(keys.PERSISTENT_VOLUME, key)
        provider = forge.placeholder_of(volume) if volume else ""
        if volume is None or not provider:
            return None
        where = forge.claim_of(volume)
        maps = (await self.all(watches.NAMESPACE_MAPS)).values()
        if forge.is_mapped(where.namespace, provider, maps):
            return None
        if await self._is_reflected(where.namespace, provider):
            return None
        claim = await self.cached.get_live(KIND, where)
        if claim is not None and objects.uid(claim) != forge.claim_uid(volume):
            claim = None
        if claim is not None or not forge.is_retained(volume):  # its administrator removes others
            await self._remove(key, volume, claim, provider)
        return None

    async def _remove(self, key: Key, volume: Object, claim: Object | None, provider: str) -> None:
        """Delete a volume of ours; a claim that is bound to it would keep it Terminating."""

        def is_it(found: Object) -> bool:
            return objects.uid(found) == objects.uid(volume) and bool(forge.placeholder_of(found))

        kind = keys.PERSISTENT_VOLUME
        if await writes.remove(self.cached, kind, key, is_ours=is_it):
            return
        if claim is not None and not objects.is_terminating(volume):
            message = forge.lost(objects.key_of(claim), provider)
            self.events.event(KIND, claim, "Warning", VOLUME_LOST, message)
        found = await self.cached.get_live(kind, key)
        if found is not None and is_it(found) and objects.is_terminating(found):
            await writes.remove_finalizer(self.cached, kind, found, keys.VOLUME_PROTECTION)

    async def _is_reflected(self, namespace: str, provider: str) -> bool:
        """Whether the API server knows of anything of ``namespace`` on ``provider``."""
        of = Selection(keys.NAMESPACE_MAP, Object, labels=ownership.originals_for(provider))
        maps = (await self.cached.list(of)).items.values()
        if forge.is_mapped(namespace, provider, maps):
            return True
        key = Key(namespace, keys.OFFLOADING_NAME)
        offloading = await self.cached.get_live(keys.NAMESPACE_OFFLOADING, key)
        return offloading is not None and not forge.is_withdrawn(
            offloading, provider, has_map=bool(maps)
        )


def _where(offloading: Object | None) -> set[str]:
    """Return the clusters that have, or are asked for, a namespace."""
    told = objects.status(offloading).get("remoteNamespacesConditions") or {}
    return {cluster for cluster, found in told.items() if objects.find_condition(found, READY)}
