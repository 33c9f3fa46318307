"""Looking at what of a namespace is reflected, or would be; nothing is written."""

import asyncio
from collections.abc import Iterable, Sequence

import click

from apis import keys, nodeselector, objects, placement
from apis.objects import Key, Kind, Object
from apis.offloading import NamespaceOffloading, VirtualNode, VkOptionsTemplate
from kube.cluster import Cluster, Selection
from liqoctl.forge import reflections as forge
from liqoctl.forge.reflections import Contents, Line, Peer


async def reflected(cluster: Cluster, namespace: str) -> list[Line]:
    """Return what of ``namespace`` is reflected where.

    Raises:
        click.ClickException: it does not exist, or is not offloaded to any cluster.
    """
    contents, maps = await asyncio.gather(
        _contents(cluster, namespace), _list(cluster, keys.NAMESPACE_MAP)
    )
    twins = list(forge.peers_of(namespace, maps))
    if not twins:
        raise click.ClickException(
            f"namespace {namespace} is nowhere else: see liqoctl why namespace {namespace}"
        )
    return forge.lines(contents, await _peers(cluster, twins))


async def would_be(cluster: Cluster, wanted: Object) -> list[Line]:
    """Return what would be reflected where, were the NamespaceOffloading ``wanted`` there."""
    namespace = objects.key_of(wanted).namespace
    contents, nodes, own = await asyncio.gather(
        _contents(cluster, namespace), _list(cluster, keys.NODE), _cluster_id(cluster)
    )
    offloading = NamespaceOffloading.parse(wanted)
    clusters = {
        objects.labels(node).get(keys.REMOTE_CLUSTER_ID, "")
        for node in nodes
        if placement.is_virtual(node) and _is_selected(offloading, node)
    }
    twins = [(one, offloading.remote_name(namespace, own)) for one in sorted(clusters) if one]
    return forge.lines(contents, await _peers(cluster, twins))


def show(lines: Sequence[Line]) -> None:
    """Print ``lines`` as a table."""
    rows = [forge.HEAD, *lines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(forge.HEAD))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _is_selected(offloading: NamespaceOffloading, node: Object) -> bool:
    terms = offloading.cluster_selector
    name = objects.key_of(node).name
    return not terms or nodeselector.matches(terms, objects.labels(node), name)


async def _contents(cluster: Cluster, namespace: str) -> Contents:
    found = await cluster.get_live(keys.NAMESPACE, Key("", namespace))
    if found is None:
        raise click.ClickException(f"namespace {namespace} does not exist")
    kinds = [row.kind for row in forge.SHOWN]
    pods, events, *several = await asyncio.gather(
        _list(cluster, keys.POD, namespace),
        _list(cluster, keys.EVENT, namespace),
        *(_list(cluster, kind, namespace) for kind in kinds),
    )
    by_kind = dict(zip(kinds, several, strict=True))
    return Contents(found, by_kind, pods, forge.failures(events))


async def _peers(cluster: Cluster, twins: Iterable[tuple[str, str]]) -> list[Peer]:
    nodes, templates = await asyncio.gather(
        _list(cluster, keys.VIRTUAL_NODE), _list(cluster, keys.VK_OPTIONS_TEMPLATE)
    )
    by_key = {objects.key_of(each): VkOptionsTemplate.parse(each) for each in templates}
    parsed = sorted(map(VirtualNode.parse, nodes), key=lambda each: each.name)
    return [
        _peer(
            cluster_id, remote, [each for each in parsed if each.cluster_id == cluster_id], by_key
        )
        for cluster_id, remote in twins
    ]


def _peer(
    cluster_id: str,
    remote: str,
    nodes: Sequence[VirtualNode],
    templates: dict[Key, VkOptionsTemplate],
) -> Peer:
    default = Key(keys.LIQO_NAMESPACE, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    chosen = nodes[0].vk_options_template_ref if nodes else None
    options = templates.get(chosen or default) or VkOptionsTemplate("")
    return Peer(cluster_id, remote, options, frozenset(each.name for each in nodes))


async def _cluster_id(cluster: Cluster) -> str:
    labels = f"{keys.APP_NAME}={keys.CLUSTER_ID_CONFIG_MAP}"
    found = await cluster.list(Selection(keys.CONFIG_MAP, Object, labels=labels))
    for each in found.items.values():
        return str((each.get("data") or {}).get(keys.CLUSTER_ID_KEY, ""))
    raise click.ClickException("pyliqo is not installed: no ConfigMap says the cluster ID")


async def _list(cluster: Cluster, kind: Kind, namespace: str = "") -> list[Object]:
    found = await cluster.list(Selection(kind, Object, namespace))
    return list(found.items.values())
