"""What all controllers of this process share, and what each of them gives in return."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from apis import keys, networks
from apis.authentication import Binding
from apis.networks import Remap
from apis.objects import Kind, Object
from controllers import watches
from controllers.authentication.issuing.issuer import Issuer
from controllers.authentication.tenantrights import forge as tenantrights
from controllers.granting.grants.forge.grants import GrantDefaults
from kube import errors, localaddresses
from kube.cache import CachedCluster
from kube.cluster import Cluster, Selection
from kube.dynamicinformer import NamespacedInformer
from kube.events import EventRecorder
from kube.flags import ON_OFF, cidrs, count, flag
from kube.informer import Informer
from kube.localaddresses import LocalAddresses
from kube.process import Runnable

T = TypeVar("T")

Setup: TypeAlias = Callable[[], Sequence[Runnable]]
"""Makes the loops of one controller, again each time this process is elected."""


@dataclass(frozen=True)
class Limits:
    """How much at once, and what of the cluster is asked for. Each field is a flag."""

    shadow_pod_workers: int = flag("", "--shadow-pod-ctrl-workers", type=count, default=10)
    workers: int = flag(
        "of every other loop; of NamespaceOffloadings 16 or more (default: %(default)s)",
        "--workers",
        type=count,
        default=2,
    )
    is_enforced: bool = flag(
        "create Pods only for what the Quota of a ShadowPod's user has booked (%(default)s)",
        "--enable-resource-enforcement",
        action=ON_OFF,
        default=False,
    )
    is_node_failure_handled: bool = flag(
        "delete Pods by force that end on a node that is not Ready (%(default)s)",
        "--enable-node-failure-controller",
        action=ON_OFF,
        default=False,
    )
    makes_profiles: bool = flag(
        "keep a ClusterProfile (multicluster.x-k8s.io) for each peer (%(default)s)",
        "--cluster-profiles",
        action=ON_OFF,
        default=False,
    )
    real_storage_class: str = flag(
        "of claims of the class liqo on this cluster's nodes (default: the default class)",
        "--real-storage-class-name",
        default="",
    )
    service_cidrs: tuple[str, ...] = flag(
        "of this cluster's Services, which no consumer's endpoint may be in; ServiceCIDRs, which "
        "Kubernetes 1.33 and later have, need no flag",
        "--service-cidr",
        type=cidrs,
        default=(),
        metavar="NETWORK,...",
    )
    pod_cidrs: tuple[str, ...] = flag(
        "of this cluster's pods, for peers (default: the podCIDRs of its Nodes)",
        "--pod-cidr",
        type=cidrs,
        default=(),
        metavar="NETWORK,...",
    )
    has_fabric: bool = flag(
        "consumers' endpoints are reached as the Configurations of networking.liqo.io say",
        "--ip-fabric",
        action=ON_OFF,
        default=False,
    )


class Informers:
    """One informer a selection, no matter who asks for it; all of them run, leader or not."""

    def __init__(self, cached: CachedCluster) -> None:
        self._cached = cached
        self._made: dict[Selection[Any], Informer[Any]] = {}

    def of(
        self, selection: Selection[T], *, may_lack: tuple[type[errors.KubeError], ...] = ()
    ) -> Informer[T]:
        """Return the informer of ``selection``; whole objects answer reads of the cache, too."""
        found: Informer[T] | None = self._made.get(selection)
        if found is None:
            found = self._made[selection] = Informer(selection, may_lack=may_lack)
            if selection.shape is Object:
                self._cached.add(found)
        return found

    def within(
        self,
        selection: Selection[T],
        scopes: Informer[Object],
        is_scope: Callable[[Object], bool],
        *,
        waits: bool = False,
    ) -> Informer[T]:
        """Return the informer of ``selection`` in the namespaces of ``scopes``."""
        found: Informer[T] | None = self._made.get(selection)
        if found is None:
            scoped = NamespacedInformer(selection, scopes, is_scope, waits=waits)
            found = self._made[selection] = scoped
            self._cached.add(found)
        return found

    def all(self) -> list[Informer[Any]]:
        """Return every informer that somebody asked for."""
        return list(self._made.values())

    def is_synced(self) -> bool:
        """Whether everything is known."""
        return all(informer.synced.is_set() for informer in self.all())

    async def wait(self) -> None:
        """Wait until everything is known."""
        await asyncio.gather(*(informer.synced.wait() for informer in self.all()))


class OversizedPeers:
    """Which peers send more than is kept of them, by cluster ID, and what. Of one process.

    One loop sees it, another tells it on the object.
    """

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        self._tell: Callable[[str], object] = lambda _: None

    def say(self, cluster_id: str, what: str) -> None:
        """Note ``what`` a peer sends too much of; empty: nothing any longer."""
        if self._said.get(cluster_id, "") == what:
            return
        self._said[cluster_id] = what
        self._tell(cluster_id)

    def of(self, cluster_id: str) -> str:
        """Return what that peer sends too much of; empty if nothing."""
        return self._said.get(cluster_id, "")

    def tell(self, whom: Callable[[str], object]) -> None:
        """From now on call ``whom``, and nobody else, with the cluster ID when this changes."""
        self._tell = whom


@dataclass(frozen=True)
class Manager:
    """This cluster and this process, as a controller sees them.

    ``live`` and ``cached`` write only while this process leads.
    """

    live: Cluster
    cached: CachedCluster
    informers: Informers = field(repr=False)
    cluster_id: str
    namespace: str
    """Where pyliqo itself is installed."""
    events: EventRecorder
    clock: Callable[[], datetime]
    user_agent: str
    limits: Limits
    standard: GrantDefaults
    """What consumers are granted where no ProviderPolicy says otherwise."""
    may_write: Callable[[], bool]
    """Whether this process leads, for writes to other clusters."""
    issuer: Issuer = field(repr=False)
    """Signs what consumers ask for, once somebody has judged it."""
    private_key: bytes = field(repr=False)
    """The cluster's own, PEM."""
    excess: OversizedPeers = field(default_factory=OversizedPeers, repr=False)

    def informer(
        self, selection: Selection[T], *, may_lack: tuple[type[errors.KubeError], ...] = ()
    ) -> Informer[T]:
        """Return the informer of ``selection``, shared by all controllers.

        Ask when the controller is made, not when its loops are: it is filled before they start.
        ``may_lack`` is as for ``Informer``.
        """
        return self.informers.of(selection, may_lack=may_lack)

    def own_addresses(self) -> LocalAddresses:
        return LocalAddresses(
            self.informer(localaddresses.NODES),
            self.informer(localaddresses.API_SERVERS),
            self.informer(localaddresses.SERVICE_CIDRS, may_lack=localaddresses.MAY_LACK),
            self.own_flags,
        )

    @property
    def own_flags(self) -> tuple[str, ...]:
        return (*self.limits.service_cidrs, *self.limits.pod_cidrs)

    def all_bindings(self) -> dict[Kind, Informer[Binding]]:
        """Return the informers of every binding of the cluster, no matter who made it."""
        kinds = (keys.CLUSTER_ROLE_BINDING, keys.ROLE_BINDING)
        return {kind: self.informer(Selection(kind, Binding)) for kind in kinds}

    def tenant_secrets(self) -> Informer[Object]:
        """Return the informer of the Secrets where this process may read them, and no others.

        That is in tenant namespaces, once it has bound itself there.
        Source: docs/parity.md SEC-A11.
        """
        bindings = self.informer(watches.ROLE_BINDINGS)
        return self.informers.within(watches.SECRETS, bindings, tenantrights.is_one)

    def beside_virtual_nodes(self, selection: Selection[Object]) -> Informer[Object]:
        """Return the informer of ``selection`` in the namespaces that have a VirtualNode.

        Users may write the labels by which it selects, in their namespaces and as large as they
        like. Source: docs/parity.md H18.
        """
        virtual_nodes = self.informer(watches.VIRTUAL_NODES)
        return self.informers.within(selection, virtual_nodes, lambda _: True, waits=True)

    # What an IP fabric says, where one joins the clusters: the flag ``--ip-fabric``. Its kinds are
    # only read here; a cluster that does not know them has nothing of them.
    # Source: docs/parity.md § 1.14.

    def configurations(self) -> Informer[Object] | None:
        """Return the informer of how peers are reached; None without a fabric."""
        return self._of_fabric(watches.CONFIGURATIONS)

    def pod_networks(self) -> Informer[Object] | None:
        """Return the informer of the networks of this cluster's pods; None without a fabric."""
        labels = f"{keys.NETWORK_TYPE}={keys.POD_CIDR}"
        return self._of_fabric(watches.every(keys.NETWORK, namespace=self.namespace, labels=labels))

    def api_server_ips(self) -> Informer[Object] | None:
        """Return that of the addresses by which peers reach this cluster's API server, likewise."""
        labels = f"{keys.IP_TYPE}={keys.API_SERVER_IP}"
        return self._of_fabric(watches.every(keys.IP, namespace=self.namespace, labels=labels))

    def reached(self) -> Callable[[str], Remap]:
        """Return the question by which addresses a peer is reached; as they are without one."""
        known = self.configurations()
        return lambda peer: (
            networks.remap_of_peer(known.items().values(), peer) if known else Remap()
        )

    def _of_fabric(self, selection: Selection[Object]) -> Informer[Object] | None:
        if not self.limits.has_fabric:
            return None
        return self.informer(selection, may_lack=(errors.NotFoundError,))


Controller: TypeAlias = Callable[[Manager], Setup]
"""What ``controller`` of each module is: asks for informers, returns its set-up."""
