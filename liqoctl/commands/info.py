"""``liqoctl info`` and ``liqoctl info peer``."""

import functools
from typing import Any

import click

from apis.objects import Object
from liqoctl import lazy, options
from liqoctl.forge import info as forge
from liqoctl.lazy import Side
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
def info(context: click.Context, /, session: Session, **given: Any) -> None:
    """Show what is installed, whether it works, and which peers there are.

    Reads only.
    """
    if context.invoked_subcommand is None:
        lazy.clusters.run(session, functools.partial(_installation, **given))


async def _installation(side: Side, **given: Any) -> None:
    told = await lazy.info.installation(side.cluster, side.session.liqo_namespace)
    _show(told, forge.lines_of_installation(told), forge.pick, **given)


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
@options.on_cluster()
async def info_peer(side: Side, names: tuple[str, ...], **given: Any) -> None:
    """Show the state of peers: authentication, slices, virtual nodes, and what is wrong.

    Reads only. Without a name all peers are shown.
    """
    told = await lazy.info.peers(side.cluster, names)
    _show(told, forge.lines(told) or ["no peers"], forge.pick_of_peers, **given)


def _show(  # noqa: PLR0913  # what to show, and each flag
    told: Object, lines: list[str], pick: forge.Pick,
    *, output: str, path: str | None, exit_code: bool,
) -> None:  # fmt: skip
    if path is None:
        lazy.info.show(told, lines, output)
    else:
        lazy.info.show_field(pick, told, path, output)
    click.get_current_context().exit(int(exit_code and not forge.is_well(told)))
