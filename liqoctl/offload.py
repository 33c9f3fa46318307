"""``liqoctl offload`` and ``unoffload``: offloading namespaces, and taking it back.

Source: docs/parity.md § 7.2, 7.3.
"""

import asyncio
import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import click

from apis import keys, objects, reflectionpolicy
from apis.objects import Key, Object
from apis.offloading import is_scheduling_ours
from kube import errors
from kube.cluster import Cluster
from liqoctl import clusters, options, output, reflections
from liqoctl.clusters import Left, Side, listed
from liqoctl.forge import offloading as forge
from liqoctl.forge import whynamespace
from liqoctl.forge.offloading import OffloadOutcome
from liqoctl.options import Session
from liqoctl.output import Progress

_NAMES = clusters.named(
    "names", keys.NAMESPACE, metavar="NAME...", nargs=-1, type=options.NAMESPACE
)


@options.verb("liqoctl offload namespace foo", name="offload")
def offload_() -> None:
    """Let namespaces extend over other clusters."""


@options.verb("liqoctl unoffload namespace foo --dry-run", name="unoffload")
def unoffload_() -> None:
    """Take offloaded namespaces back."""


@offload_.command(
    "namespace",
    "liqoctl offload namespace foo",
    "liqoctl offload namespace foo bar --pod-offloading-strategy Remote",
    "liqoctl offload namespace foo --namespace-mapping-strategy EnforceSameName",
    "liqoctl offload namespace foo -l 'region in (europe,us-west), !staging'",
    "liqoctl offload ns --ns-selector team=web --timeout 1m",
    "liqoctl offload namespace foo --reflection-policy Referenced --dry-run",
    "liqoctl offload namespace foo -o yaml > offloading.yaml",
)
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
    timeout_s: float,
    form: str | None,
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
        Progress().warning(forge.NAME_IGNORED)

    async def work(side: Side) -> None:
        found = await namespaces(side.cluster, names, ns_selector)
        made = [forge.manifest(name, wanted) for name in found]
        if is_dry:
            await reflections.show_dry_run(side, made)
        elif form:
            output.dump(made, form)
        else:
            await offload(side, made, wanted.fields(), timeout_s)

    if form and not is_dry and ns_selector is None:  # by names alone that needs no cluster
        output.dump(made, form)
    else:
        clusters.run(session, work)


def _check(names: tuple[str, ...], ns_selector: str | None) -> None:
    if not names and ns_selector is None:
        raise click.UsageError("name a namespace, or give --ns-selector")


@unoffload_.command(
    "namespace",
    "liqoctl unoffload namespace foo --dry-run",
    "liqoctl unoffload namespace foo",
    "liqoctl unoffload ns foo bar --skip-confirm --timeout 5m",
)
@_NAMES
@click.option("--ns-selector", help="Take back the namespaces with these labels too.")
@options.switch("--dry-run", help="Only print what would be destroyed.")
@options.STANDSTILL
@options.global_flags
def unoffload_namespace(
    session: Session, names: tuple[str, ...], ns_selector: str | None, **given: Any
) -> None:
    """Take namespaces back: delete their remote namespaces with everything in them.

    Pods that ran there end, and their owners replace them here. It lists what goes and asks first.
    """
    _check(names, ns_selector)

    async def work(side: Side) -> None:
        await clusters.check_installed(side)
        found = await namespaces(side.cluster, names, ns_selector)
        await unoffload(side, found, given["timeout_s"], is_dry=given["dry_run"])

    clusters.run(session, work)


async def namespaces(cluster: Cluster, names: Sequence[str], selector: str | None) -> list[str]:
    """Return ``names``, then the namespaces with the labels of ``selector`` by name; each once."""
    found = [] if selector is None else await listed(cluster, keys.NAMESPACE, labels=selector)
    return list(dict.fromkeys([*names, *sorted(one["metadata"]["name"] for one in found)]))


async def offload(
    side: Side, wanted: Sequence[Object], fields: frozenset[str], timeout_s: float
) -> None:
    """Apply the NamespaceOffloadings ``wanted`` and wait until their namespaces are offloaded.

    Of one that exists only ``fields`` of the spec are changed.

    Raises:
        click.ClickException: some are not; the message says which, and why.
    """
    if not wanted:
        side.info("no namespaces selected: nothing to do")
        return
    with side.progress.waiting("the other clusters"):
        await _each(_offload(side, one, fields, timeout_s) for one in wanted)


async def _offload(side: Side, wanted: Object, fields: frozenset[str], timeout_s: float) -> None:
    cluster, key = side.cluster, objects.key_of(wanted)
    await _apply(side, wanted, fields)  # bounded by the client, and never cut half way
    try:
        async with asyncio.timeout(timeout_s):
            found = await clusters.reached(cluster, keys.NAMESPACE_OFFLOADING, key, _is_settled)
    except TimeoutError:
        found = await cluster.get_live(keys.NAMESPACE_OFFLOADING, key)
    _report(side, key.namespace, found, timeout_s)
    if found and forge.places_pods(found):
        here = await reflections.policies(cluster, key.namespace)
        if here:
            side.warning(f"namespace {key.namespace}: {reflectionpolicy.hold_here(here)}")


async def _apply(side: Side, wanted: Object, fields: frozenset[str]) -> None:
    cluster, key = side.cluster, objects.key_of(wanted)
    existing = await cluster.get_live(keys.NAMESPACE_OFFLOADING, key)
    if existing is None:
        try:
            await cluster.create(keys.NAMESPACE_OFFLOADING, wanted)
        except errors.NotFoundError as error:
            cure = f"create it first: kubectl create namespace {key.namespace}"
            message = f"namespace {key.namespace} does not exist: {cure}"
            raise click.ClickException(message) from error
        side.info(f"namespace {key.namespace}: offloading enabled")
        return
    changes = forge.changes(existing, wanted, fields)
    if forge.is_tightened(existing, changes):
        side.warning(f"namespace {key.namespace}: {forge.TIGHTENED}")
    if changes:
        await cluster.patch(keys.NAMESPACE_OFFLOADING, key, changes)
        side.info(f"namespace {key.namespace}: offloading updated")
    else:
        side.info(f"namespace {key.namespace}: offloading is as asked for already")


def _is_settled(found: Object | None) -> bool:
    return found is None or forge.outcome(found) is not OffloadOutcome.WAITING


def _report(side: Side, namespace: str, found: Object | None, timeout_s: float) -> None:
    if found is None:
        raise click.ClickException(f"namespace {namespace}: somebody removed its offloading")
    outcome = forge.outcome(found)
    if outcome is OffloadOutcome.READY:
        remote = str(objects.status(found).get("remoteNamespaceName") or "")
        side.info(f"namespace {namespace}: offloaded as {remote or 'its remote namespaces'}")
        if names := whynamespace.full_names(namespace, remote):
            side.info(f"namespace {namespace}: {names}")
        return
    if outcome is OffloadOutcome.NOTHING_SELECTED:
        is_remote = found["spec"].get("podOffloadingStrategy") == "Remote"
        told = f"its pods stay {'Pending' if is_remote else 'here'}"
        side.warning(f"namespace {namespace}: no cluster is selected: {told}")
        return
    waited = f" after {timeout_s:g}s" if outcome is OffloadOutcome.WAITING else ""
    details = "".join(f"; {line}" for line in forge.conditions(found))
    phase = forge.phase(found)
    message = f"namespace {namespace} is not offloaded{waited}: phase {phase}{details}"
    raise click.ClickException(message)


async def unoffload(
    side: Side, named: Sequence[str], timeout_s: float, *, is_dry: bool = False
) -> None:
    """Remove the NamespaceOffloadings of the namespaces ``named`` and wait until they are gone.

    For ``timeout_s`` nothing may change meanwhile.

    Raises:
        click.Abort: the user says no.
        click.ClickException: a namespace is not there, or its offloading does not go.
    """
    found = [await _existing(side, namespace) for namespace in named]
    offloadings = [one for one in found if one is not None]
    if not offloadings:
        side.info("no offloaded namespaces: nothing to do")
        return
    for offloading in offloadings:
        await _announce(side, offloading)
    if is_dry:
        side.info("dry run: nothing was removed")
        return
    if question := forge.question(offloadings):
        side.session.confirm(question)
    with side.progress.waiting("the other clusters"):
        await _each(_unoffload(side, one, timeout_s) for one in offloadings)


async def _existing(side: Side, namespace: str) -> Object | None:
    key = Key(namespace, keys.OFFLOADING_NAME)
    offloading = await side.cluster.get_live(keys.NAMESPACE_OFFLOADING, key)
    if offloading is None:
        if await side.cluster.get_live(keys.NAMESPACE, Key("", namespace)) is None:
            raise click.ClickException(f"namespace {namespace} does not exist")
        side.info(f"namespace {namespace}: not offloaded")
    return offloading


async def _announce(side: Side, offloading: Object) -> None:
    cluster, namespace = side.cluster, objects.key_of(offloading).namespace
    twins = forge.twins(offloading)
    for cluster_id, remote in twins:
        side.warning(f"namespace {remote} on {cluster_id} goes, with everything in it")
    if not twins:
        side.info(f"namespace {namespace}: no namespace on another cluster")
    if await _is_labelled_in_advance(cluster, namespace):
        told = f"the label {keys.SCHEDULING_ENABLED}, which was set in advance, goes, too"
        cure = "remove it from the manifest that sets it, or new pods are refused"
        side.info(f"namespace {namespace}: {told}: {cure}")
    for claim, cluster_id in await _lost_claims(cluster, offloading):
        kept = f"liqoctl move volume {claim} -n {namespace} --target-node NODE keeps it"
        side.warning(f"claim {claim}: its data on {cluster_id} goes: {kept}")
    pods = await _offloaded_pods(cluster, namespace)
    if pods:
        told = f"{len(pods)} offloaded pods end; owners replace them"
        side.warning(f"namespace {namespace}: {told}")


async def _is_labelled_in_advance(cluster: Cluster, namespace: str) -> bool:
    try:
        found = await cluster.get_live(keys.NAMESPACE, Key("", namespace))
    except errors.ForbiddenError:  # as with pods
        return False
    if found is None or is_scheduling_ours(found):
        return False
    return keys.SCHEDULING_ENABLED in objects.labels(found)


async def _lost_claims(cluster: Cluster, offloading: Object) -> list[tuple[str, str]]:
    namespace = objects.key_of(offloading).namespace
    kind, label = keys.PERSISTENT_VOLUME, keys.REMOTE_CLUSTER_ID
    try:
        claims = await listed(cluster, keys.PERSISTENT_VOLUME_CLAIM, namespace)
        volumes = await listed(cluster, kind, labels=label) if claims else []
    except errors.ForbiddenError:  # as with pods
        return []
    return forge.lost_claims(
        offloading, claims, {each["metadata"]["name"]: each for each in volumes}
    )


async def _offloaded_pods(cluster: Cluster, namespace: str) -> frozenset[str]:
    virtual = f"{keys.NODE_TYPE}={keys.VIRTUAL_NODE_TYPE}"
    try:
        nodes = await listed(cluster, keys.NODE, labels=virtual)
        pods = await listed(cluster, keys.POD, namespace)
    except errors.ForbiddenError:  # who may not look at pods or nodes may still unoffload
        return frozenset()
    names = {node["metadata"]["name"] for node in nodes}
    found = (pod for pod in pods if objects.spec(pod).get("nodeName") in names)
    return frozenset(map(objects.uid, found))


async def _left(cluster: Cluster, key: Key) -> Left:
    offloading = await cluster.get_live(keys.NAMESPACE_OFFLOADING, key)
    pods = await _offloaded_pods(cluster, key.namespace)
    conditions = objects.status(offloading).get("remoteNamespacesConditions")
    parts = (pods, json.dumps(conditions, sort_keys=True))
    return forge.left(key.namespace, len(pods), offloading), parts


async def _unoffload(side: Side, offloading: Object, timeout_s: float) -> None:
    cluster = side.cluster
    key, uid = objects.key_of(offloading), objects.uid(offloading)

    await cluster.delete(keys.NAMESPACE_OFFLOADING, key, uid=uid)
    try:
        look = functools.partial(_left, cluster, key)
        async with clusters.while_moving(side, timeout_s, look):
            await clusters.reached(cluster, keys.NAMESPACE_OFFLOADING, key, clusters.is_gone(uid))
    except TimeoutError:
        found = await cluster.get_live(keys.NAMESPACE_OFFLOADING, key)
        details = "".join(f"; {line}" for line in forge.conditions(found or {}))
        message = f"namespace {key.namespace} is still being unoffloaded"
        stuck = f"nothing has changed for {timeout_s:g}s"
        raise click.ClickException(f"{message}: {stuck}{details}") from None
    side.info(f"namespace {key.namespace}: offloading removed")


async def _each(work: Iterable[object]) -> None:
    """Do all ``work`` at once and raise what went wrong, together."""
    results = await asyncio.gather(*work, return_exceptions=True)  # type: ignore[call-overload]
    failures = [result for result in results if isinstance(result, BaseException)]
    for failure in failures:
        if not isinstance(failure, click.ClickException | errors.KubeError):
            raise failure
    if failures:
        raise click.ClickException("\n".join(str(failure) for failure in failures))
