"""``liqoctl install``, ``uninstall``, ``version`` and ``get values``."""

import asyncio
import functools
import importlib.metadata
from dataclasses import replace
from typing import Any, TextIO

import click

from apis import keys
from apis.objects import Object
from liqoctl import lazy, options
from liqoctl.forge import manifests as forge
from liqoctl.forge import values
from liqoctl.lazy import Client, Progress
from liqoctl.options import Session, get

INSTALL_EXAMPLES = options.examples(
    "liqoctl install --cluster-id rome",
    "liqoctl install --cluster-id milan --image registry.example/pyliqo:0.1.0",
    "liqoctl install --cluster-id milan --cluster-labels region=europe --sharing-percentage 70",
    "liqoctl install --cluster-id rome --values values.yaml",
    "liqoctl install --cluster-id rome --api-server-url https://rome.example:443",
    "liqoctl install --values values.yaml --dry-run=server",
    "liqoctl install --cluster-id rome -o yaml | kubectl apply --server-side -f -",
)
UNINSTALL_EXAMPLES = options.examples("liqoctl uninstall", "liqoctl uninstall --skip-confirm")


@options.command(epilog=INSTALL_EXAMPLES)
@click.option(
    "--cluster-id",
    default="",
    help="Name of this cluster among its peers.  [default: what the About API says, else a "
    "name made of the UID of kube-system]",
)
@click.option(
    "--image",
    default="",
    envvar="PYLIQO_IMAGE",
    show_envvar=True,
    help="Image of all processes.  [default: the one installed, else pyliqo:VERSION]",
)
@click.option(
    "--cluster-labels",
    type=options.KeyValues(),
    multiple=True,
    help="Labels that consumers are told to put on the nodes that stand for this cluster.",
)
@click.option(
    "--sharing-percentage",
    type=click.IntRange(0, 100),
    help="Percent of what is free that consumers get, also by slice class default.  [default: "
    "class default gives 4 CPUs, 8Gi and 110 pods, class shared 90]",
)
@options.switch(
    "--enable-resource-enforcement",
    default=None,
    help="Keep consumers to what their slices were granted.  [default: as installed, else yes]",
)
@click.option(
    "--values",
    "-f",
    "files",
    type=options.SetValues(),
    multiple=True,
    help="YAML file with settings that the installation keeps (docs/values.md); - reads stdin. May "
    "be repeated: the last one wins, over those kept too.",
)
@click.option(
    "--api-server-url",
    default="",
    help="https:// URL at which peers reach this cluster's API server; it is kept.  [default: the "
    "address of a control-plane node, port 6443]",
)
@click.option(
    "--api-server-ca",
    type=click.File(),
    help="PEM file of who signs the API server's certificate; it is kept.  [default: the authority "
    "that pods of the cluster are given]",
)
@click.option(
    "--timeout", type=options.Duration(), default="5m", show_default=True, help="How long to wait."
)
@click.option(
    "--dry-run",
    type=click.Choice(["server"]),
    help="Have the API server check everything, print what would change, and store nothing.",
)
@options.OUTPUT
@options.global_flags
def install(  # each a flag
    session: Session,
    timeout: float,
    output: str | None,
    dry_run: str | None,
    *,
    enable_resource_enforcement: bool | None,
    **given: Any,
) -> None:
    """Install pyliqo in a cluster, or bring it up to date; both are repeatable.

    What a flag leaves out stays as it is, settings of --values too. The manifests are this
    program's own.
    """
    _check_namespace(session)
    wanted = replace(_wanted(session, **given), is_enforced=enable_resource_enforcement)

    default = f"{forge.IMAGE}:{importlib.metadata.version('pyliqo')}"

    async def rehearse(cluster: Client, _progress: Progress) -> None:
        async with asyncio.timeout(timeout):
            lines = await lazy.install.rehearse(cluster, wanted, default_image=default)
        for line in lines:
            lazy.output.echo(line)

    async def work(cluster: Client, progress: Progress) -> None:
        try:
            async with asyncio.timeout(timeout):
                await lazy.install.install(cluster, progress, wanted, default_image=default)
        except TimeoutError:
            why_not = await lazy.install.obstacles(cluster)
            message = f"pyliqo is not available after {timeout:g}s: {why_not}"
            raise click.ClickException(message) from None

    if output:  # that needs no cluster
        _, manifests = lazy.install.rendered(wanted, default)
        lazy.output.dump(manifests, output)
    else:
        lazy.clusters.run(session, rehearse if dry_run else work, needs_install=False)


def _wanted(  # noqa: PLR0913  # one argument a flag
    session: Session,
    *,
    cluster_id: str,
    image: str,
    cluster_labels: tuple[dict[str, str], ...],
    sharing_percentage: int | None,
    files: tuple[dict[str, Any], ...],
    api_server_url: str,
    api_server_ca: TextIO | None,
) -> forge.InstallOptions:
    if cluster_id:
        try:
            forge.check_cluster_id(cluster_id)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--cluster-id") from error
    server = {
        "url": api_server_url,
        "ca": api_server_ca.read(options.MOST_OF_A_FILE) if api_server_ca else "",
    }
    flagged = {name: text for name, text in server.items() if text}
    last = {"apiServer": flagged} if flagged else {}
    said = functools.reduce(values.merged, (*files, last))
    try:
        values.parsed(values.merged({}, said))
    except ValueError as error:
        given = {
            "--values": files,
            "--api-server-url": api_server_url,
            "--api-server-ca": api_server_ca,
        }
        hint = ", ".join(flag for flag, value in given.items() if value)
        raise click.BadParameter(str(error), param_hint=hint) from error
    return forge.InstallOptions(
        cluster_id=cluster_id,
        image=image,
        node_labels=options.merged_pairs(cluster_labels),
        sharing_percentage=sharing_percentage,
        metadata=session.metadata,
        values=said,
    )


@options.command(epilog=UNINSTALL_EXAMPLES)
@click.option(
    "--timeout", type=options.Duration(), default="5m", show_default=True, help="How long to wait."
)
@options.global_flags
def uninstall(session: Session, timeout: float) -> None:
    """Remove pyliqo from a cluster, its kinds and settings included.

    It is refused while namespaces are offloaded or there are peers.
    """
    _check_namespace(session)

    confirm = functools.partial(options.confirm, session)

    async def work(cluster: Client, progress: Progress) -> None:
        try:
            async with asyncio.timeout(timeout):
                await lazy.uninstall.uninstall(
                    cluster, progress, lazy.uninstall.UninstallOptions(confirm)
                )
        except TimeoutError:
            message = f"not all is gone after {timeout:g}s: run the same command again"
            raise click.ClickException(message) from None

    lazy.clusters.run(session, work, needs_install=False)


def _check_namespace(session: Session) -> None:
    if session.namespace not in {"", keys.LIQO_NAMESPACE}:
        raise click.UsageError(f"pyliqo is installed in namespace {keys.LIQO_NAMESPACE}: omit -n")


# ``liqoctl get values`` ---------------------------------------------------------------------------

VALUES_EXAMPLES = options.examples("liqoctl get values", "liqoctl get values > values.yaml")


@get.command("values", epilog=VALUES_EXAMPLES)
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
        lazy.output.dump([await lazy.install.kept(cluster)], output)

    lazy.clusters.run(session, work)


# ``liqoctl version`` ------------------------------------------------------------------------------

VERSION_EXAMPLES = options.examples(
    "liqoctl version", "liqoctl version --client", "liqoctl version -o json"
)


@options.command(epilog=VERSION_EXAMPLES)
@options.switch("--client", help="Only this program, not the cluster.")
@options.TEXT_OUTPUT
@options.global_flags
def version(session: Session, *, client: bool, output: str) -> None:
    """Print versions: of this program, and of what is installed in the cluster."""
    own = importlib.metadata.version("pyliqo")
    if output == "text":
        click.echo(f"Client version: {own}")  # noqa: TID251  # its own words
    if client and output == "text":
        return

    told: Object = {"clientVersion": own}

    async def work(cluster: Client, _progress: Progress) -> None:
        if output == "text":
            await lazy.install.show_versions(cluster, session.namespace)
        else:
            told.update(await lazy.install.server_versions(cluster, session.namespace))

    if not client:
        lazy.clusters.run(session, work, needs_install=False)
    if output != "text":
        lazy.output.dump([told], output)
