"""By which addresses pods on the provider are reached, and the IP objects of an IP fabric."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from apis import keys, networks, objects
from apis.networks import NodeAddresses, PodNetworks, Remap
from apis.objects import Key, Object
from kube import errors, localaddresses
from kube.cache import CachedCluster
from kube.cluster import Selection
from kube.controller import WatchSource
from kube.informer import Change, Informer
from kube.localaddresses import LocalAddresses
from kubelet.options import KubeletOptions
from kubelet.pods import ip

logger = logging.getLogger(__name__)


class PodAddressBook:
    """What holds now; a Configuration that changes holds at once, without a restart.

    Source: docs/parity.md § 1.14, 4.3, 5.5.5; docs/decisions/0013 (5).
    """

    def __init__(self, settings: KubeletOptions) -> None:
        self._peer, self._flags = settings.foreign_cluster_id, settings.remap
        self._hides = settings.hides_ips
        self._networks = settings.pod_networks
        self._configurations: Informer[Object] = Informer(
            Selection(
                keys.CONFIGURATION,
                Object,
                settings.tenant_namespace,
                labels=f"{keys.REMOTE_CLUSTER_ID}={settings.foreign_cluster_id}",
            ),
            may_lack=(errors.NotFoundError,),
        )
        self._has_fabric = settings.has_fabric and not settings.hides_ips
        self._own = LocalAddresses(
            Informer(localaddresses.NODES),
            Informer(localaddresses.API_SERVERS),
            Informer(localaddresses.SERVICE_CIDRS, may_lack=localaddresses.MAY_LACK),
            settings.own_networks,
        )
        self._agreed = Remap()
        self._configurations.subscribe(self._look)

    @property
    def has_fabric(self) -> bool:
        return self._has_fabric

    @property
    def informers(self) -> list[Informer[Any]]:
        """Return what has to be followed: where nothing can be published, nothing."""
        if self._has_fabric:
            return [self._configurations]
        if self._hides or self._flags.pairs or not self._networks:
            return []
        return [self._own.nodes, self._own.api_servers, self._own.service_cidrs]

    def sources(self, pods: Callable[[], Iterable[Key]]) -> list[WatchSource[Any]]:
        """Return what tells that ``pods`` are to be looked at again."""

        def of_node(change: Change[NodeAddresses]) -> Iterable[Key]:
            return pods() if localaddresses.is_moved(change) else []

        nodes = self._own.nodes
        return [
            WatchSource(nodes, of_node) if each is nodes else WatchSource(each, lambda _: pods())
            for each in self.informers
        ]

    def known(self) -> PodNetworks | None:
        """Return it; None while nobody is to be told any address.

        So it is with a fabric, while neither a Configuration nor flags say how pods are reached.
        """
        known = self._agreed if self._agreed.pairs else self._flags
        is_unknown = self._has_fabric and not known.pairs
        if self._hides or is_unknown:
            return None
        return PodNetworks(known, self._networks, self._own.own())

    def _look(self, _: Change[Object]) -> None:
        try:
            self._agreed = networks.remap_of_peer(self._configurations.items().values(), self._peer)
        except ValueError as error:
            logger.warning(
                "kept the addresses that were agreed before", extra={"error": str(error)}
            )


# Keeps an IP object for each offloaded pod, where an IP fabric joins the clusters -----------------

UNKNOWN_RETRY_S: Final = 60.0
"""The fabric may bring its kinds later; nobody tells when."""
TAKEN_RETRY_S: Final = 60.0


class IpReconciler:
    """Fulfils Reconciler; keys are those of local pods.

    An address cannot be changed in an IP object: for another one it is made again.
    """

    def __init__(self, home: CachedCluster) -> None:
        self._home = home
        self._kept: dict[Key, Object] = {}
        """What is known to be there, so that a pod's other changes cost no look."""

    async def reconcile(self, key: Key) -> float | None:
        pod = await self._home.seen(keys.POD, key)
        wanted = ip.of(pod) if pod else None
        if wanted is None:
            self._kept.pop(key, None)  # the object goes with its owner
            return None
        if self._kept.get(key) == wanted:
            return None
        try:
            return await self._keep(key, wanted)
        except errors.NotFoundError:
            logger.debug("No IP object can be made here yet", extra={"pod": str(key)})
            return UNKNOWN_RETRY_S

    async def _keep(self, key: Key, wanted: Object) -> float | None:
        found = await self._home.get_live(keys.IP, key)
        if found and not ip.is_for(found, wanted):
            if not ip.is_of_a_pod(found):
                logger.warning("Left a foreign IP object alone", extra={"ip": str(key)})
                return TAKEN_RETRY_S
            await self._home.delete(keys.IP, key, uid=objects.uid(found))
            found = None
        if found is None:
            await self._home.create(keys.IP, wanted)
        self._kept[key] = wanted
        return None
