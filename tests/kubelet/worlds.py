"""A consumer and a provider for the tests of the kubelet, and one reconciler between them."""

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, Literal, cast

from apis import keys, networks, objects
from apis.networks import PodNetworks
from apis.objects import Key, Kind, Object
from apis.offloading import MappedNamespace, OffloadingPatch
from kube.cache import CachedCluster
from kube.cluster import Cluster
from kube.informer import Informer
from kube.untrusted import decode
from kubelet.pods import shadowpod
from kubelet.pods.apiserver import ApiServer
from kubelet.pods.mapping import MappingState, NamespaceMapping
from kubelet.pods.reconcile import PodReconciler
from kubelet.pods.references import Policy
from kubelet.pods.state import DeletionEvidence, VirtualNodeContext
from tests import factories
from tests.fakes import FakeCluster

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


class Recorder:
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


class Counted:
    """A cluster that counts the writes that go through it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        if name in {"create", "apply", "patch", "patch_status", "delete", "post"}:
            self.writes += 1
        return getattr(self._cluster, name)


class Believed:
    """A peer: what it says passes the door, as in the client of one (``kube.peer``)."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def get(self, kind: Kind, key: Key) -> Object | None:
        return self._believed(kind, await self._cluster.get(kind, key))

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        return self._believed(kind, await self._cluster.get_live(kind, key))

    async def create(self, kind: Kind, obj: Object) -> Object | None:
        return self._believed(kind, await self._cluster.create(kind, obj))

    def _believed(self, kind: Kind, said: Object | None) -> Object | None:
        return None if said is None else decode.fitted(kind, said)


class Late:
    """A cluster whose cache shows the pod as it first was."""

    def __init__(self, cluster: FakeCluster, stale: Object) -> None:
        self._cluster, self._stale, self.patches = cluster, stale, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)

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
        self.recorder = Recorder()
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

    async def delete_locally(self) -> None:
        """Ask for the deletion of the local pod, as users do."""
        pod = await self.pod()
        assert pod
        await self.local.delete(keys.POD, self.web, uid=objects.uid(pod))

    async def told(self, status: Object) -> Object:
        """Let the local pod have ``status``."""
        return await self.local.patch_status(keys.POD, self.web, status)

    async def run_remotely(self, status: Object | None = None) -> Object:
        """Do what the provider's ShadowPod controller and kubelet do."""
        shadow = await self.remote.get(keys.SHADOW_POD, self.twin)
        assert shadow
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
        """Let the remote pod have ``status``."""
        return await self.remote.patch_status(keys.POD, self.twin, status)

    async def reconcile(self, times: int = 1) -> float | None:
        """Reconcile the pod; return what the last one said."""
        again: float | None = None
        for _ in range(times):
            again = await self.reconciler.reconcile(self.web)
        return again

    async def pod(self) -> Object | None:
        """Return the local pod."""
        return await self.local.get(keys.POD, self.web)

    async def status(self) -> Object:
        """Return the status of the local pod."""
        pod = await self.pod()
        assert pod
        status: Object = pod["status"]
        return status

    def writes(self) -> tuple[int, int]:
        """Return how many writes the kubelet made here and on the provider."""
        home, provider = self.counted
        return home.writes, provider.writes

    async def remote_pod(self) -> Object | None:
        """Return the pod on the provider."""
        return await self.remote.get(keys.POD, self.twin)

    async def end_remotely(self) -> None:
        """Let the pod on the provider be gone."""
        remote = await self.remote_pod()
        assert remote
        await self.remote.delete(keys.POD, self.twin, uid=objects.uid(remote), grace_s=0)

    async def shadow(self) -> Object | None:
        """Return the ShadowPod."""
        return await self.remote.get(keys.SHADOW_POD, self.twin)

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
        "conditions": [condition("PodScheduled"), condition("Ready")],
        "containerStatuses": [
            container({"running": {"startedAt": "2026-01-31T11:59:02Z"}}, restarts=restarts)
        ],
        **rest,
    }


def ended(phase: str, exit_code: int) -> Object:
    """Return the status of a pod whose one container is over."""
    state = {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}}
    statuses = [container(state, ready=False)]
    return running(phase, conditions=[condition("Ready", "False")], containerStatuses=statuses)


def waiting(reason: str, message: str = "") -> Object:
    """Return the status of a pod whose one container waits."""
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    statuses = [container(state, ready=False)]
    return {"phase": "Pending", "conditions": [], "containerStatuses": statuses}


def container(state: Object, *, ready: bool = True, restarts: int = 0) -> Object:
    """Return the status of the container ``main``."""
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


def condition(type_: str, status: str = "True", **rest: Any) -> Object:
    """Return a condition."""
    since = "2026-01-31T11:59:03Z"
    return {"type": type_, "status": status, "lastTransitionTime": since, **rest}


def named_condition(status: Object, type_: str) -> Object:
    """Return the condition ``type_``; {} without it."""
    found = [item for item in status.get("conditions", []) if item["type"] == type_]
    return found[0] if found else {}
