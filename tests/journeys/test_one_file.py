"""Everything in one file, applied at once: the pods are offloaded all the same.

Each order of the documents that is possible, with webhook replicas as they are and with such
whose caches lag. ``PYLIQO_ONE_FILE_RUNS`` sets how many runs of each.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Object, is_terminating, named
from kube.cluster import Selection
from sandbox.kubectl import Kubectl
from tests.conftest import size_of
from tests.journeys import world
from tests.webhook import hooked

pytestmark = pytest.mark.journey

RUNS: Final = size_of("PYLIQO_ONE_FILE_RUNS", 3, 50)
MOUNTED: Final = "/lag"
ENVIRONMENT: Final = {
    **hooked.LAGGING,
    "PYTHONPATH": f"{MOUNTED}:/opt/pyliqo:/opt/dependencies",  # as in the image, and more
}
WEBHOOK: Final = Key(keys.LIQO_NAMESPACE, "liqo-webhook")
NAME: Final = f"deployment/{WEBHOOK.name}"
LAG: Final = Key(keys.LIQO_NAMESPACE, "lag")
ORDERS: Final = {"offloading first": (0, 1, 2, 3), "deployment first": (0, 2, 3, 1)}


def documents(namespace: str, image: str) -> list[Object]:
    """Return a namespace, its offloading, a ConfigMap and a Deployment that needs it."""
    deployment = world.deployment(namespace, "web", image, 1)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    return [
        named(keys.NAMESPACE, Key("", namespace)),
        world.offloading(namespace),
        named(keys.CONFIG_MAP, Key(namespace, "settings"), data={"COLOUR": "green"}),
        deployment,
    ]


@pytest.fixture
def rome(kubeconfigs: Mapping[str, Path]) -> Kubectl:
    return Kubectl(kubeconfigs["rome"])


@pytest.fixture
async def lagging(both: world.Pair, rome: Kubectl) -> AsyncIterator[None]:
    """Let the caches of all replicas lag, for one test."""
    code = {"sitecustomize.py": (hooked.LAG / "sitecustomize.py").read_text()}
    await both.rome.create(keys.CONFIG_MAP, named(keys.CONFIG_MAP, LAG, data=code))
    env = [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
    mount = {"name": "lag", "mountPath": MOUNTED}
    pod = {
        "containers": [{"name": "webhook", "env": env, "volumeMounts": [mount]}],
        "volumes": [{"name": "lag", "configMap": {"name": LAG.name}}],
    }
    change = json.dumps({"spec": {"template": {"spec": pod}}})
    await asyncio.to_thread(_roll_out, rome, "patch", NAME, "--patch", change)
    yield
    await asyncio.to_thread(_roll_out, rome, "rollout", "undo", NAME)
    await world.remove(both.rome, keys.CONFIG_MAP, LAG)


def _roll_out(rome: Kubectl, *change: str) -> None:
    rome.run("-n", WEBHOOK.namespace, *change)
    rome.run("-n", WEBHOOK.namespace, "rollout", "status", NAME, "--timeout=300s", timeout_s=310)


@pytest.mark.parametrize("order", ORDERS)
async def test_every_run_converges(both: world.Pair, rome: Kubectl, order: str) -> None:
    assert await converged(both, rome, order) == RUNS


@pytest.mark.parametrize("order", ORDERS)
async def test_every_run_converges_with_caches_that_lag(
    both: world.Pair, rome: Kubectl, lagging: None, order: str
) -> None:
    assert await converged(both, rome, order) == RUNS


async def test_a_bare_pod_of_the_same_file_runs_on_the_provider(
    both: world.Pair, rome: Kubectl
) -> None:
    """It is applied by one attempt: nobody makes it again. The twins' names are shortened ones."""
    names = [f"bare-{secrets.token_hex(3)}".ljust(naming.LABEL_LIMIT, "x") for _ in range(RUNS)]
    try:
        for name in names:
            made = documents(name, both.image)
            bare = world.pod(name, "bare", both.image)
            manifest = {"apiVersion": "v1", "kind": "List", "items": [*made[:2], bare]}
            await asyncio.to_thread(rome.run, "apply", "-f", "-", stdin=json.dumps(manifest))
        assert [await is_offloaded(both, name) for name in names] == [True] * RUNS
    finally:
        await asyncio.gather(*(both.unoffload(name) for name in names))
        for name in names:
            await world.remove(both.rome, keys.NAMESPACE, Key("", name))


async def test_pods_of_a_namespace_labelled_in_advance_wait_for_its_offloading(
    both: world.Pair, namespace: str
) -> None:
    """They are refused until then; with its end the label goes, and pods run as in any other."""
    label = {"metadata": {"labels": {keys.SCHEDULING_ENABLED: "true"}}}
    await both.rome.patch(keys.NAMESPACE, Key("", namespace), label)
    _, offloading, settings, deployment = documents(namespace, both.image)
    await both.rome.create(keys.CONFIG_MAP, settings)
    await both.rome.create(keys.DEPLOYMENT, deployment)

    def is_refused(found: Object) -> bool:
        failed = objects.find_condition(found.get("status", {}).get("conditions"), "ReplicaFailure")
        return "NamespaceOffloading" in str((failed or {}).get("message"))

    await world.until_one(both.rome, keys.DEPLOYMENT, objects.key_of(deployment), is_refused)
    assert not (await both.rome.list(Selection(keys.POD, Object, namespace))).items
    await both.rome.create(keys.NAMESPACE_OFFLOADING, offloading)

    assert await is_offloaded(both, namespace)

    await world.remove(both.rome, keys.NAMESPACE_OFFLOADING, objects.key_of(offloading))
    await world.until_gone(both.rome, keys.NAMESPACE_OFFLOADING, objects.key_of(offloading))
    await both.rome.create(keys.POD, world.pod(namespace, "afterwards", both.image))


async def converged(both: world.Pair, rome: Kubectl, order: str) -> int:
    """Return in how many runs the one pod runs on the provider, by name and by UID."""
    names = [f"onefile-{secrets.token_hex(3)}" for _ in range(RUNS)]
    try:
        for name in names:
            made = documents(name, both.image)
            items = [made[index] for index in ORDERS[order]]
            manifest = {"apiVersion": "v1", "kind": "List", "items": items}
            await asyncio.to_thread(rome.run, "apply", "-f", "-", stdin=json.dumps(manifest))
        return sum([await is_offloaded(both, name) for name in names])
    finally:
        await asyncio.gather(*(both.unoffload(name) for name in names))
        for name in names:
            await world.remove(both.rome, keys.NAMESPACE, Key("", name))


async def is_offloaded(both: world.Pair, namespace: str) -> bool:
    here = await world.until(both.rome, keys.POD, namespace, lambda seen: is_settled(both, seen))
    ((key, pod),) = living(here).items()
    there = await both.milan.get(keys.POD, Key(both.twin(namespace), key.name))
    notes = there["metadata"]["annotations"] if there else {}
    return bool(notes.get(keys.LOCAL_POD_UID) == pod["metadata"]["uid"])


def is_settled(both: world.Pair, seen: world.World) -> bool:
    pods = list(living(seen).values())
    return len(pods) == 1 and all(
        world.phase(pod) == "Running" and pod["spec"].get("nodeName") == both.node for pod in pods
    )


def living(seen: world.World) -> dict[Key, Object]:
    return {key: pod for key, pod in seen.items() if not is_terminating(pod)}
