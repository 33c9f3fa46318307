"""Removes what ends on a node that failed, so that its ShadowPod makes it again on another one."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from apis import keys, objects
from apis.objects import Key
from controllers.granting.grants.capacity import NODES, SlimNode
from controllers.manager import Controller, Limits
from controllers.offloading.nodefailure import forge
from controllers.offloading.shadowpod.reconciler import PODS
from controllers.offloading.shadowpod.slim import SlimPod
from kube.controller import WatchSource
from kube.informer import Change

FORCED: Final = "ForcedDeletion"

logger = logging.getLogger(__name__)


class NodeFailureReconciler(Controller):
    """One Pod, by live reads: both are the servers' word, and the delete names the UID."""

    name = "nodefailure"

    @classmethod
    def is_enabled(cls, limits: Limits) -> bool:
        return limits.is_node_failure_handled

    def watches(self) -> Sequence[WatchSource[Any]]:
        pods = self.watch(PODS, self._by_pod)
        ending = self.manager.informers.index(PODS, _ends_on)

        def by_node(change: Change[SlimNode]) -> Iterable[Key]:
            has_failed = change.new is not None and not change.new.is_ready
            return ending.keys(change.key.name) if has_failed else []

        return pods, self.watch(NODES, by_node)

    def _by_pod(self, change: Change[SlimPod]) -> Iterable[Key]:
        pod = change.new
        return [change.key] if pod is not None and self._is_left(pod) else []

    def _is_left(self, pod: SlimPod) -> bool:
        node = self.informer(NODES).get(Key("", pod.node))
        has_failed = node is not None and not node.is_ready
        return has_failed and _is_ending(pod)

    async def reconcile(self, key: Key) -> float | None:
        pod = await self.live.get_live(keys.POD, key)
        if pod is None or not forge.is_ending(pod):
            return None
        name = pod["spec"]["nodeName"]
        node = await self.live.get_live(keys.NODE, Key("", name))
        if node is None or not forge.has_failed(node):
            return None  # a change of the node brings us back
        if (left_s := forge.grace_left_s(pod, self.clock())) > 0:
            return left_s
        logger.warning("Deleting pod by force", extra={"pod": str(key), "node": name})
        message = f"node {name} is not Ready, so nothing says whether its containers have ended"
        self.events.event(keys.POD, pod, "Warning", FORCED, message)
        await self.live.delete(keys.POD, key, uid=objects.uid(pod), grace_s=0)
        return None


def _is_ending(pod: SlimPod) -> bool:
    said = {"metadata": msgspec.to_builtins(pod.metadata), "spec": {"nodeName": pod.node}}
    return forge.is_ending(said)


def _ends_on(_: Key, pod: SlimPod) -> Iterable[str]:
    return [pod.node] if _is_ending(pod) else []
