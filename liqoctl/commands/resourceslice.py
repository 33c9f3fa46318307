"""``liqoctl create|delete|get resourceslice``, ``liqoctl get virtualnode``."""

import functools
from typing import Any

import click

from apis import keys, slices
from apis.objects import Key
from liqoctl import lazy, options
from liqoctl.forge import resourceslice as forge
from liqoctl.lazy import Side
from liqoctl.options import Session, create, delete, get

CREATE_EXAMPLES = options.examples(
    "liqoctl create resourceslice mypool --remote-cluster-id milan",
    "liqoctl create rs mypool --remote-cluster-id milan --cpu 4 --memory 8Gi --pods 30",
    "liqoctl create rs gpus --remote-cluster-id milan --class shared --resource nvidia.com/gpu=2",
    "liqoctl create rs mypool --remote-cluster-id milan -o yaml > mypool.yaml",
)


@create.command("resourceslice", epilog=CREATE_EXAMPLES)
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
    session: Session, timeout: float, output: str | None, *, no_virtual_node: bool, **given: Any
) -> None:
    """Ask a provider for resources, and make a virtual node of what it grants."""
    left_out = options.left_out(class_="class_", no_virtual_node="makes_node")
    wanted = forge.SliceOptions(
        namespace=session.namespace,
        makes_node=not no_virtual_node,
        metadata=session.metadata,
        left_out=left_out,
        **given,
    )
    if output:  # that needs no cluster
        lazy.output.dump([forge.manifest(wanted)], output)
    else:
        work = functools.partial(lazy.resourceslice.create, wanted=wanted, timeout_s=timeout)
        lazy.clusters.run(session, work)


@delete.command(
    "resourceslice", epilog=options.examples("liqoctl delete resourceslice mypool --skip-confirm")
)
@click.argument("name", shell_complete=options.names_of("slice"))
@options.STANDSTILL
@options.on_cluster()
async def delete_resourceslice(side: Side, name: str, timeout: float) -> None:
    """Delete a slice: its virtual nodes are drained first.

    It is looked for in all namespaces, unless -n says in which.
    """
    await lazy.resourceslice.delete(side, Key(side.session.namespace, name), timeout)


@get.command(
    "resourceslice",
    epilog=options.examples(
        "liqoctl get resourceslice -A -o wide", "liqoctl get resourceslice -o yaml"
    ),
)
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=options.names_of("slice"))
@options.shown
@options.on_cluster()
async def get_resourceslice(side: Side, names: tuple[str, ...], how: Any) -> None:
    """Show slices: those that this cluster consumes, and those that it provides."""
    await lazy.resourceslice.show(side, keys.RESOURCE_SLICE, names, how)


@get.command("virtualnode", epilog=options.examples("liqoctl get virtualnode -o json"))
@click.argument(
    "names", metavar="[NAME]...", nargs=-1, shell_complete=options.names_of("virtual node")
)
@options.shown
@options.on_cluster()
async def get_virtualnode(side: Side, names: tuple[str, ...], how: Any) -> None:
    """Show virtual nodes, and the slices that they live on."""
    await lazy.resourceslice.show(side, keys.VIRTUAL_NODE, names, how)
