"""``liqoctl cordon|uncordon|drain|activate`` and ``liqoctl set|get sharing``: for providers.

Source: docs/parity.md § 0.4, 4.9, 7.7.
"""

import asyncio
import functools
from typing import Any, Final

import click

from apis import allowlist, keys, objects, ownership, providerpolicy, slices
from apis.objects import Key, Object
from kube.cluster import Cluster, Selection
from kube.errors import KubeError, is_too_large
from liqoctl import clusters, options, output, resourceslice
from liqoctl.clusters import Side, until, within
from liqoctl.forge import sharing as forge
from liqoctl.forge.sharing import SharingOptions
from liqoctl.options import Session

_ALIVE: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"
_OF_SHADOWS: Final = f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_POD}"
_LOOK_S: Final = 1.0
_MOST_NAMED: Final = 10
_DRAINING: Final = {keys.CORDON: "true", keys.DRAIN: "true"}
ACTIVE, CORDONED, DRAINED = "Active", "Cordoned", "Drained"


# Tenants ------------------------------------------------------------------------------------------

_CONSUMER = click.option(
    "--remote-cluster-id",
    "consumer",
    default="",
    type=options.CLUSTER_ID,
    help="Cluster ID of the consumer.",
)


@options.verb(
    "liqoctl cordon tenant rome", "liqoctl cordon resourceslice mypool --remote-cluster-id rome"
)
def cordon() -> None:
    """Stop taking new pods; running pods stay."""


@options.verb("liqoctl uncordon tenant rome")
def uncordon() -> None:
    """Take new pods again."""


@options.verb("liqoctl drain tenant rome")
def drain() -> None:
    """Evict pods."""


@options.verb("liqoctl activate tenant rome")
def activate() -> None:
    """Let a drained consumer back in."""


@options.verb("liqoctl set sharing --sharing-percentage 80", name="set")
def set_() -> None:
    """Set what this cluster shares."""


@cordon.command("tenant", "liqoctl cordon tenant rome")
@clusters.named("name", keys.TENANT)
@options.timeout("2m")
@clusters.on_cluster("making tenant {name} Cordoned")
async def cordon_tenant(side: Side, name: str) -> None:
    """Stop taking new slices and new pods of a consumer; running pods stay."""
    await bring(side, Key(side.session.namespace, name), CORDONED)


@uncordon.command("tenant", "liqoctl uncordon tenant rome")
@clusters.named("name", keys.TENANT)
@options.timeout("2m")
@clusters.on_cluster("uncordoning tenant {name}")
async def uncordon_tenant(side: Side, name: str) -> None:
    """Uncordon a consumer; warn if it is not cordoned."""
    found = await _tenant(side.cluster, Key(side.session.namespace, name))
    condition = _condition(found)
    if condition == CORDONED:
        await _set_condition(side, found, ACTIVE)
        return
    message = f"tenant {objects.key_of(found)}: is not cordoned but {condition}"
    cure = "" if condition == ACTIVE else f"; liqoctl activate tenant {name} lets it in"
    side.warning(f"{message}{cure}")


@drain.command("tenant", "liqoctl drain tenant rome --timeout 10m")
@clusters.named("name", keys.TENANT)
@options.switch(
    "--force", help="Remove rights and namespaces even if pods are left after the timeout."
)
@options.timeout("2m")
@clusters.on_cluster(
    asks="Drain tenant {name}? Its namespaces here are deleted, with all that is in them."
)
async def drain_tenant(side: Side, name: str, timeout_s: float, *, force: bool) -> None:
    """Remove a consumer's pods, then its rights and namespaces.

    It is cordoned at once, and evicts its pods as its disruption budgets allow. Where it does not
    in time, it stays cordoned, and the command ends with 1 and says what is left; --force sends
    it away then, whatever it does.
    """
    key = Key(side.session.namespace, name)
    try:
        async with asyncio.timeout(timeout_s):
            await bring(side, key, DRAINED)
    except TimeoutError:
        async with within(timeout_s, f"making tenant {name} {DRAINED}"):
            await _give_up(side, key, timeout_s, is_forced=force)


@activate.command("tenant", "liqoctl activate tenant rome")
@clusters.named("name", keys.TENANT)
@options.timeout("2m")
@clusters.on_cluster("making tenant {name} Active")
async def activate_tenant(side: Side, name: str) -> None:
    """Let a consumer back in, whether it was cordoned or drained."""
    await bring(side, Key(side.session.namespace, name), ACTIVE)


async def _give_up(side: Side, key: Key, timeout_s: float, *, is_forced: bool) -> None:
    """Say what a consumer has left here in spite of its time, or take it."""
    found = await _tenant(side.cluster, key)
    where = objects.key_of(found)
    left = await _booked(side.cluster, where.namespace)
    booked = [f"{told} pods of quota {quota}" for quota, told in sorted(left.items())]
    unbooked = [] if left else [f"pod {pod}" for pod in await _run_there(side.cluster, found)]
    pods = ", ".join((booked + unbooked)[:_MOST_NAMED])
    after = f"tenant {where}: after {timeout_s:g}s there are left {pods or 'no pods'}"
    if is_forced:
        side.warning(f"{after}; its rights and namespaces are taken all the same")
        await _set_condition(side, found, DRAINED)
        return
    if _condition(found) == DRAINED:
        message = f"tenant {where}: is not drained after {timeout_s:g}s: {_said(found)}"
        raise click.ClickException(f"{message}; the same command goes on waiting")
    raise click.ClickException(
        f"{after}; it stays {_condition(found)}, so that nothing new is let in: the same command "
        "goes on waiting, with --force rights and namespaces are taken when the time is over, "
        f"liqoctl activate tenant {where.name} lets it in again"
    )


async def bring(side: Side, key: Key, condition: str) -> None:
    """Make the tenant at ``key`` (an empty namespace: wherever it is) so; return once it is."""
    found = await _tenant(side.cluster, key)
    if condition == DRAINED and _condition(found) != DRAINED:
        await _set_condition(side, found, CORDONED)
        await _leave(side, found)
    await _set_condition(side, found, condition)


async def _tenant(cluster: Cluster, key: Key) -> Object:
    found = await clusters.called(cluster, keys.TENANT, key)
    if len(found) != 1:
        what = "does not exist" if not found else "is there more than once: use -n"
        raise click.ClickException(f"tenant {key} {what}")
    return found[0]


def _condition(tenant: Object) -> str:
    return str(objects.spec(tenant).get("tenantCondition") or ACTIVE)


async def _set_condition(side: Side, tenant: Object, condition: str) -> None:
    """Make it so, and say so once the controllers have done it: liqoctl only asks for it."""
    key, is_so = objects.key_of(tenant), _condition(tenant) == condition
    if not is_so:
        await side.cluster.patch(keys.TENANT, key, {"spec": {"tenantCondition": condition}})
    if condition == CORDONED:
        await _until_closed(side, key.namespace)
    if condition == DRAINED:
        await until(
            side, keys.TENANT, key, _is_drained, what=f"tenant {key} to be drained", why=_said
        )
    side.info(f"tenant {key}: {f'is {condition} already' if is_so else condition}")


async def _until_closed(side: Side, namespace: str) -> None:
    """Wait until the Quotas of a tenant's slices let nothing in."""
    found = (await side.cluster.list(Selection(keys.QUOTA, Object, namespace))).items
    for key, quota in found.items():
        owner = objects.controller_of(quota)
        if owner and owner["kind"] == keys.RESOURCE_SLICE.kind:
            await _until_quota_closed(side, key)


async def _until_quota_closed(side: Side, key: Key) -> None:
    await until(
        side, keys.QUOTA, key, _is_closed, what=f"quota {key} to be cordoned",
        why=lambda _: "the controller manager of this cluster has not done it: see its log",
    )  # fmt: skip


def _is_closed(quota: Object | None) -> bool:
    return quota is None or objects.spec(quota).get("cordoned") is True


def _is_drained(tenant: Object | None) -> bool:
    """Whether the controllers say that nothing is left of the consumer; one that is gone is."""
    if tenant is None:
        return True
    ready = objects.condition(tenant, "Ready")
    is_current = ready.get("observedGeneration") == tenant["metadata"].get("generation")
    return is_current and ready.get("reason") == DRAINED


def _said(tenant: Object | None) -> str:
    ready = objects.condition(tenant, "Ready")
    return f"{ready.get('reason') or 'no condition'}: {ready.get('message') or 'no message'}"


async def _leave(side: Side, tenant: Object) -> None:
    """Let the consumer evict its pods before its rights and namespaces go.

    What counts are the pods that are booked, of whichever slice, also one that it makes meanwhile;
    and those that run: one that was created out of a reserve is booked up to a second later.
    """
    where = objects.key_of(tenant).namespace
    while True:
        found = (await side.cluster.list(Selection(keys.RESOURCE_SLICE, Object, where))).items
        for obj in found.values():
            if ownership.is_foreign(obj) and not slices.is_drained(obj):
                await _mark(side, obj, _DRAINING)
                side.info(f"resourceslice {objects.key_of(obj)}: draining")
        left = await _booked(side.cluster, where)
        if not left and not await _run_there(side.cluster, tenant):
            return
        await asyncio.sleep(0 if left else _LOOK_S)
        async with asyncio.TaskGroup() as tasks:
            for quota in left:
                tasks.create_task(_until_empty(side, quota, f"quota {quota}"))


async def _booked(cluster: Cluster, namespace: str) -> dict[Key, str]:
    """Return the Quotas in ``namespace`` that hold pods, and how many."""
    found = (await cluster.list(Selection(keys.QUOTA, Object, namespace))).items
    return {key: _pods(quota) for key, quota in found.items() if not _is_empty(quota)}


async def _run_there(cluster: Cluster, tenant: Object) -> list[Key]:
    """Return the pods of the tenant's ShadowPods that have not ended, in whichever twin."""
    consumer = str(objects.spec(tenant).get("clusterID") or "")
    spaces = Selection(keys.NAMESPACE, Object, labels=f"{ownership.PEERS}={consumer}")
    found: list[Key] = []
    for key, namespace in (await cluster.list(spaces)).items.items():
        if consumer and ownership.consumer_of(namespace) == consumer:
            pods = Selection(keys.POD, Object, key.name, fields=_RUNNING, labels=_OF_SHADOWS)
            found += (await cluster.list(pods)).items
    return sorted(found)


# Slices -------------------------------------------------------------------------------------------

_SLICE_EXAMPLE = "resourceslice mypool --remote-cluster-id rome"


@cordon.command("resourceslice", f"liqoctl cordon {_SLICE_EXAMPLE}")
@clusters.named("name", keys.RESOURCE_SLICE)
@_CONSUMER
@options.timeout("2m")
@clusters.on_cluster("cordoning resourceslice {key}")
async def cordon_resourceslice(side: Side, name: str, consumer: str) -> None:
    """Stop taking new pods of a slice; running pods stay."""
    found = await _slice(side, name, consumer)
    await _mark(side, found, {keys.CORDON: "true"})
    await _until_quota_closed(side, _quota_of(found))
    side.info(f"resourceslice {objects.key_of(found)}: cordoned")


@uncordon.command("resourceslice", f"liqoctl uncordon {_SLICE_EXAMPLE}")
@clusters.named("name", keys.RESOURCE_SLICE)
@_CONSUMER
@options.timeout("2m")
@clusters.on_cluster("uncordoning resourceslice {key}")
async def uncordon_resourceslice(side: Side, name: str, consumer: str) -> None:
    """Take new pods of a slice again, whether it was cordoned or drained."""
    found = await _slice(side, name, consumer)
    await _mark(side, found, {keys.CORDON: None, keys.DRAIN: None})
    side.info(f"resourceslice {objects.key_of(found)}: not cordoned any more")


@drain.command("resourceslice", f"liqoctl drain {_SLICE_EXAMPLE}")
@clusters.named("name", keys.RESOURCE_SLICE)
@_CONSUMER
@options.timeout("2m")
@clusters.on_cluster("draining resourceslice {key}")
async def drain_resourceslice(side: Side, name: str, consumer: str) -> None:
    """Have the consumer evict the pods of a slice, and wait until they are gone.

    The virtual node that its slice makes goes meanwhile; `liqoctl uncordon resourceslice` lets it
    come back.
    """
    found = await _slice(side, name, consumer)
    key, quota = objects.key_of(found), _quota_of(found)
    await _mark(side, found, _DRAINING)
    await _until_quota_closed(side, quota)
    side.info(f"resourceslice {key}: draining")
    await _until_empty(side, quota, f"resourceslice {key}")
    side.info(f"resourceslice {key}: no pod is left")


async def _slice(side: Side, name: str, consumer: str) -> Object:
    key = Key(side.session.namespace, name)
    return await resourceslice.find(side.cluster, key, consumer=consumer, is_replica=True)


async def _mark(side: Side, obj: Object, wanted: Object) -> None:
    """Annotate a slice; one that its consumer has filled is emptied to make room."""
    key, changes = objects.key_of(obj), {"metadata": {"annotations": wanted}}
    try:
        await side.cluster.patch(keys.RESOURCE_SLICE, key, changes)
    except KubeError as error:
        if not is_too_large(error):
            raise
        side.warning(f"resourceslice {key}: is full, and is emptied: {error}")
        emptied = allowlist.emptied(obj)
        taken = emptied["metadata"].get("annotations") or {}
        emptied["metadata"]["annotations"] = {**taken, **wanted}
        await side.cluster.patch(keys.RESOURCE_SLICE, key, emptied)


def _quota_of(obj: Object) -> Key:
    key, consumer = objects.key_of(obj), str(objects.spec(obj).get("consumerClusterID") or "")
    return Key(key.namespace, slices.ResourceSlice(key, consumer).user)


async def _until_empty(side: Side, quota: Key, whose: str) -> None:
    await until(
        side, keys.QUOTA, quota, _is_empty, what=f"the pods of {whose} to leave",
        why=lambda _: "perhaps a disruption budget of the consumer, or it does not answer",
    )  # fmt: skip


def _is_empty(quota: Object | None) -> bool:
    """Whether nothing is booked: no Quota, or one whose status says so."""
    return _pods(quota) == "0"


def _pods(quota: Object | None) -> str:
    booked = objects.status(quota).get("booked") or {}
    return str(booked.get("pods", "0"))


# Sharing ------------------------------------------------------------------------------------------


@set_.command(
    "sharing",
    "liqoctl set sharing --sharing-percentage 80",
    "liqoctl set sharing --tenant rome --sharing-percentage 50 --resource nvidia.com/gpu=100",
    "liqoctl set sharing --sharing-percentage 80 -o yaml",
)
@click.option("--tenant", default="", help="Cluster ID of one consumer.  [default: all]")
@click.option(
    "--sharing-percentage",
    "percentage",
    type=click.IntRange(0, 100),
    help="Percent of what is free that slices of class shared get.",
)
@options.pairs("--resource", "Percent of one resource.")
@options.pairs("--limits", "The most that is granted in all, of any class.", options.AMOUNTS)
@click.option(
    "--rounding",
    type=click.Choice([providerpolicy.AT_LEAST_ONE, providerpolicy.DOWN]),
    help="Whether at least one piece of a countable resource is granted while one is free.",
)
@options.OUTPUT
@options.global_flags
def set_sharing(session: Session, form: str | None, **given: Any) -> None:
    """Set how much of what is free is shared, with all consumers or with one.

    It is written to a ProviderPolicy, and holds at once.
    """
    wanted = SharingOptions(by_resource=_percents(given.pop("resource")), **given)
    if wanted == SharingOptions(tenant=wanted.tenant):
        raise click.UsageError(
            "say what to set: --sharing-percentage, --resource, --limits or --rounding"
        )
    work = functools.partial(_set_sharing, wanted=wanted, form=form)
    clusters.run(session, work)


def _percents(given: dict[str, str]) -> dict[str, int]:
    for name, text in given.items():
        if not text.isdecimal() or int(text) > 100:  # noqa: PLR2004  # percent
            raise click.BadParameter(f"{name}={text}: percent are whole numbers from 0 to 100")
    return {name: int(text) for name, text in given.items()}


@options.get.command("sharing", "liqoctl get sharing", "liqoctl get sharing -o json")
@options.output("yaml", "json", help="Print JSON or YAML.")
@clusters.on_cluster()
async def get_sharing(side: Side, form: str | None) -> None:
    """Show what is shared with each consumer, and what that comes to now. Reads only."""
    cluster = side.cluster
    slices_ = await clusters.listed(cluster, keys.RESOURCE_SLICE)
    state = forge.ProviderState(
        nodes=await clusters.listed(cluster, keys.NODE),
        pods=await clusters.listed(cluster, keys.POD, fields=_ALIVE),
        slices=[one for one in slices_ if ownership.is_foreign(one)],
        tenants=await clusters.listed(cluster, keys.TENANT),
        policies=await clusters.listed(cluster, keys.PROVIDER_POLICY),
    )
    found = forge.shown(state)
    if form:
        output.dump(found, form)
    else:
        output.table([forge.HEADER, *forge.rows(found)])


async def _set_sharing(side: Side, wanted: SharingOptions, form: str | None) -> None:
    default, existing = [
        await side.cluster.get_live(keys.PROVIDER_POLICY, Key("", name))
        for name in (providerpolicy.DEFAULT, wanted.tenant or providerpolicy.DEFAULT)
    ]
    try:
        manifest = forge.policy(wanted, existing, default)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if form:
        output.dump([manifest], form)
    else:
        await _keep_policy(side, existing, manifest, is_copy=bool(default))


async def _keep_policy(
    side: Side, existing: Object | None, wanted: Object, *, is_copy: bool
) -> None:
    key = objects.key_of(wanted)
    if existing is None:
        await side.cluster.create(keys.PROVIDER_POLICY, wanted)
        copied = ", a copy of default that replaces it for this tenant" if is_copy else ""
        side.info(
            f"providerpolicy {key}: created{copied if key.name != providerpolicy.DEFAULT else ''}"
        )
        return
    changes = objects.merge_patch(objects.spec(existing), wanted["spec"])
    if changes:
        await side.cluster.patch(keys.PROVIDER_POLICY, key, {"spec": changes})
    side.info(f"providerpolicy {key}: {'updated' if changes else 'is as asked for already'}")
