"""Everything in one file, applied at once: the pod is offloaded all the same."""

import asyncio
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

import pytest

from apis import keys
from apis.objects import Key, Object, named
from sandbox.kubectl import Kubectl
from tests.journeys import world

pytestmark = pytest.mark.journey

RUNS = 20


def documents(namespace: str, image: str) -> list[Object]:
    """Return a namespace, its offloading, a ConfigMap and a pod that needs it."""
    pod = world.pod(namespace, "web", image)
    pod["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    return [
        named(keys.NAMESPACE, Key("", namespace)),
        world.offloading(namespace),
        named(keys.CONFIG_MAP, Key(namespace, "settings"), data={"COLOUR": "green"}),
        pod,
    ]


async def test_twenty_of_twenty_runs_converge(
    both: world.Pair, kubeconfigs: Mapping[str, Path]
) -> None:
    rome = Kubectl(kubeconfigs["rome"])
    names = [f"onefile-{secrets.token_hex(3)}" for _ in range(RUNS)]
    try:
        for name in names:
            manifest = {"apiVersion": "v1", "kind": "List", "items": documents(name, both.image)}
            await asyncio.to_thread(rome.run, "apply", "-f", "-", stdin=json.dumps(manifest))
        for name in names:
            web = Key(name, "web")
            here = await world.until_one(both.rome, keys.POD, web, is_running)
            assert here["spec"]["nodeName"] == both.node
            there = await both.milan.get(keys.POD, Key(both.twin(name), "web"))
            assert there
            assert there["metadata"]["annotations"][keys.LOCAL_POD_UID] == here["metadata"]["uid"]
    finally:
        await asyncio.gather(*(both.unoffload(name) for name in names))
        for name in names:
            await world.remove(both.rome, keys.NAMESPACE, Key("", name))


def is_running(pod: Object) -> bool:
    return world.phase(pod) == "Running"
