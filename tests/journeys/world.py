"""What journeys do with the two clusters: offload a namespace, run pods, wait for what they say."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from apis import keys, naming, providerpolicy
from apis.objects import Key, Kind, Object, named
from kube import errors
from kube.client import ClusterClient
from kube.cluster import Selection
from tests import factories

BARE = ("turin", "genoa")
"""Names of two clusters that a test may start without pyliqo: consumer and provider."""
PATIENCE_S = 300
REGION = {"key": "topology.kubernetes.io/region", "operator": "In", "values": ["lombardy"]}
LOMBARDY = {"nodeSelectorTerms": [{"matchExpressions": [REGION]}]}
"""Selects the virtual node of the pair and no other that somebody may have made."""
World: TypeAlias = Mapping[Key, Object]


@dataclass(frozen=True)
class Pair:
    """rome offloads to milan; ``image`` is a workload that is on both nodes."""

    rome: ClusterClient
    milan: ClusterClient
    image: str
    node: str = "milan"

    def twin(self, namespace: str) -> str:
        return naming.default_remote_namespace(namespace, "rome")

    async def offload(self, namespace: str, **spec: Any) -> Object:
        """Offload ``namespace`` and wait until it is Ready."""
        await self.rome.create(keys.NAMESPACE_OFFLOADING, offloading(namespace, **spec))
        key = Key(namespace, keys.OFFLOADING_NAME)
        return await until_one(
            self.rome,
            keys.NAMESPACE_OFFLOADING,
            key,
            lambda found: found.get("status", {}).get("offloadingPhase") == "Ready",
        )

    async def unoffload(self, namespace: str) -> None:
        """Take the NamespaceOffloading away and wait until nothing of it is left."""
        key = Key(namespace, keys.OFFLOADING_NAME)
        await remove(self.rome, keys.NAMESPACE_OFFLOADING, key)
        await until_gone(self.rome, keys.NAMESPACE_OFFLOADING, key)


def offloading(namespace: str, **spec: Any) -> Object:
    """Return a NamespaceOffloading; Remote, to the node of the pair, unless ``spec`` differs."""
    wanted = {"podOffloadingStrategy": "Remote", "clusterSelector": LOMBARDY, **spec}
    return named(keys.NAMESPACE_OFFLOADING, Key(namespace, keys.OFFLOADING_NAME), spec=wanted)


def pod(namespace: str, name: str, image: str, *command: str, **spec: Any) -> Object:
    """Return a Pod with one container that runs ``command`` under sh."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", " ".join(command) or sleeping()],
        "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}},
    }
    body = {"containers": [container], "terminationGracePeriodSeconds": 1, **spec}
    return factories.pod(namespace, name, spec=body)


def sleeping() -> str:
    """Return a shell script that runs until it is told to end, and then ends at once."""
    return "trap 'exit 0' TERM; while :; do sleep 1; done"


def deployment(namespace: str, name: str, image: str, replicas: int) -> Object:
    """Return a Deployment of sleeping pods."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod(namespace, name, image)["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return named(keys.DEPLOYMENT, Key(namespace, name), spec=spec)


class Said(NamedTuple):
    """What a command answers."""

    code: int
    out: str
    err: str


async def liqoctl(kubeconfig: Path, *args: str) -> Said:
    """Type a command."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "liqoctl", "--kubeconfig", str(kubeconfig), "--skip-confirm", *args,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return Said(process.returncode or 0, out.decode(), err.decode())


async def resizes(both: Pair) -> bool:
    """Whether both clusters resize pods that run: Kubernetes has pods/resize since 1.33."""
    said = [await cluster.get_text("/api/v1") for cluster in (both.rome, both.milan)]
    return all('"pods/resize"' in one for one in said)


@contextlib.asynccontextmanager
async def policy(provider: ClusterClient, consumer: str, **spec: Any) -> AsyncIterator[Key]:
    """Hold ``consumer`` to a ProviderPolicy of its own: the default one, changed by ``spec``.

    The default one suggests the region by which namespaces choose the cluster. It is in force again
    after the block, however that ends: other tests offload to the same cluster.
    """
    default = await provider.get_live(keys.PROVIDER_POLICY, Key("", providerpolicy.DEFAULT))
    assert default
    key = Key("", consumer)
    made = named(keys.PROVIDER_POLICY, key, spec={**default["spec"], **spec})
    await provider.create(keys.PROVIDER_POLICY, made)
    try:
        yield key
    finally:
        await remove(provider, keys.PROVIDER_POLICY, key)


def phase(obj: Object) -> str:
    return str(obj.get("status", {}).get("phase"))


async def until_logged(cluster: ClusterClient, path: str, *texts: str) -> str:
    """Return the log at ``path`` once it has all ``texts``: a container runs before it speaks."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            said = await cluster.get_text(path)
            if all(text in said for text in texts):
                return said
            await asyncio.sleep(0.1)


async def remove(cluster: ClusterClient, kind: Kind, key: Key) -> None:
    """Delete what is there under ``key``, if anything."""
    found = await cluster.get_live(kind, key)
    if found:
        await cluster.delete(kind, key, uid=found["metadata"]["uid"])


async def until(
    cluster: ClusterClient,
    kind: Kind,
    namespace: str,
    holds: Callable[[World], bool],
    *,
    patience_s: float = PATIENCE_S,
) -> World:
    """Return the objects of ``kind`` once they are as ``holds`` wants; told by a watch."""
    selection = Selection(kind, dict, namespace=namespace)
    world: dict[Key, Object] = {}
    try:
        async with asyncio.timeout(patience_s):
            while True:
                if await _is_so(cluster, selection, holds, world):
                    return world
    except TimeoutError as error:
        seen = {str(key): found.get("status") for key, found in world.items()}
        raise AssertionError(f"{kind} in {namespace}: not so in {patience_s} s: {seen}") from error


async def _is_so(
    cluster: ClusterClient,
    selection: Selection[Any],
    holds: Callable[[World], bool],
    world: dict[Key, Object],
) -> bool:
    """Keep ``world`` up to date until it is as wanted (True) or the watch ends (False)."""
    listing = await cluster.list(selection)
    world.clear()
    world.update(listing.items)
    if holds(world):
        return True
    with contextlib.suppress(errors.KubeError):
        async with contextlib.aclosing(cluster.watch(selection, listing.version)) as events:
            async for event in events:
                if event.type == "DELETED":
                    world.pop(event.key, None)
                elif event.type != "BOOKMARK":
                    world[event.key] = event.object
                if holds(world):
                    return True
    return False


async def until_one(
    cluster: ClusterClient,
    kind: Kind,
    key: Key,
    holds: Callable[[Object], bool],
    *,
    patience_s: float = PATIENCE_S,
) -> Object:
    """Return the object under ``key`` once it is as ``holds`` wants."""
    world = await until(
        cluster,
        kind,
        key.namespace,
        lambda found: key in found and holds(found[key]),
        patience_s=patience_s,
    )
    return world[key]


async def until_gone(cluster: ClusterClient, kind: Kind, key: Key) -> None:
    """Return once nothing is under ``key``."""
    await until(cluster, kind, key.namespace, lambda found: key not in found)
