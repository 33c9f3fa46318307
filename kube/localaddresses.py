"""The addresses of this cluster: of its nodes, its API servers and its Services."""

import itertools
from collections.abc import Iterable
from typing import Any, Final

from apis import keys, networks
from apis.networks import ClusterAddresses, NodeAddresses
from apis.objects import Object
from kube import errors
from kube.cluster import Selection
from kube.informer import Change, Informer

NODES: Final = Selection(
    keys.NODE, NodeAddresses, labels=f"{keys.NODE_TYPE}!={keys.VIRTUAL_NODE_TYPE}"
)
SERVICE_CIDRS: Final = Selection(keys.SERVICE_CIDR, Object)
API_SERVERS: Final = Selection(
    keys.ENDPOINT_SLICE, Object, "default", fields="metadata.name=kubernetes"
)
MAY_LACK: Final = (errors.NotFoundError,)
"""Kubernetes has ServiceCIDRs since 1.33."""


class LocalAddresses:
    """What the three informers know, with the networks that flags name."""

    def __init__(
        self,
        nodes: Informer[NodeAddresses],
        api_servers: Informer[Object],
        service_cidrs: Informer[Object],
        flags: Iterable[str] = (),
    ) -> None:
        self.nodes, self.api_servers, self.service_cidrs = nodes, api_servers, service_cidrs
        self._flags = tuple(flags)
        self._known: ClusterAddresses | None = None
        nodes.subscribe(self._on_node)
        for informer in (api_servers, service_cidrs):
            informer.subscribe(self._on_change)

    def own(self) -> ClusterAddresses:
        if self._known is None:
            said = map(networks.service_networks, self.service_cidrs.items().values())
            services = [*self._flags, *itertools.chain.from_iterable(said)]
            nodes, servers = self.nodes.items().values(), self.api_servers.items().values()
            self._known = networks.cluster_addresses(nodes, servers, services)
        return self._known

    def _on_node(self, change: Change[NodeAddresses]) -> None:
        if is_moved(change):
            self._known = None

    def _on_change(self, _: Change[Any]) -> None:
        self._known = None


def is_moved(change: Change[NodeAddresses]) -> bool:
    before, after = (each.texts() if each else [] for each in (change.old, change.new))
    return before != after
