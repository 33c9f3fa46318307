"""Making, showing and removing slices, and showing virtual nodes.

Source: docs/parity.md § 7.6.
"""

import asyncio
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import click

from apis import keys, naming, ownership, slices
from apis import objects as objects_
from apis.objects import Key, Kind, Object
from kube import informer
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from liqoctl import clusters, virtualnode
from liqoctl import output as output_
from liqoctl.clusters import Side
from liqoctl.forge import peering
from liqoctl.forge import resourceslice as forge
from liqoctl.options import Session
from liqoctl.output import Progress, Shown


def create(
    who: Session, wanted: forge.SliceOptions, *, timeout_s: float, output: str | None
) -> None:
    """Create a slice, or print it, which needs no cluster."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        side = Side(cluster, progress)
        found = wanted.namespace or await virtualnode.tenant_namespace(cluster, wanted.cluster_id)
        await _create(side, replace(wanted, namespace=found), timeout_s)

    if output:
        namespace = wanted.namespace or naming.tenant_namespace(wanted.cluster_id)
        output_.dump([forge.manifest(replace(wanted, namespace=namespace))], output)
    else:
        clusters.run(who, work)


async def _create(side: Side, wanted: forge.SliceOptions, timeout_s: float) -> None:
    answered = await ask(side, wanted, timeout_s)
    key = Key(wanted.namespace, wanted.name)
    said, why = forge.answer(answered, slices.AUTHENTICATION)
    if said != slices.ACCEPTED:
        told = why or unanswered(wanted.cluster_id)
        raise click.ClickException(f"resourceslice {key}: Authentication {said or 'open'}: {told}")
    side.info(f"resourceslice {key}: Authentication {said}")
    said, why = forge.answer(answered, slices.RESOURCES)
    if said == slices.ACCEPTED:
        side.info(f"resourceslice {key}: Resources {said}: {forge.grant(answered)}")
        return
    told = why or "nobody has answered; a class of one's own has a controller of its own"
    side.warning(f"resourceslice {key}: Resources {said or 'open'}: {told}")


def unanswered(provider: str) -> str:
    """Return why a slice may have no answer, and what to do: it is kept, and answered later."""
    return (
        f"{provider} has not answered; it knows no slice of this cluster before `liqoctl peer` or"
        " `liqoctl authenticate`, or their steps by hand"
    )


async def ask(
    side: Side, wanted: forge.SliceOptions, timeout_s: float | None = None
) -> Object | None:
    """Return the slice ``wanted`` once it is answered, or ``timeout_s`` are over.

    Of one that is there only what flags name is changed, and the answer to that is waited for.
    """
    manifest = forge.manifest(wanted)
    key = objects_.key_of(manifest)
    before = await side.cluster.get_live(keys.RESOURCE_SLICE, key)
    await clusters.keep(side, keys.RESOURCE_SLICE, forge.named(wanted), new=manifest)
    what = f"resourceslice {key} to be answered"
    found = await _until(side, key, peering.is_answered, what, timeout_s)

    def is_new(obj: Object | None) -> bool:
        return peering.is_answered(obj) and not forge.is_stale(obj, before)

    if peering.is_answered(found) and not is_new(found):
        found = await _until(side, key, is_new, f"{what} anew", min(timeout_s or ANEW_S, ANEW_S))
        if not is_new(found):
            told = "what was changed is not answered yet; this is the answer of before"
            side.warning(f"resourceslice {key}: {told}")
    return found


async def _until(
    side: Side,
    key: Key,
    is_done: Callable[[Object | None], bool],
    what: str,
    timeout_s: float | None,
) -> Object | None:
    why = peering.told_answers
    try:
        async with asyncio.timeout(timeout_s):
            return await clusters.until(side, keys.RESOURCE_SLICE, key, is_done, what=what, why=why)
    except TimeoutError:
        return await side.cluster.get_live(keys.RESOURCE_SLICE, key)


ANEW_S: Final = 30.0
"""How long another answer is waited for: one that stays the same cannot be told from none."""


@dataclass(frozen=True)
class SliceDeletion:
    """How to delete."""

    confirm: Callable[[str], None]
    """Asks the user, and raises click.Abort on a no."""
    timeout_s: float
    """For so long nothing may change."""


def delete(who: Session, key: Key, deletion: SliceDeletion) -> None:
    """Delete a slice of this cluster and wait until it is gone, with its virtual nodes."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        side = Side(cluster, progress)
        found = await find(cluster, key)
        where = objects_.key_of(found)
        deletion.confirm(f"Delete resourceslice {where}? The pods of its nodes are evicted.")
        there = (await cluster.list(Selection(keys.VIRTUAL_NODE, Object, where.namespace))).items
        of_it = (key for key, each in there.items() if slices.of_virtual_node(each) == where.name)
        nodes = sorted(key.name for key in of_it)
        look = functools.partial(virtualnode.pods_left, cluster, nodes)
        try:
            async with informer.while_moving(deletion.timeout_s, look, progress.info):
                why = "pods are leaving its nodes, as disruption budgets allow"
                await clusters.remove(side, keys.RESOURCE_SLICE, where, why=why)
        except TimeoutError:
            message = f"resourceslice {where} is still being deleted"
            stuck = f"nothing has changed for {deletion.timeout_s:g}s"
            cure = "the same command goes on from here"
            raise click.ClickException(f"{message}: {stuck}; {cure}") from None

    clusters.run(who, work)


async def find(
    cluster: Cluster, key: Key, *, consumer: str = "", is_replica: bool = False
) -> Object:
    """Return the slice ``key``; an empty namespace means wherever it is.

    ``consumer`` narrows replicas to those of one consumer.

    Raises:
        click.ClickException: it is not there, or not alone of that name.
    """
    selection = Selection(
        keys.RESOURCE_SLICE, Object, key.namespace, fields=f"metadata.name={key.name}"
    )
    found = [
        obj
        for obj in (await cluster.list(selection)).items.values()
        if ownership.is_foreign(obj) == is_replica
        and (not consumer or ownership.named_by(obj) == consumer)
    ]
    if not found:
        raise click.ClickException(f"resourceslice {key} does not exist")
    if len(found) > 1:
        names = ", ".join(sorted(str(objects_.key_of(obj)) for obj in found))
        raise click.ClickException(f"several resourceslices are called {key.name}: {names}; use -n")
    return found[0]


def show(who: Session, kind: Kind, names: Sequence[str], how: Shown) -> None:
    """Print slices or virtual nodes: all, or those named."""
    namespace = "" if how.in_all else who.namespace

    async def work(cluster: ClusterClient, _progress: Progress) -> None:
        listed = (await cluster.list(Selection(kind, Object, namespace))).items
        found = [obj for key, obj in sorted(listed.items()) if not names or key.name in names]
        if missing := set(names) - {obj["metadata"]["name"] for obj in found}:
            raise click.ClickException(f"{kind} {', '.join(sorted(missing))} does not exist")
        output_.show(kind, found, how, is_list=len(names) != 1)

    clusters.run(who, work)
