"""Removes what ends on a node that failed, so that its ShadowPod makes it again on another one."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from apis import keys, objects
from apis.objects import Key, Meta
from controllers.granting.grants.capacity import NODES, SlimNode
from controllers.manager import Controller, Limits
from controllers.offloading.nodefailure import forge
from kube.cluster import Selection
from kube.controller import WatchSource
from kube.informer import Change

FORCED: Final = "ForcedDeletion"

logger = logging.getLogger(__name__)


class EndingPodMeta(Meta, gc=False, frozen=True, omit_defaults=True):
    """The metadata that counts."""

    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None


class EndingPodSpec(msgspec.Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Where it is."""

    node_name: str = ""


class EndingPod(msgspec.Struct, gc=False, frozen=True):
    """A Pod without what does not count."""

    metadata: EndingPodMeta
    spec: EndingPodSpec = EndingPodSpec()


PODS: Final = Selection(
    keys.POD, EndingPod, labels=f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_POD}"
)


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

    def _by_pod(self, change: Change[EndingPod]) -> Iterable[Key]:
        pod = change.new
        return [change.key] if pod is not None and self._is_left(pod) else []

    def _is_left(self, pod: EndingPod) -> bool:
        node = self.informer(NODES).get(Key("", pod.spec.node_name))
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


def _is_ending(pod: EndingPod) -> bool:
    return forge.is_ending(msgspec.to_builtins(pod))


def _ends_on(_: Key, pod: EndingPod) -> Iterable[str]:
    return [pod.spec.node_name] if _is_ending(pod) else []
