"""Making and removing virtual nodes.

Source: docs/parity.md § 7.6.
"""

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import replace

import click

from apis import keys, naming, objects
from apis import slices as slices_
from apis.objects import Key, Object
from apis.offloading import VkOptionsTemplate
from kube import errors, informer
from kube.cluster import Cluster, Selection
from kube.informer import Left
from liqoctl import clusters, output
from liqoctl.clusters import Side
from liqoctl.forge import manifests, peering, resourceslice
from liqoctl.forge import virtualnode as forge
from liqoctl.forge.virtualnode import VirtualNodeOptions


async def tenant_namespace(cluster: Cluster, cluster_id: str) -> str:
    """Return the namespace of the peering with ``cluster_id``, found by its labels.

    Raises:
        click.ClickException: there is no such namespace, or more than one.
    """
    labels = peering.tenant_namespace_selector(cluster_id)
    found = (await cluster.list(Selection(keys.NAMESPACE, Object, labels=labels))).items
    if len(found) == 1:
        return next(iter(found)).name
    if found:
        names = ", ".join(sorted(key.name for key in found))
        raise click.ClickException(f"several tenant namespaces for {cluster_id}: {names}; use -n")
    message = f"no tenant namespace for {cluster_id}: create {naming.tenant_namespace(cluster_id)}"
    raise click.ClickException(f"{message} with the labels {labels}")


async def show(side: Side, wanted: VirtualNodeOptions, form: str) -> None:
    output.dump([forge.printed(await _from_slice(side.cluster, wanted))], form)


async def _from_slice(cluster: Cluster, wanted: VirtualNodeOptions) -> Object:
    where = Key(wanted.where.namespace, wanted.resource_slice_name or "")
    found = await cluster.get_live(keys.RESOURCE_SLICE, where)
    if found is None:
        raise click.ClickException(f"resourceslice {where} does not exist")
    default = Key(keys.LIQO_NAMESPACE, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    key = wanted.vk_options_template or default
    template = await cluster.get_live(keys.VK_OPTIONS_TEMPLATE, key)
    allowed = VkOptionsTemplate.parse(template).suggestible if template else None
    try:
        return forge.from_slice(wanted, found, allowed)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


async def create(side: Side, wanted: VirtualNodeOptions, timeout_s: float) -> None:
    """Create the virtual node ``wanted``, or bring it up to date, and wait for its Node.

    Raises:
        click.ClickException: something it needs is missing, or the Node does not become ready.
    """
    cluster, behind = side.cluster, wanted.remote_cluster_id
    if not wanted.namespace:
        wanted = replace(wanted, namespace=await tenant_namespace(cluster, behind))
    is_of_slice = bool(wanted.resource_slice_name)
    made = await _from_slice(cluster, wanted) if is_of_slice else forge.from_flags(wanted)
    await _check_kubeconfig(cluster, made)
    kept = await _apply(side, made, wanted)
    if objects.spec(kept).get("createNode", True):
        with side.progress.waiting(f"node {wanted.name}"):
            await _wait_for_node(side, kept, timeout_s)


async def _check_kubeconfig(cluster: Cluster, virtual_node: Object) -> None:
    name = virtual_node["spec"]["kubeconfigSecretRef"]["name"]
    where = Key(objects.key_of(virtual_node).namespace, name)
    secret = await cluster.get_live(keys.SECRET, where)
    if secret is None:
        raise click.ClickException(f"secret {where} does not exist: create it first")
    if keys.KUBECONFIG_KEY not in (secret.get("data") or {}):
        raise click.ClickException(f"secret {where} lacks the key {keys.KUBECONFIG_KEY}")


async def _apply(side: Side, made: Object, wanted: VirtualNodeOptions) -> Object:
    """Return the virtual node, once it is ``made``, or has what the flags name."""
    cluster, key = side.cluster, objects.key_of(made)
    existing = await cluster.get_live(keys.VIRTUAL_NODE, key)
    if existing is None:
        existing = await cluster.create(keys.VIRTUAL_NODE, made)
        side.info(f"virtual node {key}: created")
        return existing
    changes = manifests.changes(existing, forge.named(made, wanted), wanted.whole)
    if changes:
        existing = await cluster.patch(keys.VIRTUAL_NODE, key, changes)
        side.info(f"virtual node {key}: updated")
    else:
        side.info(f"virtual node {key}: is as asked for already")
    return existing


async def _wait_for_node(side: Side, virtual_node: Object, timeout_s: float) -> None:
    name = objects.key_of(virtual_node).name
    behind = str(objects.spec(virtual_node).get("clusterID") or "")

    def is_ready(node: Object | None) -> bool:
        return forge.is_ready(node, behind)

    try:
        async with asyncio.timeout(timeout_s):
            await informer.until(side.cluster, keys.NODE, Key("", name), is_ready)
    except TimeoutError:
        message = f"node {name} is not ready after {timeout_s:g}s"
        hint = f"see the pods of deployment vk-{name}"
        raise click.ClickException(f"{message}: {hint}") from None
    side.info(f"node {name}: ready")


async def delete(side: Side, key: Key, timeout_s: float) -> None:
    """Delete the virtual node ``key`` (an empty namespace: wherever it is) and wait until it went.

    For ``timeout_s`` nothing may change meanwhile.

    Raises:
        click.Abort: the user says no.
        click.ClickException: it is not there, not alone of that name, or does not go.
    """
    cluster = side.cluster
    found = await _find(cluster, key)
    where, uid = objects.key_of(found), objects.uid(found)
    if resourceslice.is_remade(found):
        name = slices_.of_virtual_node(found)
        told = f"virtual node {where}: resourceslice {name} makes it again"
        side.warning(f"{told}; liqoctl delete resourceslice {name} takes both back")
    side.session.confirm(f"Delete virtual node {where}? Its pods are evicted.")

    def is_gone(now: Object | None) -> bool:
        return now is None or objects.uid(now) != uid

    await cluster.delete(keys.VIRTUAL_NODE, where, uid=uid)
    try:
        look = functools.partial(pods_left, cluster, [where.name])
        async with informer.while_moving(timeout_s, look, side.info):
            await informer.until(cluster, keys.VIRTUAL_NODE, where, is_gone)
    except TimeoutError:
        message = f"virtual node {where} is still being removed"
        stuck = f"nothing has changed for {timeout_s:g}s"
        raise click.ClickException(f"{message}: {stuck}, perhaps a pod refuses eviction") from None
    side.info(f"virtual node {where}: deleted")


async def pods_left(cluster: Cluster, nodes: Sequence[str]) -> Left:
    """Return which pods are still on the virtual ``nodes``, as far as the user may see them."""
    on = (Selection(keys.POD, Object, fields=f"spec.nodeName={name}") for name in nodes)
    try:
        found = [await cluster.list(each) for each in on]
    except errors.ForbiddenError:
        return Left("", ())
    pods = frozenset(objects.uid(pod) for each in found for pod in each.items.values())
    names = ", ".join(nodes)
    return Left(f"waiting for {len(pods)} pods to leave node {names}" if pods else "", pods)


async def _find(cluster: Cluster, key: Key) -> Object:
    found = await clusters.called(cluster, keys.VIRTUAL_NODE, key)
    if not found:
        raise click.ClickException(f"virtual node {key} does not exist")
    if len(found) > 1:
        names = ", ".join(sorted(str(objects.key_of(one)) for one in found))
        raise click.ClickException(f"several virtual nodes called {key.name}: {names}; use -n")
    return found[0]
