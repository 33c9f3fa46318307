"""Nodes without containers, on which thousands of pods run at the price of a status write each.

``python -m sandbox.simulated --kubeconfig FILE --nodes N`` runs until it is stopped. Its nodes stay
behind, and become NotReady as those of a machine that was switched off do.
"""

import argparse
import asyncio
import contextlib
import datetime as dt
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from apis import keys
from apis.objects import Key, Object, named
from kube import client, clock, logs
from kube.cluster import Cluster, Selection
from kube.controller import Runner, WatchSource
from kube.errors import AlreadyExistsError, KubeError, NotFoundError
from kube.informer import Informer
from kube.slim import Slim
from sandbox import stepper

logger = logging.getLogger(__name__)

LEASES = "kube-node-lease"
RENEW_S = 10.0
STATUS_S = 300.0
_WORKERS = 16


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    kubeconfig: Path
    nodes: tuple[str, ...]
    taints: tuple[str, ...]


class PodStepper:
    """Does for the pods of simulated nodes what a kubelet would report."""

    def __init__(
        self,
        cluster: Cluster,
        pods: Informer[Slim],
        nodes: Sequence[str],
        now: Callable[[], dt.datetime] = clock.now,
    ) -> None:
        self._cluster, self._pods, self._nodes, self._now = cluster, pods, frozenset(nodes), now

    async def reconcile(self, key: Key) -> float | None:
        """Write the next status of a pod of ours, or remove one that is to go."""
        cached = self._pods.get(key)
        if cached is None:
            return None
        pod = msgspec.json.decode(msgspec.json.encode(cached), type=dict[str, object])
        return await self._step(key, pod) if self._is_ours(pod) else None

    def _is_ours(self, pod: Object) -> bool:
        return pod["spec"].get("nodeName") in self._nodes

    async def _step(self, key: Key, pod: Object) -> float | None:
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            await self._cluster.delete(keys.POD, key, uid=metadata["uid"], grace_s=0)
            return None
        said = stepper.status(pod, self._now())
        if said is not None:
            await self._write(key, said, metadata["resourceVersion"])
            return None  # the write comes back as an event
        return stepper.remaining_s(pod, self._now())

    async def _write(self, key: Key, said: Object, version: str) -> None:
        precondition = {"resourceVersion": version}
        with contextlib.suppress(NotFoundError):
            await self._cluster.patch_status(keys.POD, key, said, metadata=precondition)


class NodeKeeper:
    """Creates one node and keeps it alive: a Lease every 10 s, its status every 5 min."""

    def __init__(
        self,
        cluster: Cluster,
        taints: Sequence[str],
        now: Callable[[], dt.datetime] = clock.now,
    ) -> None:
        self._cluster, self._now = cluster, now
        self._taints = [stepper.taint(text) for text in taints]

    async def keep(self, name: str) -> None:
        """Keep the node ``name`` until cancelled."""
        while True:
            try:
                await self.create(name)
                for _ in range(round(STATUS_S / RENEW_S)):
                    await self.renew(name)
                    await asyncio.sleep(RENEW_S)
                    if not await self.is_ready(name):
                        break
            except KubeError as error:  # an API server that is away comes back
                logger.warning("tries again", extra={"node": name, "error": str(error)})
                await asyncio.sleep(1)

    async def create(self, name: str) -> None:
        """Create the node unless it is there, and say that it is ready."""
        whole = named(keys.NODE, Key("", name), **stepper.node(name, self._taints))
        with contextlib.suppress(AlreadyExistsError):
            await self._cluster.create(keys.NODE, whole)
        said = stepper.node_status(name, self._now())
        await self._cluster.patch_status(keys.NODE, Key("", name), said)

    async def is_ready(self, name: str) -> bool:
        """Whether the cluster takes the node for ready: a late look may say otherwise for long."""
        found = await self._cluster.get_live(keys.NODE, Key("", name))
        conditions = (found or {}).get("status", {}).get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    async def renew(self, name: str) -> None:
        """Renew the node's Lease, which is made when it is not there."""
        key, spec = Key(LEASES, name), stepper.lease_spec(name, self._now())
        try:
            await self._cluster.patch(keys.LEASE, key, {"spec": spec})
        except NotFoundError:
            await self._cluster.create(keys.LEASE, named(keys.LEASE, key, spec=spec))


async def run(settings: Settings) -> None:
    """Keep the nodes and step their pods until cancelled."""
    pods: Informer[Slim] = Informer(Selection(keys.POD, Slim))
    async with client.connect(settings.kubeconfig, user_agent="pyliqo-simulated") as cluster:
        keeper = NodeKeeper(cluster, settings.taints)
        reconciler = PodStepper(cluster, pods, settings.nodes)
        runner = Runner("simulated", reconciler, [WatchSource(pods)], workers=_WORKERS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pods.run(cluster))
            tasks.create_task(runner.run())
            for name in settings.nodes:
                tasks.create_task(keeper.keep(name))


def settings_of(argv: Sequence[str] | None) -> Settings:
    """Return the settings that the command line ``argv`` asks for."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.simulated", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1, metavar="N")
    parser.add_argument("--taint", action="append", metavar="KEY=VALUE:EFFECT")
    said = parser.parse_args(argv)
    names = tuple(f"simulated-{number}" for number in range(said.nodes))
    return Settings(said.kubeconfig, names, tuple(said.taint or [stepper.TAINT]))


async def _until_stopped(settings: Settings) -> None:
    task = asyncio.create_task(run(settings))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM."""
    logs.setup()
    asyncio.run(_until_stopped(settings_of(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
