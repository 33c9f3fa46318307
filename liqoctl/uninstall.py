"""``liqoctl uninstall``, unless that would tear something apart.

Source: docs/parity.md § 7.8.
"""

import asyncio
import contextlib
import functools
from collections.abc import Iterable, Sequence
from typing import Final

import click

from apis import keys, objects
from apis.objects import Object
from kube import errors
from kube.cluster import Cluster, Selection
from liqoctl import clusters, install, options
from liqoctl.clusters import Side
from liqoctl.forge import manifests as forge
from liqoctl.options import Session, cli


@cli.command("uninstall", "liqoctl uninstall", "liqoctl uninstall --skip-confirm")
@options.timeout("5m")
@options.global_flags
def uninstall_command(session: Session, timeout_s: float) -> None:
    """Remove pyliqo from a cluster, its kinds and settings included.

    It is refused while namespaces are offloaded or there are peers.
    """
    install.check_namespace(session)
    work = functools.partial(uninstall, timeout_s=timeout_s)
    clusters.run(session, work, needs_install=False)


OF_PEERS: Final = (
    keys.VIRTUAL_NODE,
    keys.RESOURCE_SLICE,
    keys.IDENTITY,
    keys.TENANT,
    keys.QUOTA,
    keys.SHADOW_POD,
    keys.NAMESPACE_MAP,
)
"""Kinds that are there for as long as another cluster uses this one, or is used by it."""
_TENANTS: Final = Selection(keys.NAMESPACE, Object, labels=f"{keys.TENANT_NAMESPACE}=true")
_OWN_RIGHTS: Final = Selection(
    keys.ROLE_BINDING, Object, labels=f"{keys.APP_MANAGED_BY}=liqo,{keys.REMOTE_CLUSTER_ID}"
)


async def uninstall(side: Side, timeout_s: float) -> None:
    """Delete all that was installed and return once it is gone.

    Raises:
        click.Abort: the user says no.
        click.ClickException: namespaces are offloaded, or there are peers (it says which); or it
            takes longer than ``timeout_s``.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await _uninstall(side)
    except TimeoutError:
        message = f"not all is gone after {timeout_s:g}s: run the same command again"
        raise click.ClickException(message) from None


async def _uninstall(side: Side) -> None:
    cluster = side.cluster
    await check(cluster)
    manifests = install.manifests(forge.folders())
    known = [*manifests, forge.cluster_id("")]  # which goes with its namespace
    old = await install.find_outdated(cluster, known, install.MANAGER)
    there = [*old, *await _existing(cluster, manifests)]
    if not there:
        side.info("pyliqo is not installed: nothing to do")
        return
    side.session.confirm(f"Remove pyliqo, its kinds and its settings ({len(there)} objects)?")
    with side.progress.waiting("the processes to end"):
        await _remove(cluster, [obj for obj in there if not forge.is_prerequisite(obj)])
        pods = Selection(keys.POD, Object, keys.LIQO_NAMESPACE, forge.OURS)
        for pod in await _list(cluster, pods):
            await _until_gone(cluster, pod)
        # The controller manager may have made it again meanwhile.
        apis = [obj for obj in manifests if forge.kind_of(obj) == keys.API_SERVICE]
        await _remove(cluster, await _existing(cluster, apis))
    await _free_tenant_namespaces(cluster)
    last = [obj for obj in there if forge.is_prerequisite(obj)]
    with side.progress.waiting("the kinds and the namespace to go"):
        await _remove(cluster, last)
        await asyncio.gather(*(_until_gone(cluster, obj) for obj in last))
    side.info(f"{len(there)} objects removed")
    names = sorted(objects.key_of(obj).name for obj in await _list(cluster, _TENANTS))
    if names:
        side.info(f"left for you to delete: kubectl delete namespace {' '.join(names)}")


async def check(cluster: Cluster) -> None:
    """Refuse to uninstall while anything rests on it.

    Raises:
        click.ClickException: the message says what, and how it is ended; or Liqo is installed.
    """
    await install.refuse_liqo(cluster)
    reasons = []
    offloadings = await _list(cluster, Selection(keys.NAMESPACE_OFFLOADING, Object))
    if names := forge.offloaded(map(objects.key_of, offloadings)):
        hint = f"liqoctl unoffload namespace {' '.join(names)}"
        reasons.append(f"namespaces are offloaded: {', '.join(names)} ({hint})")
    found = {kind: await _list(cluster, Selection(kind, Object)) for kind in OF_PEERS}
    for peer, what in forge.peers(found, await _list(cluster, _TENANTS)).items():
        reasons.append(f"{peer} is a peer: {', '.join(what)} (liqoctl unpeer)")
    if reasons:
        raise click.ClickException("\n  ".join(["not uninstalled:", *reasons]))


async def _list(cluster: Cluster, selection: Selection[Object]) -> list[Object]:
    with contextlib.suppress(errors.NotFoundError):  # the kind itself is not installed
        return list((await cluster.list(selection)).items.values())
    return []


async def _existing(cluster: Cluster, manifests: Iterable[Object]) -> list[Object]:
    """Return what is there of ``manifests``, the last first."""
    found = []
    for obj in manifests:
        with contextlib.suppress(errors.NotFoundError):
            existing = await cluster.get_live(forge.kind_of(obj), objects.key_of(obj))
            found += [existing] if existing else []
    return found[::-1]


async def _remove(cluster: Cluster, found: Sequence[Object]) -> None:
    for obj in found:
        await cluster.delete(forge.kind_of(obj), objects.key_of(obj), uid=objects.uid(obj))


async def _until_gone(cluster: Cluster, obj: Object) -> None:
    is_gone = clusters.is_gone(objects.uid(obj))
    await clusters.reached(cluster, forge.kind_of(obj), objects.key_of(obj), is_gone)


async def _free_tenant_namespaces(cluster: Cluster) -> None:
    """Delete what the controller manager gave itself there, which nobody is left to let go."""
    for key, binding in (await cluster.list(_OWN_RIGHTS)).items.items():
        if binding["roleRef"]["name"] != keys.CONTROLLER_MANAGER_TENANT_ROLE:
            continue
        ours = keys.TENANT_RIGHTS_FINALIZER
        metadata = {
            "finalizers": [each for each in objects.finalizers(binding) if each != ours],
            "resourceVersion": binding["metadata"]["resourceVersion"],
        }
        await cluster.patch(keys.ROLE_BINDING, key, {"metadata": metadata})
        await cluster.delete(keys.ROLE_BINDING, key, uid=objects.uid(binding))
