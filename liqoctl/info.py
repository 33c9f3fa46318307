"""Looking at an installation and its peers; nothing is written."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import click
import rich.console
import rich.text

from apis import keys
from apis.objects import Key, Kind, Object
from kube import errors
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from liqoctl import install
from liqoctl import output as output_
from liqoctl.forge import info as forge
from liqoctl.forge.manifests import DEFAULT_POLICY

_STYLES = {forge.HEALTHY: "green", forge.UNHEALTHY: "red", forge.DISABLED: "dim"}


async def installation(cluster: ClusterClient, namespace: str) -> Object:
    """Return what there is of pyliqo in the cluster.

    Raises:
        click.ClickException: it is not installed.
    """
    controllers = Key(namespace, install.CONTROLLERS)
    foreign_clusters, deployment, config, pods, policy, daemon_sets = await asyncio.gather(
        _list(cluster, keys.FOREIGN_CLUSTER),
        cluster.get_live(keys.DEPLOYMENT, controllers),
        cluster.get_live(keys.CONFIG_MAP, Key(namespace, keys.CLUSTER_ID_CONFIG_MAP)),
        _list(cluster, keys.POD, namespace),
        cluster.get_live(keys.PROVIDER_POLICY, DEFAULT_POLICY),
        _daemon_sets(cluster),
    )
    if deployment is None:
        raise _not_installed(namespace)
    found = forge.Installation(
        cluster_id=str(((config or {}).get("data") or {}).get(keys.CLUSTER_ID_KEY, "")),
        version=install.image_tag(deployment),
        server=cluster.access.server,
        pods=pods,
        foreign_clusters=foreign_clusters,
        policy=policy,
        daemon_sets=daemon_sets,
    )
    return forge.installation(found)


async def peers(cluster: Cluster, names: Sequence[str]) -> Object:
    """Return what there is about the peers ``names``, or about all, by cluster ID.

    Raises:
        click.ClickException: there is no such peer.
    """
    foreign_clusters, slices, virtual_nodes, identities, quotas = await asyncio.gather(
        _list(cluster, keys.FOREIGN_CLUSTER),
        _list(cluster, keys.RESOURCE_SLICE),
        _list(cluster, keys.VIRTUAL_NODE),
        _list(cluster, keys.IDENTITY),
        cluster.list(Selection(keys.QUOTA, Object)),
    )
    around = forge.Around(slices, virtual_nodes, quotas.items, identities)
    told = {one["spec"]["clusterID"]: forge.peer(one, around) for one in foreign_clusters}
    if missing := [name for name in names if name not in told]:
        there = f"there are {', '.join(told)}" if told else "there are none: see liqoctl peer"
        raise click.ClickException(f"no peer is called {', '.join(missing)}: {there}")
    return {name: told[name] for name in names or told}


async def _daemon_sets(cluster: Cluster) -> list[Object]:
    """Return those that whoever asks may list: none is no fault of the installation."""
    with contextlib.suppress(errors.ForbiddenError):
        return await _list(cluster, keys.DAEMON_SET)
    return []


async def _list(cluster: Cluster, kind: Kind, namespace: str = "") -> list[Object]:
    try:
        found = (await cluster.list(Selection(kind, Object, namespace))).items
    except errors.NotFoundError:
        raise _not_installed(namespace or keys.LIQO_NAMESPACE) from None
    return [found[key] for key in sorted(found)]


def _not_installed(namespace: str) -> click.ClickException:
    message = f"pyliqo is not installed in namespace {namespace}: liqoctl install"
    return click.ClickException(message)


def show(told: Any, lines: Sequence[str], form: str) -> None:
    if form != "text":
        output_.dump([told], form)
        return
    console = rich.console.Console(highlight=False, soft_wrap=True)
    for line in lines:
        text = rich.text.Text(line)
        for word, style in _STYLES.items():
            text.highlight_regex(rf": {word}$", style)
        if not line.startswith(" "):
            text.stylize("bold")
        console.print(text)


def show_field(pick: forge.Pick, told: Object, path: str, form: str) -> None:
    """Print one field of ``told``: a word as it is, all else as YAML, unless ``json`` is asked for.

    Raises:
        click.ClickException: there is no such field.
    """
    try:
        value = pick(told, path)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if form == "text" and not isinstance(value, dict | list):
        output_.echo(output_.plain(value))
    else:
        output_.dump([value], "yaml" if form == "text" else form)
