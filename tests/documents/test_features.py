"""The page on features: what part of a provider a virtual node has, and how that is changed.

Source: the page "Offloading" of the features, with its section on assigned resources.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from apis import resources
from tests.documents.terminal import Terminal
from tests.journeys import world

pytestmark = pytest.mark.journey

GPU = "nvidia.com/gpu"
GIVES = "kubectl patch node cool-firefly-1 --subresource=status --type=merge --patch"
KEPT = ("sharing", "resourceSliceClasses")
"""The fields of the ProviderPolicy that commands here write."""


@pytest.fixture
async def one_gpu(provider: Terminal) -> AsyncIterator[None]:
    """Give the provider a GPU; it has none in the end, and shares as before."""
    policy = "kubectl get providerpolicies.pyliqo.io default -o json"
    before = json.loads(await provider.prints(policy))["spec"]
    await provider.types(f"{GIVES} '{patch('1')}'")
    yield
    await provider.types(f"{GIVES} '{patch(None)}'")
    spec = json.dumps({"spec": {field: before.get(field) for field in KEPT}})
    await provider.types(f"kubectl patch providerpolicy default --type=merge --patch '{spec}'")


def patch(gpus: str | None) -> str:
    return json.dumps({"status": {"capacity": {GPU: gpus}, "allocatable": {GPU: gpus}}})


async def test_a_node_has_90_percent_or_what_install_says_and_a_single_gpu_is_not_rounded_away(
    consumer: Terminal, provider: Terminal, one_gpu: None
) -> None:
    """The second node is that of the peering, whose slice is of class default."""
    await consumer.types(
        "liqoctl create resourceslice mypool --remote-cluster-id cool-firefly --class shared"
    )
    await has_part_of_what_is_free(consumer, provider, "mypool", 90, gpus="1")
    await consumer.types("liqoctl delete resourceslice mypool", "y\n")
    await provider.types("liqoctl install --sharing-percentage 50")
    await has_part_of_what_is_free(consumer, provider, "cool-firefly", 50, gpus="1")
    await provider.types("liqoctl set sharing --rounding Down")
    await has_part_of_what_is_free(consumer, provider, "cool-firefly", 50, gpus="0")


async def has_part_of_what_is_free(
    consumer: Terminal, provider: Terminal, node: str, percent: int, *, gpus: str
) -> None:
    """Wait until the node has that part, in thousandths of a CPU, of what the provider has free."""
    seen: Mapping[str, Any] = {}
    try:
        async with asyncio.timeout(world.PATIENCE_S):
            while not is_share(seen, percent, gpus):
                seen = await shared(consumer, provider, node)
    except TimeoutError as error:
        raise AssertionError(f"{node} has not {percent} %, {gpus} GPUs: {seen}") from error


async def shared(consumer: Terminal, provider: Terminal, node: str) -> Mapping[str, Any]:
    """Return what the provider has free, and what the node has."""
    told = json.loads(await provider.prints("liqoctl get sharing -o json"))
    nodes = json.loads(await consumer.prints("kubectl get nodes -o json"))["items"]
    has = [one["status"].get("allocatable") for one in nodes if one["metadata"]["name"] == node]
    return {"free": told["resources"]["cpu"]["free"], **((has and has[0]) or {})}


def is_share(seen: Mapping[str, Any], percent: int, gpus: str) -> bool:
    if "cpu" not in seen:
        return False
    part = resources.parse_quantity(seen["free"]).nanos * percent // 100 // 10**6 * 10**6
    return resources.parse_quantity(seen["cpu"]).nanos == part and seen.get(GPU) == gpus
