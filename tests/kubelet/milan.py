"""What a provider does by itself with a twin namespace: makes Pods of ShadowPods, and runs them."""

import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator

from apis import keys, objects
from apis.objects import Key, Object
from controllers.offloading.shadowpod.reconciler import ShadowPodReconciler
from kube import clock, errors
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.controller import Runner, WatchSource
from kube.events import EventRecorder
from kube.informer import Informer
from tests.kube.running import running as meanwhile
from tests.kubelet import worlds


class Milan:
    """The controller of ShadowPods, a kubelet that runs whatever comes, and the garbage collector.

    ``births`` has every Pod that was there, by the UID of the local pod that it stood for.
    """

    def __init__(self, cluster: ClusterClient, namespace: str) -> None:
        self._cluster = cluster
        self.births: dict[str, set[str]] = defaultdict(set)
        self.shadows, self.pods = (
            Informer(Selection(kind, Object, namespace)) for kind in (keys.SHADOW_POD, keys.POD)
        )
        events = EventRecorder(cluster, "tests", "milan")
        self._controller = ShadowPodReconciler(cluster, events=events, clock=clock.now)
        self._runner = Runner(
            "milan", self, [WatchSource(self.shadows), WatchSource(self.pods)], workers=8
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        followed = (informer.run(self._cluster) for informer in (self.shadows, self.pods))
        async with meanwhile(*followed), meanwhile(self._runner.run()):
            yield

    async def reconcile(self, key: Key) -> float | None:
        again_s = await self._controller.reconcile(key)
        pod = await self._cluster.get_live(keys.POD, key)
        if pod is None:
            return again_s
        self.births[objects.annotations(pod)[keys.LOCAL_POD_UID]].add(objects.uid(pod))
        shadow = await self._cluster.get_live(keys.SHADOW_POD, key)
        is_owned = shadow is not None and objects.is_controlled_by(pod, shadow)
        if not is_owned or objects.is_terminating(pod):
            await self.end(pod)
        elif not worlds.named_condition(pod.get("status") or {}, "Ready"):
            await self._cluster.patch_status(keys.POD, key, worlds.running())
        return again_s

    async def end(self, pod: Object) -> None:
        with contextlib.suppress(errors.NotFoundError, errors.ConflictError):
            key, uid = objects.key_of(pod), objects.uid(pod)
            await self._cluster.delete(keys.POD, key, uid=uid, grace_s=0)
