"""A consumer and a provider for the tests of the kubelet, and one reconciler between them."""

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, Literal, cast

from apis import keys, networks, objects
from apis.networks import PodNetworks
from apis.objects import Key, Kind, Object
from apis.offloading import MappedNamespace, OffloadingPatch
from controllers.offloading.shadowpod.reconciler import ShadowPodReconciler
from kube import clock
from kube.cache import CachedCluster
from kube.cluster import Cluster
from kube.events import EventRecorder
from kube.informer import Informer
from kube.untrusted import decode
from kubelet.pods import shadowpod
from kubelet.pods.apiserver import ApiServer
from kubelet.pods.mapping import MappingState, NamespaceMapping
from kubelet.pods.reconcile import PodReconciler
from kubelet.pods.references import Policy
from kubelet.pods.state import DeletionEvidence, VirtualNodeContext
from tests import factories
from tests.fakes import FakeCluster, Through
from tests.world import existing, remove

NODE = "milan"
HOST = "10.0.0.9"
NOW = dt.datetime(2026, 1, 31, 12, 0, tzinfo=dt.UTC)
PAIR = MappedNamespace("rome", "milan", "shop", "shop-rome")
WEB = Key("shop", "web")
ADDRESSES = PodNetworks(networks=tuple(networks.parse_networks(["10.0.0.0/8"])))
TWIN = Key("shop-rome", "web")


class Namespaces:
    """Says what the test says."""

    def __init__(self, mapping: NamespaceMapping) -> None:
        self.now = mapping
        self.synced = True
        self.error: Exception | None = None
        self.missing = ""
        self.others: dict[str, NamespaceMapping] = {}
        """Of namespaces that are not as all the others are."""

    async def mapping(self, namespace: str) -> NamespaceMapping:
        if self.error:
            raise self.error
        return self.others.get(namespace, self.now)

    def is_synced(self, namespace: str) -> bool:
        return self.synced

    def withheld(self, namespace: str) -> str:
        return self.missing


class ReasonRecorder:
    """Keeps what was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.messages: list[str] = []

    def event(
        self,
        kind: Kind,
        obj: Object,
        type_: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        self.told.append((type_, reason))
        self.messages.append(message)


class Counted(Through):
    """A cluster that counts the writes that go through it."""

    writes = 0

    def __getattr__(self, name: str) -> Any:
        if name in {"create", "apply", "patch", "patch_status", "delete", "post"}:
            self.writes += 1
        return super().__getattr__(name)


class Believed(Through):
    """A peer: what it says passes the door, as in the client of one (``kube.peer``)."""

    async def get(self, kind: Kind, key: Key) -> Object | None:
        return self._believed(kind, await self._cluster.get(kind, key))

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        return self._believed(kind, await self._cluster.get_live(kind, key))

    async def create(self, kind: Kind, obj: Object) -> Object | None:
        return self._believed(kind, await self._cluster.create(kind, obj))

    def _believed(self, kind: Kind, said: Object | None) -> Object | None:
        return None if said is None else decode.fitted(kind, said)


class Late(Through):
    """A cluster whose cache shows the pod as it first was."""

    def __init__(self, cluster: FakeCluster, stale: Object) -> None:
        super().__init__(cluster)
        self._stale, self.patches = stale, 0

    async def get(self, kind: Kind, key: Key) -> Object:
        return self._stale

    async def patch_status(self, *args: object, **rest: object) -> object:
        self.patches += 1
        return await self._cluster.patch_status(*args, **rest)  # type: ignore[arg-type]  # as sent


class World:
    """Both clusters, and what happens in them."""

    def __init__(self, local: Cluster, remote: Cluster, pair: MappedNamespace = PAIR) -> None:
        self.local, self.remote, self.pair = local, remote, pair
        self.web = Key(pair.local_namespace, "web")
        self.twin = pair.twin_of(self.web)
        self.namespaces = Namespaces(NamespaceMapping(MappingState.OFFLOADED, pair))
        self.recorder = ReasonRecorder()
        self.now = NOW
        self._set_back_s = 0.0
        self.patch = OffloadingPatch()
        self.api_server = ApiServer()
        self.is_silent = False
        self.offloading: Object | None = None
        self.forbids: Callable[[Object], str] = lambda _local: ""
        self.lacks: Callable[[Object], str] = lambda _local: ""
        self.policy: Policy = lambda _kind, _namespace: None
        self.restart()

    def restart(self) -> None:
        """Begin with a kubelet that remembers nothing."""
        self.follow([])

    def follow(self, informers: Iterable[Informer[Any]]) -> None:
        """Begin once more, with ``informers`` as the cache of what the provider has."""
        home, provider = Counted(self.local), Counted(self.remote)
        self.counted = (home, provider)
        self.departures = DeletionEvidence()
        remote = CachedCluster(cast("Cluster", Believed(cast("Cluster", provider))))
        for informer in informers:
            remote.add(informer)
        self.reconciler = PodReconciler(
            CachedCluster(cast("Cluster", home)),
            remote,
            node=VirtualNodeContext(
                NODE,
                HOST,
                lambda: shadowpod.Options(NODE, self.patch, self.api_server),
                lambda: self.is_silent,
                self.forbids,
                self.lacks,
                self.policy,
                lambda: ADDRESSES,
                lambda _namespace: self.offloading,
            ),
            namespaces=self.namespaces,
            recorder=self.recorder,
            clock=lambda: self.now,
            monotonic=self.seconds,
            departures=self.departures,
        )

    def seconds(self) -> float:
        """Return the time as a monotonic clock tells it."""
        return self.now.timestamp() + self._set_back_s

    def set_back(self, seconds: float) -> None:
        """Set the time of day back, as NTP or a resumed machine does."""
        self.now -= dt.timedelta(seconds=seconds)
        self._set_back_s += seconds

    async def bound(self, status: Object | None = None, **rest: Any) -> Object:
        """Create the local pod, bound to our node."""
        spec = {**factories.pod_spec(), "nodeName": NODE, **rest.pop("spec", {})}
        made = await self.local.create(keys.POD, factories.pod(*self.web, spec=spec, **rest))
        return await self.told(status) if status else made

    async def delete_locally(self, grace_s: int | None = None) -> None:
        """Ask for the deletion of the local pod, as users do."""
        await remove(self.local, keys.POD, self.web, grace_s=grace_s)

    async def told(self, status: Object) -> Object:
        return await self.local.patch_status(keys.POD, self.web, status)

    async def run_remotely(self, status: Object | None = None) -> Object:
        """Do what the provider's ShadowPod controller and kubelet do."""
        shadow = await self.shadow()
        metadata = {
            "labels": objects.labels(shadow),
            "annotations": objects.annotations(shadow),
            "ownerReferences": [objects.owner_reference(keys.SHADOW_POD, shadow)],
        }
        made = await self.remote.create(
            keys.POD, factories.pod(*self.twin, spec=shadow["spec"]["pod"], metadata=metadata)
        )
        return await self.runs(status) if status else made

    async def runs(self, status: Object) -> Object:
        return await self.remote.patch_status(keys.POD, self.twin, status)

    async def reconcile(self, times: int = 1) -> float | None:
        """Reconcile the pod; return what the last one said."""
        again: float | None = None
        for _ in range(times):
            again = await self.reconciler.reconcile(self.web)
        return again

    async def pod(self) -> Object:
        """Return the local pod, which has to be there."""
        return await existing(self.local, keys.POD, self.web)

    async def status(self) -> Object:
        status: Object = (await self.pod())["status"]
        return status

    async def has_pod(self) -> bool:
        return await self.local.get(keys.POD, self.web) is not None

    async def has_remote_pod(self) -> bool:
        return await self.remote.get(keys.POD, self.twin) is not None

    async def has_shadow(self) -> bool:
        return await self.remote.get(keys.SHADOW_POD, self.twin) is not None

    def writes(self) -> tuple[int, int]:
        """Return how many writes the kubelet made here and on the provider."""
        home, provider = self.counted
        return home.writes, provider.writes

    async def remote_pod(self) -> Object:
        """Return the pod on the provider, which has to be there."""
        return await existing(self.remote, keys.POD, self.twin)

    async def end_remotely(self) -> None:
        await remove(self.remote, keys.POD, self.twin, grace_s=0)

    async def shadow(self) -> Object:
        """Return the ShadowPod, which has to be there."""
        return await existing(self.remote, keys.SHADOW_POD, self.twin)

    def controller(self) -> ShadowPodReconciler:
        events = EventRecorder(self.remote, "tests", "milan")
        return ShadowPodReconciler(self.remote, events=events, clock=clock.now)

    async def offloaded(self, status: Object | None = None, **rest: Any) -> None:
        """Let the pod run on the provider with ``status``, and be known as such here."""
        await self.bound(**rest)
        await self.reconcile()
        await self.run_remotely(status or running())
        await self.reconcile()


def running(phase: str = "Running", restarts: int = 0, **rest: Any) -> Object:
    """Return the status of a pod whose one container runs."""
    return {
        "phase": phase,
        "podIP": "10.1.0.7",
        "podIPs": [{"ip": "10.1.0.7"}],
        "hostIP": "192.168.1.2",
        "startTime": "2026-01-31T11:59:00Z",
        "conditions": [pod_condition("PodScheduled"), pod_condition("Ready")],
        "containerStatuses": [
            container({"running": {"startedAt": "2026-01-31T11:59:02Z"}}, restarts=restarts)
        ],
        **rest,
    }


def ended(phase: str, exit_code: int) -> Object:
    state = {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}}
    statuses = [container(state, ready=False)]
    return running(phase, conditions=[pod_condition("Ready", "False")], containerStatuses=statuses)


def waiting(reason: str, message: str = "") -> Object:
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    statuses = [container(state, ready=False)]
    return {"phase": "Pending", "conditions": [], "containerStatuses": statuses}


def container(state: Object, *, ready: bool = True, restarts: int = 0) -> Object:
    return {
        "name": "main",
        "image": "nginx",
        "imageID": "sha256:1",
        "containerID": "containerd://1",
        "ready": ready,
        "started": ready,
        "restartCount": restarts,
        "state": state,
        "lastState": {},
    }


def pod_condition(type_: str, status: str = "True", **rest: Any) -> Object:
    since = "2026-01-31T11:59:03Z"
    return {"type": type_, "status": status, "lastTransitionTime": since, **rest}


def named_condition(status: Object, type_: str) -> Object:
    """Return the condition ``type_``; {} without it."""
    found = [item for item in status.get("conditions", []) if item["type"] == type_]
    return found[0] if found else {}
