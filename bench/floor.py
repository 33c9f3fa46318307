"""The seven writes that an offloaded pod cannot do without, in order, with nothing in between."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from apis import keys
from apis.objects import Key, Kind, Object, named
from bench import load, waiting
from kube import clock
from kube.client import ClusterClient
from sandbox import stepper

SHADOW: Final = Kind("bench.pyliqo.io", "v1beta1", "ShadowPod", "shadowpods")
"""A copy of the ShadowPod's definition, which no webhook or controller knows."""
NODE: Final = "bench-floor"


@dataclass(frozen=True)
class Floor:
    """The replay: consumer and provider, and the namespace on each side."""

    rome: ClusterClient
    milan: ClusterClient
    local: str
    remote: str

    async def replay(self, names: Sequence[str]) -> None:
        """Do the seven writes for each pod, as many pods at once as the client lets through."""
        await waiting.together(self.offload(name) for name in names)

    async def offload(self, name: str) -> None:
        """Do the seven writes for the pod ``name``."""
        here, there = Key(self.local, name), Key(self.remote, name)
        await self.rome.create(keys.POD, _pod(here))
        await self.rome.post(keys.POD, here, "binding", binding(here))
        spec = {"pod": _pod(there)["spec"]}
        await self.milan.create(SHADOW, named(SHADOW, there, spec=spec))
        made = await self.milan.create(keys.POD, _pod(there))
        await self.milan.post(keys.POD, there, "binding", binding(there))
        status = running(made, clock.now())
        await self.milan.patch_status(keys.POD, there, status)
        await self.rome.patch_status(keys.POD, here, status)

    async def remove(self, names: Sequence[str]) -> None:
        """Delete what the replay made."""
        await waiting.together(self._remove(name) for name in names)

    async def _remove(self, name: str) -> None:
        here, there = Key(self.local, name), Key(self.remote, name)
        for cluster, kind, key in (
            (self.milan, SHADOW, there),
            (self.milan, keys.POD, there),
            (self.rome, keys.POD, here),
        ):
            found = await cluster.get_live(kind, key)
            if found:
                await cluster.delete(kind, key, uid=found["metadata"]["uid"], grace_s=0)


def binding(key: Key) -> Object:
    """Return what a scheduler posts to bind a pod to the node of the replay."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
    }


def running(pod: Object, now: dt.datetime) -> Object:
    """Return the status with which a kubelet says that ``pod`` runs.

    Raises:
        ValueError: there is nothing to say of it any more.
    """
    said = stepper.status(pod, now)
    if said is None:
        raise ValueError(f"pod {pod['metadata']['name']} has ended")
    return said


def _pod(key: Key) -> Object:
    tolerations = load.tolerates(load.REPLAYED)
    return load.pod(key.namespace, key.name, schedulerName="bench", tolerations=tolerations)
