"""The end of a tenant whose consumer holds on to all it has.

The policies of the provider are in force, and its controllers at work.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator
from pathlib import Path
from typing import Final

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Kind, Object, named
from kube import client, errors
from kube.client import ClusterClient
from kube.cluster import Selection
from sandbox.kubectl import Kubectl
from tests import factories
from tests.controllers.support import end
from tests.peering import world
from tests.peering.world import SPACE, TWIN, World

pytestmark = pytest.mark.cluster

LABELS: Final = {keys.ORIGIN: "rome"}
OWN_RIGHTS: Final = Key(SPACE, keys.CONTROLLER_MANAGER)
"""What milan's controllers may do in the tenant namespace, which stays."""
HELD: Final = "example.com/held"
"""A finalizer that nobody takes away but who set it."""
PROTECTED: Final = "kubernetes.io/pvc-protection"
"""Of claims: the controller of a whole cluster takes it away, and of nothing else."""
FINALIZERS: Final = (HELD, PROTECTED, "foregroundDeletion", "orphan", "pyliqo.io/held")
GRACE_S: Final = 3
WITHIN_S: Final = 60 * float(os.environ.get("PYLIQO_SLOWER", "1"))
"""After the last pod's grace period. Source: the promise of docs/peering.md."""
BINDING: Final = Kind("", "v1", "Binding", "bindings")
OF_TENANT: Final = (
    keys.NAMESPACE_MAP, keys.RESOURCE_SLICE, keys.RENEW, keys.QUOTA, keys.TENANT, keys.IDENTITY,
    keys.SHADOW_POD, keys.SHADOW_ENDPOINT_SLICE, keys.POD, keys.ENDPOINT_SLICE,
)  # fmt: skip
"""Kinds of which nothing is left anywhere: milan has no other tenant."""
OF_PEER: Final = (keys.NAMESPACE, keys.ROLE_BINDING, keys.CLUSTER_ROLE_BINDING)
"""Kinds of which nothing is left that is labelled as the consumer's."""


class Clinging:
    """Rome, which makes again what is deleted, and takes marks off, as long as it is let."""

    def __init__(
        self, control: ClusterClient, kubelet: ClusterClient, spared: Collection[Kind]
    ) -> None:
        self._control, self._kubelet, self._spared = control, kubelet, spared
        self._kept: dict[tuple[Kind, Key], Object] = {}
        self.did: Counter[str] = Counter()
        self.held: Counter[str] = Counter()
        """By kind and finalizer, what admission let through."""

    async def run(self) -> None:
        for number in itertools.count():
            for kind in (keys.NAMESPACE_MAP, keys.RESOURCE_SLICE, keys.RENEW):
                await self._try("list", self._deny(kind))
            finalizer = FINALIZERS[number % len(FINALIZERS)]
            for kind, obj in _work(f"held-{number}"):
                if kind in self._spared:
                    await self._try("create", self._kubelet.create(kind, obj))
                else:
                    await self._hold(kind, obj, finalizer)
            await asyncio.sleep(0.02)

    async def _hold(self, kind: Kind, obj: Object, finalizer: str) -> None:
        """Create an object that has the finalizer, or gets it later, or has none."""
        held = {**obj, "metadata": {**obj["metadata"], "finalizers": [finalizer]}}
        if await self._try("create", self._kubelet.create(kind, held)):
            self.held[f"{kind} {finalizer}"] += 1
        elif await self._try("create", self._kubelet.create(kind, obj)):
            late = self._kubelet.patch(
                kind, objects.key_of(obj), {"metadata": {"finalizers": [finalizer]}}
            )
            self.held[f"{kind} {finalizer}"] += await self._try("patch", late)

    async def _deny(self, kind: Kind) -> None:
        """Take the marks of a replica off, hold it, and make again what is no more."""
        found = (await self._control.list(Selection(kind, Object, SPACE))).items
        for key, obj in found.items():
            self._kept.setdefault((kind, key), obj)
            unmarked = {"labels": {keys.REPLICATED: None, keys.ORIGIN_ID: None}}
            for change in (unmarked, {"finalizers": [*objects.finalizers(obj), HELD]}):
                await self._try("patch", self._control.patch(kind, key, {"metadata": change}))
        for (of, key), obj in self._kept.items():
            if of == kind and key not in found:
                metadata = {"labels": objects.labels(obj)}
                again = named(kind, key, metadata=metadata, spec=obj["spec"])
                await self._try("create", self._control.create(kind, again))

    async def _try(self, what: str, work: Awaitable[object]) -> bool:
        try:
            await work
        except errors.KubeError:
            self.did[f"{what} refused"] += 1
            return False
        self.did[what] += 1
        return True


def _work(name: str) -> Iterator[tuple[Kind, Object]]:
    """Yield one object of each kind that a virtual kubelet may write in a twin."""
    key = Key(TWIN, name)
    labels = {"labels": {keys.ORIGIN: "rome"}}
    pod = {
        "containers": [{"name": "app", "image": "app"}],
        "terminationGracePeriodSeconds": GRACE_S,
    }
    template = {"endpoints": [], "addressType": "IPv4", "ports": []}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "any",
    }
    ports = [{"port": 80, "protocol": "TCP"}]
    rest: dict[Kind, Object] = {
        keys.SHADOW_POD: {"spec": {"pod": pod}},
        keys.SHADOW_ENDPOINT_SLICE: {"spec": {"template": template}},
        keys.CONFIG_MAP: {"data": {"a": "b"}},
        keys.SECRET: {"data": {"a": "Yg=="}},
        keys.SERVICE: {"spec": {"ports": ports}},
        keys.INGRESS: factories.ingress(TWIN, name, f"{name}.example"),
        keys.PERSISTENT_VOLUME_CLAIM: {"spec": claim},
    }
    for kind, parts in rest.items():
        yield kind, {**named(kind, key, metadata=labels), **parts, "metadata": {
            "name": name, "namespace": TWIN, **labels,
        }}  # fmt: skip


class Upkeep:
    """What a node, and the controllers of volumes and pods, do on a whole cluster."""

    def __init__(self, milan: ClusterClient) -> None:
        self._milan = milan
        self.ended: list[float] = []
        """When a pod's grace period was over, by the monotonic clock."""

    async def run(self) -> None:
        going: dict[str, float] = {}
        while True:
            pods = (await self._milan.list(Selection(keys.POD, Object, TWIN))).items
            for key, pod in pods.items():
                with contextlib.suppress(errors.KubeError):
                    await self._run_pod(key, pod, going)
            claims = Selection(keys.PERSISTENT_VOLUME_CLAIM, Object, TWIN)
            for key, claim in (await self._milan.list(claims)).items.items():
                left = [one for one in objects.finalizers(claim) if one != PROTECTED]
                if objects.is_terminating(claim) and left != objects.finalizers(claim):
                    with contextlib.suppress(errors.KubeError):
                        changes = {"metadata": {"finalizers": left}}
                        await self._milan.patch(keys.PERSISTENT_VOLUME_CLAIM, key, changes)
            await asyncio.sleep(0.1)

    async def _run_pod(self, key: Key, pod: Object, going: dict[str, float]) -> None:
        uid, now = objects.uid(pod), time.monotonic()
        if not objects.is_terminating(pod):
            if not pod["spec"].get("nodeName"):
                target = {"kind": "Node", "name": "worker", "apiVersion": "v1"}
                bound = {**named(BINDING, key), "target": target}
                await self._milan.post(keys.POD, key, "binding", bound)
            return
        if now >= going.setdefault(uid, now + float(pod["metadata"]["deletionGracePeriodSeconds"])):
            await self._milan.delete(keys.POD, key, uid=uid, grace_s=0)
            self.ended.append(now)


@pytest.fixture
def peered(both: World) -> Iterator[tuple[Path, Path]]:
    """Peer, make a twin, end what rome runs of ours; yield the two kubeconfigs that it has."""
    both.peer("rome", "milan")
    both.make_twin(TWIN)
    control = both.identity("rome", "milan")
    kubelet = both.identity("rome", "milan", naming.resourceslice_identity("milan"))
    both["rome"].kill()
    try:
        yield control.kubeconfig, kubelet.kubeconfig
    finally:
        both["rome"].start()
        both.unpeer("rome", "milan")


@pytest.fixture
async def milan(both: World) -> AsyncIterator[ClusterClient]:
    """Yield milan as its administrator sees it."""
    async with client.connect(both["milan"].plane.kubeconfig, user_agent="tests") as found:
        yield found


async def left(milan: ClusterClient) -> list[str]:
    """Return what milan still has of rome."""
    found = [
        f"{kind} {key}"
        for kind in OF_TENANT
        for key in (await milan.list(Selection(kind, Object))).items
        if kind != keys.ENDPOINT_SLICE or key.namespace == TWIN
    ]
    for kind in OF_PEER:
        labelled = Selection(kind, Object, labels=f"{keys.REMOTE_CLUSTER_ID}=rome")
        found += [f"{kind} {key}" for key in (await milan.list(labelled)).items]
    own = (f"{keys.NAMESPACE} {Key('', SPACE)}", f"{keys.ROLE_BINDING} {OWN_RIGHTS}")
    return sorted(each for each in found if each not in own)


@pytest.fixture
def unjudged(both: World, peered: tuple[Path, Path]) -> Iterator[None]:
    """Take all policies of milan out of force for a while; return once they are."""
    milan = both["milan"].kubectl
    kubelet = Kubectl(peered[1])
    milan.run("delete", "validatingadmissionpolicybindings", "--all")
    held = {"metadata": {"name": "x", "namespace": TWIN, "finalizers": [HELD]}}
    tried = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", **held})
    create = ("create", "--dry-run=server", "-f", "-")
    world.wait(lambda: not world.refusal(kubelet, *create, stdin=tried), "no policy in force")
    yield
    milan.run("apply", "--server-side", "-f", str(world.MANIFESTS / "70-policies"))


@contextlib.asynccontextmanager
async def at_work(
    milan: ClusterClient, identities: tuple[Path, Path], *, spared: Collection[Kind] = ()
) -> AsyncIterator[tuple[Clinging, Upkeep]]:
    """Yield rome, hostile, once it has filled its twin, and what milan's node does meanwhile.

    Objects of the ``spared`` kinds are made as an honest consumer makes them.
    """
    async with contextlib.AsyncExitStack() as stack:
        control, kubelet = [
            await stack.enter_async_context(client.connect(one, user_agent="hostile"))
            for one in identities
        ]
        rome, upkeep = Clinging(control, kubelet, spared), Upkeep(milan)
        for each in (rome, upkeep):
            task = asyncio.create_task(each.run())
            stack.callback(task.cancel)
        async with asyncio.timeout(world.PATIENCE_S):
            while rome.did["create"] < 50 or not await bound_pods(milan):  # noqa: ASYNC110  # two things
                await asyncio.sleep(0.1)
        yield rome, upkeep


async def bound_pods(milan: ClusterClient) -> int:
    """Return how many pods of rome's are bound to a node."""
    pods = (await milan.list(Selection(keys.POD, Object, TWIN))).items.values()
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods)


async def ends(milan: ClusterClient, upkeep: Upkeep) -> float:
    """Delete the Tenant; return in how many s after the last pod's end nothing is left.

    The Quotas of slices that are gone are left to Kubernetes' garbage collector, in its time.
    """
    began = time.monotonic()
    await end(milan, keys.TENANT, Key(SPACE, "rome"))
    while found := await left(milan):
        last = max(upkeep.ended, default=began)
        is_collected = all(each.startswith(f"{keys.QUOTA} ") for each in found)
        within_s = world.PATIENCE_S if is_collected else WITHIN_S
        if not await bound_pods(milan) and time.monotonic() - last > within_s:
            pytest.fail(f"left {within_s:g} s after the last pod: {json.dumps(found)}")
        await asyncio.sleep(0.2)
    return time.monotonic() - max(upkeep.ended, default=began)


async def test_nothing_is_left_of_a_tenant_whose_consumer_holds_on_to_it(
    milan: ClusterClient, peered: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The policies refuse what would hold; it does M1, M3 and M7 at once, again and again."""
    async with at_work(milan, peered) as (rome, upkeep):
        took_s = await ends(milan, upkeep)

        with capsys.disabled():
            sys.stdout.write(f"\ntenant gone {took_s:.1f} s after {len(upkeep.ended)} pods\n")
            sys.stdout.write(f"{dict(rome.did)}, let through {dict(+rome.held)}\n")
        assert upkeep.ended
        before = rome.did.total()
        async with asyncio.timeout(world.PATIENCE_S):
            while rome.did.total() < before + 20:  # noqa: ASYNC110  # it goes on trying
                await asyncio.sleep(0.1)
        assert await left(milan) == []


@pytest.mark.usefixtures("unjudged")
async def test_nothing_is_left_of_a_tenant_whose_objects_are_older_than_the_policies(
    milan: ClusterClient, peered: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Marks are off, and finalizers of its own are on all that it may write, but for Secrets.

    The controller manager does not read these in twins.
    """
    async with at_work(milan, peered, spared=[keys.SECRET]) as (rome, upkeep):
        async with asyncio.timeout(world.PATIENCE_S):
            while len(+rome.held) < len(FINALIZERS) * 6:  # noqa: ASYNC110  # each on each kind
                await asyncio.sleep(0.1)

        took_s = await ends(milan, upkeep)

        with capsys.disabled():
            sys.stdout.write(f"\ntenant gone {took_s:.1f} s after {len(upkeep.ended)} pods\n")
            sys.stdout.write(f"{dict(rome.did)}, let through {rome.held.total()}\n")
        assert upkeep.ended
        assert await left(milan) == []
