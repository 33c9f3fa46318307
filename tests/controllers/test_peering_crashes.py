"""Controllers that die at any of their writes: peering and its end come out the same.

Both sides run on clusters in a dict, in turns; the garbage collector and the signer are played.
"""

import asyncio
import contextlib
import copy
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Kind, Object, named
from certs import identity, pki
from controllers import keypair, views
from controllers.identity.reconciler import IdentityReconciler
from controllers.issuing.issuer import Entrance, Issuer
from controllers.nonce.reconciler import NonceReconciler
from controllers.renewal.reconciler import LocalRenewReconciler, RemoteRenewReconciler
from controllers.replication.forge import Peering
from controllers.replication.reconciler import ReplicationReconciler
from controllers.tenant.reconciler import Observed, TenantReconciler
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from kube.errors import KubeError
from kube.events import Recorder
from kube.reconcile import Reconciler, TerminalError
from liqoctl.output import Progress
from liqoctl.work import handshake, peering
from liqoctl.work.peering import End
from liqoctl.work.session import Side
from tests import signers
from tests.fakes import FakeCluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CA = pki.new_ca("ca", now=NOW, lifetime=timedelta(days=10))
KEYS: Final = {name: identity.new_key() for name in ("rome", "milan")}
WRITES: Final = ("create", "apply", "patch", "patch_status", "delete")
VOLATILE: Final = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")
PASSING: Final = (keys.CERTIFICATE_SIGNING_REQUEST, keys.EVENT)
"""What the cluster itself forgets after a while."""
MOST: Final = 40
"""More writes than the controllers of either side make in all."""


class CrashError(Exception):
    """The process ends here."""


class Dying:
    """A cluster that ends the process of whoever makes the n-th write to it, once."""

    def __init__(self, cluster: Cluster, at: int, *, is_done: bool) -> None:
        self._cluster, self._at, self._is_done = cluster, at, is_done
        self.writes: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)
        return self._counted(name, method) if name in WRITES else method

    def _counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        async def write(*args: Any, **rest: Any) -> Any:
            self.writes[name] += 1
            dies = sum(self.writes.values()) == self._at
            if dies and not self._is_done:
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
    dying: Cluster = field(init=False)

    async def prepare(self) -> None:
        await self.fake.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", "liqo")))
        key = Key("liqo", keys.CLUSTER_ID_CONFIG_MAP)
        found = named(keys.CONFIG_MAP, key, data={keys.CLUSTER_ID_KEY: self.name})
        await self.fake.create(keys.CONFIG_MAP, found)
        await keypair.ensure(self.fake)

    def view(self, kind: Kind) -> views.View:
        return views.live(self.fake, Selection(kind, Object))

    def cached(self, kind: Kind) -> dict[Key, Object]:
        return {key: obj for (each, key), obj in self.fake.everything().items() if each == kind}

    async def private(self) -> bytes:
        return await keypair.ensure(self.fake)


class World:
    """Rome and milan, and the turns that their controllers take."""

    def __init__(self, at: int = 0, *, dies: str = "", is_done: bool = False) -> None:
        self.rome, self.milan = Half("rome", "milan"), Half("milan", "rome")
        for side in (self.rome, self.milan):
            when = at if side.name == dies else 0
            side.dying = cast("Cluster", Dying(side.fake, when, is_done=is_done))
        self.crashes = 0

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        for side in (self.rome, self.milan):
            await side.prepare()
        async with (
            signers.signing(self.rome.fake, CA, lambda: NOW),
            signers.signing(self.milan.fake, CA, lambda: NOW),
        ):
            task = asyncio.create_task(self._work())
            try:
                yield
                await self._settled()
            finally:
                task.cancel()
                await asyncio.wait([task])

    async def _work(self) -> None:
        while True:
            await self.turn()
            await asyncio.sleep(0)

    async def _settled(self) -> None:
        before: Object = {}
        for _ in range(50):
            await self.turn()
            now = self.state()
            if now == before:
                return
            before = now
        raise AssertionError("it goes on writing")

    async def turn(self) -> None:
        """Look at every object once, with controllers that remember nothing."""
        for side in (self.rome, self.milan):
            for kind, reconciler in await self._reconcilers(side):
                for key in side.cached(kind):
                    await self._reconcile(reconciler, key)
            await _collect(side.fake)

    async def _reconcile(self, reconciler: Reconciler, key: Key) -> None:
        try:
            await reconciler.reconcile(key)
        except CrashError:
            self.crashes += 1
        except (KubeError, TerminalError):
            return

    async def _reconcilers(self, side: Half) -> list[tuple[Kind, Reconciler]]:
        cluster, key = side.dying, await side.private()
        events = Recorder(side.fake, "tests", "tests")
        observed = Observed(list, side.view(keys.ROLE_BINDING), side.view(keys.SECRET))
        issuer = Issuer(cluster, Entrance(b"", f"{side.name}:6443"), lambda: NOW)
        other = self.milan if side is self.rome else self.rome
        tenant = TenantReconciler(
            cluster, observed, issuer, cluster_id=side.name, events=events, clock=lambda: NOW
        )
        here, there = naming.tenant_namespace(side.peer), naming.tenant_namespace(side.name)
        between = Peering(side.name, side.peer, here, there)
        nonce = NonceReconciler(cluster, side.name, key, events, lambda: NOW, lambda n: b"x" * n)
        whole = IdentityReconciler(
            cluster, key, events, lambda: list(side.cached(keys.RENEW).values())
        )
        gone = _Gone(whole)
        return [
            (keys.SECRET, nonce),
            (keys.TENANT, tenant),
            (keys.IDENTITY, whole),
            (keys.SECRET, gone),
            (keys.IDENTITY, LocalRenewReconciler(cluster, side.name, events)),
            (keys.RENEW, RemoteRenewReconciler(cluster, lambda: side.cached(keys.TENANT))),
            (keys.RENEW, ReplicationReconciler(keys.RENEW, between, cluster, other.fake)),
        ]

    def state(self) -> Object:
        """Return all there is, without what differs from run to run."""
        return {
            f"{side.name} {kind} {key}": _lasting(obj)
            for side in (self.rome, self.milan)
            for (kind, key), obj in sorted(side.fake.everything().items(), key=str)
            if kind not in PASSING
        }

    def sides(self) -> tuple[Side, Side]:
        made = (
            Side(cast("ClusterClient", one.fake), Progress()) for one in (self.rome, self.milan)
        )
        consumer, provider = made
        return consumer, provider


@dataclass(frozen=True)
class _Gone:
    """Secrets of identities lead to their Identity, be it gone or not."""

    identities: IdentityReconciler

    async def reconcile(self, key: Key) -> float | None:
        prefix = naming.kubeconfig_secret("")
        if not key.name.startswith(prefix):
            return None
        return await self.identities.reconcile(Key(key.namespace, key.name.removeprefix(prefix)))


async def _collect(fake: FakeCluster) -> None:
    """Delete what has lost its owner, as the garbage collector does."""
    everything = fake.everything()
    uids = {objects.uid(obj) for obj in everything.values()}
    for (kind, key), obj in everything.items():
        owners = obj["metadata"].get("ownerReferences") or []
        if owners and not any(owner["uid"] in uids for owner in owners):
            await fake.delete(kind, key, uid=objects.uid(obj))


def _lasting(obj: Object) -> Object:
    kept = copy.deepcopy(dict(obj))
    metadata = {name: kept["metadata"][name] for name in kept["metadata"] if name not in VOLATILE}
    for owner in metadata.get("ownerReferences") or []:
        owner.pop("uid")
    kept["metadata"] = metadata
    kept["data"] = sorted(kept.get("data") or {})  # keys, nonces and certificates are new each time
    for part in ("spec", "status"):
        for name in ("authParams", "csr", "publicKey", "signature", "conditions"):
            if name in (kept.get(part) or {}):
                kept[part] = {**kept[part], name: bool(kept[part][name])}
    return kept


async def lived(world: World) -> tuple[Object, Object]:
    """Return what there is while both are peered, and after."""
    async with asyncio.timeout(60), world.working():
        peers = await handshake.meet(*world.sides(), "", {})
        await handshake.authenticate(peers)
        await world._settled()  # noqa: SLF001  # a part of this test
        during = world.state()
        await peering.unauthenticate(peers, End())
    return during, world.state()


async def test_undisturbed_it_leaves_what_was_there_before() -> None:
    world = World()

    during, after = await lived(world)

    kinds = {line.split()[1] for line in during}
    assert {"tenant", "identity", "renew", "secret", "rolebinding", "clusterrolebinding"} <= kinds
    left = {line for line in after if " namespace " not in line}
    assert left == {
        f"{name} {what}"
        for name in ("rome", "milan")
        for what in ("configmap liqo/clusterid-configmap", "secret liqo/authentication-keys")
    }


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies", ["rome", "milan"])
async def test_wherever_the_controllers_die_it_comes_out_the_same(
    dies: str, *, is_done: bool
) -> None:
    undisturbed = await lived(World())
    swept = 0
    for at in range(1, MOST):
        world = World(at, dies=dies, is_done=is_done)
        outcome = await lived(world)
        assert outcome == undisturbed, f"dies at write {at} of {dies}"
        if not world.crashes:
            break
        swept += 1
    assert 5 < swept < MOST - 1
