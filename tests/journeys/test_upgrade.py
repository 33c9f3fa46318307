"""What an upgrade does to a pair in use: every process of pyliqo is replaced, and nobody notices.

``PYLIQO_TEST_UPGRADED=1000`` is the full size: those that milan's node has no room for run on
simulated nodes, without containers. Source: docs/parity.md F-29, F-36.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, named
from sandbox import components, install, stepper
from sandbox.clusters import Sandbox
from sandbox.kubectl import Kubectl
from tests.conftest import size_of
from tests.journeys import world
from tests.webhook.replicas import Load

pytestmark = pytest.mark.journey

PODS: Final = size_of("PYLIQO_TEST_UPGRADED", 6, 1000)
CONTAINERS: Final = 100
"""More pods than that are also given simulated nodes."""
PER_S: Final = 5
SIMULATED: Final = {"key": stepper.taint(stepper.TAINT)["key"], "operator": "Exists"}
KUBELETS: Final = ("-n", "liqo-tenant-milan", "deployment", "-l", keys.VIRTUAL_NODE_LABEL)


def lives(seen: world.World) -> dict[str, tuple[str, int]]:
    """Return which pod is which, and how often its container was started again."""
    return {
        key.name: (
            pod["metadata"]["uid"],
            sum(one["restartCount"] for one in pod["status"].get("containerStatuses", [])),
        )
        for key, pod in seen.items()
        if world.phase(pod) == "Running"
    }


def upgrade(kubeconfig: Path, name: str, label: str) -> None:
    """Install in a cluster a setting that restarts every process of pyliqo."""
    install.run(kubeconfig, *install.command(name), "--values", _values(kubeconfig, label))
    install.wait(kubeconfig)


def _values(kubeconfig: Path, label: str) -> Path:
    file = kubeconfig.parent / "upgrade.yaml"
    file.write_text(f"labels: {{test.example/release: {label}}}\n", encoding="utf-8")
    return file


@pytest.fixture
def before(kubeconfigs: Mapping[str, Path]) -> Iterator[None]:
    """Have both clusters as they were, once the test is over."""
    yield
    for name in ("milan", "rome"):
        upgrade(kubeconfigs[name], name, "null")


@pytest.fixture
def roomy(kubeconfigs: Mapping[str, Path]) -> Iterator[None]:
    """Give milan simulated nodes where its own one has too little room."""
    if PODS <= CONTAINERS:
        yield
        return
    site = Sandbox().site("milan")
    components.simulate(site, 1 + PODS // CONTAINERS)
    milan, tolerated = Kubectl(kubeconfigs["milan"]), {"tolerations": [SIMULATED]}
    opened = {"allowedPodFields": tolerated}
    milan.apply([named(keys.PROVIDER_POLICY, Key("", "rome"), spec=opened)])
    yield
    components.Component(site, "simulated").stop()
    milan.run("delete", "node", "-l", "type=simulated")
    milan.run("delete", "providerpolicy", "rome")


@pytest.mark.usefixtures("before", "roomy")
async def test_no_pod_is_restarted_no_create_refused_and_no_write_lost(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path]
) -> None:
    await both.offload(namespace)
    twin = both.twin(namespace)
    made = world.deployment(namespace, "web", both.image, PODS)
    made["spec"]["template"]["spec"] |= {
        "nodeSelector": {keys.HOSTNAME: both.node}, "tolerations": [SIMULATED],
    }  # fmt: skip
    await both.rome.create(keys.DEPLOYMENT, made)
    here = await world.until(both.rome, keys.POD, namespace, lambda seen: len(lives(seen)) == PODS)
    there = await world.until(both.milan, keys.POD, twin, lambda seen: len(lives(seen)) == PODS)

    load, rome = Load(kubeconfigs["rome"], namespace, per_s=PER_S), Kubectl(kubeconfigs["rome"])
    async with load.running():
        await load.steady()
        for number, name in enumerate(("milan", "rome", "milan")):
            await asyncio.to_thread(upgrade, kubeconfigs[name], name, f"v{number}")
            config = named(keys.CONFIG_MAP, Key(namespace, f"written-{number}"), data={"a": "b"})
            await both.rome.create(keys.CONFIG_MAP, config)
        await asyncio.to_thread(rome.run, "rollout", "restart", *KUBELETS)
        await asyncio.to_thread(rome.run, "rollout", "status", *KUBELETS, timeout_s=300)
        await load.more(10)

    assert load.failures == []
    after = await world.until(
        both.rome, keys.POD, namespace, lambda seen: lives(seen) == lives(here)
    )
    assert lives(after) == lives(here)
    await world.until(both.milan, keys.POD, twin, lambda seen: lives(seen) == lives(there))
    written = {f"written-{number}" for number in range(3)}
    await world.until(
        both.milan, keys.CONFIG_MAP, twin, lambda seen: written <= {key.name for key in seen}
    )
