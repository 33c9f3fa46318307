"""``liqoctl bundle``."""

import importlib.metadata
from pathlib import Path

import click

from liqoctl import lazy, options
from liqoctl.lazy import Client, Progress
from liqoctl.sessions import Session

EXAMPLES = options.examples("liqoctl bundle", "liqoctl bundle --file for-the-maintainers.tar.gz")


@options.command(epilog=EXAMPLES)
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default="pyliqo-bundle.tar.gz",
    show_default=True,
    help="Where to write the archive; an older one is replaced.",
)
@options.global_flags
def bundle(session: Session, path: Path) -> None:
    """Write an archive with what a maintainer needs to help: objects, events, logs, versions.

    Reads only. Secrets are not read; certificates, tokens, environments and annotations are left
    out of all else.
    """
    version = importlib.metadata.version("pyliqo")

    async def work(cluster: Client, progress: Progress) -> None:
        await lazy.session.check_installed(cluster, session)
        await lazy.bundle.write(cluster, progress, path, version)

    lazy.session.run(session, work)
