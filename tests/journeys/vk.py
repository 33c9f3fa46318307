"""The virtual kubelet of the pair: its pod, and what it serves."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

from apis import keys, naming, objects
from apis.objects import Key
from kube import errors
from kube.cluster import Selection
from tests.journeys import world
from tests.journeys.kubectl import Kubectl


async def pod(both: world.Pair) -> Key:
    """Return the pod that the virtual kubelet of the pair runs in."""
    labels = f"{keys.COMPONENT}={keys.VIRTUAL_KUBELET},{keys.VIRTUAL_NODE_LABEL}={both.node}"
    found = await both.rome.list(Selection(keys.POD, dict, labels=labels))
    (key,) = (key for key, one in found.items.items() if not objects.is_terminating(one))
    return key


async def until_served(both: world.Pair) -> None:
    """Wait until the virtual kubelet has its certificate: a node may be Ready before, as any."""
    async with asyncio.timeout(world.PATIENCE_S):
        while True:
            with contextlib.suppress(errors.KubeError):
                await both.rome.get_text(f"/api/v1/nodes/{both.node}/proxy/healthz")
                return
            await asyncio.sleep(0.1)


async def serve_metrics(both: world.Pair, kubeconfig: Path, *, is_enabled: bool) -> None:
    """Say in the template whether metrics are served; wait until the virtual kubelet is another."""
    before = await pod(both)
    template = Key(keys.LIQO_NAMESPACE, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    spec = {"metricsEnabled": is_enabled}
    await both.rome.patch(keys.VK_OPTIONS_TEMPLATE, template, {"spec": spec})
    await world.until_gone(both.rome, keys.POD, before)
    rolled = ("rollout", "status", f"deployment/{naming.vk_deployment(both.node)}")
    await Kubectl(kubeconfig, before.namespace).out(*rolled)
    await until_served(both)


@contextlib.asynccontextmanager
async def second_node(both: world.Pair, kubeconfig: Path, *, replicas: int) -> AsyncIterator[str]:
    """Yield the name of another virtual node of the pair's slice; both have ``replicas``."""
    second, template = "second", Key(keys.LIQO_NAMESPACE, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    tenant = naming.tenant_namespace(both.node)

    async def have(wanted: int | None, *nodes: str) -> None:
        await both.rome.patch(keys.VK_OPTIONS_TEMPLATE, template, {"spec": {"replicas": wanted}})
        for node in nodes:
            key = Key(tenant, naming.vk_deployment(node))
            await world.until_one(
                both.rome,
                keys.DEPLOYMENT,
                key,
                lambda found: found.get("status", {}).get("readyReplicas") == (wanted or 1),
            )

    of = ("--remote-cluster-id", both.node, "--resource-slice-name", both.node)
    made = await world.liqoctl(kubeconfig, "create", "virtualnode", second, *of)
    assert made.code == 0, made.err
    try:
        await have(replicas, both.node, second)
        yield second
    finally:
        gone = await world.liqoctl(kubeconfig, "delete", "virtualnode", second, "-n", tenant)
        await have(None, both.node)
        assert gone.code == 0, gone.err


@contextlib.asynccontextmanager
async def supporting_api_servers(both: world.Pair) -> AsyncIterator[None]:
    """Give offloaded pods tokens of the consumer meanwhile, by which they reach its API server."""
    template = Key(keys.LIQO_NAMESPACE, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    host, port = both.rome.access.server.removeprefix("https://").split(":")
    arguments = [
        "--enable-apiserver-support=true",
        f"--home-api-server-host={host}",
        f"--home-api-server-port={port}",
    ]
    await both.rome.patch(keys.VK_OPTIONS_TEMPLATE, template, {"spec": {"extraArgs": arguments}})

    async def only_kubelet_is_ready(*, supports: bool) -> None:
        def holds(seen: world.World) -> bool:
            return len(seen) == 1 and all(
                ("enable-apiserver-support" in json.dumps(found["spec"]["containers"])) is supports
                and objects.is_condition_true(found["status"].get("conditions"), "Ready")
                for found in seen.values()
            )

        await world.until(both.rome, keys.POD, naming.tenant_namespace(both.node), holds)

    try:
        await only_kubelet_is_ready(supports=True)
        yield
    finally:
        await both.rome.patch(keys.VK_OPTIONS_TEMPLATE, template, {"spec": {"extraArgs": None}})
        await only_kubelet_is_ready(supports=False)
