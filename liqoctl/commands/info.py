"""``liqoctl info`` and ``liqoctl info peer``."""

import click

from liqoctl import options
from liqoctl.options import Session

PEER_EXAMPLES = options.examples(
    "liqoctl info peer",
    "liqoctl info peer milan turin -o json",
    "liqoctl info peer milan --get offloading.status",
)
GET = click.option("--get", "path", metavar="a.b.c", help="Only this field, whatever its case.")


@options.verb(
    "liqoctl info",
    "liqoctl info -o yaml",
    "liqoctl info --get clusterid",
    "liqoctl info peer milan",
    invoke_without_command=True,
)
@options.TEXT_OUTPUT
@GET
@options.global_flags
@click.pass_context
def info(context: click.Context, session: Session, output: str, path: str | None) -> None:
    """Show what is installed, whether it works, and which peers there are.

    Reads only.
    """
    if context.invoked_subcommand is not None:
        return
    from liqoctl.work import cli  # noqa: PLC0415  # the client is slow to import, and TAB waits

    cli.info(session, path=path, output=output)


@info.command("peer", epilog=PEER_EXAMPLES)
@click.argument("names", metavar="[CLUSTER_ID]...", nargs=-1)
@options.TEXT_OUTPUT
@GET
@options.global_flags
def info_peer(names: tuple[str, ...], session: Session, output: str, path: str | None) -> None:
    """Show how it stands with peers: authentication, slices, virtual nodes, and what is amiss.

    Reads only. Without a name all peers are shown.
    """
    from liqoctl.work import cli  # noqa: PLC0415  # the client is slow to import, and TAB waits

    cli.info_peer(session, names, path=path, output=output)
