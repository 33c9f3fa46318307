"""``liqoctl info``: looking at an installation and its peers; nothing is written."""

import asyncio
import contextlib
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from apis import keys
from apis.objects import Key, Kind, Object
from kube import errors
from kube.cluster import Cluster, Selection
from liqoctl import clusters, install, options, output
from liqoctl.clusters import Side
from liqoctl.forge import info as forge
from liqoctl.forge.manifests import DEFAULT_POLICY
from liqoctl.options import Session

if TYPE_CHECKING:
    from kube.client import ClusterClient

_STYLES = {forge.HEALTHY: "green", forge.UNHEALTHY: "red", forge.DISABLED: "dim"}


EXIT_CODE = options.switch("--exit-code", help="Exit with status 1 if something is wrong.")
GET = click.option(
    "--get", "path", metavar="a.b.c", help="Print only this field; case does not matter."
)


@options.verb(
    "liqoctl info",
    "liqoctl info -o yaml",
    "liqoctl info --get clusterid",
    "liqoctl info --exit-code > /dev/null",
    "liqoctl info peer milan",
    invoke_without_command=True,
)
@options.TEXT_OUTPUT
@GET
@EXIT_CODE
@options.global_flags
@click.pass_context
def info(context: click.Context, /, session: Session, **given: Any) -> None:
    """Show what is installed, whether it works, and which peers there are.

    Reads only.
    """
    if context.invoked_subcommand is None:
        clusters.run(session, functools.partial(_installation, **given))


async def _installation(side: Side, **given: Any) -> None:
    told = await installation(side.cluster, side.session.liqo_namespace)
    _show(told, forge.lines_of_installation(told), forge.pick, **given)


@info.command(
    "peer",
    "liqoctl info peer",
    "liqoctl info peer milan turin -o json",
    "liqoctl info peer milan --get offloading.status",
)
@clusters.named("names", keys.FOREIGN_CLUSTER, metavar="[CLUSTER_ID]...", nargs=-1)
@options.TEXT_OUTPUT
@GET
@EXIT_CODE
@clusters.on_cluster()
async def info_peer(side: Side, names: tuple[str, ...], **given: Any) -> None:
    """Show the state of peers: authentication, slices, virtual nodes, and what is wrong.

    Reads only. Without a name all peers are shown.
    """
    told = await peers(side.cluster, names)
    _show(told, forge.lines(told) or ["no peers"], forge.pick_of_peers, **given)


def _show(  # noqa: PLR0913  # what to show, and each flag
    told: Object, lines: list[str], pick: forge.Pick,
    *, form: str, path: str | None, exit_code: bool,
) -> None:  # fmt: skip
    if path is None:
        show(told, lines, form)
    else:
        show_field(pick, told, path, form)
    click.get_current_context().exit(int(exit_code and not forge.is_well(told)))


async def installation(cluster: "ClusterClient", namespace: str) -> Object:
    """Return what there is of pyliqo in the cluster.

    Raises:
        click.ClickException: it is not installed.
    """
    controllers = Key(namespace, keys.CONTROLLER_MANAGER)
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
        output.dump([told], form)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        text = Text(line)
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
        output.echo(output.plain(value))
    else:
        output.dump([value], "yaml" if form == "text" else form)
