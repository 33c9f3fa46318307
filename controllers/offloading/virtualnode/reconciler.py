"""Sets up what a VirtualNode needs, and takes it down in the order that loses no pod."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from apis import keys, naming, objects, offloading, ownership
from apis.authentication import Grant
from apis.networks import collapsed, pod_networks_of_identity
from apis.objects import Key, Kind, Object
from apis.offloading import VirtualNode, VkOptionsTemplate, drain_timeout
from controllers import watches, writes
from controllers.manager import Controller, Manager
from controllers.offloading.virtualnode.forge import deployment, lifecycle, rights
from controllers.offloading.virtualnode.forge.deployment import LocalCluster
from kube.cluster import Selection
from kube.controller import TerminalError, WatchSource
from kube.errors import ForbiddenError, KubeError
from kube.informer import Change

KIND: Final = keys.VIRTUAL_NODE
FINALIZER: Final = keys.VIRTUAL_NODE_FINALIZER
DRAIN_POLL_S: Final = 5.0
STOP_POLL_S: Final = 2.0

logger = logging.getLogger(__name__)

State = tuple[str, str, str]
_BESIDE: Final = (watches.DEPLOYMENTS, watches.SERVICE_ACCOUNTS, watches.ROLES)
_MADE: Final = (watches.LEASE_ROLES, watches.ROLE_BINDINGS, watches.CLUSTER_ROLE_BINDINGS)


@dataclass(frozen=True)
class NodeDrain:
    """How far the pods of a node have left."""

    left: int = 0
    given_up: datetime | None = None
    """When those left are given up, as no virtual kubelet runs; None while one may."""


class VirtualNodeReconciler(Controller):
    """One VirtualNode; a drain comes back every few seconds and holds no worker meanwhile."""

    name = "virtualnode"
    is_parallel = True

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self._last = asyncio.Lock()

    def watches(self) -> Sequence[WatchSource[Any]]:
        nodes, everyone = watches.VIRTUAL_NODES, self.all_of(watches.VIRTUAL_NODES)
        of_fabric = (self.manager.pod_networks(), self.manager.api_server_ips())
        return (
            self.watch(nodes, self._by_name),
            self.watch(nodes, self._by_classes),
            self.watch(watches.NODES, self._by_name),
            self.watch(watches.templates(self.manager.namespace), everyone),
            self.watch(watches.NAMESPACE_MAPS, self._by_map),
            self.watch(watches.FOREIGN_CLUSTERS, self._by_cluster),
            self.watch(watches.IDENTITIES, self._by_identity),
            *(WatchSource(each, everyone) for each in of_fabric if each),
            *(self.watch(selection, self._by_label) for selection in (*_BESIDE, *_MADE)),
        )

    def _those(self, holds: Callable[[Key, VirtualNode], bool]) -> list[Key]:
        found = self.informer(watches.VIRTUAL_NODES).items()
        return [key for key, obj in found.items() if holds(key, VirtualNode.parse(obj))]

    def _by_name(self, change: Change[Object]) -> Iterable[Key]:
        return self._those(lambda key, _: key.name == change.key.name)

    def _by_classes(self, change: Change[Object]) -> Iterable[Key]:
        """Return whom it concerns which classes a virtual node of the same provider offers."""
        before, after = _classes(change.old), _classes(change.new)
        clusters = {one[0] for one in (before, after) if one}
        return [] if before == after else self._those(lambda _, node: node.cluster_id in clusters)

    def _by_identity(self, change: Change[Object]) -> Iterable[Key]:
        """Return whom it concerns in which networks the pods of a provider are."""
        before, after = map(pod_networks_of_identity, (change.old, change.new))
        if before == after:
            return []
        return self._those(lambda key, _: key.namespace == change.key.namespace)

    def _by_label(self, change: Change[Object]) -> Iterable[Key]:
        name = rights.virtual_node_of(change.new or change.old or {"metadata": {}})
        return self._those(lambda key, _: key.name == name) if name else []

    def _by_map(self, change: Change[Object]) -> Iterable[Key]:
        cluster_id = ownership.destination(change.new or change.old or {"metadata": {}})
        return self._those(lambda _, node: node.cluster_id == cluster_id)

    def _by_cluster(self, change: Change[Object]) -> Iterable[Key]:
        """Return whom it concerns that a cluster is given up, or comes back."""
        before, after = (offloading.is_gone_for_good(obj) for obj in (change.old, change.new))
        if before == after:
            return []
        return self._those(lambda _, node: node.cluster_id == change.key.name)

    async def reconcile(self, key: Key) -> float | None:
        obj = await self.cached.get(KIND, key)
        if obj is None:
            return None
        virtual_node = VirtualNode.parse(obj)
        others = (await self.all(watches.VIRTUAL_NODES)).values()
        if elder := lifecycle.elder(obj, others):
            return await self._yield_name(obj, virtual_node, elder)
        if objects.is_terminating(obj):
            return await self._take_down(obj, virtual_node)
        options = await self._options(obj, virtual_node)
        obj = await writes.add_finalizer(self.cached, KIND, obj, FINALIZER)
        return await self._set_up(obj, virtual_node, options)

    async def _options(self, obj: Object, virtual_node: VirtualNode) -> VkOptionsTemplate:
        system = self.manager.namespace
        key = virtual_node.template_in(system)
        if key.namespace != system:
            message = f"vkOptionsTemplateRef {key}: only templates in namespace {system} are used"
            self.events.event(KIND, obj, "Warning", "InvalidTemplate", message)
            raise TerminalError("InvalidTemplate", message)
        found = await self.cached.get(keys.VK_OPTIONS_TEMPLATE, key)
        if found is None:
            message = f"vkoptionstemplate {key} does not exist: create it"
            self.events.event(KIND, obj, "Warning", "MissingTemplate", message)
            raise TerminalError("MissingTemplate", message)  # its creation brings us back
        try:
            options = VkOptionsTemplate.parse(found)
            deployment.metrics_addresses(options)
        except ValueError as error:
            message = f"vkoptionstemplate {key} says what cannot be: {error}"
            self.events.event(KIND, obj, "Warning", "InvalidTemplate", message)
            raise TerminalError("InvalidTemplate", message) from error
        return options

    async def _set_up(
        self, obj: Object, virtual_node: VirtualNode, options: VkOptionsTemplate
    ) -> float | None:
        await self._grant(obj, virtual_node)
        running = await self._deploy(obj, options)
        await writes.ensure(
            self.cached,
            keys.NAMESPACE_MAP,
            lifecycle.namespace_map(virtual_node),
            is_ours=partial(lifecycle.is_map_of, virtual_node),
        )
        creates = deployment.creates_node(virtual_node, options)
        states = {lifecycle.VIRTUAL_KUBELET: await self._kubelet_state(running, virtual_node)}
        node = await self.cached.get(keys.NODE, Key("", virtual_node.name))
        if not creates and node is not None and lifecycle.is_node_of(virtual_node, node):
            return await self._remove_node(obj, virtual_node, states)
        states[lifecycle.NODE] = lifecycle.node_state(creates, node)
        await self._report(obj, states)
        if await self._is_lost(virtual_node):
            await self._let_pods_go(virtual_node)
            return DRAIN_POLL_S
        return None

    async def _kubelet_state(self, running: Object, virtual_node: VirtualNode) -> State:
        state = lifecycle.kubelet_state(running)
        if state[0] == lifecycle.RUNNING:
            return state
        secret = Key(virtual_node.namespace, virtual_node.kubeconfig_secret)
        is_there = await self.cached.get_live(keys.SECRET, secret)
        return lifecycle.kubelet_state(running, None if is_there else secret)

    async def _let_pods_go(self, virtual_node: VirtualNode) -> None:
        found = await self._pods_on(virtual_node)
        going = [pod for pod in found if objects.is_terminating(pod)]
        writes.raise_all(await writes.each(going, self._lose))

    async def _grant(self, obj: Object, virtual_node: VirtualNode) -> None:
        owner = objects.owner_reference(KIND, obj)
        account = rights.service_account(virtual_node, owner)
        for desired in (account, *rights.at_home(virtual_node)):
            is_ours = rights.is_of(virtual_node)
            await writes.ensure(self.cached, desired.kind, desired.wanted, is_ours=is_ours)

    async def _deploy(self, obj: Object, options: VkOptionsTemplate) -> Object:
        wanted = deployment.deployment(obj, options, await self._local(obj))
        existed = await self.cached.get(keys.DEPLOYMENT, objects.key_of(wanted))
        running = await writes.ensure(
            self.cached, keys.DEPLOYMENT, wanted, is_ours=writes.owned_by(obj)
        )
        if existed is None:
            self.events.event(KIND, obj, "Normal", "VkCreated", "created the virtual kubelet")
            if ignored := deployment.unknown_arguments(options.extra_args):
                message = f"extraArgs of the template that are left out: {' '.join(ignored)}"
                self.events.event(KIND, obj, "Warning", "UnknownArgument", message)
        return running

    async def _local(self, obj: Object) -> LocalCluster:
        node, nodes = VirtualNode.parse(obj), await self.all(watches.VIRTUAL_NODES)
        identity = Key(node.namespace, naming.controlplane_identity(node.cluster_id))
        named, _ = pod_networks_of_identity((await self.all(watches.IDENTITIES)).get(identity))
        others = (VirtualNode.parse(each) for _, each in sorted(nodes.items()))
        networks, servers = self.manager.pod_networks(), self.manager.api_server_ips()
        fabric = None
        if networks is not None and servers is not None:
            fabric = deployment.fabric(networks.items().values(), servers.items().values())
        return LocalCluster(
            self.manager.cluster_id,
            self.manager.namespace,
            fabric,
            self.manager.own_flags,
            collapsed(named),
            [each for each in others if each.cluster_id == node.cluster_id],
        )

    async def _is_lost(self, virtual_node: VirtualNode) -> bool:
        """Whether its cluster is gone for good: its pods are lost, and nothing waits for them."""
        found = await self.all(watches.FOREIGN_CLUSTERS)
        return offloading.is_gone_for_good(found.get(Key("", virtual_node.cluster_id)))

    async def _remove_node(
        self, obj: Object, virtual_node: VirtualNode, states: Mapping[str, State]
    ) -> float | None:
        draining = (lifecycle.DRAINING, "NodeDraining", "pods are leaving the node")
        obj = await self._report(obj, {**states, lifecycle.NODE: draining})
        if (await self._drain(obj, virtual_node)).left:
            return DRAIN_POLL_S
        if not await self._node_gone(virtual_node):
            return STOP_POLL_S
        await self._report(obj, {lifecycle.NODE: lifecycle.node_state(False, None)})  # noqa: FBT003
        return None

    async def _take_down(self, obj: Object, virtual_node: VirtualNode) -> float | None:
        if FINALIZER not in objects.finalizers(obj):
            return None
        drain = await self._drain(obj, virtual_node)
        if drain.left:
            draining = lifecycle.draining(virtual_node, drain.left, drain.given_up)
            await self._report(obj, {lifecycle.NODE: draining})
            return DRAIN_POLL_S
        deleting = (lifecycle.DELETING, "VirtualNodeDeleted", "the virtual node is being deleted")
        obj = await self._report(obj, {lifecycle.NODE: deleting})
        if not (await self._node_gone(virtual_node) and await self._is_vacated(virtual_node)):
            return STOP_POLL_S
        obj = await self._report(obj, {lifecycle.VIRTUAL_KUBELET: deleting})
        if not await self._kubelet_gone(obj, virtual_node):
            return STOP_POLL_S
        if not await self._node_gone(virtual_node):  # one that did not know yet made it again
            return STOP_POLL_S
        await self._revoke(virtual_node)
        await self._let_go(obj, virtual_node)
        return None

    async def _let_go(self, obj: Object, virtual_node: VirtualNode) -> None:
        async with self._last:  # two that end at once may not both see the other
            await self._forget_map(virtual_node)
            await writes.remove_finalizer(self.cached, KIND, obj, FINALIZER)

    async def _yield_name(self, obj: Object, virtual_node: VirtualNode, elder: Key) -> float | None:
        """Leave Node and rights, which go by the name, to ``elder``; what runs already ends."""
        if not await self._kubelet_gone(obj, virtual_node):
            return STOP_POLL_S
        if not objects.is_terminating(obj):
            taken = lifecycle.name_taken(elder)
            await self._report(obj, {lifecycle.VIRTUAL_KUBELET: taken, lifecycle.NODE: taken})
            return None
        await self._let_go(obj, virtual_node)
        return None

    async def _drain(self, obj: Object, virtual_node: VirtualNode) -> NodeDrain:
        """Cordon the node and ask its pods to leave, also where somebody deleted it by hand."""
        node = await self.cached.get_live(keys.NODE, Key("", virtual_node.name))
        if node is not None and not lifecycle.is_node_of(virtual_node, node):
            return NodeDrain()
        if node is not None:
            await self._cordon(node)
        leaving = [pod for pod in await self._pods_on(virtual_node) if lifecycle.has_to_leave(pod)]
        given_up = await self._given_up(virtual_node, node) if node else None
        if given_up is not None and given_up <= self.clock():
            return await self._abandon(obj, virtual_node, leaving)
        if await self._is_lost(virtual_node):
            writes.raise_all(await writes.each(leaving, self._lose))
            return NodeDrain()
        is_over = bool(leaving) and await self._has_waited(obj, virtual_node)
        leave = self._deleted if is_over else partial(writes.evict, self.cached)
        standing = [pod for pod in leaving if not objects.is_terminating(pod)]
        writes.raise_all(await writes.each(standing, leave))
        return NodeDrain(len(leaving), given_up)

    async def _has_waited(self, obj: Object, virtual_node: VirtualNode) -> bool:
        """Whether disruption budgets had the time that the template gives them, and say so."""
        since = obj["metadata"].get("deletionTimestamp")
        if since is None:
            return False
        key = virtual_node.template_in(self.manager.namespace)
        is_ours = key.namespace == self.manager.namespace
        found = await self.cached.get(keys.VK_OPTIONS_TEMPLATE, key) if is_ours else None
        timeout = drain_timeout(found)  # a template that is gone or makes no sense holds up no end
        if self.clock() < datetime.fromisoformat(since) + timeout:
            return False
        message = (
            f"drainTimeout ({timeout.total_seconds():g} s) of vkoptionstemplate {key} is over: the "
            "pods that are left are deleted in spite of their disruption budgets"
        )
        self.events.event(KIND, obj, "Warning", "DrainTimeout", message)
        return True

    async def _cordon(self, node: Object) -> None:
        if not node.get("spec", {}).get("unschedulable"):
            key = objects.key_of(node)
            logger.info("Cordoning node", extra={"node": key.name})
            await self.cached.patch(keys.NODE, key, {"spec": {"unschedulable": True}})

    async def _is_vacated(self, virtual_node: VirtualNode) -> bool:
        """Whether what a drain leaves has ended, or had its time: it goes with its node.

        Without a virtual kubelet it would go on running on the provider, whose twins may stay for
        the sake of other virtual nodes.
        """
        named_so = await self.cached.get_live(keys.NODE, Key("", virtual_node.name))
        if named_so is not None or await self._is_lost(virtual_node):
            return True  # another node's pods, or nobody left to end them
        pods = await self._pods_on(virtual_node)
        return not any([await self._is_ending(pod) for pod in pods])

    async def _is_ending(self, pod: Object) -> bool:
        """Ask ``pod`` to end; whether that is waited for."""
        if objects.is_terminating(pod):
            return lifecycle.is_waited_for(pod, self.clock())
        try:
            return await self._deleted(pod)
        except KubeError as error:  # the other pods do not wait for this one; it is asked again
            logger.warning(
                "Pod was not deleted", extra={"pod": str(objects.key_of(pod)), "reason": str(error)}
            )
            return True

    async def _deleted(self, pod: Object, *, grace_s: int | None = None) -> bool:
        """Delete ``pod``; whether that is allowed.

        A policy protects pods of the system, and those that tolerate no virtual node: the garbage
        collector takes them once their node is gone.
        """
        key = objects.key_of(pod)
        try:
            await self.cached.delete(keys.POD, key, uid=objects.uid(pod), grace_s=grace_s)
        except ForbiddenError as error:
            logger.warning("Pod was not deleted", extra={"pod": str(key), "reason": str(error)})
            return False
        return True

    async def _given_up(self, virtual_node: VirtualNode, node: Object) -> datetime | None:
        """Return when nobody waits for the pods any more, should no virtual kubelet come."""
        key = Key(virtual_node.namespace, naming.vk_deployment(virtual_node.name))
        running = await self.cached.get_live(keys.DEPLOYMENT, key)
        return lifecycle.given_up(running, node)

    async def _abandon(
        self, obj: Object, virtual_node: VirtualNode, pods: list[Object]
    ) -> NodeDrain:
        """Let pods go whose end nobody confirms, and say which cluster may run them still."""
        writes.raise_all(await writes.each(pods, self._lose))
        if pods:
            message = lifecycle.abandoned(virtual_node, map(objects.key_of, pods))
            self.events.event(KIND, obj, "Warning", "PodsAbandoned", message)
        return NodeDrain()

    async def _pods_on(self, virtual_node: VirtualNode) -> list[Object]:
        on_node = Selection(keys.POD, Object, fields=f"spec.nodeName={virtual_node.name}")
        return list((await self.cached.list(on_node)).items.values())

    async def _lose(self, pod: Object) -> None:
        """Delete a pod at once: nobody will say that it has ended."""
        logger.warning("Pod is lost with its node", extra={"pod": str(objects.key_of(pod))})
        await self._deleted(pod, grace_s=0)

    async def _kubelet_gone(self, obj: Object, virtual_node: VirtualNode) -> bool:
        key = Key(virtual_node.namespace, naming.vk_deployment(virtual_node.name))
        gone = await writes.remove(self.cached, keys.DEPLOYMENT, key, is_ours=writes.owned_by(obj))
        if not gone:
            self.events.event(KIND, obj, "Normal", "VkDeleted", "deleted the virtual kubelet")
            return False
        chosen = deployment.selector_labels(virtual_node).items()
        labels = ",".join(f"{name}={value}" for name, value in chosen)
        pods = Selection(keys.POD, Object, namespace=virtual_node.namespace, labels=labels)
        return not (await self.cached.list(pods)).items

    async def _node_gone(self, virtual_node: VirtualNode) -> bool:
        return await writes.remove(
            self.cached,
            keys.NODE,
            Key("", virtual_node.name),
            is_ours=partial(lifecycle.is_node_of, virtual_node),
        )

    async def _revoke(self, virtual_node: VirtualNode) -> None:
        is_ours = rights.is_of(virtual_node)
        elsewhere = [
            Grant(keys.ROLE_BINDING, binding)
            for binding in (await self.all(watches.ROLE_BINDINGS)).values()
            if is_ours(binding)
        ]
        at_home = rights.at_home(virtual_node)
        given = [(each.kind, objects.key_of(each.wanted)) for each in (*elsewhere, *at_home)]
        account = (keys.SERVICE_ACCOUNT, Key(virtual_node.namespace, virtual_node.name))

        async def take(right: tuple[Kind, Key]) -> None:
            await writes.remove(self.cached, *right, is_ours=is_ours)

        writes.raise_all(await writes.each(dict.fromkeys([*given, account]), take))

    async def _forget_map(self, virtual_node: VirtualNode) -> None:
        siblings = Selection(KIND, Object, namespace=virtual_node.namespace)
        for key, obj in (await self.cached.list(siblings)).items.items():
            if (
                key.name != virtual_node.name
                and VirtualNode.parse(obj).cluster_id == virtual_node.cluster_id
            ):
                return  # the map is shared, and still in use
        await writes.remove(
            self.cached,
            keys.NAMESPACE_MAP,
            objects.key_of(lifecycle.namespace_map(virtual_node)),
            is_ours=partial(lifecycle.is_map_of, virtual_node),
        )

    async def _report(self, obj: Object, states: Mapping[str, State]) -> Object:
        status = lifecycle.status(obj, states, self.clock())
        return await writes.write_status(self.cached, KIND, obj, status)


def _classes(obj: Object | None) -> tuple[object, ...]:
    node = VirtualNode.parse(obj) if obj else None
    return (node.cluster_id, node.ingress_classes, node.load_balancer_classes) if node else ()
