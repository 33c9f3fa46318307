"""``liqoctl version``."""

import importlib.metadata

import click

from liqoctl import late, options
from liqoctl.options import Session

EXAMPLES = options.examples(
    "liqoctl version", "liqoctl version --client", "liqoctl version -o json"
)


@options.command(epilog=EXAMPLES)
@options.switch("--client", help="Only this program, not the cluster.")
@options.TEXT_OUTPUT
@options.global_flags
def version(session: Session, *, client: bool, output: str) -> None:
    """Print versions: of this program, and of what is installed in the cluster."""
    own = importlib.metadata.version("pyliqo")
    if output == "text":
        click.echo(f"Client version: {own}")
    if client and output == "text":
        return

    late.cli.versions(session, own, output=output, is_client=client)
