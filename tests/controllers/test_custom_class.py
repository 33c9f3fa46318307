"""The documented controller of a class of one's own, as it stands in docs/examples."""

import asyncio
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from apis import keys, resources
from apis.objects import Key, Object
from apis.slices import ResourceSlice
from controllers.granting.customclass import CustomClassReconciler
from kube import informer
from kube.client import ClusterClient
from kube.cluster import Cluster
from sandbox.controlplane import Plane
from tests.controllers.slicereplicas import AUTHENTICATED, replica
from tests.controllers.support import LATER, Ledger, ensure_namespace, make, settle, there

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "gold_class.py"
TOLD = "ResourceSliceResources"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("gold_class", EXAMPLE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first_condition(obj: Object | None) -> tuple[str, str]:
    listed = ((obj or {}).get("status") or {}).get("conditions") or []
    found: Object = next((one for one in listed if one["type"] == "Resources"), {})
    return found.get("status", ""), found.get("message", "")


async def request(cluster: Cluster, namespace: str, consumer: str, class_: str, **cpu: str) -> Key:
    key = Key(namespace, f"{class_}-{consumer}")
    obj = replica(key, consumer, class_, cpu)
    await make(cluster, keys.RESOURCE_SLICE, obj, status=AUTHENTICATED)
    return key


def test_the_example_is_no_longer_than_a_page() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60


async def test_it_answers_the_slices_of_its_class_and_no_others(
    cluster: Cluster, namespace: str
) -> None:
    ledger = Ledger(cluster)
    loop = CustomClassReconciler(ledger, "gold", example().allocate, lambda: LATER)
    mine = await request(cluster, namespace, "rome", "gold", cpu="64")
    stranger = await request(cluster, namespace, "turin", "gold")
    other = await request(cluster, namespace, "rome", "silver")
    for key in (mine, stranger, other):
        await settle(loop, key, ledger)

    found = await there(cluster, keys.RESOURCE_SLICE, mine)
    assert found["status"]["resources"] == {"cpu": "16", "memory": "16Gi", "pods": "100"}
    assert found["status"]["nodeLabels"] == {"tier": "gold"}
    assert first_condition(found) == ("Accepted", "cut to the budget of gold: cpu")
    assert {one["type"] for one in found["status"]["conditions"]} == {"Authentication", "Resources"}
    denied = first_condition(await there(cluster, keys.RESOURCE_SLICE, stranger))
    assert denied[0] == "Denied"
    assert "has not booked class gold" in denied[1]
    assert first_condition(await there(cluster, keys.RESOURCE_SLICE, other)) == ("", "")


async def test_what_it_does_not_have_it_does_not_grant() -> None:
    wanted = {"example.com/fpga": resources.parse_quantity(1)}

    answer = await example().allocate(ResourceSlice(Key("a", "b"), "rome", wanted=wanted))

    assert answer.resources["example.com/fpga"] == "0"


@pytest.mark.cluster
async def test_it_runs_as_it_is_printed(server: ClusterClient, plane: Plane) -> None:
    space = "gold-as-printed"
    await ensure_namespace(server, space)
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    process = await asyncio.create_subprocess_exec(sys.executable, str(EXAMPLE), env=environment)
    try:
        key = await request(server, space, "rome", "gold", cpu="2")
        async with asyncio.timeout(300):
            await informer.until(
                server, keys.RESOURCE_SLICE, key, lambda obj: first_condition(obj)[0] == "Accepted"
            )
            changes = {"spec": {"resources": {"cpu": "3"}}}
            await server.patch(keys.RESOURCE_SLICE, key, changes)
            found = await informer.until(
                server,
                keys.RESOURCE_SLICE,
                key,
                lambda obj: ((obj or {}).get("status") or {})["resources"]["cpu"] == "3",
            )
    finally:
        process.terminate()
        await process.wait()
    assert first_condition(found) == ("Accepted", "granted as asked")
