"""``liqoctl version``."""

import importlib.metadata

import click

from apis.objects import Object
from liqoctl import lazy, options
from liqoctl.lazy import Client, Progress
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

    told: Object = {"clientVersion": own}

    async def work(cluster: Client, _progress: Progress) -> None:
        if output == "text":
            await lazy.versions.tell(cluster, session.namespace)
        else:
            told.update(await lazy.versions.of_server(cluster, session.namespace))

    if not client:
        lazy.clusters.run(session, work, needs_install=False)
    if output != "text":
        lazy.output.dump([told], output)
