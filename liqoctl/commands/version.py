"""``liqoctl version``."""

import importlib.metadata

import click

from liqoctl import options
from liqoctl.options import Session

EXAMPLES = options.examples("liqoctl version", "liqoctl version --client")


@click.command(epilog=EXAMPLES)
@click.option("--client", "only_client", is_flag=True, help="Only this program, not the cluster.")
@options.global_flags
def version(only_client: bool, session: Session) -> None:  # noqa: FBT001  # click passes it by name
    """Print versions: of this program, and of what is installed in the cluster."""
    click.echo(f"Client version: {importlib.metadata.version('pyliqo')}")
    if not only_client:
        from liqoctl.work import cli  # noqa: PLC0415  # the client is slow to import, and TAB waits

        cli.server_version(session)
