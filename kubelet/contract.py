"""What the life of a pod on a virtual node needs to know of its surroundings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from apis.networks import PodNetworks
from apis.objects import Kind, Object
from kubelet import references
from kubelet.pods import shadowpod
from kubelet.pods.mapping import NamespaceMapping


class Namespaces(Protocol):
    """Where the pods of a namespace go."""

    async def mapping(self, namespace: str) -> NamespaceMapping:
        """Return it; that a namespace is not offloaded is always the server's own word."""
        ...

    def is_synced(self, namespace: str) -> bool:
        """Whether all that the provider has of the namespace has been seen."""
        ...

    def withheld(self, namespace: str) -> str:
        """Return which right in the namespace's twin is missing, "" if none is."""
        ...


class Recorder(Protocol):
    """Tells users."""

    def event(
        self,
        kind: Kind,
        obj: Object,
        type_: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        """Record an Event about ``obj``."""
        ...


@dataclass(frozen=True)
class Node:
    """The virtual node whose pods these are; ``options`` may change with its VirtualNode."""

    name: str
    host_ip: str
    options: Callable[[], shadowpod.Options]
    is_provider_silent: Callable[[], bool] = lambda: False
    forbids: Callable[[Object], str] = lambda _local: ""
    """Why a pod's namespace does not let it run here, "" if it does."""
    lacks: Callable[[Object], str] = lambda _local: ""
    """Of which resource the node has not enough for a pod beside older ones, "" of none."""
    policy: references.Policy = lambda _kind, _namespace: None
    """By which policy what a pod reads is reflected."""
    addresses: Callable[[], PodNetworks | None] = PodNetworks
    """By which addresses its pods are reached now; None: nobody is told any."""
    offloading: Callable[[str], Object | None] = lambda _namespace: None
    """The NamespaceOffloading of a namespace."""
