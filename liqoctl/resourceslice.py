"""``liqoctl create|delete|get resourceslice``, ``liqoctl get virtualnode``.

Source: docs/parity.md § 7.6.
"""

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import click

from apis import keys, ownership, slices
from apis import objects as objects_
from apis.objects import Key, Kind, Object
from kube.cluster import Cluster, Selection
from liqoctl import clusters, options, output, virtualnode
from liqoctl.clusters import Condition, Side
from liqoctl.forge import resourceslice as forge
from liqoctl.forge.resourceslice import SliceOptions
from liqoctl.options import Session, Shown


@options.create.command(
    "resourceslice",
    "liqoctl create resourceslice mypool --remote-cluster-id milan",
    "liqoctl create rs mypool --remote-cluster-id milan --cpu 4 --memory 8Gi --pods 30",
    "liqoctl create rs gpus --remote-cluster-id milan --class shared --resource nvidia.com/gpu=2",
    "liqoctl create rs mypool --remote-cluster-id milan -o yaml > mypool.yaml",
)
@click.argument("name", type=options.NAME)
@options.REMOTE_CLUSTER_ID
@click.option(
    "--class",
    "class_",
    default=slices.DEFAULT_CLASS,
    show_default=True,
    help="Class of the slice, by which a controller of the provider grants it.",
)
@options.amounts
@options.switch("--no-virtual-node", help="Make no virtual node of it.")
@options.timeout("2m")
@options.OUTPUT
@options.global_flags
def create_resourceslice(
    session: Session, timeout_s: float, form: str | None, *, no_virtual_node: bool, **given: Any
) -> None:
    """Ask a provider for resources, and make a virtual node of what it grants."""
    left_out = options.left_out(class_="class_", no_virtual_node="makes_node")
    wanted = SliceOptions(
        namespace=session.namespace,
        makes_node=not no_virtual_node,
        metadata=session.metadata,
        left_out=left_out,
        **given,
    )
    if form:  # that needs no cluster
        output.dump([forge.manifest(wanted)], form)
    else:
        work = functools.partial(create, wanted=wanted, timeout_s=timeout_s)
        clusters.run(session, work)


@options.delete.command("resourceslice", "liqoctl delete resourceslice mypool --skip-confirm")
@clusters.named("name", keys.RESOURCE_SLICE)
@options.STANDSTILL
@clusters.on_cluster()
async def delete_resourceslice(side: Side, name: str, timeout_s: float) -> None:
    """Delete a slice: its virtual nodes are drained first.

    It is looked for in all namespaces, unless -n says in which.
    """
    where = objects_.key_of(await find(side.cluster, Key(side.session.namespace, name)))
    side.session.confirm(f"Delete resourceslice {where}? The pods of its nodes are evicted.")
    there = (await side.cluster.list(Selection(keys.VIRTUAL_NODE, Object, where.namespace))).items
    of_it = (key for key, each in there.items() if slices.of_virtual_node(each) == where.name)
    nodes = sorted(key.name for key in of_it)
    look = functools.partial(virtualnode.pods_left, side.cluster, nodes)
    try:
        async with clusters.while_moving(side, timeout_s, look):
            why = "pods are leaving its nodes, as disruption budgets allow"
            await clusters.remove(side, keys.RESOURCE_SLICE, where, why=why)
    except TimeoutError:
        message = f"resourceslice {where} is still being deleted"
        stuck = f"nothing has changed for {timeout_s:g}s"
        cure = "the same command goes on from here"
        raise click.ClickException(f"{message}: {stuck}; {cure}") from None


@options.get.command(
    "resourceslice", "liqoctl get resourceslice -A -o wide", "liqoctl get resourceslice -o yaml"
)
@clusters.named("names", keys.RESOURCE_SLICE, metavar="[NAME]...", nargs=-1)
@options.shown
@clusters.on_cluster()
async def get_resourceslice(side: Side, names: tuple[str, ...], how: Shown) -> None:
    """Show slices: those that this cluster consumes, and those that it provides."""
    await show(side, keys.RESOURCE_SLICE, names, how)


@options.get.command("virtualnode", "liqoctl get virtualnode -o json")
@clusters.named("names", keys.VIRTUAL_NODE, metavar="[NAME]...", nargs=-1)
@options.shown
@clusters.on_cluster()
async def get_virtualnode(side: Side, names: tuple[str, ...], how: Shown) -> None:
    """Show virtual nodes, and the slices that they live on."""
    await show(side, keys.VIRTUAL_NODE, names, how)


async def create(side: Side, wanted: SliceOptions, timeout_s: float) -> None:
    """Create the slice ``wanted``, and say what the provider answers.

    Raises:
        click.ClickException: the provider does not know this cluster.
    """
    if not wanted.namespace:
        found = await virtualnode.tenant_namespace(side.cluster, wanted.remote_cluster_id)
        wanted = replace(wanted, namespace=found)
    answered, key = await ask(side, wanted, timeout_s), wanted.where
    said, why = forge.answer(answered, slices.AUTHENTICATION)
    if said != slices.ACCEPTED:
        told = why or unanswered(wanted.remote_cluster_id)
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


async def ask(side: Side, wanted: SliceOptions, timeout_s: float | None = None) -> Object | None:
    """Return the slice ``wanted`` once it is answered, or ``timeout_s`` are over.

    Of one that is there only what flags name is changed, and the answer to that is waited for.
    """
    key, manifest = wanted.where, forge.manifest(wanted)
    before = await side.cluster.get_live(keys.RESOURCE_SLICE, key)
    await clusters.keep(side, keys.RESOURCE_SLICE, forge.named(wanted), new=manifest)
    what = f"resourceslice {key} to be answered"
    found = await _until(side, key, forge.is_answered, what, timeout_s)

    def is_new(obj: Object | None) -> bool:
        return forge.is_answered(obj) and not forge.is_stale(obj, before)

    if forge.is_answered(found) and not is_new(found):
        found = await _until(side, key, is_new, f"{what} anew", min(timeout_s or ANEW_S, ANEW_S))
        if not is_new(found):
            told = "what was changed is not answered yet; this is the answer of before"
            side.warning(f"resourceslice {key}: {told}")
    return found


async def _until(
    side: Side, key: Key, is_done: Condition, what: str, timeout_s: float | None
) -> Object | None:
    kind, why = keys.RESOURCE_SLICE, forge.told_answers
    try:
        async with asyncio.timeout(timeout_s):
            return await clusters.until(side, kind, key, is_done, what=what, why=why)
    except TimeoutError:
        return await side.cluster.get_live(kind, key)


ANEW_S: Final = 30.0
"""How long another answer is waited for: one that stays the same cannot be told from none."""


async def find(
    cluster: Cluster, key: Key, *, consumer: str = "", is_replica: bool = False
) -> Object:
    """Return the slice ``key``; an empty namespace means wherever it is.

    ``consumer`` narrows replicas to those of one consumer.

    Raises:
        click.ClickException: it is not there, or not alone of that name.
    """
    found = [
        obj
        for obj in await clusters.called(cluster, keys.RESOURCE_SLICE, key)
        if ownership.is_foreign(obj) == is_replica
        and (not consumer or ownership.named_by(obj) == consumer)
    ]
    if not found:
        raise click.ClickException(f"resourceslice {key} does not exist")
    if len(found) > 1:
        names = ", ".join(sorted(str(objects_.key_of(obj)) for obj in found))
        raise click.ClickException(f"several resourceslices are called {key.name}: {names}; use -n")
    return found[0]


async def show(side: Side, kind: Kind, names: Sequence[str], how: Shown) -> None:
    """Print slices or virtual nodes: all, or those named."""
    namespace = "" if how.in_all else side.session.namespace
    listed = (await side.cluster.list(Selection(kind, Object, namespace))).items
    found = [obj for key, obj in sorted(listed.items()) if not names or key.name in names]
    if missing := set(names) - {obj["metadata"]["name"] for obj in found}:
        raise click.ClickException(f"{kind} {', '.join(sorted(missing))} does not exist")
    output.show(kind, found, how, is_list=len(names) != 1)
