"""``liqoctl get reflections``: what of a namespace is reflected, or would be; it only reads."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import click

from apis import keys, naming, nodeselector, objects, placement, reflection, reflectionpolicy
from apis.objects import Key, Kind, Object
from apis.offloading import NamespaceOffloading, VirtualNode, VkOptionsTemplate
from apis.offloading import ReflectionPolicy as Policy
from kube import errors
from kube.cluster import Cluster, Selection
from liqoctl import clusters, options, output
from liqoctl.clusters import Side, listed
from liqoctl.forge import reflections as forge
from liqoctl.forge.reflections import Contents, Line, Peer


@options.get.command(
    "reflections", "liqoctl get reflections -n shop", "liqoctl get reflections -n shop -o json"
)
@options.TEXT_OUTPUT
@clusters.on_cluster()
async def get_reflections(side: Side, form: str) -> None:
    """Show which objects of a namespace are reflected where, and why others are not.

    Reads only. EndpointSlices go as their Services, claims with their first pod.
    """
    found = await reflected(side.cluster, side.session.namespace or "default")
    if form == "text":
        show(found)
    else:
        output.dump([told(found)], form)


class Origin(NamedTuple):
    """A namespace, and by which policy its NamespaceOffloading lets go what pods mention."""

    namespace: str
    asked: Policy | None


async def reflected(cluster: Cluster, namespace: str) -> list[Line]:
    """Return what of ``namespace`` is reflected where.

    Raises:
        click.ClickException: it does not exist, or is not offloaded to any cluster.
    """
    asked, maps = await asyncio.gather(
        _asked(cluster, namespace), listed(cluster, keys.NAMESPACE_MAP)
    )
    twins = list(forge.peers_of(namespace, maps))
    if not twins:
        raise click.ClickException(
            f"namespace {namespace} is nowhere else: see liqoctl why namespace {namespace}"
        )
    return await _lines(cluster, Origin(namespace, asked), twins)


async def would_be(cluster: Cluster, wanted: Object) -> list[Line]:
    """Return what would be reflected where, were the NamespaceOffloading ``wanted`` there."""
    namespace = objects.key_of(wanted).namespace
    asked, nodes, own = await asyncio.gather(
        _asked(cluster, namespace), listed(cluster, keys.NODE), _cluster_id(cluster)
    )
    offloading = NamespaceOffloading.parse(wanted)
    selected = {
        objects.labels(node).get(keys.REMOTE_CLUSTER_ID, "")
        for node in nodes
        if placement.is_virtual(node) and _is_selected(offloading, node)
    }
    twins = [(one, offloading.remote_name(namespace, own)) for one in sorted(selected) if one]
    origin = Origin(namespace, reflectionpolicy.asked_policy(wanted) or asked)
    return await _lines(cluster, origin, twins)


async def show_dry_run(side: Side, made: Iterable[Object]) -> None:
    """Print what would be reflected, were the NamespaceOffloadings ``made`` there."""
    for manifest in made:
        name = objects.key_of(manifest).namespace
        side.info(f"namespace {name}: would be reflected, nothing is changed")
        show(await would_be(side.cluster, manifest))


def show(lines: Sequence[Line]) -> None:
    output.table([forge.HEAD, *lines], "  ")


def told(lines: Sequence[Line]) -> Object:
    """Return ``lines`` as data: a List of mappings, by the names of the columns."""
    names = [name.lower().replace(" ", "-") for name in forge.HEAD]
    return {"items": [dict(zip(names, line, strict=True)) for line in lines]}


def _is_selected(offloading: NamespaceOffloading, node: Object) -> bool:
    terms = offloading.cluster_selector
    name = objects.key_of(node).name
    return not terms or nodeselector.matches(terms, objects.labels(node), name)


async def _asked(cluster: Cluster, namespace: str) -> Policy | None:
    """Return the policy that the NamespaceOffloading of ``namespace`` asks for, if any."""
    if await cluster.get_live(keys.NAMESPACE, Key("", namespace)) is None:
        raise click.ClickException(f"namespace {namespace} does not exist")
    key = Key(namespace, keys.OFFLOADING_NAME)
    found = await cluster.get_live(keys.NAMESPACE_OFFLOADING, key)
    return reflectionpolicy.asked_policy(found) if found else None


async def _lines(cluster: Cluster, origin: Origin, twins: Iterable[tuple[str, str]]) -> list[Line]:
    peers = await known_peers(cluster, twins)
    return forge.lines(await _contents(cluster, origin, peers), peers)


async def policies(cluster: Cluster, namespace: str) -> list[tuple[str, str]]:
    """Return kinds and names of the policies that a cluster of ``namespace`` has not.

    Empty where one may not look at them: the condition of the NamespaceOffloading tells it, too.
    """
    try:
        maps = await listed(cluster, keys.NAMESPACE_MAP)
        peers = await known_peers(cluster, forge.peers_of(namespace, maps))
        kinds = reflection.POLICIES
        several = await asyncio.gather(*(listed(cluster, kind, namespace) for kind in kinds))
    except errors.ForbiddenError:
        return []
    return forge.policies(Contents(None, dict(zip(kinds, several, strict=True))), peers)


async def _contents(cluster: Cluster, origin: Origin, peers: Iterable[Peer]) -> Contents:
    name = origin.namespace
    kinds = list({row.kind for peer in peers for row in forge.rows(peer)})
    (pods, events), several = await asyncio.gather(
        asyncio.gather(listed(cluster, keys.POD, name), listed(cluster, keys.EVENT, name)),
        asyncio.gather(*(_known(cluster, kind, name) for kind in kinds)),
    )
    by_kind = {kind: found for kind, found in zip(kinds, several, strict=True) if found is not None}
    volumes = await volumes_of(cluster, by_kind.get(keys.PERSISTENT_VOLUME_CLAIM, ()))
    return Contents(origin.asked, by_kind, pods, volumes, forge.failures(events))


async def volumes_of(cluster: Cluster, claims: Iterable[Object]) -> dict[str, Object]:
    names = {str(claim["spec"].get("volumeName") or "") for claim in claims} - {""}
    found = await asyncio.gather(
        *(cluster.get_live(keys.PERSISTENT_VOLUME, Key("", name)) for name in names)
    )
    return {name: each for name, each in zip(names, found, strict=True) if each}


async def known_peers(cluster: Cluster, twins: Iterable[tuple[str, str]]) -> list[Peer]:
    """Return the clusters of ``twins``, with their virtual nodes and the rules of those."""
    nodes, templates = await asyncio.gather(
        listed(cluster, keys.VIRTUAL_NODE), listed(cluster, keys.VK_OPTIONS_TEMPLATE)
    )
    twins = list(twins)
    parsed = sorted(map(VirtualNode.parse, nodes), key=lambda each: each.name)
    of_each = [[node for node in parsed if node.cluster_id == one] for one, _ in twins]
    leaders = await asyncio.gather(*(_leader(cluster, of_one) for of_one in of_each))
    by_key = {objects.key_of(each): VkOptionsTemplate.parse(each) for each in templates}
    return [
        Peer(
            cluster_id,
            remote,
            by_key.get(_template_of(leader)) or VkOptionsTemplate(""),
            frozenset(each.name for each in of_one),
            frozenset(each.name for each in of_one if each.storage_classes),
        )
        for (cluster_id, remote), of_one, leader in zip(twins, of_each, leaders, strict=True)
    ]


def _template_of(node: VirtualNode | None) -> Key:
    default = Key(keys.LIQO_NAMESPACE, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    return (node and node.vk_options_template_ref) or default


async def _leader(cluster: Cluster, nodes: Sequence[VirtualNode]) -> VirtualNode | None:
    """Return the one of a provider's virtual nodes that reflects for all of them."""
    if not nodes[1:]:
        return next(iter(nodes), None)
    lease = await cluster.get_live(keys.LEASE, Key(nodes[0].namespace, keys.REFLECTOR_LEASE))
    holder = str(objects.spec(lease).get("holderIdentity") or "")
    held = [each for each in nodes if holder.startswith(f"{naming.vk_deployment(each.name)}-")]
    return max(held or nodes[:1], key=lambda each: len(each.name))


async def _cluster_id(cluster: Cluster) -> str:
    labels = f"{keys.APP_NAME}={keys.CLUSTER_ID_CONFIG_MAP}"
    found = await cluster.list(Selection(keys.CONFIG_MAP, Object, labels=labels))
    for each in found.items.values():
        return str((each.get("data") or {}).get(keys.CLUSTER_ID_KEY, ""))
    raise click.ClickException("pyliqo is not installed: no ConfigMap says the cluster ID")


async def _known(cluster: Cluster, kind: Kind, namespace: str) -> list[Object] | None:
    """Return the objects of ``kind``, None where the cluster knows no such kind."""
    try:
        return await listed(cluster, kind, namespace)
    except errors.NotFoundError:
        return None
