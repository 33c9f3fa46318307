"""Of what has been nothing stays: each process has as many objects after ten lives as before.

One API server is consumer and provider, with the controller manager and both processes of a virtual
node; another one is each of the peers that come and go. Lives are those of namespaces, of pods and
what is reflected for them, of slices and of peers.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest

from apis import keys, naming
from apis.objects import Key, Kind, Object, named
from kube import client
from kube.client import ClusterClient
from sandbox import controlplane
from tests import factories
from tests.census import Census, what_stays
from tests.conftest import install_crds
from tests.controllers.lives import AT_ONCE, FIRST, LIVES, WITHIN_S, census_running
from tests.controllers.managing import inline, install_rights, set_up_peer
from tests.controllers.support import defaulted, end
from tests.kube.running import some_at_once
from tests.kubelet import worlds

pytestmark = pytest.mark.cluster

UNIQUE: Final = "stays"
ROME, MILAN = f"rome-{UNIQUE}", f"milan-{UNIQUE}"
ALWAYS: Final = "always"
"""A namespace that stays while pods come and go in it."""


class World:
    """The cluster, and what lives in it."""

    def __init__(self, cluster: ClusterClient, kubeconfig: Path, other: Path) -> None:
        self.cluster, self.kubeconfig, self.other = cluster, kubeconfig, other

    async def namespace(self, number: int) -> None:
        """Offload a namespace with a pod and what goes with it, and delete all of it."""
        name = f"shop-{number}"
        await self.offload(name)
        await self._pod(name, "web")
        await end(self.cluster, keys.NAMESPACE, Key("", name))
        for gone in (name, f"{name}-{ROME}"):
            await self._until(keys.NAMESPACE, Key("", gone), None)

    async def offload(self, name: str) -> None:
        """Offload a namespace, and see its twin."""
        await self.cluster.create(keys.NAMESPACE, factories.namespace(name))
        await self.cluster.create(keys.NAMESPACE_OFFLOADING, defaulted(name))
        await self._until(keys.NAMESPACE, Key("", f"{name}-{ROME}"))

    async def pod(self, number: int) -> None:
        """Run a pod, and what goes with it, in a namespace that stays, and delete all of it."""
        name = f"web-{number}"
        await self._pod(ALWAYS, name)
        for kind in (keys.CONFIG_MAP, keys.SECRET):
            await end(self.cluster, kind, Key(ALWAYS, name))
            await self._until(kind, Key(f"{ALWAYS}-{ROME}", name), None)

    async def _pod(self, space: str, name: str) -> None:
        """Run a pod with a ConfigMap and a Secret of its name up to its end."""
        here, there = Key(space, name), Key(f"{space}-{ROME}", name)
        await self.cluster.create(keys.CONFIG_MAP, factories.config_map(*here, a="b"))
        await self.cluster.create(keys.SECRET, factories.secret(*here, a="Yg=="))
        spec = factories.offloaded_spec(MILAN)
        await self.cluster.create(keys.POD, factories.pod(*here, spec=spec))
        for kind in (keys.CONFIG_MAP, keys.SECRET, keys.POD):
            await self._until(kind, there)
        await self.cluster.patch_status(keys.POD, there, worlds.running())
        await self._until(keys.POD, here, _runs)
        await end(self.cluster, keys.POD, here)
        await self._until(keys.POD, here, None)

    async def slice_(self, number: int) -> None:
        """Ask for resources, and ask no more once it is signed who asks."""
        name = f"slice-{number}"
        here = Key(naming.tenant_namespace(MILAN), name)
        labels = {
            keys.REMOTE_CLUSTER_ID: MILAN, keys.REPLICATION: "true", keys.REMOTE_ID: MILAN,
        }  # fmt: skip
        spec = {"class": "default", "providerClusterID": MILAN, "resources": {"cpu": "1"}}
        made = named(keys.RESOURCE_SLICE, here, metadata={"labels": labels}, spec=spec)
        await self.cluster.create(keys.RESOURCE_SLICE, made)
        await self._until(keys.RESOURCE_SLICE, here, lambda found: bool(found["spec"].get("csr")))
        await end(self.cluster, keys.RESOURCE_SLICE, here)
        await self._until(keys.RESOURCE_SLICE, here, None)

    async def peer(self, number: int) -> None:
        """Peer with another cluster, and take that back."""
        remote = f"peer-{number}"
        space = naming.tenant_namespace(remote)
        await self.cluster.create(keys.NAMESPACE, factories.tenant_namespace(space, remote))
        data = {"kubeconfig": base64.b64encode(inline(self.other)).decode()}
        secret = factories.secret(space, f"kubeconfig-controlplane-{remote}", **data)
        await self.cluster.create(keys.SECRET, secret)
        spec = {"clusterID": remote, "authParams": {}, "type": "ControlPlane"}
        metadata = {"labels": {keys.REMOTE_CLUSTER_ID: remote}}
        key = Key(space, f"controlplane-{remote}")
        made = named(keys.IDENTITY, key, metadata=metadata, spec=spec)
        await self.cluster.create(keys.IDENTITY, made)
        await self._until(keys.FOREIGN_CLUSTER, Key("", remote))
        await end(self.cluster, keys.IDENTITY, key)
        await end(self.cluster, keys.NAMESPACE, Key("", space))
        await self._until(keys.NAMESPACE, Key("", space), None)
        await end(self.cluster, keys.FOREIGN_CLUSTER, Key("", remote))
        await self._until(keys.FOREIGN_CLUSTER, Key("", remote), None)

    async def live(self, lives: range) -> None:
        """Let so many of each come and go."""
        kinds = (self.namespace, self.pod, self.slice_, self.peer)
        await some_at_once((live(number) for number in lives for live in kinds), AT_ONCE)

    async def _until(
        self, kind: Kind, key: Key, holds: Callable[[Object], bool] | None = bool
    ) -> None:
        """Wait until there is what ``holds``; None for nothing at all."""
        found: Object | None = None
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    found = await self.cluster.get_live(kind, key)
                    if found is None if holds is None else found is not None and holds(found):
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            wanted = "gone" if holds is None else "there"
            pytest.fail(f"not {wanted} within {WITHIN_S} s: {kind} {key}, but {found}")


def _runs(pod: Object) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")


@pytest.fixture
async def two_planes(tmp_path: Path) -> AsyncIterator[World]:
    with (
        controlplane.start(tmp_path / "plane") as plane,
        controlplane.start(tmp_path / "other") as other,
    ):
        plane.start_signer()
        await asyncio.gather(*(install_crds(one.kubeconfig) for one in (plane, other)))
        async with client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as cluster:
            await install_rights(cluster)
            key = Key(keys.LIQO_NAMESPACE, keys.CLUSTER_ID_CONFIG_MAP)
            who = named(keys.CONFIG_MAP, key, data={keys.CLUSTER_ID_KEY: ROME})
            await cluster.create(keys.CONFIG_MAP, who)
            yield World(cluster, plane.kubeconfig, other.kubeconfig)


@pytest.fixture
async def processes(two_planes: World, tmp_path: Path) -> AsyncIterator[list[Census]]:
    config = f"--kubeconfig={two_planes.kubeconfig}"
    async with contextlib.AsyncExitStack() as stack:

        async def run(module: str, *args: str) -> Census:
            started = census_running(Census(tmp_path, module), tmp_path / f"{module}.log", *args)
            return await stack.enter_async_context(started)

        controllers = await run("controllers", config, "--liqo-namespace", keys.LIQO_NAMESPACE)
        local, _ = await set_up_peer(two_planes.cluster, UNIQUE, two_planes.kubeconfig)
        node = (
            config, f"--nodename={MILAN}", f"--tenant-namespace={local}",
            f"--home-cluster-id={ROME}", f"--foreign-cluster-id={MILAN}",
            f"--foreign-kubeconfig-secret-name=kubeconfig-controlplane-{MILAN}",
        )  # fmt: skip
        (port,) = controlplane.free_ports(1)
        own = ("--node-ip=127.0.0.1", f"--listen-port={port}")
        yield [controllers, await run("kubelet", *node, *own), await run("reflector", *node)]


async def test_of_namespaces_pods_slices_and_peers_that_went_nothing_stays(
    two_planes: World, processes: list[Census]
) -> None:
    await two_planes.offload(ALWAYS)
    stays = await what_stays(processes, two_planes.live, first=FIRST, lives=LIVES)

    assert stays == {"controllers": {}, "kubelet": {}, "reflector": {}}
