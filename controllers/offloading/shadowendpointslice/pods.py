"""The addresses of this cluster's pods, which no consumer may stand in for."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from apis import keys
from apis.objects import Key, Meta
from kube.cluster import Cluster, Selection
from kube.informer import Change, Informer


class _Spec(msgspec.Struct, gc=False, frozen=True, rename="camel"):
    node_name: str = ""


class _Ip(msgspec.Struct, gc=False, frozen=True):
    ip: str = ""


class _Status(msgspec.Struct, gc=False, frozen=True, rename={"pod_ips": "podIPs"}):
    pod_ips: tuple[_Ip, ...] = ()


class SlimPod(msgspec.Struct, gc=False, frozen=True):
    """A Pod of which only where it is counts."""

    metadata: Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def texts(self) -> frozenset[str]:
        """Return its addresses."""
        return frozenset(each.ip for each in self.status.pod_ips)


PODS: Final = Selection(
    keys.POD, SlimPod, fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
)


class PodAddresses:
    """Which address a pod has, and on which node it is; a ``Loop``.

    Many networks of pods are in no ``spec.podCIDRs``. Nothing is watched before somebody asks: a
    cluster to which nobody sends endpoints pays nothing.
    """

    name = "pod-addresses"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked = asyncio.Event()
        self._pods = Informer(PODS)
        self._nodes: dict[str, dict[Key, str]] = {}
        self._pods.subscribe(self._on_pod)

    def subscribe(self, changed: Callable[[frozenset[str]], None]) -> None:
        """Call ``changed`` with the addresses that a pod has now and had not, or the reverse."""

        def on_change(change: Change[SlimPod]) -> None:
            before, after = (
                each.texts() if each else frozenset[str]() for each in (change.old, change.new)
            )
            if before ^ after and self._pods.synced.is_set():  # before that, nobody was judged
                changed(before ^ after)

        self._pods.subscribe(on_change)

    async def run(self) -> None:
        """Follow pods for ever, once somebody has asked."""
        await self._asked.wait()
        await self._pods.run(self._cluster)

    def is_alive(self) -> bool:
        return True

    async def drain(self) -> None:
        return

    def is_known(self) -> bool:
        """Whether all pods are known; asks for them."""
        self._asked.set()
        return self._pods.synced.is_set()

    def nodes_of(self, address: str) -> Iterable[str]:
        """Return the nodes of the pods that have ``address``."""
        return self._nodes.get(address, {}).values()

    def _on_pod(self, change: Change[SlimPod]) -> None:
        for text in change.old.texts() if change.old else ():
            held = self._nodes.get(text, {})
            held.pop(change.key, None)
            if not held:
                self._nodes.pop(text, None)
        if change.new:
            for text in change.new.texts():
                self._nodes.setdefault(text, {})[change.key] = change.new.spec.node_name
