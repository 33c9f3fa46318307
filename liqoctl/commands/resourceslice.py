"""``liqoctl create|delete|get resourceslice``, ``liqoctl get virtualnode``."""

import functools
from typing import Any

import click

from apis import keys, slices
from apis.objects import Key
from liqoctl import lazy, options
from liqoctl.forge import resourceslice as forge
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
    name: str, session: Session, timeout: float, output: str | None, **given: Any
) -> None:
    """Ask a provider for resources, and make a virtual node of what it grants."""
    named = {each: given[each] for each in ("cpu", "memory", "pods") if given[each]}
    wanted = forge.SliceOptions(
        name=name,
        namespace=session.namespace,
        cluster_id=given["remote_cluster_id"],
        class_=given["class_"],
        resources={**named, **options.merged_pairs(given["resource"])},
        makes_node=not given["no_virtual_node"],
        metadata=session.metadata,
        left_out=options.left_out(class_="class_", no_virtual_node="makes_node"),
    )

    lazy.resourceslice.create(session, wanted, timeout_s=timeout, output=output)


@delete.command(
    "resourceslice", epilog=options.examples("liqoctl delete resourceslice mypool --skip-confirm")
)
@click.argument("name", shell_complete=options.names_of("slice"))
@options.STANDSTILL
@options.global_flags
def delete_resourceslice(name: str, timeout: float, session: Session) -> None:
    """Delete a slice: its virtual nodes are drained first.

    It is looked for in all namespaces, unless -n says in which.
    """
    deletion = lazy.resourceslice.SliceDeletion(
        functools.partial(options.confirm, session), timeout
    )
    lazy.resourceslice.delete(session, Key(session.namespace, name), deletion)


@get.command(
    "resourceslice",
    epilog=options.examples(
        "liqoctl get resourceslice -A -o wide", "liqoctl get resourceslice -o yaml"
    ),
)
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=options.names_of("slice"))
@options.shown
@options.global_flags
def get_resourceslice(
    names: tuple[str, ...], session: Session, output: str | None, *, in_all: bool
) -> None:
    """Show slices: those that this cluster consumes, and those that it provides."""
    lazy.resourceslice.show(session, keys.RESOURCE_SLICE, names, lazy.output.Shown(output, in_all))


@get.command("virtualnode", epilog=options.examples("liqoctl get virtualnode -o json"))
@click.argument(
    "names", metavar="[NAME]...", nargs=-1, shell_complete=options.names_of("virtual node")
)
@options.shown
@options.global_flags
def get_virtualnode(
    names: tuple[str, ...], session: Session, output: str | None, *, in_all: bool
) -> None:
    """Show virtual nodes, and the slices that they live on."""
    lazy.resourceslice.show(session, keys.VIRTUAL_NODE, names, lazy.output.Shown(output, in_all))
