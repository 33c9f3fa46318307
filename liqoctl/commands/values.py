"""``liqoctl get values``."""

import click

from liqoctl import lazy, options
from liqoctl.lazy import Client, Progress
from liqoctl.options import Session, get

EXAMPLES = options.examples("liqoctl get values", "liqoctl get values > values.yaml")


@get.command("values", epilog=EXAMPLES)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="How to print it.",
)
@options.global_flags
def get_values(session: Session, output: str) -> None:
    """Show the settings that the installation keeps, as `install --values` reads them.

    Reads only. docs/values.md lists all settings.
    """

    async def work(cluster: Client, _progress: Progress) -> None:
        await lazy.clusters.check_installed(cluster, session)
        lazy.output.dump([await lazy.installation.kept(cluster)], output)

    lazy.clusters.run(session, work)
