"""What a provider's administrator does: cordon, drain, share.

Source: docs/parity.md § 0.4, 4.9, 7.7.
"""

import asyncio
from typing import Final

import click

from apis import allowlist, keys, objects, ownership, providerpolicy, slices
from apis.objects import Key, Object
from kube.cluster import Cluster, Selection
from kube.errors import KubeError, is_too_large
from liqoctl import clusters, resourceslice
from liqoctl import output as output_
from liqoctl.clusters import Side, until, within
from liqoctl.forge import sharing as forge

_ALIVE: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"
_OF_SHADOWS: Final = f"{keys.MANAGED_BY}={keys.MANAGED_BY_SHADOW_POD}"
_LOOK_S: Final = 1.0
_MOST_NAMED: Final = 10
_DRAINING: Final = {keys.CORDON: "true", keys.DRAIN: "true"}
ACTIVE, CORDONED, DRAINED = "Active", "Cordoned", "Drained"


# Tenants ------------------------------------------------------------------------------------------


async def drain_tenant(side: Side, name: str, timeout_s: float, *, is_forced: bool) -> None:
    """Cordon a tenant, wait until its pods have left, then take its rights and namespaces.

    Raises:
        click.ClickException: they did not leave in time, and nothing else is to be done then.
    """
    key = Key(side.session.namespace, name)
    try:
        async with asyncio.timeout(timeout_s):
            await bring(side, key, DRAINED)
    except TimeoutError:
        async with within(timeout_s, f"making tenant {name} {DRAINED}"):
            await _give_up(side, key, timeout_s, is_forced=is_forced)


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


async def uncordon_tenant(side: Side, name: str) -> None:
    """Make a cordoned tenant Active again; of any other a warning tells that it is not cordoned."""
    found = await _tenant(side.cluster, Key(side.session.namespace, name))
    condition = _condition(found)
    if condition == CORDONED:
        await _set_condition(side, found, ACTIVE)
        return
    message = f"tenant {objects.key_of(found)}: is not cordoned but {condition}"
    cure = "" if condition == ACTIVE else f"; liqoctl activate tenant {name} lets it in"
    side.warning(f"{message}{cure}")


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


def _ready(tenant: Object | None) -> Object:
    return objects.find_condition(objects.status(tenant).get("conditions"), "Ready") or {}


def _is_drained(tenant: Object | None) -> bool:
    """Whether the controllers say that nothing is left of the consumer; one that is gone is."""
    if tenant is None:
        return True
    ready = _ready(tenant)
    is_current = ready.get("observedGeneration") == tenant["metadata"].get("generation")
    return is_current and ready.get("reason") == DRAINED


def _said(tenant: Object | None) -> str:
    ready = _ready(tenant)
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


async def cordon_slice(side: Side, name: str, consumer: str) -> None:
    found = await _slice(side, name, consumer)
    await _mark(side, found, {keys.CORDON: "true"})
    await _until_quota_closed(side, _quota_of(found))
    side.info(f"resourceslice {objects.key_of(found)}: cordoned")


async def uncordon_slice(side: Side, name: str, consumer: str) -> None:
    """Let pods of a slice in again, also after a drain."""
    found = await _slice(side, name, consumer)
    await _mark(side, found, {keys.CORDON: None, keys.DRAIN: None})
    side.info(f"resourceslice {objects.key_of(found)}: not cordoned any more")


async def drain_slice(side: Side, name: str, consumer: str) -> None:
    """Have the consumer evict all pods of a slice, and wait until none is left."""
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


async def set_sharing(side: Side, wanted: forge.SharingOptions, output: str | None) -> None:
    default, existing = [
        await side.cluster.get_live(keys.PROVIDER_POLICY, Key("", name))
        for name in (providerpolicy.DEFAULT, wanted.tenant or providerpolicy.DEFAULT)
    ]
    try:
        manifest = forge.policy(wanted, existing, default)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if output:
        output_.dump([manifest], output)
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


async def get_sharing(side: Side, output: str | None) -> None:
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
    if output:
        output_.dump(found, output)
    else:
        output_.table([forge.HEADER, *forge.rows(found)])
