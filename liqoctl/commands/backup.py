"""``liqoctl backup``."""

from liqoctl import late, options
from liqoctl.late import Client, Progress
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
        await late.session.check_installed(cluster, session)
        read = late.backup.key_pair if is_key else late.backup.words
        late.output.dump(await read(cluster), "yaml")

    late.session.run(session, work)
