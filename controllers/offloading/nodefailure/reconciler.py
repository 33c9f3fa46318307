"""Removes what ends on a node that failed, so that its ShadowPod makes it again on another one."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from apis import keys, objects
from apis.objects import Key, Meta, Object
from controllers.granting.grants.capacity import NODES, SlimNode
from controllers.manager import Manager, Setup
from controllers.offloading.nodefailure import forge
from kube.cluster import Cluster, Selection
from kube.controller import Runner, WatchSource
from kube.events import EventRecorder
from kube.informer import Change, Informer

FORCED: Final = "ForcedDeletion"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeFailureReconciler:
    """One Pod, judged by live reads: both are the servers' word, and the delete names the UID."""

    cluster: Cluster
    events: EventRecorder
    clock: Callable[[], datetime]

    async def reconcile(self, key: Key) -> float | None:
        pod = await self.cluster.get_live(keys.POD, key)
        if pod is None or not forge.is_ending(pod):
            return None
        name = pod["spec"]["nodeName"]
        node = await self.cluster.get_live(keys.NODE, Key("", name))
        if node is None or not forge.has_failed(node):
            return None  # a change of the node brings us back
        if (left_s := forge.grace_left_s(pod, self.clock())) > 0:
            return left_s
        logger.warning("Deleting pod by force", extra={"pod": str(key), "node": name})
        message = f"node {name} is not Ready, so nothing says whether its containers have ended"
        self.events.event(keys.POD, pod, "Warning", FORCED, message)
        await self.cluster.delete(keys.POD, key, uid=objects.uid(pod), grace_s=0)
        return None


# Which changes concern which Pod that ends; nothing is watched unless it is asked for ------------


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


def controller(manager: Manager) -> Setup:
    """Return the set-up of this controller; without its flag it has no loops."""
    if not manager.limits.is_node_failure_handled:
        return list
    pods, nodes = manager.informer(PODS), manager.informer(NODES)

    def runner() -> Runner:
        reconciler = NodeFailureReconciler(manager.live, manager.events, manager.clock)
        return Runner("nodefailure", reconciler, sources(pods, nodes))

    return lambda: [runner()]


def sources(
    pods: Informer[EndingPod], nodes: Informer[SlimNode]
) -> tuple[WatchSource[EndingPod], WatchSource[SlimNode]]:
    """Return who is to be looked at: the Pods that end on nodes that are not Ready."""

    def by_pod(change: Change[EndingPod]) -> Iterable[Key]:
        pod = change.new
        return [change.key] if pod is not None and is_left(pod) else []

    def by_node(change: Change[SlimNode]) -> Iterable[Key]:
        name = change.key.name
        here = [(key, pod) for key, pod in pods.items().items() if pod.spec.node_name == name]
        return [key for key, pod in here if is_left(pod)]

    def is_left(pod: EndingPod) -> bool:
        node = nodes.get(Key("", pod.spec.node_name))
        return node is not None and forge.is_ending(_plain(pod)) and forge.has_failed(_plain(node))

    return WatchSource(pods, by_pod), WatchSource(nodes, by_node)


def _plain(slim: EndingPod | SlimNode) -> Object:
    plain: Object = msgspec.to_builtins(slim)
    return plain
