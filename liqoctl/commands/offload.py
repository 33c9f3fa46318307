"""``liqoctl offload`` and ``liqoctl unoffload``."""

import functools
from collections.abc import Iterable

import click

from apis.objects import Object
from liqoctl import lazy, options
from liqoctl.forge import offloading as forge
from liqoctl.lazy import Client, Progress
from liqoctl.options import Session

_NAMES = click.argument(
    "names",
    metavar="NAME...",
    nargs=-1,
    type=options.NAMESPACE,
    shell_complete=options.names_of("namespace"),
)


@options.verb("liqoctl offload namespace foo")
def offload() -> None:
    """Let namespaces extend over other clusters."""


@options.verb("liqoctl unoffload namespace foo --dry-run")
def unoffload() -> None:
    """Take offloaded namespaces back."""


OFFLOAD_EXAMPLES = options.examples(
    "liqoctl offload namespace foo",
    "liqoctl offload namespace foo bar --pod-offloading-strategy Remote",
    "liqoctl offload namespace foo --namespace-mapping-strategy EnforceSameName",
    "liqoctl offload namespace foo -l 'region in (europe,us-west), !staging'",
    "liqoctl offload ns --ns-selector team=web --timeout 1m",
    "liqoctl offload namespace foo --reflection-policy Referenced --dry-run",
    "liqoctl offload namespace foo -o yaml > offloading.yaml",
)


@offload.command("namespace", epilog=OFFLOAD_EXAMPLES)
@_NAMES
@click.option(
    "--namespace-mapping-strategy",
    "mapping",
    type=click.Choice(forge.MAPPING_STRATEGIES),
    help="How the namespaces on the other clusters are called: NAME-<this cluster's ID>, NAME, "
    "or as --remote-namespace-name says.  [default: DefaultName]",
)
@click.option(
    "--pod-offloading-strategy",
    "pods",
    type=click.Choice(forge.POD_STRATEGIES),
    help="Where pods may run.  [default: LocalAndRemote]",
)
@click.option(
    "--remote-namespace-name",
    "remote_name",
    default="",
    help="Name on the other clusters, with --namespace-mapping-strategy SelectedName.",
)
@click.option(
    "-l",
    "--selector",
    "selectors",
    multiple=True,
    help="Select clusters by the labels of their virtual nodes. May be repeated: a cluster that "
    "matches one of them is selected.  [default: every cluster]",
)
@click.option(
    "--reflection-policy",
    "reflection",
    type=click.Choice(forge.REFLECTION_POLICIES),
    help="Of ConfigMaps and Secrets go all but those that are excluded (DenyList), those that are "
    "allowed (AllowList), or those that offloaded pods mention (Referenced).  "
    "[default: as the virtual nodes say]",
)
@click.option("--ns-selector", help="Offload the namespaces with these labels too.")
@options.switch("--dry-run", help="Only print what would be reflected where.")
@click.option(
    "--timeout", type=options.Duration(), default="20s", show_default=True, help="How long to wait."
)
@options.OUTPUT
@options.global_flags
def offload_namespace(
    names: tuple[str, ...],
    ns_selector: str | None,
    timeout: float,
    output: str | None,
    session: Session,
    **given: object,
) -> None:
    """Offload namespaces: pods in them may run on other clusters.

    Makes or updates the NamespaceOffloading of each and waits until the namespaces on the selected
    clusters are there. Of one that exists it changes only what the flags name.
    """
    is_dry = bool(given.pop("dry_run"))
    wanted = forge.OffloadOptions(metadata=session.metadata, **given)  # type: ignore[arg-type]  # click's
    _check(names, ns_selector, wanted)

    chosen = lazy.offload.Chosen(names, ns_selector)
    if wanted.remote_name and not wanted.chosen_name:
        lazy.output.Progress().warning(forge.NAME_IGNORED)

    async def work(cluster: Client, progress: Progress) -> None:
        made = _manifests(await lazy.offload.namespaces(cluster, chosen), wanted)
        if is_dry:
            await _would_reflect(cluster, progress, made)
        elif output:
            lazy.output.dump(made, output)
        else:
            fields = wanted.fields()
            await lazy.offload.offload(cluster, progress, made, fields=fields, timeout_s=timeout)

    if output and not is_dry and ns_selector is None:  # by names alone that needs no cluster
        lazy.output.dump(_manifests(names, wanted), output)
    else:
        lazy.clusters.run(session, work)


def _manifests(names: Iterable[str], wanted: forge.OffloadOptions) -> list[Object]:
    return [forge.manifest(name, wanted) for name in dict.fromkeys(names)]


async def _would_reflect(cluster: Client, progress: Progress, made: Iterable[Object]) -> None:
    """Print what would be reflected of the namespaces of those NamespaceOffloadings."""
    for manifest in made:
        name = manifest["metadata"]["namespace"]
        progress.info(f"namespace {name}: would be reflected, nothing is changed")
        lazy.reflections.show(await lazy.reflections.would_be(cluster, manifest))


def _check(names: tuple[str, ...], ns_selector: str | None, wanted: forge.OffloadOptions) -> None:
    if not names and ns_selector is None:
        raise click.UsageError("name a namespace, or give --ns-selector")
    if wanted.mapping == "SelectedName" and not wanted.remote_name:
        raise click.UsageError("SelectedName needs --remote-namespace-name")
    try:
        forge.manifest("any", wanted)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--selector") from error


UNOFFLOAD_EXAMPLES = options.examples(
    "liqoctl unoffload namespace foo --dry-run",
    "liqoctl unoffload namespace foo",
    "liqoctl unoffload ns foo bar --skip-confirm --timeout 5m",
)


@unoffload.command("namespace", epilog=UNOFFLOAD_EXAMPLES)
@_NAMES
@click.option("--ns-selector", help="Take back the namespaces with these labels too.")
@options.switch("--dry-run", help="Only print what would be destroyed.")
@options.STANDSTILL
@options.global_flags
def unoffload_namespace(
    names: tuple[str, ...],
    ns_selector: str | None,
    dry_run: bool,  # noqa: FBT001  # click passes it by name
    timeout: float,
    session: Session,
) -> None:
    """Take namespaces back: their twins on other clusters go, with everything in them.

    Pods that ran there end, and their owners replace them here. Says what goes and asks first.
    """
    if not names and ns_selector is None:
        raise click.UsageError("name a namespace, or give --ns-selector")

    confirm = functools.partial(options.confirm, session)
    removal = lazy.offload.OffloadingRemoval(dry_run=dry_run, confirm=confirm, timeout_s=timeout)

    async def work(cluster: Client, progress: Progress) -> None:
        await lazy.clusters.check_installed(cluster, session)
        chosen = lazy.offload.Chosen(names, ns_selector)
        found = await lazy.offload.namespaces(cluster, chosen)
        await lazy.offload.unoffload(cluster, progress, found, removal)

    lazy.clusters.run(session, work)
