"""``liqoctl backup``."""

from liqoctl import lazy, options
from liqoctl.lazy import Client, Progress
from liqoctl.sessions import Session

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
        await lazy.session.check_installed(cluster, session)
        read = lazy.backup.key_pair if is_key else lazy.backup.words
        lazy.output.dump(await read(cluster), "yaml")

    lazy.session.run(session, work)
