"""A tenant with a Quota, and its pods."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from apis import keys, objects
from apis.objects import Key, Object, named
from controllers.offloading.quota.ledger import Accounts, AdmissionDefaults
from controllers.offloading.quota.reconciler import QuotaReconciler
from controllers.offloading.shadowpod import slim
from controllers.offloading.shadowpod.reconciler import ShadowPodReconciler
from controllers.offloading.shadowpod.slim import SlimPod, SlimShadow
from kube.cluster import Cluster, Selection
from kube.errors import ConflictError
from kube.informer import Informer
from tests import factories
from tests.controllers.support import NOW, Ledger, Told, end, there


def sized(cpu: str, **spec: Any) -> Object:
    resources = {"requests": {"cpu": cpu}} if cpu else {}
    container = {"name": "main", "image": "nginx", "resources": resources}
    return factories.pod_spec(containers=[container], **spec)


@dataclass
class World:
    """One user's namespace and Quota, the caches, and both loops run by hand."""

    cluster: Cluster
    namespace: str
    term: str = "first"
    now: float = 0.0
    """As a monotonic clock tells it."""
    set_back_s: float = 0.0
    """By so much the time of day was set back."""
    told: list[Key] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.cluster)
        self.events = Told(self.cluster)
        self.quotas = Informer(Selection(keys.QUOTA, Object, self.namespace))
        self.shadows = Informer(Selection(keys.SHADOW_POD, SlimShadow, self.namespace))
        self.pods = Informer(Selection(keys.POD, SlimPod, self.namespace))
        self.ranges = Informer(Selection(keys.LIMIT_RANGE, Object, self.namespace))
        self.classes = Informer(Selection(keys.RUNTIME_CLASSES, Object))
        self.additions = AdmissionDefaults(self.ranges, self.classes)
        self.accounts = Accounts(self.quotas, self.shadows, self.pods, self.additions)
        self.quota = QuotaReconciler(
            self.ledger, self.accounts, term=self.term, tell=self.told.append, tick=lambda: self.now
        )
        self.loop = ShadowPodReconciler(
            self.ledger,
            events=self.events.recorder,
            clock=lambda: NOW + timedelta(seconds=self.now - self.set_back_s),
            tick=lambda: self.now,
            find=slim.seen(self.shadows, self.pods),
            ledger=self.accounts,
        )

    @property
    def informers(self) -> list[Informer[Any]]:
        return [self.quotas, self.shadows, self.pods, self.ranges, self.classes]

    @property
    def user(self) -> str:
        """Return the test's own user: all tests share one server."""
        return f"pool-{self.namespace}"

    @property
    def key(self) -> Key:
        return Key(self.namespace, "quota")

    async def grant(self, cpu: str = "2", **spec: Any) -> None:
        wanted = {"user": self.user, "resources": {"cpu": cpu}, **spec}
        await self.cluster.apply(keys.QUOTA, named(keys.QUOTA, self.key, spec=wanted), manager="t")

    async def default(self, cpu: str) -> None:
        """Let a container that asks for nothing get ``cpu``."""
        key = Key(self.namespace, "defaults")
        spec = {"limits": [{"type": "Container", "defaultRequest": {"cpu": cpu}}]}
        wanted = named(keys.LIMIT_RANGE, key, spec=spec)
        await self.cluster.apply(keys.LIMIT_RANGE, wanted, manager="t")

    async def runtime_class(self, cpu: str) -> str:
        """Make a RuntimeClass whose sandboxes take ``cpu``; return its name."""
        key = Key("", f"heavy-{self.namespace}")
        made = named(keys.RUNTIME_CLASSES, key, handler="h", overhead={"podFixed": {"cpu": cpu}})
        await self.cluster.create(keys.RUNTIME_CLASSES, made)
        return key.name

    async def ask(self, name: str, cpu: str = "1", user: str | None = None, **pod_spec: Any) -> Key:
        user = self.user if user is None else user
        labels = {keys.ORIGIN: "rome", **({keys.CREATOR_USER: user} if user else {})}
        key = Key(self.namespace, name)
        spec = {"pod": sized(cpu, **pod_spec)}
        shadow = named(keys.SHADOW_POD, key, metadata={"labels": labels}, spec=spec)
        await self.cluster.create(keys.SHADOW_POD, shadow)
        return key

    async def remove(self, name: str, *, pod: bool = True) -> None:
        """Delete a ShadowPod, and its Pod as the garbage collector would."""
        key = Key(self.namespace, name)
        if await self.cluster.get_live(keys.SHADOW_POD, key):
            await end(self.cluster, keys.SHADOW_POD, key)
        if pod and (found := await self.cluster.get_live(keys.POD, key)):
            uid = objects.uid(found)
            await self.cluster.delete(keys.POD, key, uid=uid, grace_s=0)

    async def resize(self, name: str, cpu: str) -> None:
        """Change what the Pod asks for, in place, as anybody who administers the provider may."""
        key = Key(self.namespace, name)
        pod = await self.cluster.get_live(keys.POD, key)
        assert pod is not None
        container = {**pod["spec"]["containers"][0], "resources": {"requests": {"cpu": cpu}}}
        changes = {"spec": {"containers": [container]}}
        await self.cluster.patch(keys.POD, key, changes, subresource="resize")

    async def caught_up(self) -> None:
        """Wait until the caches hold what the server has."""
        async with asyncio.timeout(300):
            for informer in self.informers:
                while await self._lags(informer):  # noqa: ASYNC110  # what informers hold
                    await asyncio.sleep(0.01)

    async def _lags(self, informer: Informer[Any]) -> bool:
        of = replace(informer.selection, shape=Object)
        have = {key: _version(one) for key, one in informer.items().items()}
        there = (await self.cluster.list(of)).items
        return have != {key: _version(one) for key, one in there.items()}

    async def settle(self) -> None:
        """Run both loops until nothing is written; time stands still, but for takeovers."""
        for _ in range(10):
            await self.caught_up()
            before = len(self.ledger.writes)
            with contextlib.suppress(ConflictError):
                await self.quota.reconcile(self.key)
            await self.caught_up()
            for key in list(self.shadows.items()):
                await self.loop.reconcile(key)
            await self.caught_up()
            is_calm = await self._is_calm()
            if len(self.ledger.writes) == before and is_calm:
                return
        raise AssertionError(f"it goes on writing: {self.ledger.writes[-5:]}")

    async def book(self) -> None:
        """Book what waits, and create nothing: as if it were killed there."""
        for _ in range(5):
            await self.caught_up()
            await self.quota.reconcile(self.key)
            if (await self.status()).get("bookings"):
                return
        raise AssertionError("nothing was booked")

    async def _is_calm(self) -> bool:
        return await self.quota.reconcile(self.key) != 0

    async def status(self) -> Object:
        found: Object = (await there(self.cluster, keys.QUOTA, self.key)).get("status") or {}
        return found

    async def running(self) -> list[str]:
        listed = (await self.cluster.list(Selection(keys.POD, Object, self.namespace))).items
        return sorted(key.name for key in listed)

    async def why(self, name: str) -> Object:
        shadow = await there(self.cluster, keys.SHADOW_POD, Key(self.namespace, name))
        return next(iter((shadow.get("status") or {}).get("conditions") or []), {})


def _version(obj: Any) -> str:
    metadata = obj["metadata"] if isinstance(obj, dict) else None
    return str(metadata["resourceVersion"] if metadata else obj.metadata.resource_version)


@contextlib.asynccontextmanager
async def following(world: World) -> AsyncIterator[World]:
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one.run(world.cluster)) for one in world.informers]
        for one in world.informers:
            await one.synced.wait()
        yield world
        for task in running:
            task.cancel()
