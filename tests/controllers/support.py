"""What the tests of all controllers share: a ledger of writes, a clock, builders of our kinds."""

from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from apis import keys
from apis.authentication import Binding
from apis.objects import Key, Kind, Object, named
from apis.providerpolicy import GrantDefaults
from controllers.manager import AdvertisedEndpoint, Informers, Limits, Manager
from controllers.offloading.namespacemap import forge
from controllers.watches import ALL_BINDINGS
from kube import clock
from kube.cache import CachedCluster
from kube.cluster import Cluster, Event, Listing, Selection
from kube.controller import Reconciler
from kube.errors import AlreadyExistsError, ConflictError
from kube.events import EventRecorder
from kube.informer import Indexed

T = TypeVar("T")

NOW: Final = datetime(2025, 1, 31, 12, tzinfo=UTC)
LATER: Final = datetime(2025, 1, 31, 13, tzinfo=UTC)


Known: TypeAlias = Mapping[Selection[Any], Callable[[], Mapping[Key, Any]]]
"""What informers know of some selections, where a test does not have them know all."""


class Ledger:
    """A cluster that writes down what was written: (verb, kind, key)."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.writes: list[tuple[str, str, Key]] = []
        self.refuses: dict[tuple[str, str, Key], Exception] = {}
        """Writes that fail for ever."""

    def _write(self, verb: str, kind: Kind, key: Key) -> None:
        if error := self.refuses.get((verb, str(kind), key)):
            raise error
        self.writes.append((verb, str(kind), key))

    async def get(self, kind: Kind, key: Key) -> Object | None:
        return await self._cluster.get(kind, key)

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        return await self._cluster.get_live(kind, key)

    async def list(self, of: Selection[T]) -> Listing[T]:
        return await self._cluster.list(of)

    def watch(self, of: Selection[T], since: str) -> AsyncGenerator[Event[T], None]:
        return self._cluster.watch(of, since)

    async def create(self, kind: Kind, obj: Object) -> Object:
        self.writes.append(("create", str(kind), Key("", obj["metadata"].get("name", ""))))
        return await self._cluster.create(kind, obj)

    async def apply(self, kind: Kind, obj: Object, *, manager: str) -> Object:
        self.writes.append(("apply", str(kind), Key("", obj["metadata"]["name"])))
        return await self._cluster.apply(kind, obj, manager=manager)

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        self._write("patch", kind, key)
        return await self._cluster.patch(kind, key, changes, subresource=subresource)

    async def patch_status(
        self, kind: Kind, key: Key, status: Object, *, metadata: Object | None = None
    ) -> Object:
        self._write("patch_status", kind, key)
        return await self._cluster.patch_status(kind, key, status, metadata=metadata)

    async def delete(self, kind: Kind, key: Key, *, uid: str, grace_s: int | None = None) -> None:
        self._write("delete", kind, key)
        await self._cluster.delete(kind, key, uid=uid, grace_s=grace_s)

    async def post(self, kind: Kind, key: Key, subresource: str, body: Object) -> Object:
        self._write(subresource, kind, key)
        return await self._cluster.post(kind, key, subresource, body)


def own_binding(twin: str) -> Object:
    """Return what the controller manager gives to itself in a twin."""
    owner = named(keys.NAMESPACE_MAP, Key("liqo-tenant-rome", "milan"))
    tenant = forge.MapTenant("liqo-tenant-rome", "rome")
    account = Key(keys.LIQO_NAMESPACE, keys.CONTROLLER_MANAGER)
    return forge.bindings(twin, owner, tenant, account)[0]


class Told:
    """The reasons of the events that a recorder was asked to write, without writing any."""

    def __init__(self, cluster: Cluster) -> None:
        self.recorder = _Listening(cluster)

    @property
    def reasons(self) -> list[str]:
        """Return them in order."""
        return self.recorder.reasons


class _Listening(EventRecorder):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, "tests", "tests")
        self.reasons: list[str] = []

    def event(self, kind: Kind, obj: Object, type_: Any, reason: str, message: str) -> None:
        self.reasons.append(reason)
        super().event(kind, obj, type_, reason, message)


async def settle(reconciler: Reconciler, key: Key, ledger: Ledger) -> None:
    """Reconcile ``key`` until nothing is written any more, and show that it comes to an end."""
    for _ in range(10):
        before = len(ledger.writes)
        try:
            await reconciler.reconcile(key)
        except ConflictError:
            continue  # as the queue does, silently
        if len(ledger.writes) == before:
            return
    raise AssertionError(f"it goes on writing: {ledger.writes[-5:]}")


async def make(
    cluster: Cluster, kind: Kind, obj: Object, *, status: Object | None = None
) -> Object:
    """Return ``obj`` as the cluster has it, with ``status``."""
    made = await cluster.create(kind, obj)
    if status is None:
        return made
    key = Key(made["metadata"].get("namespace", ""), made["metadata"]["name"])
    return await cluster.patch_status(kind, key, status)


async def there(cluster: Cluster, kind: Kind, key: Key) -> Object:
    """Return an object that has to be there."""
    found = await cluster.get_live(kind, key)
    assert found is not None, f"{kind} {key} is not there"
    return found


async def end(cluster: Cluster, kind: Kind, key: Key) -> None:
    """Ask for the deletion of an object."""
    found = await there(cluster, kind, key)
    await cluster.delete(kind, key, uid=found["metadata"]["uid"])


async def ensure_namespace(cluster: Cluster, name: str) -> None:
    """Have a namespace that a whole cluster would have."""
    try:
        await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
    except AlreadyExistsError:
        return


def defaulted(namespace: str, **spec: Any) -> Object:
    """Return the NamespaceOffloading of a namespace, with the defaults that its CRD fills in."""
    defaults = {
        "namespaceMappingStrategy": "DefaultName",
        "podOffloadingStrategy": "LocalAndRemote",
    }
    key = Key(namespace, keys.OFFLOADING_NAME)
    return named(keys.NAMESPACE_OFFLOADING, key, spec={**defaults, **spec})


def virtual_node(namespace: str, name: str, cluster_id: str, **spec: Any) -> Object:
    """Return a VirtualNode on the cluster ``cluster_id``."""
    wanted: Object = {
        "clusterID": cluster_id,
        "createNode": True,
        "kubeconfigSecretRef": {"name": f"kubeconfig-{name}"},
        **spec,
    }
    return named(keys.VIRTUAL_NODE, Key(namespace, name), spec=wanted)


def local_map(namespace: str, cluster_id: str, **desired: str) -> Object:
    """Return the consumer's copy of the map of ``cluster_id``."""
    labels = {
        keys.REMOTE_CLUSTER_ID: cluster_id,
        keys.REPLICATION: "true",
        keys.REMOTE_ID: cluster_id,
    }
    key = Key(namespace, cluster_id)
    spec = {"desiredMapping": desired}
    return named(keys.NAMESPACE_MAP, key, metadata={"labels": labels}, spec=spec)


def replica_map(namespace: str, name: str, origin: str, desired: dict[str, str]) -> Object:
    """Return the provider's copy of a map that came from ``origin``."""
    labels = {
        keys.REMOTE_CLUSTER_ID: origin,
        keys.REPLICATION: "false",
        keys.REPLICATED: "true",
        keys.ORIGIN_ID: origin,
        keys.REMOTE_ID: name,
    }
    spec = {"desiredMapping": desired}
    return named(keys.NAMESPACE_MAP, Key(namespace, name), metadata={"labels": labels}, spec=spec)


@dataclass(frozen=True)
class LiveManager(Manager):
    """What a controller sees whose informers are never behind: it asks the server each time."""

    known: Known = field(default_factory=dict)

    async def all(self, selection: Selection[T]) -> Mapping[Key, T]:
        if selection in self.known:
            return self.known[selection]()
        return (await self.live.list(selection)).items

    async def found_by(
        self, selection: Selection[T], of: Indexed[T], said: Hashable
    ) -> Mapping[Key, T]:
        found = (await self.all(selection)).items()
        return {key: one for key, one in found if said in of(key, one)}


def bindings_known(seen: Callable[[], Iterable[tuple[Kind, Binding]]]) -> Known:
    """Return what is ``known`` where only some bindings of the cluster were seen."""

    def of(selected: Kind) -> dict[Key, Binding]:
        every = [binding for kind, binding in seen() if kind == selected]
        return {Key(each.metadata.namespace, each.metadata.name): each for each in every}

    return {each: partial(of, each.kind) for each in ALL_BINDINGS}


def manager_of(
    cluster: Cluster,
    *,
    of: Callable[..., Manager] = LiveManager,
    clock: Callable[[], datetime] = clock.now,
    **rest: Any,
) -> Manager:
    """Return ``cluster``, which is called milan, as its controllers see it."""
    cached = CachedCluster(cluster)
    given: dict[str, Any] = {
        "cluster_id": "milan",
        "namespace": keys.LIQO_NAMESPACE,
        "events": EventRecorder(cluster, "tests", "tests"),
        "user_agent": "tests",
        "limits": Limits(),
        "standard": GrantDefaults(),
        "may_write": lambda: True,
        "endpoint": AdvertisedEndpoint(lambda: b"CA", "milan.example:6443"),
        "private_key": b"",
        **rest,
    }
    informers = Informers(cached)
    return of(live=cluster, cached=cached, informers=informers, clock=clock, **given)
