"""Not one byte of what is not to leave is ever sent to the provider: each Secret is a canary."""

import asyncio
import base64
import json
import random
import secrets as random_
from collections.abc import Awaitable, Callable

import pytest

from apis import keys, reflectionpolicy
from apis.objects import Key, Kind, Object, named
from apis.offloading import ReflectionPolicy as Policy
from kube import client
from kube.cluster import Cluster, Selection
from kube.slim import Partial
from reflector.kinds.table import KIND_REFLECTIONS
from reflector.namespaces import KindController, ReflectedNamespaces, Rules
from sandbox.controlplane import Plane
from tests import factories
from tests.conftest import size_of
from tests.fakes import FakeCluster
from tests.kube.running import until_so
from tests.reflector import recorder
from tests.reflector.mapped import IDENTITY, MAP, tell
from tests.world import existing, offload

NAMESPACES = [f"ns-{number}" for number in range(50)]
OFFLOADED = NAMESPACES[:10]
SECRETS = 10
PROTECTED = (
    "kubernetes.io/service-account-token",
    "bootstrap.kubernetes.io/token",
    "helm.sh/release.v1",
)
CHURN = 1000
CHURN_ON_SERVERS = size_of("PYLIQO_TEST_CHURN", 100, 1000)


class Wire(FakeCluster):
    """The provider, and all that was ever sent to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    async def create(self, kind: Kind, obj: Object) -> Object:
        self.sent.append(json.dumps(obj))
        return await super().create(kind, obj)

    async def apply(self, kind: Kind, obj: Object, *, manager: str) -> Object:
        self.sent.append(json.dumps(obj))
        return await super().apply(kind, obj, manager=manager)

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        self.sent.append(json.dumps(changes))
        return await super().patch(kind, key, changes, subresource=subresource)


def canary(namespace: str, number: int, version: int = 0) -> str:
    """Return what a Secret holds: nothing else begins with these bytes."""
    return f"{_mark(namespace, number)}{base64.b64encode(str(version).encode()).decode()}"


def _mark(namespace: str, number: int) -> str:
    return base64.b64encode(f"canary-{namespace}-{number}-".ljust(30, ".").encode()).decode()


def canary_secret(namespace: str, number: int) -> Object:
    made = factories.secret(namespace, f"secret-{number}", value=canary(namespace, number))
    if number < len(PROTECTED):
        made["type"] = PROTECTED[number]
    made["metadata"]["annotations"] = {keys.LAST_APPLIED: f"last-{namespace}-{number}"}
    return made


def pod_with_secrets(namespace: str) -> Object:
    """Return an offloaded pod that mentions three Secrets, the protected first one among them."""
    volumes = [{"secret": {"secretName": f"secret-{number}"}} for number in (0, 4, 5)]
    spec = {"nodeName": "milan", "volumes": volumes, "containers": []}
    return factories.pod(namespace, "web", spec=spec)


async def home_with_canaries() -> FakeCluster:
    cluster = FakeCluster()
    labels = {keys.REMOTE_CLUSTER_ID: "milan"}
    await cluster.create(keys.NODE, named(keys.NODE, Key("", "milan"), metadata={"labels": labels}))
    await cluster.create(keys.NAMESPACE_MAP, factories.namespace_map(MAP))
    for namespace in NAMESPACES:
        await cluster.create(keys.NAMESPACE_OFFLOADING, factories.offloading(namespace))
        await cluster.create(keys.POD, pod_with_secrets(namespace))
        for number in range(SECRETS):
            await cluster.create(keys.SECRET, canary_secret(namespace, number))
    return cluster


async def offload_only(cluster: FakeCluster, names: list[str], run: str) -> None:
    found = await existing(cluster, keys.NAMESPACE_MAP, MAP)
    old = dict.fromkeys(found["spec"].get("desiredMapping", {}))
    await offload(cluster, MAP, {**old, **{name: f"{name}-{run}" for name in names}})


async def churn(cluster: FakeCluster, run: str, times: int) -> None:
    """Change Secrets everywhere, and which namespaces are offloaded; the same ones each time."""
    dice = random.Random(7)  # noqa: S311  # any will do
    for version in range(1, times + 1):
        namespace, number = dice.choice(NAMESPACES), dice.randrange(SECRETS)
        changes = {"data": {"value": canary(namespace, number, version)}}
        await cluster.patch(keys.SECRET, Key(namespace, f"secret-{number}"), changes)
        if version % (times // 4) == 0:
            await offload_only(cluster, OFFLOADED[: 9 + version * 4 // times % 2], run)
            await asyncio.sleep(0)


def entitled(policy: Policy) -> set[tuple[str, int]]:
    mentioned = {4, 5} if policy is Policy.REFERENCED else set(range(SECRETS))
    free = mentioned - set(range(len(PROTECTED)))
    return {(namespace, number) for namespace in OFFLOADED for number in free}


def reached(
    provider: Cluster, wanted: set[tuple[str, int]], run: str
) -> Callable[[], Awaitable[bool]]:
    expected = {Key(f"{name}-{run}", f"secret-{number}") for name, number in wanted}

    async def are_there() -> bool:
        there: set[Key] = set()
        for name in OFFLOADED:
            of = Selection(keys.SECRET, Partial, f"{name}-{run}")
            there |= (await provider.list(of)).items.keys()
        return there == expected

    return are_there


async def play(rome: FakeCluster, provider: Cluster, policy: Policy, run: str, times: int) -> None:
    """Offload some namespaces to ``provider``, change much, and return once all is as it should."""
    loops = [
        KindController(forge, Rules(policy if policy in row.policies else row.default), tell, 3)
        for row, forge in KIND_REFLECTIONS.items()
    ]
    offloadings = (await rome.list(Selection(keys.NAMESPACE_OFFLOADING, Object))).items.values()
    entitled_by = next(filter(None, map(reflectionpolicy.asked_policy, offloadings)), policy)
    reflecting = ReflectedNamespaces(IDENTITY, loops, rome, provider)
    running = asyncio.create_task(reflecting.run())
    try:
        await offload_only(rome, OFFLOADED, run)
        await until_so(reached(provider, entitled(entitled_by), run))
        await churn(rome, run, times)
        await offload_only(rome, OFFLOADED, run)
        await until_so(reached(provider, entitled(entitled_by), run))
    finally:
        running.cancel()
        await asyncio.wait([running])


def check(sent: str, policy: Policy) -> None:
    """Assert that of all canaries exactly the entitled ones were sent."""
    assert "last-ns" not in sent
    for namespace in NAMESPACES:
        for number in range(SECRETS):
            is_sent = _mark(namespace, number) in sent
            assert is_sent is ((namespace, number) in entitled(policy)), (namespace, number)


@pytest.mark.parametrize("policy", [Policy.DENY_LIST, Policy.REFERENCED])
@pytest.mark.parametrize("said_by", ["installation", "namespaces"])
async def test_only_entitled_canaries_are_sent(policy: Policy, said_by: str) -> None:
    rome, wire = await home_with_canaries(), Wire()
    other = {Policy.DENY_LIST: Policy.REFERENCED, Policy.REFERENCED: Policy.DENY_LIST}
    chosen = policy if said_by == "installation" else other[policy]
    if said_by == "namespaces":
        for namespace in NAMESPACES:
            asked = {"metadata": {"annotations": {keys.REFLECTION_POLICY: policy.value}}}
            await rome.patch(keys.NAMESPACE_OFFLOADING, Key(namespace, "offloading"), asked)

    await play(rome, wire, chosen, "rome", CHURN)

    assert len(wire.sent) > len(entitled(policy))
    check("".join(wire.sent), policy)


@pytest.mark.cluster
@pytest.mark.parametrize("policy", [Policy.DENY_LIST, Policy.REFERENCED])
async def test_only_entitled_canaries_are_on_the_wire(
    plane: Plane, crds: None, policy: Policy
) -> None:
    """All bytes that go to a real API server: requests, headers, addresses."""
    run = f"canaries-{random_.token_hex(4)}"
    async with client.connect(plane.kubeconfig, user_agent="tests") as admin:
        for name in OFFLOADED:
            made = named(keys.NAMESPACE, Key("", f"{name}-{run}"))
            await admin.create(keys.NAMESPACE, made)
    async with (
        recorder.recording(plane.kubeconfig) as (through, sent),
        client.connect(through, user_agent="pyliqo-canaries") as provider,
    ):
        await play(await home_with_canaries(), provider, policy, run, CHURN_ON_SERVERS)

    text = sent.decode(errors="replace")
    assert text.count("PATCH ") >= len(entitled(policy)), "the wire is recorded"
    check(text, policy)
