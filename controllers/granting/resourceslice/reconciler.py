"""A ResourceSlice on either side: a consumer makes a virtual node of it, a provider signs it."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from apis import keys, naming, objects, ownership, slices
from apis.authentication import Tenant, TenantCondition
from apis.objects import Key, Object
from apis.offloading import VirtualNode, VkOptionsTemplate
from controllers import watches, writes
from controllers.authentication.issuing.issuer import Issuer, NoAddressError
from controllers.granting.resourceslice import forge
from controllers.manager import Controller, Manager
from kube import localaddresses
from kube.cluster import Selection
from kube.controller import WatchSource
from kube.errors import ForbiddenError
from kube.informer import Change

KIND: Final = keys.RESOURCE_SLICE
GOING_POLL_S: Final = 5.0
_CONFLICT: Final = 409
WAITING_S: Final = 5.0
"""Until a slice is looked at again whose Identity has no kubeconfig yet, news of it or none."""

logger = logging.getLogger(__name__)


class LocalSliceReconciler(Controller):
    """One slice; its VirtualNodes go before it does, for they live on its identity."""

    name = "localslice"
    is_parallel = True

    def watches(self) -> Sequence[WatchSource[Any]]:
        return (
            self.watch(watches.RESOURCE_SLICES),
            self.watch(watches.PEER_NAMESPACES, self.inside(watches.RESOURCE_SLICES)),
            self.watch(watches.IDENTITIES, _by_name),
            self.watch(watches.VIRTUAL_NODES, _by_name),
        )

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cached.get(KIND, key)
        provider = await watches.peer_in(self.cached, key.namespace)
        if obj is None or ownership.is_foreign(obj, provider):
            return None
        if objects.is_terminating(obj):
            return await self._take_down(obj)
        if not provider:
            await self._tell_of_no_peering(obj)
            return None
        if not self._is_for(obj, provider):
            return None
        obj = await self._complete(obj, provider)
        if forge.wants_node(obj):
            return await self._make_node(obj, provider)
        if slices.has_to_leave(obj):
            await self._vacate(obj)
        return None

    async def _tell_of_no_peering(self, obj: Object) -> None:
        where = objects.key_of(obj).namespace
        if ownership.peer_of(await self.cached.get_live(keys.NAMESPACE, Key("", where))):
            return  # the cache learns of it, and brings the slice back
        message = f"namespace {where} is the tenant namespace of no peer"
        cure = "create the slice in that of a provider; liqoctl peer makes one"
        self.events.event(KIND, obj, "Warning", "WrongNamespace", f"{message}: {cure}")

    def _is_for(self, obj: Object, provider: str) -> bool:
        """Whether the slice asks the cluster whose namespace it is in, or any; tells if not."""
        asked = objects.spec(obj).get("providerClusterID") or provider
        if asked == provider:
            return True
        where = objects.key_of(obj).namespace
        message = f"spec.providerClusterID is {asked}, namespace {where} is for {provider}"
        cure = f"create it in the tenant namespace of {asked}"
        self.events.event(KIND, obj, "Warning", "WrongNamespace", f"{message}: {cure}")
        return False

    async def _complete(self, obj: Object, provider: str) -> Object:
        changes = forge.completion(obj, provider, self.manager.cluster_id, self.manager.private_key)
        if not changes:
            return obj
        version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        changes["metadata"] = {**changes.get("metadata", {}), **version}
        made = await self.cached.patch(KIND, objects.key_of(obj), changes)
        self.events.event(KIND, made, "Normal", "Reconciled", forge.asked(made, provider))
        return made

    async def _make_node(self, obj: Object, provider: str) -> float | None:
        key = objects.key_of(obj)
        identity = Key(key.namespace, naming.resourceslice_identity(key.name))
        found = await self.cached.get(keys.IDENTITY, identity)
        secret = _secret_of(found)
        if not secret:
            return WAITING_S
        existing = await self.cached.get(keys.VIRTUAL_NODE, key)
        if existing is not None and not objects.is_controlled_by(existing, obj):
            message = f"virtualnode {key} exists and is not of this slice: delete or keep it"
            self.events.event(KIND, obj, "Warning", "NameTaken", message)
            return None
        allowed = await self._allowed_labels(existing)
        wanted = forge.virtual_node(obj, provider, secret, existing, allowed)
        if existing is None:
            logger.info("Creating virtual node", extra={"virtualnode": str(key)})
            try:
                made = await self.cached.create(keys.VIRTUAL_NODE, wanted)
            except ForbiddenError as error:
                self._tell_of_refusal(obj, error)
                raise
            message = f"virtualnode {objects.key_of(made)} is made of it"
            self.events.event(KIND, obj, "Normal", "VirtualNodeCreated", message)
            return None
        if objects.is_terminating(existing):
            return None
        if changes := forge.changes(existing, wanted):
            await self.cached.patch(keys.VIRTUAL_NODE, key, changes)
        told = {
            "largestPod": forge.largest_pod(obj),
            "suggestedLabels": forge.labels_apart(obj, wanted, allowed),
        }
        await self._tell(existing, told)
        return None

    def _tell_of_refusal(self, obj: Object, error: ForbiddenError) -> None:
        if error.status != _CONFLICT:
            return
        message = f"virtualnode {objects.key_of(obj)} cannot be made of it: {error.said}"
        cure = "or delete this slice, and create one of another name"
        self.events.event(KIND, obj, "Warning", "NameTaken", f"{message}, {cure}")

    async def _allowed_labels(self, existing: Object | None) -> tuple[str, ...] | None:
        """Return what the template of the virtual node lets its provider suggest."""
        named = VirtualNode.parse(existing).vk_options_template_ref if existing else None
        key = Key(self.manager.namespace, named.name if named else keys.DEFAULT_VK_OPTIONS_TEMPLATE)
        found = await self.cached.get(keys.VK_OPTIONS_TEMPLATE, key)
        return VkOptionsTemplate.parse(found).suggestible if found else None

    async def _tell(self, node: Object, told: Object) -> None:
        """Write what is ``told`` into the status of the VirtualNode; what is empty goes."""
        before = objects.status(node)
        others = {name: value for name, value in before.items() if name not in told}
        wanted = {**others, **{name: value for name, value in told.items() if value}}
        await writes.write_status(self.cached, keys.VIRTUAL_NODE, node, wanted)
        refused = told["suggestedLabels"].get("refused", [])
        if refused and refused != (before.get("suggestedLabels") or {}).get("refused"):
            message = (
                f"the provider suggests labels that are not taken: {', '.join(refused)}; "
                "nodeLabels.allowed of the VkOptionsTemplate says which are"
            )
            self.events.event(keys.VIRTUAL_NODE, node, "Normal", "LabelsNotTaken", message)

    async def _vacate(self, obj: Object) -> None:
        """Delete the virtual node that was made of the slice: that evicts its pods first."""
        await writes.remove(
            self.cached, keys.VIRTUAL_NODE, objects.key_of(obj), is_ours=writes.owned_by(obj)
        )

    async def _take_down(self, obj: Object) -> float | None:
        if keys.SLICE_FINALIZER not in objects.finalizers(obj):
            return None
        where = objects.key_of(obj)
        all_nodes = Selection(keys.VIRTUAL_NODE, Object, where.namespace)
        listed = (await self.cached.list(all_nodes)).items
        found = {
            key: node for key, node in listed.items() if slices.of_virtual_node(node) == where.name
        }

        async def take_down(key: Key) -> None:
            uid = objects.uid(found[key])
            await writes.remove(self.cached, keys.VIRTUAL_NODE, key, is_ours=writes.same_uid(uid))

        standing = [key for key, node in found.items() if not objects.is_terminating(node)]
        writes.raise_all(await writes.each(standing, take_down))
        if found:
            return GOING_POLL_S
        await writes.remove_finalizer(self.cached, KIND, obj, keys.SLICE_FINALIZER)
        return None


def _secret_of(identity: Object | None) -> str:
    reference = objects.status(identity).get("kubeconfigSecretRef") or {}
    return str(reference.get("name") or "")


# A slice of a consumer: its request is signed, or it is said why not ------------------------------


class ReplicaReconciler(Controller):
    """One replica. Nothing is signed for whom the Tenant's own controller does not let in."""

    name = "slicereplica"
    is_parallel = True
    reads = (localaddresses.NODES,)

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self._issuer = Issuer(manager)

    def watches(self) -> Sequence[WatchSource[Any]]:
        slices_ = watches.RESOURCE_SLICES
        return (
            self.watch(slices_),
            self.watch(watches.PEER_NAMESPACES, self.inside(slices_)),
            self.watch(watches.TENANTS, watches.but_booked(self.beside(slices_))),
            self.watch(watches.SECRETS, _by_certificate),
        )

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cached.get(KIND, key)
        if obj is None:
            await self._forget(key)
            return None
        if objects.is_terminating(obj):
            return None
        if not objects.spec(obj).get("csr"):
            return None  # the consumer's controllers are about to add it
        consumer = await watches.peer_in(self.cached, key.namespace)
        if not consumer or not ownership.origin(obj, consumer):
            return None
        tenant = await self._tenant(obj, consumer)
        return await self._answer(obj, tenant) if tenant else None

    async def _tenant(self, obj: Object, consumer: str) -> Tenant | None:
        where = objects.key_of(obj).namespace
        found = [
            one for key, one in (await self.all(watches.TENANTS)).items() if key.namespace == where
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
            issued = await self._issuer.issue(forge.request(obj, tenant))
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
            await self.cached.patch_status(KIND, objects.key_of(obj), changes, metadata=version)

    async def _forget(self, key: Key) -> None:
        where = Key(key.namespace, naming.remote_certificate(key.name))
        if where not in await self.all(watches.SECRETS):
            return
        consumer = await watches.peer_in(self.cached, key.namespace)
        if consumer and await self.cached.get_live(KIND, key) is None:
            await writes.remove(
                self.cached,
                keys.SECRET,
                where,
                is_ours=lambda found: forge.is_certificate(found, consumer),
            )


# Which changes concern which ResourceSlice, on either side ----------------------------------------


def _by_name(change: Change[Object]) -> Iterable[Key]:
    name = slices.of_virtual_node(change.new or change.old or {"metadata": {}})
    return [Key(change.key.namespace, name)] if name else []


def _by_certificate(change: Change[Object]) -> Iterable[Key]:
    prefix = f"{naming.remote_certificate()}-"
    name = change.key.name.removeprefix(prefix)
    is_one = change.key.name.startswith(prefix) and name
    return [Key(change.key.namespace, name)] if is_one else []
