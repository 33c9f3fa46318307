"""What the kubelet API asks of the loop that keeps pods: who may, which pods, and where one runs.

Source: behaviour.md 5.7; security.md D1, D3.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apis import keys
from apis.objects import Key
from apis.pairs import Pair
from kube import errors
from kube.cluster import Cluster
from kube.gate import Gate, Right
from kube.slim import Packed
from kubelet.contract import Namespaces
from kubelet.forge import shadowpod, usage
from kubelet.forge.mapping import MappingState, NamespaceMapping
from kubelet.forge.usage import Measured

logger = logging.getLogger(__name__)


class NotHereError(Exception):
    """There is no such pod on this node, or it does not run yet: answer 404."""


class NotKnownError(Exception):
    """The API server of this cluster, not the provider, does not say: answer 503."""


@dataclass(frozen=True)
class Lookups:
    """All of it belongs to one event loop; what serves streams asks from another."""

    node: str
    local: Cluster
    remote: Cluster
    namespaces: Namespaces
    pods_here: Callable[[], Mapping[Key, Packed]]
    gate: Gate

    async def authorize(
        self, certificate: Mapping[str, Any] | None, authorization: str, rights: Sequence[Right]
    ) -> None:
        """Return if whoever asks has one of ``rights``.

        Raises:
            UnauthenticatedError: nobody knows who it is.
            DeniedError: it has none of them.
        """
        user = await self.gate.user(certificate, authorization)
        await self.gate.check(user, rights)

    async def pods(self) -> list[bytes]:
        """Return the JSON of each pod bound to this node."""
        here = self.pods_here()
        return [here[key].json() for key in sorted(here)]

    async def measured(self) -> dict[Key, Measured]:
        """Return what of each pod bound to this node its metrics need; one is decoded at a time."""
        return {key: Measured.of(pod.whole()) for key, pod in self.pods_here().items()}

    async def pairs(self) -> list[Pair]:
        """Return the pairs of namespaces in which pods of this node run, of which that is known."""
        found: list[NamespaceMapping] = []
        for namespace in sorted({key.namespace for key in self.pods_here()}):
            try:
                found.append(await self._mapping(namespace))
            except NotKnownError as error:
                logger.warning("No metrics of a namespace", extra={"error": str(error)})
        return [one.pair for one in found if one.state is MappingState.OFFLOADED and one.pair]

    async def twin(self, key: Key, container: str = "") -> Key:
        """Return where the pod runs, if it is bound to this node and that very pod runs there.

        Raises:
            NotHereError: it is not, or has no such container.
            NotKnownError: whether it is cannot be asked now.
            KubeError: the provider could not be asked.
        """
        pod = await self.local.get(keys.POD, key)
        if pod is None or pod["spec"].get("nodeName") != self.node:
            raise NotHereError(f"pod {key} is not bound to node {self.node}")
        if container and container not in usage.containers(pod):
            raise NotHereError(f"pod {key} has no container {container}")
        mapping = await self._mapping(key.namespace)
        if mapping.state is not MappingState.OFFLOADED or mapping.pair is None:
            raise NotHereError(f"namespace {key.namespace} is not offloaded")
        twin = mapping.pair.twin_of(key)
        remote = await self.remote.get(keys.POD, twin)
        if remote is None or not (mapping.pair.reflects(remote) and shadowpod.is_for(remote, pod)):
            raise NotHereError(f"pod {key} does not run on the provider yet")
        return twin

    async def _mapping(self, namespace: str) -> NamespaceMapping:
        try:
            return await self.namespaces.mapping(namespace)
        except errors.KubeError as error:
            what = f"whether namespace {namespace} is offloaded is not known now"
            raise NotKnownError(f"{what}: {error}") from error
