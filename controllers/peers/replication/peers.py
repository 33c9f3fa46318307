"""One task a peer, for as long as anything is to be replicated to it."""

import asyncio
import enum
import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from apis import keys, naming, objects, offloading, ownership
from apis.objects import Key, Kind, Object
from controllers import watches
from controllers.manager import LeaderElectionRunnables, Manager
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
from kube.informer import Change, Informer
from kube.process import Runnable
from kube.ratelimit import Buckets
from kube.slim import PackedWhole

KINDS: Final[tuple[Kind, ...]] = tuple(of.kind for of in watches.REPLICATED)
"""What is replicated."""
_TELLING: Final = (
    watches.FOREIGN_CLUSTERS,  # one that is gone for good is not asked any more
    watches.PEER_NAMESPACES,  # which name their peer
    watches.IDENTITIES,
    watches.SECRETS,  # a kubeconfig outlives its Identity until all is withdrawn
)
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


class _How(enum.Enum):
    """What is done with the objects for a peer."""

    REPLICATE = "replication"
    ABANDON = "release: the peer is gone for good"
    LET_GO = "release: no identity for the peer"


class _Work(NamedTuple):
    peer: PeerKey
    how: _How


class ReplicatedPeers(LeaderElectionRunnables):
    """Starts and stops replication as the first object for a peer comes and the last one goes."""

    name = "replication"

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self._informers = {of.kind: manager.informer(of) for of in watches.REPLICATED}
        self._changed = asyncio.Event()
        self._scopes: DynamicTasks[_Work] = DynamicTasks(self._work)
        self._runners: set[Runner] = set()
        """Those that run now, of all peers."""

    def watches(self) -> Sequence[WatchSource[Any]]:
        """Return all that tells whether there is a peer, and anything for it."""
        return [self.watch(of) for of in (*watches.REPLICATED, *_TELLING)]

    def loops(self) -> Sequence[Runnable]:
        return [self]

    def is_alive(self) -> bool:
        return all(runner.is_alive() for runner in self._runners)

    async def drain(self) -> None:
        await asyncio.gather(*(runner.drain() for runner in self._runners))

    async def run(self) -> None:
        """Follow the local objects for ever; cancel to stop all peers."""
        informers = [source.informer for source in self.watches()]
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
        found = [informer.items() for informer in self._informers.values()]
        namespaces = self.informer(watches.PEER_NAMESPACES).items()
        named = {key.name: ownership.peer_of(obj) for key, obj in namespaces.items()}
        peers = {name: peer_ for name, peer_ in named.items() if peer_}
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
        foreign_cluster = self.informer(watches.FOREIGN_CLUSTERS).get(Key("", key.cluster_id))
        if offloading.is_gone_for_good(foreign_cluster):
            return _How.ABANDON
        identity = self.informer(watches.IDENTITIES).get(identity_of(key))
        if identity or self.informer(watches.SECRETS).get(secret_of(key)):
            return _How.REPLICATE  # or there is to be an identity again
        return _How.LET_GO if any(_is_waiting(key, objects_) for objects_ in found) else None

    async def _is_signed_out(self, key: PeerKey) -> bool:
        """Whether the API server has no identity for that peer."""
        found = [
            await self.live.get_live(keys.IDENTITY, identity_of(key)),
            await self.live.get_live(keys.SECRET, secret_of(key)),
        ]
        return not any(found)

    async def _work(self, work: _Work) -> None:
        if work.how is _How.REPLICATE:
            await self._serve(work.peer)
        else:
            await self._release(work)

    async def _release(self, work: _Work) -> None:
        """Let go what is to go here, as long as nobody can ask the peer."""
        key = work.peer
        is_lost = None if work.how is _How.ABANDON else functools.partial(self._is_signed_out, key)
        async with asyncio.TaskGroup() as tasks:
            for kind, informer in self._informers.items():
                reconciler = ReleaseReconciler(kind, self.cached, self.events, is_lost)
                originals = WatchSource(informer, _originals(key))
                runner = Runner(f"release-{kind}", reconciler, [originals])
                tasks.create_task(self._run(runner))

    async def _serve(self, key: PeerKey) -> None:
        """Replicate for ever; what breaks this peer must not break the others."""
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    replicas: dict[Kind, Informer[PackedWhole]] = {}
                    tasks.create_task(self._watch_over(key, replicas))
                    tasks.create_task(self._replicate(key, replicas))
            except* Exception as group:
                _, unknown = group.split(KubeError)
                error = str(group.exceptions[0])
                logger.warning(
                    "replication starts again",
                    extra={"cluster": key.cluster_id, "error": error, "retry_in_s": RESTART_S},
                    exc_info=unknown,
                )
            await asyncio.sleep(RESTART_S)

    async def _replicate(self, key: PeerKey, replicas: dict[Kind, Informer[PackedWhole]]) -> None:
        secret = secret_of(key)
        async with peer.follow(self.live, secret, user_agent=self.manager.user_agent) as remote:
            peering = await self._peering(key, secret)
            cached = CachedCluster(LeaderOnlyCluster(remote, self.manager.may_write))
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
                        keeps=functools.partial(_has_original, self._informers[kind], peering),
                    )
                    informer: Informer[PackedWhole] = Informer(selection)
                    cached.add(informer)
                    replicas[kind] = informer
                    remote.reach.subscribe(informer.resync)
                    tasks.create_task(informer.run(remote))
                    for runner in self._runners_of(peering, kind, cached, informer, sweeps):
                        remote.reach.subscribe(runner.server_is_back)
                        tasks.create_task(self._run(runner))

    async def _run(self, runner: Runner) -> None:
        self._runners.add(runner)
        try:
            await runner.run()
        finally:
            self._runners.discard(runner)

    async def _peering(self, key: PeerKey, secret: Key) -> Peering:
        found = await self.live.get_live(keys.SECRET, secret)
        annotations = objects.annotations(found) if found else {}
        default = naming.tenant_namespace(self.manager.cluster_id)
        remote_namespace = annotations.get(keys.REMOTE_TENANT_NAMESPACE) or default
        return Peering(self.manager.cluster_id, key.cluster_id, key.namespace, remote_namespace)

    def _runners_of(
        self,
        peering: Peering,
        kind: Kind,
        remote: Cluster,
        replicas: Informer[PackedWhole],
        sweeps: Buckets,
    ) -> list[Runner]:
        here = PeerKey(peering.local_namespace, peering.remote_cluster_id)
        replication = ReplicationReconciler(
            kind, peering, self.cached, remote, self.events, looks=sweeps
        )
        withdrawal = RemovalReconciler(replication, replicas.synced.is_set)
        originals = WatchSource(self._informers[kind], _originals(here))
        copies = WatchSource(replicas, lambda change: [peering.original_of(change.key)])
        return [
            Runner(f"replication-{kind}", replication, [originals, copies]),
            Runner(f"withdrawal-{kind}", withdrawal, [originals]),
        ]

    async def _watch_over(self, key: PeerKey, replicas: dict[Kind, Informer[PackedWhole]]) -> None:
        """Tell on the objects of a peer that it does not answer, once each time."""
        is_told = False
        while True:
            await asyncio.sleep(_LOOK_S)
            excess = next(filter(None, (each.too_much for each in replicas.values())), "")
            self.manager.excess.say(key.cluster_id, excess)
            silent = [kind for kind, informer in replicas.items() if _is_silent(informer)]
            is_silent = bool(silent) or not replicas
            if is_silent and not is_told:
                others = len(replicas) - len(silent)
                why = excess or complaint(key, silent if others else ())
                self._tell(key, "PeerUnreachable", why)
            if is_told and not is_silent:
                self._tell(key, "PeerReachable", f"cluster {key.cluster_id} answers again")
            is_told = is_silent

    def _tell(self, key: PeerKey, reason: str, message: str) -> None:
        logger.warning("peer changed", extra={"cluster": key.cluster_id, "reason": reason})
        type_: Literal["Normal", "Warning"] = "Normal" if reason == "PeerReachable" else "Warning"
        for kind, informer in self._informers.items():
            for obj in informer.items().values():
                if ownership.destination(obj) == key.cluster_id:
                    self.events.event(kind, obj, type_, reason, message)


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


def _has_original(originals: Informer[Object], peering: Peering, replica: Key) -> bool:
    return originals.may_have(peering.original_of(replica))


def _originals(key: PeerKey) -> Callable[[Change[Object]], list[Key]]:
    """Return whom a change of an object here concerns, if that goes to the peer."""

    def keys_of(change: Change[Object]) -> list[Key]:
        obj = change.new or change.old
        ours = obj is not None and ownership.destination(obj) == key.cluster_id
        return [change.key] if ours and change.key.namespace == key.namespace else []

    return keys_of


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
