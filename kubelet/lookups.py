"""What the kubelet API asks of the loop that keeps pods: who may, which pods, and where one runs.

Source: docs/parity.md § 5.7; SEC-D1, SEC-D3.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from apis import keys
from apis.objects import Key
from kube import errors
from kube.authz import Authorizer, Right
from kube.cluster import Cluster
from kubelet.api import usage
from kubelet.api.usage import Measured
from kubelet.pods import containers, shadowpod
from kubelet.pods.mapping import MappingState, NamespaceMapping
from kubelet.pods.state import NodePod, OffloadedNamespaces

AT_ONCE: Final = 50
"""So many pods are decoded in some two milliseconds."""


def _by_key(item: tuple[Key, NodePod]) -> Key:
    return item[0]


class NotHereError(Exception):
    """There is no such pod on this node, or no such container in it: answer 404."""


class NotRunningError(Exception):
    """It does not run on the provider: answer 400, as kubelets do of a container that waits.

    The text of a 404 is the API server's own, so nobody would read why.
    """


class NotKnownError(Exception):
    """The API server of this cluster, not the provider, does not say: answer 503."""


@dataclass(frozen=True)
class Lookups:
    """All of it belongs to one event loop; what serves streams asks from another."""

    node: str
    local: Cluster
    remote: Cluster
    namespaces: OffloadedNamespaces
    pods_here: Callable[[], Mapping[Key, NodePod]]
    gate: Authorizer

    async def authorize(
        self, certificate: Mapping[str, Any] | None, authorization: str, rights: Sequence[Right]
    ) -> None:
        """Return if the one who asks has one of ``rights``.

        Raises:
            UnauthenticatedError: nobody knows who it is.
            DeniedError: it has none of them.
        """
        user = await self.gate.user(certificate, authorization)
        await self.gate.check(user, rights)

    async def pods(self) -> list[bytes | Key]:
        """Return the JSON of each pod bound to this node; of a large one only its key."""
        found: list[bytes | Key] = []
        async for key, pod in self._some_at_once():
            found.append(key if pod.is_outline else pod.json())
        return found

    async def large(self, key: Key) -> bytes:
        """Return the JSON of a pod of which the cache has an outline; empty if it has gone."""
        pod = await self.local.get(keys.POD, key)
        is_here = pod is not None and pod["spec"].get("nodeName") == self.node
        return msgspec.json.encode(pod) if is_here else b""

    async def measured(self) -> dict[Key, Measured]:
        """Return what of each pod bound to this node its metrics need."""
        found: dict[Key, Measured] = {}
        async for key, pod in self._some_at_once():
            measured = pod.measured if pod.is_outline else Measured.of(pod.whole())
            if measured is not None:
                found[key] = measured
        return found

    async def _some_at_once(self) -> AsyncIterator[tuple[Key, NodePod]]:
        """Yield the pods of now; a lease or a watch waits for no more than some of them."""
        for number, (key, pod) in enumerate(sorted(self.pods_here().items(), key=_by_key), 1):
            yield key, pod
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    async def twin(self, key: Key, container: str = "") -> Key:
        """Return where the pod runs, if it is bound to this node and that very pod runs there.

        Raises:
            NotHereError: it is not bound to it, or has no such container.
            NotRunningError: it does not run on the provider, or this container does not.
            NotKnownError: whether it is cannot be asked now.
            KubeError: the provider could not be asked.
        """
        pod = await self.local.get(keys.POD, key)
        if pod is None or pod["spec"].get("nodeName") != self.node:
            raise NotHereError(f"pod {key} is not bound to node {self.node}")
        if container and container not in usage.containers(pod):
            raise NotHereError(f"pod {key} has no container {container}")
        if reason := containers.refusal(pod, container):
            raise NotRunningError(f"container {container} of pod {key} does not run: {reason}")
        mapping = await self._mapping(key.namespace)
        if mapping.state is not MappingState.OFFLOADED or mapping.pair is None:
            raise NotRunningError(f"namespace {key.namespace} is not offloaded")
        twin = mapping.pair.twin_of(key)
        remote = await self.remote.get(keys.POD, twin)
        if remote is None or not (mapping.pair.reflects(remote) and shadowpod.is_for(remote, pod)):
            raise NotRunningError(f"pod {key} does not run on the provider yet")
        return twin

    async def _mapping(self, namespace: str) -> NamespaceMapping:
        try:
            return await self.namespaces.mapping(namespace)
        except errors.KubeError as error:
            what = f"whether namespace {namespace} is offloaded is not known now"
            raise NotKnownError(f"{what}: {error}") from error
