"""Makes the twin namespaces that a map asks for, and deletes those that it no longer asks for."""

import contextlib
import logging
from dataclasses import dataclass
from typing import Final

from apis import keys, objects
from apis.objects import Key, Object
from apis.offloading import CurrentMapping as Entry
from apis.offloading import NamespaceMap
from controllers import upkeep
from controllers.namespacemap import forge
from controllers.namespacemap.forge import RefusedError, Tenant
from controllers.views import View
from kube.cluster import Cluster
from kube.errors import AlreadyExistsError, ConflictError, KubeError
from kube.events import Recorder
from kube.reconcile import TerminalError

KIND: Final = keys.NAMESPACE_MAP
FINALIZER: Final = keys.NAMESPACE_MAP_FINALIZER
REFUSED_RETRY_S: Final = 30.0
"""What was in the way is not ours, so no event tells when it is gone."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Request:
    """One look at a map: whose it is, and what came of its entries so far."""

    obj: Object
    tenant: Tenant
    entries: dict[str, Entry]
    failures: list[Exception]


class NamespaceMapReconciler:
    """One replica: an entry that is refused, or that fails, does not hold up the others."""

    def __init__(
        self,
        cluster: Cluster,
        namespaces: View,
        *,
        events: Recorder,
        max_twins: int = forge.MAX_TWINS,
    ) -> None:
        self._cluster = cluster
        self._namespaces = namespaces
        self._events = events
        self._max_twins = max_twins

    async def reconcile(self, key: Key) -> float | None:
        obj = await self._cluster.get(KIND, key)
        if obj is None or not forge.is_replica(obj):
            return None
        if objects.is_terminating(obj):
            return await self._dissolve(obj)
        tenant = await self._tenant(obj)
        obj = await upkeep.add_finalizer(self._cluster, KIND, obj, FINALIZER)
        failures: list[Exception] = []
        entries = await self._remove(obj, NamespaceMap.parse(obj).desired, failures)
        request = _Request(obj, tenant, entries, failures)
        for local, name in sorted(NamespaceMap.parse(obj).desired.items()):
            entries[local] = await self._serve(request, local, name)
        await self._report(obj, entries)
        upkeep.raise_all(failures)
        waiting = any(entry.phase != forge.ACCEPTED for entry in entries.values())
        return REFUSED_RETRY_S if waiting else None

    async def _tenant(self, obj: Object) -> Tenant:
        where = Key("", obj["metadata"]["namespace"])
        try:
            return forge.tenant(await self._cluster.get(keys.NAMESPACE, where), obj)
        except RefusedError as error:
            self._events.event(KIND, obj, "Warning", error.reason, str(error))
            raise TerminalError(error.reason, str(error)) from error

    async def _serve(self, request: "_Request", local: str, name: str) -> Entry:
        before = NamespaceMap.parse(request.obj).current.get(local)
        try:
            namespace = await self._namespace(request, local, name)
            if objects.is_terminating(namespace):
                return Entry(name, forge.TERMINATING, "Terminating", "it is still being deleted")
            await self._bind(request.obj, request.tenant, local, namespace)
        except RefusedError as error:
            return Entry(name, forge.FAILED, error.reason, str(error))
        except KubeError as error:
            request.failures.append(error)
            if before == Entry(name, forge.ACCEPTED):
                return before  # it is there: an answer that we did not get changes nothing
            return Entry(name, forge.FAILED, "Error", "the cluster did not answer as expected")
        return Entry(name, forge.ACCEPTED)

    async def _namespace(self, request: "_Request", local: str, name: str) -> Object:
        """Return the twin, made if need be; what the server then says is ours is what counts."""
        forge.check_name(name)
        found = await self._cluster.get(keys.NAMESPACE, Key("", name))
        if found is None:
            twins = (await self._namespaces()).values()
            forge.check_room(twins, request.entries, request.tenant, self._max_twins)
            found = await self._create(forge.namespace(name, local, request.obj, request.tenant))
        forge.check_twin(found, request.obj, local)
        return found

    async def _create(self, wanted: Object) -> Object:
        key = objects.key_of(wanted)
        logger.info("Creating namespace", extra={"namespace": key.name})
        made: Object | None = None
        with contextlib.suppress(AlreadyExistsError):
            made = await self._cluster.create(keys.NAMESPACE, wanted)
        found = await self._cluster.get_live(keys.NAMESPACE, key)
        if found is None or (made and objects.uid(found) != objects.uid(made)):
            raise ConflictError(f"namespace {key.name} was replaced meanwhile")
        return found

    async def _bind(self, obj: Object, tenant: Tenant, local: str, namespace: Object) -> None:
        name = namespace["metadata"]["name"]
        wanted = forge.binding(name, obj, tenant)
        key = objects.key_of(wanted)
        found = await self._cluster.get(keys.ROLE_BINDING, key)
        if found is not None:
            if forge.owner_of(found) != objects.key_of(obj):
                raise RefusedError("Conflict", f"rolebinding {key} exists and is not ours")
            return  # whom it binds is the provider's to change
        await self._check_same(obj, local, namespace)
        made = await self._cluster.create(keys.ROLE_BINDING, wanted)
        try:
            await self._check_same(obj, local, namespace)
        except (ConflictError, RefusedError):
            await self._cluster.delete(keys.ROLE_BINDING, key, uid=objects.uid(made))
            raise

    async def _check_same(self, obj: Object, local: str, namespace: Object) -> None:
        name = namespace["metadata"]["name"]
        found = await self._cluster.get_live(keys.NAMESPACE, Key("", name))
        if found is None or objects.uid(found) != objects.uid(namespace):
            raise ConflictError(f"namespace {name} was replaced meanwhile")
        forge.check_twin(found, obj, local)

    async def _remove(
        self, obj: Object, wanted: dict[str, str], failures: list[Exception]
    ) -> dict[str, Entry]:
        """Delete the twins that nobody wants; return the entries of those still going."""
        owned = (await self._namespaces()).values()
        left: dict[str, Entry] = {}
        for name, local in forge.leftovers(obj, owned, wanted).items():
            before = NamespaceMap.parse(obj).current.get(local)
            try:
                if not await self._gone(obj, name, local):
                    left[local] = Entry(name, forge.TERMINATING)
            except KubeError as error:
                failures.append(error)
                left[local] = before or Entry(name, forge.TERMINATING)
        return left

    async def _gone(self, obj: Object, name: str, local: str) -> bool:
        return await upkeep.remove(
            self._cluster,
            keys.NAMESPACE,
            Key("", name),
            is_ours=lambda found: forge.is_twin(found, obj, local),
        )

    async def _dissolve(self, obj: Object) -> float | None:
        if FINALIZER not in objects.finalizers(obj):
            return None
        failures: list[Exception] = []
        entries = await self._remove(obj, {}, failures)
        obj = await self._report(obj, entries)
        upkeep.raise_all(failures)
        if not entries:
            await upkeep.remove_finalizer(self._cluster, KIND, obj, FINALIZER)
            return None
        return REFUSED_RETRY_S

    async def _report(self, obj: Object, entries: dict[str, Entry]) -> Object:
        before = NamespaceMap.parse(obj).current
        for local, entry in entries.items():
            if entry.reason and before.get(local) != entry:
                message = f"namespace {local}: {entry.message}"
                self._events.event(KIND, obj, "Warning", entry.reason, message)
        return await upkeep.write_status(self._cluster, KIND, obj, forge.status(entries))
