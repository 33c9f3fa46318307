"""Two clusters in a dict, and all controllers of both, in turns, that remember nothing.

The garbage collector, the signer and the virtual kubelet are played.
"""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, cast

from apis import keys, naming, objects
from apis.objects import Key, Kind, Object, named
from certs import pki
from controllers import clusterid
from controllers.authentication.identity.reconciler import (
    IdentityReconciler,
    SliceIdentityReconciler,
)
from controllers.authentication.nonce import NonceReconciler
from controllers.authentication.renewal import LocalRenewReconciler, RemoteRenewReconciler
from controllers.authentication.tenant.reconciler import TenantReconciler
from controllers.authentication.tenantrights.reconciler import TenantRightsReconciler
from controllers.granting.grants.reconciler import ALL, GrantsReconciler
from controllers.granting.resourceslice.reconciler import LocalSliceReconciler, ReplicaReconciler
from controllers.manager import AdvertisedEndpoint
from controllers.offloading.namespacemap.reconciler import NamespaceMapReconciler
from controllers.offloading.namespaceoffloading.reconciler import NamespaceOffloadingReconciler
from controllers.offloading.virtualnode.reconciler import VirtualNodeReconciler
from controllers.peers.replication.forge import Peering
from controllers.peers.replication.peers import KINDS
from controllers.peers.replication.reconciler import ReplicationReconciler
from kube import clock
from kube.client import ClusterClient
from kube.cluster import Cluster
from kube.controller import Reconciler, TerminalError
from kube.credentials import Access
from kube.errors import KubeError
from kube.events import EventRecorder
from liqoctl.clusters import Side
from liqoctl.options import Session
from liqoctl.output import Progress
from tests import signers
from tests.controllers.support import ensure_namespace, manager_of
from tests.fakes import FakeCluster

NOW = clock.now().replace(microsecond=0)
"""The moment at which all of it happens; commands judge certificates by the real clock."""
CA = pki.new_ca("ca", now=NOW, lifetime=timedelta(days=10))
WRITES: Final = ("create", "apply", "patch", "patch_status", "delete")
OWN_RIGHTS: Final = {
    "rome rolebinding liqo-tenant-milan/liqo-controller-manager",
    "milan rolebinding liqo-tenant-rome/liqo-controller-manager",
}
"""What goes with the namespaces, which stay."""
VOLATILE: Final = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")
OF_UIDS: Final = (keys.SCHEDULING_ENABLED_BY, keys.APPLIED)
"""Annotations made of UIDs, which differ from run to run, too."""
PASSING: Final = (keys.CERTIFICATE_SIGNING_REQUEST, keys.EVENT)
"""What the cluster itself forgets after a while."""


class CrashError(Exception):
    """The process ends here."""


@dataclass
class Fuse:
    """Ends the process of one side's controllers at their n-th write, once."""

    at: int
    is_done: bool
    """Whether the write has happened by then."""
    writes: int = 0

    def is_burnt(self) -> bool:
        """Count one write; whether it is the last of the process."""
        self.writes += 1
        return self.writes == self.at

    def is_over(self) -> bool:
        return 0 < self.at <= self.writes


class Dying:
    """A cluster as the controllers of one side write to it."""

    def __init__(self, cluster: Cluster, fuse: Fuse) -> None:
        self._cluster, self._fuse = cluster, fuse

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)
        return self._counted(name, method) if name in WRITES else method

    def _counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        async def write(*args: Any, **rest: Any) -> Any:
            dies = self._fuse.is_burnt()
            if dies and not self._fuse.is_done:
                raise CrashError(name)
            answer = await method(*args, **rest)
            if dies:
                raise CrashError(name)
            return answer

        return write


@dataclass
class Half:
    """One cluster: as it is, and as its controllers see it."""

    name: str
    peer: str
    fake: FakeCluster = field(default_factory=lambda: FakeCluster(strict=True))
    fuse: Fuse = field(init=False)

    def as_written(self, fake: FakeCluster) -> Cluster:
        """Return a cluster as the controllers of this side write to it."""
        return cast("Cluster", Dying(fake, self.fuse))

    async def prepare(self) -> None:
        await self.fake.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", "liqo")))
        key = Key("liqo", keys.CLUSTER_ID_CONFIG_MAP)
        found = named(keys.CONFIG_MAP, key, data={keys.CLUSTER_ID_KEY: self.name})
        await self.fake.create(keys.CONFIG_MAP, found)
        await clusterid.ensure_key(self.fake)
        spec = {
            "containerImage": "pyliqo:1",
            "createNode": True,
            "disableNetworkCheck": False,
            "metricsEnabled": False,
        }
        kind, default = keys.VK_OPTIONS_TEMPLATE, keys.DEFAULT_VK_OPTIONS_TEMPLATE
        await self.fake.create(kind, named(kind, Key("liqo", default), spec=spec))
        await ensure_namespace(self.fake, keys.NODE_LEASE_NAMESPACE)

    def cached(self, kind: Kind) -> dict[Key, Object]:
        return {key: obj for (each, key), obj in self.fake.everything().items() if each == kind}

    def lets_in(self, tenant_namespace: str) -> bool:
        """Whether the control plane of a consumer has its rights there, as a server would say."""
        return any(
            key.namespace == tenant_namespace
            and binding["roleRef"]["name"] == keys.REMOTE_CONTROLPLANE_ROLE
            for key, binding in self.cached(keys.ROLE_BINDING).items()
        )

    async def private(self) -> bytes:
        return await clusterid.ensure_key(self.fake)


class World:
    """Rome and milan, and the turns that their controllers take."""

    def __init__(self, at: int = 0, *, dies: str = "", is_done: bool = False) -> None:
        self.rome, self.milan = Half("rome", "milan"), Half("milan", "rome")
        for side in (self.rome, self.milan):
            when = at if side.name == dies else 0
            side.fuse = Fuse(when, is_done)
        self._turns = asyncio.Lock()

    def has_crashed(self) -> bool:
        """Whether there were as many writes as it takes."""
        return any(side.fuse.is_over() for side in (self.rome, self.milan))

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        for side in (self.rome, self.milan):
            await side.prepare()
        async with (
            signers.signing(self.rome.fake, CA, lambda: NOW),
            signers.signing(self.milan.fake, CA, lambda: NOW),
            asyncio.TaskGroup() as tasks,
        ):
            task = tasks.create_task(self._work())
            try:
                yield
                await self.settled()
            finally:
                task.cancel()

    async def _work(self) -> None:
        while True:
            await self.turn()
            await asyncio.sleep(0)

    async def settled(self) -> None:
        before: Object = {}
        for _ in range(50):
            await self.turn()
            now = self.state()
            if now == before:
                return
            before = now
        raise AssertionError("it goes on writing")

    async def turn(self) -> None:
        """Look at every object once, with controllers that remember nothing.

        One turn after another: a loop does not work twice on one object at a time.
        """
        async with self._turns:
            for side in (self.rome, self.milan):
                await self._turn(side)

    async def _turn(self, side: Half) -> None:
        for kind, reconciler in await self._reconcilers(side):
            for key in side.cached(kind):
                await self._reconcile(reconciler, key)
        await _collect(side.fake)
        await _play_kubelet(side.fake)

    async def _reconcile(self, reconciler: Reconciler, key: Key) -> None:
        try:
            await reconciler.reconcile(key)
        except ExceptionGroup as group:  # of writes that are made side by side
            if group.split((CrashError, KubeError, TerminalError))[1]:
                raise
        except (CrashError, KubeError, TerminalError):
            return

    async def _reconcilers(self, side: Half) -> list[tuple[Kind, Reconciler]]:
        cluster, key = side.as_written(side.fake), await side.private()
        events = EventRecorder(side.fake, "tests", "tests")
        other = self.milan if side is self.rome else self.rome
        here, there = naming.tenant_namespace(side.peer), naming.tenant_namespace(side.name)
        between = Peering(side.name, side.peer, here, there)
        manager = manager_of(
            cluster,
            cluster_id=side.name,
            private_key=key,
            endpoint=AdvertisedEndpoint(bytes, f"{side.name}:6443"),
            events=events,
            clock=lambda: NOW,
        )
        nonce = NonceReconciler(manager, lambda n: b"x" * n)
        whole = IdentityReconciler(manager)
        gone = _Secrets(naming.kubeconfig_secret(""), whole)
        away = side.as_written(other.fake)
        replicas = ReplicaReconciler(manager)
        granting = GrantsReconciler(manager, "t", lambda: 0.0)
        granting.free = lambda _: {}
        return [
            (keys.NAMESPACE, TenantRightsReconciler(manager)),
            (keys.SECRET, nonce),
            (keys.TENANT, TenantReconciler(manager)),
            (keys.IDENTITY, whole),
            (keys.SECRET, gone),
            (keys.IDENTITY, LocalRenewReconciler(manager)),
            (keys.RENEW, RemoteRenewReconciler(manager)),
            *(
                (kind, ReplicationReconciler(kind, between, cluster, away, events))
                for kind in KINDS
                if other.lets_in(there)
            ),
            (keys.RESOURCE_SLICE, LocalSliceReconciler(manager)),
            (keys.RESOURCE_SLICE, SliceIdentityReconciler(manager)),
            (keys.RESOURCE_SLICE, replicas),
            (keys.SECRET, _Secrets(f"{naming.remote_certificate()}-", replicas)),
            (keys.CONFIG_MAP, _Whole(granting)),
            (keys.VIRTUAL_NODE, VirtualNodeReconciler(manager)),
            (keys.NAMESPACE_OFFLOADING, NamespaceOffloadingReconciler(manager)),
            (keys.NAMESPACE_MAP, NamespaceMapReconciler(manager)),
        ]

    def state(self) -> Object:
        """Return all there is, without what differs from run to run."""
        return {
            f"{side.name} {kind} {key}": lasting(obj)
            for side in (self.rome, self.milan)
            for (kind, key), obj in sorted(side.fake.everything().items(), key=str)
            if kind not in PASSING
        }

    def sides(self) -> tuple[Side, Side]:
        """Return both, as the kubeconfigs of their administrators lead to them."""
        for one in (self.rome, self.milan):
            vars(one.fake)["access"] = Access(f"https://{one.name}:6443", None)
        session = Session(skip_confirm=True)
        consumer, provider = (
            Side(cast("ClusterClient", one.fake), Progress(), "", session)
            for one in (self.rome, self.milan)
        )
        return consumer, provider


@dataclass(frozen=True)
class _Secrets:
    """Secrets lead to what they are named after behind ``prefix``, be it gone or not."""

    prefix: str
    owners: IdentityReconciler | ReplicaReconciler

    async def reconcile(self, key: Key) -> float | None:
        if not key.name.startswith(self.prefix):
            return None
        return await self.owners.reconcile(Key(key.namespace, key.name.removeprefix(self.prefix)))


@dataclass(frozen=True)
class _Whole:
    """Grants look at everything, whatever the key."""

    grants: GrantsReconciler

    async def reconcile(self, _: Key) -> float | None:
        return await self.grants.reconcile(ALL)


async def _play_kubelet(fake: FakeCluster) -> None:
    """Have a ready Node for each virtual kubelet that is deployed, and see that it is available."""
    everything = fake.everything()
    for kind, key in everything:
        if kind == keys.DEPLOYMENT and (kind, key) in everything:
            name = key.name.removeprefix("vk-")
            virtual = everything.get((keys.VIRTUAL_NODE, Key(key.namespace, name)))
            is_wanted = virtual is not None and not objects.is_terminating(virtual)
            if is_wanted and (keys.NODE, Key("", name)) not in everything:
                labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: name}
                made = named(keys.NODE, Key("", name), metadata={"labels": labels}, spec={})
                await fake.create(keys.NODE, made)
                ready = {"type": "Ready", "status": "True", "reason": "x", "message": "y"}
                await fake.patch_status(keys.NODE, Key("", name), {"conditions": [ready]})
                up = {"availableReplicas": 1, "observedGeneration": 1}
                await fake.patch_status(kind, key, up)


async def _collect(fake: FakeCluster) -> None:
    """Delete what has lost its owner, as the garbage collector does."""
    everything = fake.everything()
    uids = {objects.uid(obj) for obj in everything.values()}
    for (kind, key), obj in everything.items():
        owners = obj["metadata"].get("ownerReferences") or []
        if owners and not any(owner["uid"] in uids for owner in owners):
            await fake.delete(kind, key, uid=objects.uid(obj))


def lasting(obj: Object) -> Object:
    """Return ``obj`` without what differs from run to run."""
    kept = copy.deepcopy(dict(obj))
    metadata = {name: kept["metadata"][name] for name in kept["metadata"] if name not in VOLATILE}
    for owner in metadata.get("ownerReferences") or []:
        owner.pop("uid")
    if finalizers := metadata.get("finalizers"):
        metadata["finalizers"] = sorted(finalizers)
    if marks := metadata.get("annotations"):
        metadata["annotations"] = {name: name in OF_UIDS or value for name, value in marks.items()}
    kept["metadata"] = metadata
    kept["data"] = sorted(kept.get("data") or {})  # keys, nonces and certificates are new each time
    for part in ("spec", "status"):
        for name in ("authParams", "csr", "publicKey", "signature", "conditions"):
            if name in (kept.get(part) or {}):
                kept[part] = {**kept[part], name: bool(kept[part][name])}
    return kept


def differing(one: Object, other: Object) -> Object:
    """Return what is not the same in both: {line: (in one, in the other)}."""
    return {
        line: (one.get(line), other.get(line))
        for line in one.keys() | other.keys()
        if one.get(line) != other.get(line)
    }
