"""``liqoctl info`` and ``liqoctl info peer``."""

import click

from liqoctl import late, options
from liqoctl.options import Session

PEER_EXAMPLES = options.examples(
    "liqoctl info peer",
    "liqoctl info peer milan turin -o json",
    "liqoctl info peer milan --get offloading.status",
)
EXIT_CODE = options.switch("--exit-code", help="Exit with 1 if something is amiss.")
GET = click.option("--get", "path", metavar="a.b.c", help="Only this field, whatever its case.")


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

    _end(context, is_well=late.cli.info(session, path=path, output=output), exit_code=exit_code)


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
    """Show how it stands with peers: authentication, slices, virtual nodes, and what is amiss.

    Reads only. Without a name all peers are shown.
    """
    is_well = late.cli.info_peer(session, names, path=path, output=output)
    _end(context, is_well=is_well, exit_code=exit_code)


def _end(context: click.Context, *, is_well: bool, exit_code: bool) -> None:
    context.exit(int(exit_code and not is_well))
