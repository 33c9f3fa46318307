"""What all controllers of this process share, and what each of them gives in return."""

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, TypeAlias, TypeVar

from apis import keys, networks
from apis.authentication import Binding
from apis.networks import Remap
from apis.objects import Key, Kind, Object
from apis.providerpolicy import GrantDefaults
from controllers import watches
from controllers.watches import Keys
from kube import errors, localaddresses
from kube.cache import CachedCluster
from kube.cluster import Cluster, Selection
from kube.controller import Runner, WatchSource, own_key
from kube.dynamicinformer import NamespacedInformer
from kube.events import EventRecorder
from kube.flags import ON_OFF, cidrs, count, flag
from kube.informer import Change, Index, Indexed, Informer, by_namespace
from kube.localaddresses import LocalAddresses
from kube.process import Runnable

T = TypeVar("T")

Setup: TypeAlias = Callable[[], Sequence[Runnable]]
"""Makes the loops of one controller, again each time this process is elected."""


@dataclass(frozen=True)
class Limits:
    """How much at once, and what of the cluster is asked for. Each field is a flag."""

    shadow_pod_workers: int = flag(
        "workers that reconcile ShadowPods", "--shadow-pod-ctrl-workers", type=count, default=10
    )
    workers: int = flag(
        "workers of each other controller; that of NamespaceOffloadings has at least 16",
        "--workers",
        type=count,
        default=2,
    )
    is_enforced: bool = flag(
        "create only Pods whose resources the Quota of the ShadowPod's user has reserved",
        "--enable-resource-enforcement",
        action=ON_OFF,
        default=False,
    )
    is_node_failure_handled: bool = flag(
        "force the deletion of terminating offloaded Pods on a node that is not Ready",
        "--enable-node-failure-controller",
        action=ON_OFF,
        default=False,
    )
    makes_profiles: bool = flag(
        "keep a ClusterProfile (multicluster.x-k8s.io) for each peer",
        "--cluster-profiles",
        action=ON_OFF,
        default=False,
    )
    real_storage_class: str = flag(
        "storage class of claims of the class liqo on this cluster's own nodes (default: the "
        "default class)",
        "--real-storage-class-name",
        default="",
    )
    service_cidrs: tuple[str, ...] = flag(
        "networks of this cluster's Services, in which no endpoint of a consumer may be; not "
        "needed from Kubernetes 1.33 on, which has ServiceCIDRs",
        "--service-cidr",
        type=cidrs,
        default=(),
        metavar="NETWORK,...",
    )
    pod_cidrs: tuple[str, ...] = flag(
        "networks of this cluster's pods, for peers (default: the podCIDRs of its Nodes)",
        "--pod-cidr",
        type=cidrs,
        default=(),
        metavar="NETWORK,...",
    )
    has_fabric: bool = flag(
        "remap endpoints of consumers by the Configurations (networking.liqo.io)",
        "--ip-fabric",
        action=ON_OFF,
        default=False,
    )


class Informers:
    """One informer a selection, no matter who asks for it; all of them run, leader or not."""

    def __init__(self, cached: CachedCluster) -> None:
        self._cached = cached
        self._made: dict[Selection[Any], Informer[Any]] = {}
        self._indices: dict[tuple[Selection[Any], Indexed[Any]], Index[Any]] = {}

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

    def known(self, selection: Selection[T]) -> Informer[T]:
        """Return the informer of a selection that was asked for: no other one is filled."""
        known: Informer[T] = self._made[selection]
        return known

    def index(self, selection: Selection[T], of: Indexed[T]) -> Index[T]:
        """Return the index of a known selection by ``of``, a function that is always the same."""
        found: Index[T] | None = self._indices.get((selection, of))
        if found is None:
            found = self._indices[selection, of] = Index(self.known(selection), of)
        return found

    def all(self) -> list[Informer[Any]]:
        return list(self._made.values())

    def is_synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self.all())

    async def wait(self) -> None:
        await asyncio.gather(*(informer.synced.wait() for informer in self.all()))


@dataclass(frozen=True)
class AdvertisedEndpoint:
    """Where consumers connect, as far as the flags say it."""

    ca: Callable[[], bytes]
    """Returns PEM as it is now; empty where the API server's certificate is publicly trusted."""
    address: str = ""
    """Empty: that of a control-plane node."""


class OversizedPeers:
    """Which peers send more than is kept of them, by cluster ID, and what. Of one process.

    One controller sees it, another writes it on the object.
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
    endpoint: AdvertisedEndpoint
    private_key: bytes = field(repr=False)
    """The cluster's own, PEM."""
    excess: OversizedPeers = field(default_factory=OversizedPeers, repr=False)

    def informer(
        self, selection: Selection[T], *, may_lack: tuple[type[errors.KubeError], ...] = ()
    ) -> Informer[T]:
        """Return the informer of ``selection``, shared by all controllers.

        Ask when the controller is made, not when its loops are: it is filled before they start.
        ``may_lack`` is as for ``Informer``. Of Secrets it has those where this process may read
        them: in tenant namespaces, once it has bound itself there. Source: docs/parity.md SEC-A11.
        """
        if selection.kind == keys.SECRET:
            bindings = self.informer(watches.ROLE_BINDINGS)
            return self.informers.within(selection, bindings, watches.opens_secrets)
        if selection in watches.BESIDE_VIRTUAL_NODES:
            nodes = self.informer(watches.VIRTUAL_NODES)
            return self.informers.within(selection, nodes, lambda _: True, waits=True)
        return self.informers.of(selection, may_lack=may_lack)

    async def all(self, selection: Selection[T]) -> Mapping[Key, T]:
        """Return all objects of ``selection`` that its informer has: no request, and read only.

        What is not in it may exist: a controller that deletes for that reason asks the server.
        """
        return self.informers.known(selection).items()

    async def found_by(
        self, selection: Selection[T], of: Indexed[T], said: Hashable
    ) -> Mapping[Key, T]:
        """Return those of ``all`` of which ``of`` says that, by an index."""
        there = self.informers.known(selection).items()
        known = self.informers.index(selection, of).keys(said)
        return {key: there[key] for key in known if key in there}

    @property
    def account(self) -> Key:
        return Key(self.namespace, keys.CONTROLLER_MANAGER)

    @functools.cached_property
    def own_addresses(self) -> LocalAddresses:
        """What is known of this cluster's addresses: one for the process, which follows changes."""
        return LocalAddresses(
            self.informer(localaddresses.NODES),
            self.informer(localaddresses.API_SERVERS),
            self.informer(localaddresses.SERVICE_CIDRS, may_lack=localaddresses.MAY_LACK),
            self.own_flags,
        )

    @property
    def own_flags(self) -> tuple[str, ...]:
        return (*self.limits.service_cidrs, *self.limits.pod_cidrs)

    async def all_bindings(self) -> list[tuple[Kind, Binding]]:
        found = [(of.kind, await self.all(of)) for of in watches.ALL_BINDINGS]
        return [(kind, binding) for kind, items in found for binding in items.values()]

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


ControllerSetup: TypeAlias = Callable[[Manager], Setup]
"""A row of the controllers: asks for informers, returns what makes the loops."""


class LeaderElectionRunnables(ABC):
    """Loops that run while this process is the leader, and what they read.

    An instance is made each time this process is elected: what it remembers ends with that. Its
    informers are asked for before, by an instance that does not run.
    """

    name: str
    reads: ClassVar[Sequence[Selection[Any]]] = ()
    """What ``all`` is asked for, beside what is watched."""

    def __init__(self, manager: Manager) -> None:
        self.manager, self.limits = manager, manager.limits
        self.live, self.cached = manager.live, manager.cached
        self.events, self.clock = manager.events, manager.clock
        self.all, self.informer = manager.all, manager.informers.known
        self.found_by = manager.found_by

    @abstractmethod
    def watches(self) -> Sequence[WatchSource[Any]]:
        """Return which changes wake it, and for which keys."""

    @abstractmethod
    def loops(self) -> Sequence[Runnable]:
        """Return what runs."""

    @classmethod
    def is_enabled(cls, limits: Limits) -> bool:  # noqa: ARG003  # for those that have a flag
        return True

    def watch(
        self,
        selection: Selection[T],
        keys_of: Callable[[Change[T]], Iterable[Key]] = own_key,
        *,
        may_lack: tuple[type[errors.KubeError], ...] = (),
    ) -> WatchSource[T]:
        return WatchSource(self.manager.informer(selection, may_lack=may_lack), keys_of)

    @classmethod
    def setup(cls, manager: Manager) -> Setup:
        """Return what makes its loops: the row of this controller. Without its flag it has none."""
        if not cls.is_enabled(manager.limits):
            return list
        cls(manager).watches()
        for selection in cls.reads:
            manager.informer(selection)
        return lambda: cls(manager).loops()


class Controller(LeaderElectionRunnables):
    """One controller, which keeps what ``reconcile`` is about by what ``watches`` tells it."""

    is_parallel: ClassVar[bool] = False
    """Whether it has as many workers as ``--workers`` says, instead of one."""

    @abstractmethod
    async def reconcile(self, key: Key) -> float | None:
        """As a ``kube.controller.Reconciler`` does."""

    def loops(self) -> Sequence[Runnable]:
        return [self.runner()]

    def runner(self) -> Runner:
        workers = self.limits.workers if self.is_parallel else 1
        return Runner(self.name, self, self.watches(), workers=workers)

    # Which keys a change concerns, in the ways that several controllers share.

    def all_of(self, selection: Selection[Any]) -> Keys:
        those = self.manager.informer(selection)
        return lambda _: list(those.items())

    def beside(self, selection: Selection[Any]) -> Keys:
        """Return what answers with the keys of ``selection`` in the namespace of what changed."""
        self.manager.informer(selection)
        there = self.manager.informers.index(selection, by_namespace)
        return lambda change: there.keys(change.key.namespace)

    def inside(self, selection: Selection[Any]) -> Keys:
        """Return what answers with the keys of ``selection`` in the Namespace that changed."""
        self.manager.informer(selection)
        there = self.manager.informers.index(selection, by_namespace)
        return lambda change: there.keys(change.key.name)
