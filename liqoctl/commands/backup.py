"""``liqoctl backup`` and ``liqoctl bundle``."""

from pathlib import Path

import click

from liqoctl import lazy, options
from liqoctl.lazy import Side

EXAMPLES = options.examples("liqoctl backup > backup.yaml", "liqoctl backup --key > key.yaml")


@options.command(epilog=EXAMPLES)
@options.switch(
    "--key",
    "is_key",
    help="Print nothing but the Secret with the private key by which peers know this cluster.",
)
@options.on_cluster()
async def backup(side: Side, *, is_key: bool) -> None:
    """Print what a new cluster needs to take the place of this one, for kubectl apply.

    Reads only. These are the VkOptionsTemplates, the ProviderPolicies, and the namespaces with
    their NamespaceOffloadings; `liqoctl get values` prints the settings. docs/backup.md tells in
    which order they are applied.
    """
    await lazy.clusters.check_installed(side)
    read = lazy.backup.key_pair if is_key else lazy.backup.user_objects
    lazy.output.dump(await read(side.cluster), "yaml")


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
@options.on_cluster()
async def bundle(side: Side, path: Path) -> None:
    """Write an archive with what a maintainer needs to help: objects, events, logs, versions.

    Reads only. Secrets are not read; certificates, tokens, environments and annotations are left
    out of all else.
    """
    await lazy.clusters.check_installed(side)
    await lazy.backup.write_bundle(side, path)
