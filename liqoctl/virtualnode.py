"""``liqoctl create|delete virtualnode``: making and removing virtual nodes.

Source: docs/parity.md § 7.6.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import click

from apis import keys, naming, objects
from apis import slices as slices_
from apis.objects import Key, Object
from apis.offloading import VkOptionsTemplate
from kube import errors
from kube.cluster import Cluster, Selection
from liqoctl import clusters, options, output
from liqoctl.clusters import Left, Side
from liqoctl.forge import manifests, resourceslice
from liqoctl.forge import virtualnode as forge
from liqoctl.forge.virtualnode import VirtualNodeOptions
from liqoctl.options import Session


def _classes(kind: str) -> Callable[..., Any]:
    def items(_: object, __: object, given: Iterable[str]) -> list[str]:
        return [part.strip() for text in given for part in text.split(",") if part.strip()]

    help_ = f"{kind} classes that the provider offers; the first is the default."
    return click.option(f"--{kind}-classes", multiple=True, callback=items, help=help_)


def _template(_: object, __: object, text: str | None) -> Key | None:
    if text is None:
        return None
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise click.BadParameter(f"{text!r} is not NAMESPACE/NAME", param_hint="template")
    return Key(namespace, name)


@options.create.command(
    "virtualnode",
    "liqoctl create virtualnode milan --remote-cluster-id milan --kubeconfig-secret-name milan",
    "liqoctl create vn milan --remote-cluster-id milan --kubeconfig-secret-name milan \\",
    "    --cpu 8 --memory 16Gi --pods 200 --resource nvidia.com/gpu=2 --labels region=europe",
    "liqoctl create vn pool --remote-cluster-id milan --resource-slice-name pool",
    "liqoctl create vn milan --remote-cluster-id milan --kubeconfig-secret-name milan -o yaml",
)
@click.argument("name", type=options.NAME)
@click.option("--remote-cluster-id", required=True, help="Cluster ID of the provider.")
@click.option("--kubeconfig-secret-name", help="Secret with the kubeconfig for the provider.")
@click.option("--resource-slice-name", help="ResourceSlice to take resources and classes from.")
@options.switch("--create-node", default=True, show_default=True, help="Make a Node for it.")
@click.option(
    "--disable-network-check/--enable-network-check",
    default=False,
    show_default=True,
    help="Do not check the network between the clusters.",
)
@click.option(
    "--vk-options-template",
    metavar="NAMESPACE/NAME",
    callback=_template,
    help="VkOptionsTemplate to use.  [default: liqo/virtual-kubelet-default]",
)
@click.option(
    "--cpu", type=options.AMOUNT, default="2", show_default=True, help="CPUs of the node."
)
@click.option(
    "--memory", type=options.AMOUNT, default="4Gi", show_default=True, help="Memory of the node."
)
@click.option(
    "--pods", type=options.AMOUNT, default="110", show_default=True, help="Pods of the node."
)
@options.pairs("--resource", "Other resources.", options.AMOUNTS)
@_classes("storage")
@_classes("ingress")
@_classes("load-balancer")
@options.pairs("--labels", "Labels of the node.")
@options.pairs("--node-selector", "Nodes of the provider to use.")
@click.option("--runtime-class-name", default="", help="Runtime class of pods on the provider.")
@options.timeout("2m")
@options.OUTPUT
@options.global_flags
def create_virtualnode(session: Session, timeout_s: float, form: str | None, **given: Any) -> None:
    """Create a virtual node: a Node here that stands for another cluster.

    It belongs into the tenant namespace of the peering (-n, or found by its labels), next to the
    Secret with the kubeconfig.
    """
    if bool(given["kubeconfig_secret_name"]) == bool(given["resource_slice_name"]):
        raise click.UsageError("give either --kubeconfig-secret-name or --resource-slice-name")
    hard = {name: given.pop(name) for name in ("cpu", "memory", "pods")} | given.pop("resource")
    left_out = options.left_out(
        create_node="createNode", disable_network_check="disableNetworkCheck",
        cpu="cpu", memory="memory", pods="pods",
    )  # fmt: skip
    given |= {"namespace": session.namespace, "metadata": session.metadata}
    wanted = VirtualNodeOptions(hard=hard, left_out=left_out, **given)
    if not form:
        work = functools.partial(create, wanted=wanted, timeout_s=timeout_s)
        clusters.run(session, work)
    elif wanted.resource_slice_name:  # only its resources need a cluster
        work = functools.partial(show, wanted=wanted, form=form)
        clusters.run(session, work)
    else:
        output.dump([forge.printed(forge.from_flags(wanted))], form)


@options.delete.command(
    "virtualnode",
    "liqoctl delete virtualnode milan",
    "liqoctl delete vn milan -n liqo-tenant-milan --skip-confirm",
)
@clusters.named("name", keys.VIRTUAL_NODE)
@options.STANDSTILL
@clusters.on_cluster()
async def delete_virtualnode(side: Side, name: str, timeout_s: float) -> None:
    """Delete a virtual node: its pods are evicted, then the Node goes.

    It is looked for in all namespaces, unless -n says in which.
    """
    await delete(side, Key(side.session.namespace, name), timeout_s)


async def tenant_namespace(cluster: Cluster, cluster_id: str) -> str:
    """Return the namespace of the peering with ``cluster_id``, found by its labels.

    Raises:
        click.ClickException: there is no such namespace, or more than one.
    """
    labels = manifests.tenant_namespace_selector(cluster_id)
    found = (await cluster.list(Selection(keys.NAMESPACE, Object, labels=labels))).items
    if len(found) == 1:
        return next(iter(found)).name
    if found:
        names = ", ".join(sorted(key.name for key in found))
        raise click.ClickException(f"several tenant namespaces for {cluster_id}: {names}; use -n")
    spaces = await clusters.listed(cluster, keys.NAMESPACE, labels=f"{keys.TENANT_NAMESPACE}=true")
    peers = {objects.labels(one).get(keys.REMOTE_CLUSTER_ID) for one in spaces}
    if there := ", ".join(sorted(filter(None, peers))):
        cure = f"correct the name among {there}, or make a new peer with liqoctl peer"
        raise click.ClickException(f"no peer is called {cluster_id}: {cure}")
    message = f"no tenant namespace for {cluster_id}: run liqoctl peer, or create"
    raise click.ClickException(
        f"{message} {naming.tenant_namespace(cluster_id)} with the labels {labels}"
    )


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
    is_ready = functools.partial(forge.is_ready, cluster_id=behind)
    try:
        async with asyncio.timeout(timeout_s):
            await clusters.reached(side.cluster, keys.NODE, Key("", name), is_ready)
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

    await cluster.delete(keys.VIRTUAL_NODE, where, uid=uid)
    try:
        look = functools.partial(pods_left, cluster, [where.name])
        async with clusters.while_moving(side, timeout_s, look):
            await clusters.reached(cluster, keys.VIRTUAL_NODE, where, clusters.is_gone(uid))
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
        return "", ()
    pods = frozenset(objects.uid(pod) for each in found for pod in each.items.values())
    names = ", ".join(nodes)
    return f"waiting for {len(pods)} pods to leave node {names}" if pods else "", pods


async def _find(cluster: Cluster, key: Key) -> Object:
    found = await clusters.called(cluster, keys.VIRTUAL_NODE, key)
    if not found:
        raise click.ClickException(f"virtual node {key} does not exist")
    if len(found) > 1:
        names = ", ".join(sorted(str(objects.key_of(one)) for one in found))
        raise click.ClickException(f"several virtual nodes called {key.name}: {names}; use -n")
    return found[0]
