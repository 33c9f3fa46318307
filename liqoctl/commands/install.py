"""``liqoctl install``, ``uninstall``, ``version`` and ``get values``."""

import functools
import importlib.metadata
from typing import Any, TextIO

import click

from apis import keys
from liqoctl import lazy, options
from liqoctl.forge import values
from liqoctl.forge.manifests import IMAGE, InstallOptions, check_cluster_id
from liqoctl.lazy import Side
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
@options.pairs(
    "--cluster-labels",
    "Labels that consumers are told to put on the nodes that stand for this cluster.",
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
@options.timeout("5m")
@click.option(
    "--dry-run",
    type=click.Choice(["server"]),
    help="Have the API server check everything, print what would change, and store nothing.",
)
@options.OUTPUT
@options.global_flags
def install(
    session: Session, timeout: float, output: str | None, dry_run: str | None, **given: Any
) -> None:
    """Install pyliqo in a cluster, or bring it up to date; both are repeatable.

    What a flag leaves out stays as it is, settings of --values too. The manifests are this
    program's own.
    """
    _check_namespace(session)
    if given["cluster_id"]:
        try:
            check_cluster_id(given["cluster_id"])
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--cluster-id") from error
    flags = ("files", "api_server_url", "api_server_ca")
    said = _values(*(given.pop(flag) for flag in flags))
    wanted = InstallOptions(metadata=session.metadata, values=said, **given)
    default = f"{IMAGE}:{importlib.metadata.version('pyliqo')}"
    if output:  # that needs no cluster
        _, manifests = lazy.install.rendered(wanted, default)
        lazy.output.dump(manifests, output)
        return
    do = lazy.install.rehearse if dry_run else lazy.install.install_within
    work = functools.partial(do, wanted=wanted, default_image=default, timeout_s=timeout)
    lazy.clusters.run(session, work, needs_install=False)


def _values(files: tuple[dict[str, Any], ...], url: str, ca: TextIO | None) -> dict[str, Any]:
    """Return the settings that the flags say, the last word on each."""
    server = {"url": url, "ca": ca.read(options.MOST_OF_A_FILE) if ca else ""}
    flagged = {name: text for name, text in server.items() if text}
    said = functools.reduce(values.merged, (*files, {"apiServer": flagged} if flagged else {}))
    try:
        values.parsed(values.merged({}, said))
    except ValueError as error:
        given = {"--values": files, "--api-server-url": url, "--api-server-ca": ca}
        hint = ", ".join(flag for flag, value in given.items() if value)
        raise click.BadParameter(str(error), param_hint=hint) from error
    return said


@options.command(epilog=UNINSTALL_EXAMPLES)
@options.timeout("5m")
@options.global_flags
def uninstall(session: Session, timeout: float) -> None:
    """Remove pyliqo from a cluster, its kinds and settings included.

    It is refused while namespaces are offloaded or there are peers.
    """
    _check_namespace(session)
    work = functools.partial(lazy.uninstall.uninstall, timeout_s=timeout)
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
@options.on_cluster()
async def get_values(side: Side, output: str) -> None:
    """Show the settings that the installation keeps, as `install --values` reads them.

    Reads only. docs/values.md lists all settings.
    """
    await lazy.clusters.check_installed(side)
    lazy.output.dump([await lazy.install.kept(side.cluster)], output)


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
    if not client:
        work = functools.partial(lazy.install.show_versions, own=own, form=output)
        lazy.clusters.run(session, work, needs_install=False)
    elif output != "text":
        lazy.output.dump([{"clientVersion": own}], output)
