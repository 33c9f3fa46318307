"""One task a peer, for as long as anything is to be replicated to it."""

import asyncio
import enum
import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from apis import keys, naming, objects, offloading, ownership
from apis.objects import Key, Kind, Object
from controllers import watches
from controllers.manager import Manager, OversizedPeers, Setup
from controllers.peers.replication.forge import Peering
from controllers.peers.replication.reconciler import (
    FINALIZER,
    ReleaseReconciler,
    RemovalReconciler,
    ReplicationReconciler,
    looks,
)
from kube import peer
from kube.cache import CachedCluster
from kube.cluster import Cluster, LeaderOnlyCluster, MemoryQuota, Selection
from kube.controller import Runner, WatchSource
from kube.dynamicinformer import DynamicTasks
from kube.errors import KubeError
from kube.events import EventRecorder
from kube.informer import Change, Informer
from kube.ratelimit import Buckets
from kube.slim import PackedWhole

KINDS: Final[tuple[Kind, ...]] = (keys.NAMESPACE_MAP, keys.RESOURCE_SLICE, keys.RENEW)
"""What is replicated; a new kind is one more here, and an informer for it."""
UNREACHABLE_S: Final = 150.0
"""How long a peer may say nothing until its objects tell: above the minute between bookmarks."""
RESTART_S: Final = 10.0
MOST_BYTES: Final = 16 * 2**20
"""Of the replicas on one peer that are kept. Source: docs/parity.md H14."""
_LOOK_S: Final = 15.0

logger = logging.getLogger(__name__)


class PeerKey(NamedTuple):
    """A tenant namespace here, and the cluster it is for."""

    namespace: str
    cluster_id: str


@dataclass(frozen=True)
class ReplicationOrigin:
    """This cluster: its cached view, and the informer of each replicated kind."""

    cluster_id: str
    live: Cluster
    cached: CachedCluster
    informers: dict[Kind, Informer[Object]]
    events: EventRecorder
    user_agent: str
    foreign_clusters: Informer[Object] = field(repr=False)
    """What is known of the peers: one that is gone for good is not asked any more."""
    namespaces: Informer[Object] = field(repr=False)
    """Tenant namespaces, which name their peer."""
    identities: Informer[Object] = field(repr=False)
    secrets: Informer[Object] = field(repr=False)
    """Those of tenant namespaces: a kubeconfig outlives its Identity until all is withdrawn."""
    may_write: Callable[[], bool] = lambda: True
    """Whether this process leads: without it nothing is written to a peer either."""
    excess: OversizedPeers = field(default_factory=OversizedPeers, repr=False)
    """Which peers send more than is kept of them."""
    runners: set[Runner] = field(default_factory=set, repr=False)
    """Those that run now, of all peers."""

    def is_gone(self, cluster_id: str) -> bool:
        """Whether that peer does not come back."""
        return offloading.is_gone_for_good(self.foreign_clusters.get(Key("", cluster_id)))

    def followed(self) -> list[Informer[Object]]:
        """Return all that tells whether there is a peer, and anything for it."""
        others = (self.foreign_clusters, self.namespaces, self.identities, self.secrets)
        return [*self.informers.values(), *others]

    def peers(self) -> dict[str, str]:
        named = {key.name: ownership.peer_of(obj) for key, obj in self.namespaces.items().items()}
        return {name: peer for name, peer in named.items() if peer}

    def can_sign_in(self, key: "PeerKey") -> bool:
        """Whether there is an identity for that peer, or is to be one again."""
        return bool(self.identities.get(identity_of(key)) or self.secrets.get(secret_of(key)))

    async def is_signed_out(self, key: "PeerKey") -> bool:
        """Whether the API server has no identity for that peer."""
        found = [
            await self.live.get_live(keys.IDENTITY, identity_of(key)),
            await self.live.get_live(keys.SECRET, secret_of(key)),
        ]
        return not any(found)


class _How(enum.Enum):
    """What is done with the objects for a peer."""

    REPLICATE = "replication"
    ABANDON = "release: the peer is gone for good"
    LET_GO = "release: no identity for the peer"


class _Work(NamedTuple):
    peer: PeerKey
    how: _How


class ReplicatedPeers:
    """Starts and stops replication as the first object for a peer comes and the last one goes."""

    def __init__(self, origin: ReplicationOrigin) -> None:
        self.name = "replication"
        self._origin = origin
        self._changed = asyncio.Event()
        self._scopes: DynamicTasks[_Work] = DynamicTasks(self._work)

    def is_alive(self) -> bool:
        return all(runner.is_alive() for runner in self._origin.runners)

    async def drain(self) -> None:
        """Finish what waits for any peer, before the process ends."""
        await asyncio.gather(*(runner.drain() for runner in self._origin.runners))

    async def run(self) -> None:
        """Follow the local objects for ever; cancel to stop all peers."""
        informers = self._origin.followed()
        for informer in informers:
            await informer.synced.wait()
        stops = [informer.subscribe(lambda _: self._changed.set()) for informer in informers]
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._changed.clear()
                    await self._adjust(tasks)
                    await self._changed.wait()
        finally:
            for stop in stops:
                stop()

    async def _adjust(self, tasks: asyncio.TaskGroup) -> None:
        found = [informer.items() for informer in self._origin.informers.values()]
        peers = self._origin.peers()
        wanted = {
            _Work(peer_, how)
            for peer_ in wanted_peers(found, peers)
            if (how := self._how(peer_, found)) is not None
        }
        begun, ended = await self._scopes.keep(tasks, wanted)
        for what, several in (("Started", begun), ("Stopped", ended)):
            for work in several:
                fields = {"cluster": work.peer.cluster_id, "how": work.how.value}
                logger.info("%s replication", what, extra=fields)

    def _how(self, key: PeerKey, found: Sequence[Mapping[Key, Object]]) -> _How | None:
        if self._origin.is_gone(key.cluster_id):
            return _How.ABANDON
        if self._origin.can_sign_in(key):
            return _How.REPLICATE
        return _How.LET_GO if any(_is_waiting(key, objects_) for objects_ in found) else None

    async def _work(self, work: _Work) -> None:
        if work.how is _How.REPLICATE:
            await self._serve(work.peer)
        else:
            await self._release(work)

    async def _release(self, work: _Work) -> None:
        """Let go what is to go here, as long as nobody can ask the peer."""
        key, origin = work.peer, self._origin
        is_lost = None if work.how is _How.ABANDON else functools.partial(origin.is_signed_out, key)
        async with asyncio.TaskGroup() as tasks:
            for kind, informer in origin.informers.items():
                reconciler = ReleaseReconciler(kind, origin.cached, origin.events, is_lost)
                originals = WatchSource(informer, _originals(key))
                runner = Runner(f"release-{kind}", reconciler, [originals])
                tasks.create_task(_run(origin, runner))

    async def _serve(self, key: PeerKey) -> None:
        """Replicate for ever; what breaks this peer must not break the others."""
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    replicas: dict[Kind, Informer[PackedWhole]] = {}
                    tasks.create_task(_watch_over(self._origin, key, replicas))
                    tasks.create_task(_replicate(self._origin, key, replicas))
            except* Exception as group:
                _, unknown = group.split(KubeError)
                error = str(group.exceptions[0])
                logger.warning(
                    "replication starts again",
                    extra={"cluster": key.cluster_id, "error": error, "retry_in_s": RESTART_S},
                    exc_info=unknown,
                )
            await asyncio.sleep(RESTART_S)


def wanted_peers(found: Iterable[Mapping[Key, Object]], peers: Mapping[str, str]) -> set[PeerKey]:
    """Return the peers for which there is anything to replicate among ``found``.

    ``peers`` are those that are followed at all, by their tenant namespace: no label of an object
    adds one.
    """
    return {
        PeerKey(key.namespace, peer_)
        for objects_ in found
        for key, obj in objects_.items()
        if (peer_ := peers.get(key.namespace, "")) and ownership.is_for(obj, peer_)
    }


def _is_waiting(key: PeerKey, found: Mapping[Key, Object]) -> bool:
    """Whether an object for that peer is to go, and waits until its replica is gone."""
    return any(
        objects.is_terminating(obj)
        and FINALIZER in objects.finalizers(obj)
        and ownership.is_for(obj, key.cluster_id)
        for where, obj in found.items()
        if where.namespace == key.namespace
    )


def identity_of(key: PeerKey) -> Key:
    return Key(key.namespace, naming.controlplane_identity(key.cluster_id))


def secret_of(key: PeerKey) -> Key:
    """Return where the identity for replication is: by name, never by label.

    Source: docs/parity.md SEC-A11.
    """
    return Key(key.namespace, naming.kubeconfig_secret(identity_of(key).name))


async def _replicate(
    origin: ReplicationOrigin, key: PeerKey, replicas: dict[Kind, Informer[PackedWhole]]
) -> None:
    secret = secret_of(key)
    async with peer.follow(origin.live, secret, user_agent=origin.user_agent) as remote:
        peering = await _peering(origin, key, secret)
        cached = CachedCluster(LeaderOnlyCluster(remote, origin.may_write))
        sweeps = looks()
        kept = MemoryQuota(MOST_BYTES)
        async with asyncio.TaskGroup() as tasks:
            for kind in KINDS:
                selection = Selection(
                    kind,
                    PackedWhole,
                    peering.remote_namespace,
                    labels=peering.selector(),
                    kept=kept,
                    keeps=functools.partial(_has_original, origin.informers[kind], peering),
                )
                informer: Informer[PackedWhole] = Informer(selection)
                cached.add(informer)
                replicas[kind] = informer
                remote.reach.subscribe(informer.resync)
                tasks.create_task(informer.run(remote))
                for runner in _runners(origin, peering, kind, cached, informer, sweeps):
                    remote.reach.subscribe(runner.server_is_back)
                    tasks.create_task(_run(origin, runner))


def _has_original(originals: Informer[Object], peering: Peering, replica: Key) -> bool:
    return originals.may_have(peering.original_of(replica))


async def _run(origin: ReplicationOrigin, runner: Runner) -> None:
    origin.runners.add(runner)
    try:
        await runner.run()
    finally:
        origin.runners.discard(runner)


async def _peering(origin: ReplicationOrigin, key: PeerKey, secret: Key) -> Peering:
    found = await origin.live.get_live(keys.SECRET, secret)
    annotations = objects.annotations(found) if found else {}
    default = naming.tenant_namespace(origin.cluster_id)
    remote_namespace = annotations.get(keys.REMOTE_TENANT_NAMESPACE) or default
    return Peering(origin.cluster_id, key.cluster_id, key.namespace, remote_namespace)


def _runners(  # noqa: PLR0913, PLR0917  # one of each side, and what is shared
    origin: ReplicationOrigin,
    peering: Peering,
    kind: Kind,
    remote: Cluster,
    replicas: Informer[PackedWhole],
    sweeps: Buckets,
) -> list[Runner]:
    here = PeerKey(peering.local_namespace, peering.remote_cluster_id)
    replication = ReplicationReconciler(
        kind, peering, origin.cached, remote, origin.events, looks=sweeps
    )
    withdrawal = RemovalReconciler(replication, replicas.synced.is_set)
    originals = WatchSource(origin.informers[kind], _originals(here))
    copies = WatchSource(replicas, lambda change: [peering.original_of(change.key)])
    return [
        Runner(f"replication-{kind}", replication, [originals, copies]),
        Runner(f"withdrawal-{kind}", withdrawal, [originals]),
    ]


def _originals(key: PeerKey) -> Callable[[Change[Object]], list[Key]]:
    """Return whom a change of an object here concerns, if that goes to the peer."""

    def keys_of(change: Change[Object]) -> list[Key]:
        obj = change.new or change.old
        ours = obj is not None and ownership.destination(obj) == key.cluster_id
        return [change.key] if ours and change.key.namespace == key.namespace else []

    return keys_of


async def _watch_over(
    origin: ReplicationOrigin, key: PeerKey, replicas: dict[Kind, Informer[PackedWhole]]
) -> None:
    """Tell on the objects of a peer that it does not answer, once each time."""
    is_told = False
    while True:
        await asyncio.sleep(_LOOK_S)
        excess = next(filter(None, (each.too_much for each in replicas.values())), "")
        origin.excess.say(key.cluster_id, excess)
        silent = [kind for kind, informer in replicas.items() if _is_silent(informer)]
        is_silent = bool(silent) or not replicas
        if is_silent and not is_told:
            others = len(replicas) - len(silent)
            why = excess or complaint(key, silent if others else ())
            _tell(origin, key, "PeerUnreachable", why)
        if is_told and not is_silent:
            _tell(origin, key, "PeerReachable", f"cluster {key.cluster_id} answers again")
        is_told = is_silent


def complaint(key: PeerKey, kinds: Sequence[Kind] = ()) -> str:
    """Return that a peer does not answer: for ``kinds`` only, or without any at all.

    Source: docs/parity.md F-34.
    """
    message = f"cluster {key.cluster_id} does not answer the identity in secret {secret_of(key)}"
    if not kinds:
        return message
    named = ", ".join(kind.resource for kind in kinds)
    return f"{message} about {named}: see that it has these kinds, and lets that identity list them"


def _is_silent(replicas: Informer[PackedWhole]) -> bool:
    return not replicas.synced.is_set() or replicas.age_s() > UNREACHABLE_S


def _tell(origin: ReplicationOrigin, key: PeerKey, reason: str, message: str) -> None:
    logger.warning("peer changed", extra={"cluster": key.cluster_id, "reason": reason})
    type_: Literal["Normal", "Warning"] = "Normal" if reason == "PeerReachable" else "Warning"
    for kind, informer in origin.informers.items():
        for obj in informer.items().values():
            if ownership.destination(obj) == key.cluster_id:
                origin.events.event(kind, obj, type_, reason, message)


def controller(manager: Manager) -> Setup:
    origin = ReplicationOrigin(
        cluster_id=manager.cluster_id,
        live=manager.live,
        cached=manager.cached,
        informers={
            keys.NAMESPACE_MAP: manager.informer(watches.NAMESPACE_MAPS),
            keys.RESOURCE_SLICE: manager.informer(watches.RESOURCE_SLICES),
            keys.RENEW: manager.informer(watches.RENEWS),
        },
        events=manager.events,
        user_agent=manager.user_agent,
        foreign_clusters=manager.informer(watches.FOREIGN_CLUSTERS),
        namespaces=manager.informer(watches.PEER_NAMESPACES),
        identities=manager.informer(watches.IDENTITIES),
        secrets=manager.tenant_secrets(),
        may_write=manager.may_write,
        excess=manager.excess,
    )
    return lambda: [ReplicatedPeers(origin)]
