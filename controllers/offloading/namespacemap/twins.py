"""Makes and deletes single twin namespaces, by the provider's own record.

Source: docs/parity.md SEC-A4 to SEC-A6: nothing that exists is adopted, and what was read is read
again before it is relied on.
"""

import functools
import logging
from collections.abc import Callable, Iterable, Mapping

from apis import keys, objects
from apis.authentication import Binding
from apis.objects import Key, Kind, Object
from apis.offloading import CurrentMapping as Entry
from apis.offloading import NamespaceMap
from apis.policies import ProviderPolicy
from controllers import upkeep
from controllers.offloading.namespacemap import forge, holds
from controllers.offloading.namespacemap.forge import RefusedError, Room, Tenant
from kube.cluster import Cluster
from kube.errors import AlreadyExistsError, ConflictError, KubeError

logger = logging.getLogger(__name__)


class Twins:
    """Those of one map of one tenant, as one look at them finds them; ``found`` is from a cache."""

    def __init__(  # noqa: PLR0913  # one look, all of it
        self,
        cluster: Cluster,
        namespace_map: Object,
        tenant: Tenant,
        policy: ProviderPolicy,
        found: Mapping[Key, Object],
        *,
        given: dict[str, Key],
        account: Key,
        bindings: Callable[[], Iterable[tuple[Kind, Binding]]],
    ) -> None:
        self._cluster, self._map, self._found = cluster, namespace_map, found
        self._tenant, self.policy, self._account = tenant, policy, account
        self._bindings = bindings
        self._answered = NamespaceMap.parse(namespace_map).current
        asker = objects.key_of(namespace_map)
        self._room = Room(found.values(), asker, tenant, policy, given)

    async def make(self, local: str, name: str) -> Entry:
        """Return the entry of ``local`` after its twin and the rights in it are there.

        Raises:
            KubeError: the server did not do what was asked: try again.
        """
        try:
            twin = await self._namespace(local, name)
            if objects.is_terminating(twin):
                return Entry(name, forge.TERMINATING, "Terminating", "it is still being deleted")
            await self._bind(local, twin)
            await self._update(twin)
        except RefusedError as error:
            return Entry(name, forge.FAILED, error.reason, str(error))
        return Entry(name, forge.ACCEPTED)

    async def _update(self, twin: Object) -> None:
        if changes := forge.outdated(twin, self.policy):
            logger.info("Updating namespace", extra={"namespace": twin["metadata"]["name"]})
            metadata = {"uid": objects.uid(twin), **changes}
            await self._cluster.patch(keys.NAMESPACE, objects.key_of(twin), {"metadata": metadata})

    async def is_gone(self, local: str, name: str) -> bool:
        """Whether the twin is gone, which is asked for if need be; a namesake counts as that."""
        seen = self._found.get(Key("", name))
        if seen and objects.is_terminating(seen) and forge.is_twin(seen, self._map, local):
            if holds.is_stuck(seen):
                await holds.release(self._cluster, name)
            return False  # an event follows when it is
        is_gone = await upkeep.remove(
            self._cluster,
            keys.NAMESPACE,
            Key("", name),
            is_ours=lambda found: forge.is_twin(found, self._map, local),
        )
        if is_gone:
            self._room.leave(name)
        return is_gone

    async def is_released(self, local: str, name: str) -> bool:
        """Whether its consumer has no right in the twin, and holds nothing there any more.

        Two looks at least: rights go first, and what had come before that is released after it.
        """
        seen = self._found.get(Key("", name))
        is_here = seen is not None and forge.is_twin(seen, self._map, local)
        if not is_here or objects.is_terminating(seen or {}):
            return True
        owner = objects.key_of(self._map)
        is_out = await upkeep.remove(
            self._cluster,
            keys.ROLE_BINDING,
            Key(name, owner.namespace),
            is_ours=lambda found: forge.owner_of(found) == owner,
        )
        return is_out and not await holds.release(self._cluster, name)

    async def _namespace(self, local: str, name: str) -> Object:
        """Return the twin, made if need be; what the server then says is ours is what counts."""
        forge.check_name(name)
        key = Key("", name)
        found = self._found.get(key)
        if found is None and local in self._answered:  # once more: somebody else's may be there
            found = await self._cluster.get_live(keys.NAMESPACE, key)
        found = found or await self._create(local, name)
        forge.check_twin(found, self._map, local)
        return found

    @functools.cached_property
    def _bound(self) -> Mapping[str, str]:
        return forge.bound_elsewhere(self._bindings())

    async def _create(self, local: str, name: str) -> Object:
        forge.check_accounts(name, self._bound)
        self._room.take(local, name)
        wanted = forge.namespace(name, local, self._map, self._tenant, self.policy)
        logger.info("Creating namespace", extra={"namespace": name})
        try:
            return await self._cluster.create(keys.NAMESPACE, wanted)
        except AlreadyExistsError:
            found = await self._cluster.get_live(keys.NAMESPACE, Key("", name))
            if found is None:
                raise ConflictError(f"namespace {name} was replaced meanwhile") from None
            if not forge.is_twin(found, self._map, local):
                self._room.leave(name)
            return found
        except KubeError:
            self._room.leave(name)
            raise

    async def _bind(self, local: str, twin: Object) -> None:
        name = twin["metadata"]["name"]
        await self._check_same(local, twin)
        made: list[Object] = []
        try:
            for wanted in forge.bindings(name, self._map, self._tenant, self._account):
                made += await self._binding(wanted)
            if made:
                await self._check_same(local, twin)
        except (ConflictError, RefusedError):
            for each in made:
                key = objects.key_of(each)
                await self._cluster.delete(keys.ROLE_BINDING, key, uid=objects.uid(each))
            raise

    async def _binding(self, wanted: Object) -> list[Object]:
        """Return the binding if it is new; whom an older one binds is the provider's to say."""
        key = objects.key_of(wanted)
        try:
            return [await self._cluster.create(keys.ROLE_BINDING, wanted)]
        except AlreadyExistsError:
            found = await self._cluster.get_live(keys.ROLE_BINDING, key)
            if found and forge.owner_of(found) != objects.key_of(self._map):
                message = f"rolebinding {key} exists and is not ours"
                raise RefusedError("Conflict", message) from None
            return []

    async def _check_same(self, local: str, twin: Object) -> None:
        name = twin["metadata"]["name"]
        found = await self._cluster.get_live(keys.NAMESPACE, Key("", name))
        if found is None or objects.uid(found) != objects.uid(twin):
            raise ConflictError(f"namespace {name} was replaced meanwhile")
        forge.check_twin(found, self._map, local)
