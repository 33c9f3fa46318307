"""Provides for claims of the virtual class whose first pod runs on a node of this cluster."""

import logging
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from apis import keys, objects, ownership
from apis.claims import has_grown, storage_amount
from apis.objects import Key, Meta, Object
from controllers import watches, writes
from controllers.manager import Manager, Setup
from controllers.offloading.namespaceoffloading.forge import READY
from controllers.offloading.storage import forge
from controllers.watches import Keys, Lister
from kube.cluster import Cluster, Selection
from kube.controller import Runner, WatchSource
from kube.events import EventRecorder
from kube.informer import Change, Informer
from kube.slim import Partial

KIND: Final = keys.PERSISTENT_VOLUME_CLAIM
SOURCE_RETRY_S: Final = 15.0
"""How often a claim is looked at that waits for the claim of which it wants a copy."""

VOLUME_LOST: Final = "VolumeLost"

logger = logging.getLogger(__name__)


class StorageReconciler:
    """One claim; what is on virtual nodes is provided by their reflectors."""

    def __init__(self, cluster: Cluster, *, events: EventRecorder, real_class: str = "") -> None:
        self._cluster, self._events, self._real_class = cluster, events, real_class

    async def reconcile(self, key: Key) -> float | None:
        claim = await self._cluster.get(KIND, key)
        if claim is None or not forge.is_ours(claim):
            return None
        if claim["spec"].get("volumeName"):
            await self._grow(key, claim)
            return None
        name = forge.selected_node(claim)
        node = await self._cluster.get(keys.NODE, Key("", name)) if name else None
        if node is None or objects.labels(node).get(keys.NODE_TYPE) == keys.VIRTUAL_NODE_TYPE:
            return None
        real = await self._cluster.get(KIND, forge.real_key(claim))
        if real is None:
            found = await self._cluster.get_live(KIND, key)
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
        real = await self._cluster.list(Selection(KIND, Partial, keys.STORAGE_NAMESPACE, label))
        near = await self._cluster.list(Selection(KIND, SlimClaim, where))
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
        self._events.event(KIND, claim, "Warning", "TooManyRealClaims", message)
        return False

    async def _is_retained(self, uid: str) -> bool:
        found = await self._cluster.get(keys.PERSISTENT_VOLUME, Key("", f"pvc-{uid}"))
        return found is not None and forge.is_retained(found)

    async def _create(self, claim: Object) -> Object | None:
        """Create the real claim, and tell what it has not; None if its source is waited for."""
        where = forge.source_key(claim)
        named = await self._cluster.get(KIND, where) if where else None
        if where and forge.is_awaited(named):
            message = f"waits for the data of persistentvolumeclaim {where}, spec.dataSource"
            self._events.event(KIND, claim, "Normal", "WaitForDataSource", message)
            return None
        source = await self._cluster.get(KIND, forge.real_key(named)) if named else None
        wanted = forge.real_claim(claim, self._real_class, source)
        real = await self._cluster.create(KIND, wanted)
        logger.info("Created a real claim", extra={"claim": str(objects.key_of(claim))})
        if message := forge.left_out(claim, source):
            self._events.event(KIND, claim, "Warning", "FieldsLeftOut", message)
        return real

    async def _bind(self, claim: Object, real: Object) -> None:
        name = real["spec"].get("volumeName")
        if not name or objects.status(real).get("phase") != "Bound":
            return  # its change brings us back
        behind = await self._cluster.get(keys.PERSISTENT_VOLUME, Key("", name))
        if behind is None:
            return
        found = await self._cluster.get(keys.PERSISTENT_VOLUME, forge.volume_key(claim))
        if found is None:
            await self._cluster.create(keys.PERSISTENT_VOLUME, forge.volume(claim, behind))
            message = f"provided by claim {forge.real_key(claim)}"
            self._events.event(KIND, claim, "Normal", "ProvisioningSucceeded", message)

    async def _grow(self, key: Key, claim: Object) -> None:
        """Let the real claim ask for as much, and tell what its volume has by now."""
        where = forge.volume_key(claim)
        real = await self._cluster.get(KIND, forge.real_key(claim))
        volume = await self._cluster.get(keys.PERSISTENT_VOLUME, where)
        if real is None or volume is None:
            return
        if refused := forge.no_amount(claim):
            self._events.event(KIND, claim, "Warning", "InvalidAmount", refused)
        if changes := forge.larger(claim, real):
            await self._cluster.patch(KIND, objects.key_of(real), changes)
        capacity = objects.status(real).get("capacity")
        said = storage_amount(capacity)
        if has_grown(capacity, volume["spec"]):
            grown = {"metadata": {"uid": objects.uid(volume)}, "spec": {"capacity": said}}
            await self._cluster.patch(keys.PERSISTENT_VOLUME, where, grown)
        if has_grown(capacity, objects.status(claim)):
            only = {"uid": objects.uid(claim)}
            await self._cluster.patch_status(KIND, key, {"capacity": said}, metadata=only)


class LeftClaimReconciler:
    """One real claim whose claim of the virtual class has gone before it had a volume.

    While there is a volume for that claim, what becomes of both is up to ``LeftVolumeReconciler``
    and, where it is retained, to an administrator. Source: docs/parity.md H5.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def reconcile(self, key: Key) -> float | None:
        real = await self._cluster.get(KIND, key)
        if real is None or not forge.is_real(real) or await self._is_needed(real):
            return None
        if await self._cluster.get_live(keys.PERSISTENT_VOLUME, forge.volume_of(real)):
            return None
        await writes.remove(
            self._cluster,
            KIND,
            key,
            is_ours=lambda found: forge.is_real(found) and objects.uid(found) == objects.uid(real),
        )
        return None

    async def _is_needed(self, real: Object) -> bool:
        where = forge.virtual_key(real)
        if where is not None:
            return forge.is_for(real, await self._cluster.get_live(KIND, where))
        namespace = objects.labels(real).get(keys.VIRTUAL_CLAIM_NAMESPACE, "")
        near = await self._cluster.list(Selection(KIND, SlimClaim, namespace))
        return any(forge.is_for(real, one.to_object()) for one in near.items.values())


class LeftVolumeReconciler:
    """One volume of ours whose claim has gone: the real claim goes first, then the volume."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def reconcile(self, key: Key) -> float | None:
        volume = await self._cluster.get(keys.PERSISTENT_VOLUME, key)
        if volume is None or not forge.is_left(volume):
            return None
        real = Key(keys.STORAGE_NAMESPACE, forge.claim_uid(volume))
        await writes.remove(
            self._cluster,
            KIND,
            real,
            is_ours=lambda found: keys.VIRTUAL_CLAIM_NAME in objects.labels(found),
        )
        await writes.remove(self._cluster, keys.PERSISTENT_VOLUME, key, is_ours=forge.is_left)
        return None


class PlaceholderReconciler:
    """One volume that stands for a claim on a provider to which its namespace no longer goes.

    As long as the namespace goes there, the reflector keeps the volume. After that the claim on the
    provider is gone, and its data with it: a claim that stayed Bound would keep pods waiting for
    ever. Source: Kubernetes, "Storage Object in Use Protection".
    """

    def __init__(self, cluster: Cluster, *, maps: Lister, events: EventRecorder) -> None:
        self._cluster, self._maps, self._events = cluster, maps, events

    async def reconcile(self, key: Key) -> float | None:
        volume = await self._cluster.get(keys.PERSISTENT_VOLUME, key)
        provider = forge.placeholder_of(volume) if volume else ""
        if volume is None or not provider:
            return None
        where = forge.claim_of(volume)
        if forge.is_mapped(where.namespace, provider, (await self._maps()).values()):
            return None
        if await self._is_reflected(where.namespace, provider):
            return None
        claim = await self._cluster.get_live(KIND, where)
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
        if await writes.remove(self._cluster, kind, key, is_ours=is_it):
            return
        if claim is not None and not objects.is_terminating(volume):
            message = forge.lost(objects.key_of(claim), provider)
            self._events.event(KIND, claim, "Warning", VOLUME_LOST, message)
        found = await self._cluster.get_live(kind, key)
        if found is not None and is_it(found) and objects.is_terminating(found):
            await writes.remove_finalizer(self._cluster, kind, found, keys.VOLUME_PROTECTION)

    async def _is_reflected(self, namespace: str, provider: str) -> bool:
        """Whether the API server knows of anything of ``namespace`` on ``provider``."""
        of = Selection(keys.NAMESPACE_MAP, Object, labels=ownership.originals_for(provider))
        maps = (await self._cluster.list(of)).items.values()
        if forge.is_mapped(namespace, provider, maps):
            return True
        key = Key(namespace, keys.OFFLOADING_NAME)
        offloading = await self._cluster.get_live(keys.NAMESPACE_OFFLOADING, key)
        return offloading is not None and not forge.is_withdrawn(
            offloading, provider, has_map=bool(maps)
        )


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


# Which changes concern which claim of the virtual class ------------------------------------------


CLAIMS: Final = Selection(keys.PERSISTENT_VOLUME_CLAIM, SlimClaim)
VOLUMES: Final = watches.every(keys.PERSISTENT_VOLUME)


def controller(manager: Manager) -> Setup:
    claims, volumes = manager.informer(CLAIMS), manager.informer(VOLUMES)
    maps = manager.informer(watches.NAMESPACE_MAPS)
    offloadings = manager.informer(watches.OFFLOADINGS)

    def by_real(change: Change[SlimClaim]) -> Iterable[Key]:
        if change.key.namespace != keys.STORAGE_NAMESPACE:
            is_ours = change.new is not None and forge.is_ours(change.new.to_object())
            return [change.key] if is_ours else []
        uid = change.key.name
        return [key for key, claim in claims.items().items() if uid == claim.metadata.uid]

    def by_volume(change: Change[Object]) -> Iterable[Key]:
        claim = forge.claim_of(change.new or change.old or {"spec": {}})
        real = claims.get(claim)
        return by_real(Change(claim, None, real)) if real else []

    def runners() -> list[Runner]:
        provided = StorageReconciler(
            manager.cached, events=manager.events, real_class=manager.limits.real_storage_class
        )
        return [
            Runner(
                "storage", provided, [WatchSource(claims, by_real), WatchSource(volumes, by_volume)]
            ),
            Runner(
                "storage-placeholders",
                PlaceholderReconciler(
                    manager.cached, maps=watches.cached(maps), events=manager.events
                ),
                [WatchSource(volumes), WatchSource(offloadings, _withdrawn(volumes))],
            ),
            Runner("storage-left", LeftVolumeReconciler(manager.cached), [WatchSource(volumes)]),
            Runner(
                "storage-left-claims",
                LeftClaimReconciler(manager.cached),
                _left(claims, volumes),
            ),
        ]

    return runners


def _withdrawn(volumes: Informer[Object]) -> Keys:
    """Return what tells of the volumes of a namespace that a cluster has no longer."""

    def keys_of(change: Change[Object]) -> Iterable[Key]:
        if change.old is None or _where(change.old) <= _where(change.new):
            return []
        namespace = change.key.namespace
        return [
            key
            for key, found in volumes.items().items()
            if forge.placeholder_of(found) and forge.claim_of(found).namespace == namespace
        ]

    return keys_of


def _where(offloading: Object | None) -> set[str]:
    """Return the clusters that have, or are asked for, a namespace."""
    told = objects.status(offloading).get("remoteNamespacesConditions") or {}
    return {cluster for cluster, found in told.items() if objects.find_condition(found, READY)}


def _left(claims: Informer[SlimClaim], volumes: Informer[Object]) -> list[WatchSource[Any]]:
    """Return what tells that a real claim may be left: it, its claim, or that one's volume."""

    def left(change: Change[SlimClaim]) -> Iterable[Key]:
        """Yield the real claim itself, at first, and that of a claim that has gone."""
        if change.key.namespace == keys.STORAGE_NAMESPACE:
            return [change.key] if change.old is None else []
        if change.old is None or change.new is not None:
            return []
        real = Key(keys.STORAGE_NAMESPACE, change.old.metadata.uid)
        return [real] if claims.get(real) else []

    def left_by_volume(change: Change[Object]) -> Iterable[Key]:
        real = Key(keys.STORAGE_NAMESPACE, forge.claim_uid(change.old or {"spec": {}}))
        return [real] if change.new is None and claims.get(real) else []

    return [WatchSource(claims, left), WatchSource(volumes, left_by_volume)]
