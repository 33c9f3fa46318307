"""``liqoctl version``."""

import importlib.metadata

import click

from liqoctl import options
from liqoctl.options import Session

EXAMPLES = options.examples("liqoctl version", "liqoctl version --client")


@options.command(epilog=EXAMPLES)
@options.switch("--client", help="Only this program, not the cluster.")
@options.global_flags
def version(session: Session, *, client: bool) -> None:
    """Print versions: of this program, and of what is installed in the cluster."""
    click.echo(f"Client version: {importlib.metadata.version('pyliqo')}")
    if not client:
        from liqoctl.work import cli  # noqa: PLC0415  # the client is slow to import, and TAB waits

        cli.server_version(session)
