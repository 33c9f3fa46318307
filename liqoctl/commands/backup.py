"""``liqoctl backup`` and ``liqoctl bundle``."""

import importlib.metadata
from pathlib import Path

import click

from liqoctl import lazy, options
from liqoctl.lazy import Client, Progress
from liqoctl.options import Session

EXAMPLES = options.examples("liqoctl backup > backup.yaml", "liqoctl backup --key > key.yaml")


@options.command(epilog=EXAMPLES)
@options.switch(
    "--key",
    "is_key",
    help="Print nothing but the Secret with the private key by which peers know this cluster.",
)
@options.global_flags
def backup(session: Session, *, is_key: bool) -> None:
    """Print what a new cluster needs to take the place of this one, for kubectl apply.

    Reads only. These are the VkOptionsTemplates, the ProviderPolicies, and the namespaces with
    their NamespaceOffloadings; `liqoctl get values` prints the settings. docs/backup.md tells in
    which order they are applied.
    """

    async def work(cluster: Client, _progress: Progress) -> None:
        await lazy.clusters.check_installed(cluster, session)
        read = lazy.backup.key_pair if is_key else lazy.backup.user_objects
        lazy.output.dump(await read(cluster), "yaml")

    lazy.clusters.run(session, work)


# ``liqoctl bundle`` -------------------------------------------------------------------------------

BUNDLE_EXAMPLES = options.examples(
    "liqoctl bundle", "liqoctl bundle --file for-the-maintainers.tar.gz"
)


@options.command(epilog=BUNDLE_EXAMPLES)
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
        await lazy.clusters.check_installed(cluster, session)
        await lazy.backup.write_bundle(cluster, progress, path, version)

    lazy.clusters.run(session, work)
