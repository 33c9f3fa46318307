"""``liqoctl info`` and ``liqoctl info peer``."""

from collections.abc import Callable
from typing import Any

import click

from apis.objects import Object
from liqoctl import lazy, options
from liqoctl.forge import info as forge
from liqoctl.lazy import Client, Progress
from liqoctl.options import Session

PEER_EXAMPLES = options.examples(
    "liqoctl info peer",
    "liqoctl info peer milan turin -o json",
    "liqoctl info peer milan --get offloading.status",
)
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
def info(
    context: click.Context, session: Session, output: str, path: str | None, *, exit_code: bool
) -> None:
    """Show what is installed, whether it works, and which peers there are.

    Reads only.
    """
    if context.invoked_subcommand is not None:
        return

    told: Object = {}

    async def work(cluster: Client, _progress: Progress) -> None:
        told.update(await lazy.info.installation(cluster, session.liqo_namespace))
        if path is None:
            lazy.info.show(told, forge.lines_of_installation(told), output)
        else:
            lazy.info.show_field(_picked(forge.pick, told, path), output)

    lazy.clusters.run(session, work)
    _end(context, told, exit_code=exit_code)


@info.command("peer", epilog=PEER_EXAMPLES)
@click.argument(
    "names",
    metavar="[CLUSTER_ID]...",
    nargs=-1,
    type=options.CLUSTER_ID,
    shell_complete=options.names_of("cluster"),
)
@options.TEXT_OUTPUT
@GET
@EXIT_CODE
@options.global_flags
@click.pass_context
def info_peer(  # noqa: PLR0913  # one argument a flag
    context: click.Context,
    names: tuple[str, ...],
    session: Session,
    output: str,
    path: str | None,
    *,
    exit_code: bool,
) -> None:
    """Show the state of peers: authentication, slices, virtual nodes, and what is wrong.

    Reads only. Without a name all peers are shown.
    """
    told: Object = {}

    async def work(cluster: Client, _progress: Progress) -> None:
        told.update(await lazy.info.peers(cluster, names))
        if path is None:
            lazy.info.show(told, forge.lines(told) or ["no peers"], output)
        else:
            lazy.info.show_field(_picked(forge.pick_of_peers, told, path), output)

    lazy.clusters.run(session, work)
    _end(context, told, exit_code=exit_code)


def _picked(pick: Callable[[Object, str], Any], told: Object, path: str) -> Any:
    try:
        return pick(told, path)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _end(context: click.Context, told: Object, *, exit_code: bool) -> None:
    context.exit(int(exit_code and not forge.is_well(told)))
