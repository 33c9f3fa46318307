"""``liqoctl offload``, ``liqoctl unoffload`` and ``liqoctl get reflections``."""

from typing import Any

import click

from liqoctl import lazy, options
from liqoctl.forge import offloading as forge
from liqoctl.lazy import Side
from liqoctl.options import Session, get

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
@options.timeout("20s")
@options.OUTPUT
@options.global_flags
def offload_namespace(
    session: Session,
    names: tuple[str, ...],
    ns_selector: str | None,
    timeout: float,
    output: str | None,
    **given: Any,
) -> None:
    """Offload namespaces: pods in them may run on other clusters.

    Makes or updates the NamespaceOffloading of each and waits until the namespaces on the selected
    clusters are there. Of one that exists it changes only what the flags name.
    """
    is_dry = given.pop("dry_run")
    wanted = forge.OffloadOptions(metadata=session.metadata, **given)
    _check(names, ns_selector)
    if wanted.mapping == "SelectedName" and not wanted.remote_name:
        raise click.UsageError("SelectedName needs --remote-namespace-name")
    try:
        made = [forge.manifest(name, wanted) for name in dict.fromkeys(names) or ("any",)]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--selector") from error
    if wanted.remote_name and not wanted.chosen_name:
        lazy.output.Progress().warning(forge.NAME_IGNORED)

    async def work(side: Side) -> None:
        found = await lazy.offload.namespaces(side.cluster, names, ns_selector)
        made = [forge.manifest(name, wanted) for name in found]
        if is_dry:
            await lazy.reflections.show_dry_run(side, made)
        elif output:
            lazy.output.dump(made, output)
        else:
            await lazy.offload.offload(side, made, wanted.fields(), timeout)

    if output and not is_dry and ns_selector is None:  # by names alone that needs no cluster
        lazy.output.dump(made, output)
    else:
        lazy.clusters.run(session, work)


def _check(names: tuple[str, ...], ns_selector: str | None) -> None:
    if not names and ns_selector is None:
        raise click.UsageError("name a namespace, or give --ns-selector")


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
    session: Session, names: tuple[str, ...], ns_selector: str | None, **given: Any
) -> None:
    """Take namespaces back: their twins on other clusters go, with everything in them.

    Pods that ran there end, and their owners replace them here. Says what goes and asks first.
    """
    _check(names, ns_selector)

    async def work(side: Side) -> None:
        await lazy.clusters.check_installed(side)
        found = await lazy.offload.namespaces(side.cluster, names, ns_selector)
        await lazy.offload.unoffload(side, found, given["timeout"], is_dry=given["dry_run"])

    lazy.clusters.run(session, work)


REFLECTIONS_EXAMPLES = options.examples(
    "liqoctl get reflections -n shop", "liqoctl get reflections -n shop -o json"
)


@get.command("reflections", epilog=REFLECTIONS_EXAMPLES)
@options.TEXT_OUTPUT
@options.on_cluster()
async def get_reflections(side: Side, output: str) -> None:
    """Show which objects of a namespace are reflected where, and why others are not.

    Reads only. EndpointSlices go as their Services, claims with their first pod.
    """
    found = await lazy.reflections.reflected(side.cluster, side.session.namespace or "default")
    if output == "text":
        lazy.reflections.show(found)
    else:
        lazy.output.dump([lazy.reflections.told(found)], output)
