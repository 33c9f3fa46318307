"""What it costs the API servers, by their own audit logs: counts, never times."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from apis import keys, naming
from apis.objects import Key, Object
from bench.check import SOON_S, ready_s
from controllers import objectquotas
from kube import clock
from kube.dynamicinformer import SETTLED_S
from sandbox import audit
from tests.journeys import world

pytestmark = pytest.mark.journey

PODS = 20
"""At most, until ``ENOUGH`` of them were Ready soon."""
ENOUGH = 5
WRITES_A_POD = 5
CALM = 2
NOT_FOUND = 404
LOOK_S = 10.0
"""For the lists of that look, and for the start of a reflector that leads."""
HEARTBEATS = 3
"""Renewals of the virtual node's lease, ten seconds apart, that a calm time is made of."""


@dataclass
class Logs:
    """Both audit logs from now on."""

    files: Iterable[audit.Log]
    calls: list[audit.Call] = field(default_factory=list)

    async def until(self, holds: Callable[[list[audit.Call]], bool]) -> list[audit.Call]:
        """Return all calls so far once ``holds``; the files are looked at as they grow."""
        async with asyncio.timeout(world.PATIENCE_S):
            while True:
                for file in self.files:
                    self.calls += file.read()
                if holds(self.calls):
                    return self.calls
                await asyncio.sleep(0.05)


@pytest.fixture
def logs(kubeconfigs: Mapping[str, Path]) -> Logs:
    return Logs(
        [audit.Log(path.with_name(cluster) / "audit.log") for cluster, path in kubeconfigs.items()]
    )


def is_renewal(call: audit.Call) -> bool:
    return (
        call.resource == "leases" and call.namespace == keys.NODE_LEASE_NAMESPACE and call.is_ours
    )


def is_of_a_pod(call: audit.Call) -> bool:
    return call.is_ours and call.is_write and call.name.startswith("web-")


def changes(calls: Iterable[audit.Call]) -> list[audit.Call]:
    """Return our writes, leases aside."""
    ours = [call for call in calls if call.is_ours and call.is_write]
    return [call for call in ours if call.resource != "leases"]


def renewals(calls: Iterable[audit.Call]) -> int:
    return sum(is_renewal(call) for call in calls)


async def test_a_pod_that_starts_well_costs_at_most_five_writes_up_to_running(
    both: world.Pair, namespace: str, logs: Logs
) -> None:
    """Pods start one after another, so that they start soon on a busy machine as well."""
    await both.offload(namespace)
    await logs.until(bool)
    places = {namespace, both.twin(namespace)}
    logs.calls.clear()
    prompt: set[str] = set()

    for number in range(PODS):
        key = Key(namespace, f"web-{number}")
        await both.rome.create(keys.POD, world.pod(*key, both.image))
        pod = await world.until_one(both.rome, keys.POD, key, lambda pod: ready_s(pod) is not None)
        prompt |= {key.name} if (ready_s(pod) or 0) <= SOON_S else set()
        if len(prompt) == ENOUGH:
            break
    seen = renewals(await logs.until(bool))
    calls = await logs.until(lambda calls: renewals(calls) >= seen + CALM)

    assert prompt, "no pod was Ready soon: its Events say why, and this machine is too slow"
    of_pods = [call for call in calls if is_of_a_pod(call) and call.namespace in places]
    writes = [call for call in of_pods if call.name.split(".")[0] in prompt]
    assert len(writes) >= 2 * len(prompt)
    counts = audit.count(writes, "agent", "verb", "resource")
    assert len(writes) <= WRITES_A_POD * len(prompt), counts
    assert {call.code for call in writes} <= {200, 201}


def tells_its_version(foreign_cluster: Object) -> bool:
    return bool((foreign_cluster.get("status") or {}).get("version"))


async def quiet(both: world.Pair, logs: Logs) -> None:
    """Return once what others left has come to rest: two renewals with nothing else beside them.

    An Event that is told again may wait for as long as one lasts. A reflector that leads since
    another one did looks once more for what that one may have made.
    """
    while True:
        logs.calls.clear()
        calls = await logs.until(lambda calls: renewals(calls) >= CALM)
        if not changes(calls) and await is_settled(both):
            logs.calls.clear()
            return


async def until_counted(both: world.Pair, namespace: str) -> None:
    """Return once the consumer's objects are counted, which a new cluster begins late with."""
    for where in (naming.tenant_namespace("rome"), both.twin(namespace)):
        quota = Key(where, objectquotas.NAME)
        await world.until_one(both.milan, keys.RESOURCE_QUOTA, quota, lambda _: True)


async def is_settled(both: world.Pair) -> bool:
    """Whether that look of the reflector is over."""
    where = Key(naming.tenant_namespace(both.node), keys.REFLECTOR_LEASE)
    lease = await both.rome.get_live(keys.LEASE, where)
    assert lease
    led_s = (clock.now() - datetime.fromisoformat(lease["spec"]["acquireTime"])).total_seconds()
    return led_s > SETTLED_S + LOOK_S


async def test_nothing_is_written_or_listed_while_nothing_changes(
    both: world.Pair, namespace: str, logs: Logs
) -> None:
    await both.offload(namespace)
    await both.rome.create(keys.POD, world.pod(namespace, "calm", both.image))
    await world.until_one(
        both.rome, keys.POD, Key(namespace, "calm"), lambda pod: world.phase(pod) == "Running"
    )
    # Which version a new peer runs is asked once a minute until it says so.
    await world.until_one(both.rome, keys.FOREIGN_CLUSTER, Key("", both.node), tells_its_version)
    await until_counted(both, namespace)
    await quiet(both, logs)

    calls = await logs.until(lambda calls: renewals(calls) >= HEARTBEATS)

    lists = [call for call in calls if call.is_ours and call.verb == "list"]
    known = [call for call in lists if call.code != NOT_FOUND]
    writes = changes(calls)
    heartbeats = [call for call in writes if call.resource == "nodes/status"]
    assert known == []  # ServiceCIDRs are asked for again and again before Kubernetes 1.33
    assert len(heartbeats) <= 1
    assert [call for call in writes if call not in heartbeats] == []
