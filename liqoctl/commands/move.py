"""``liqoctl move``."""

from collections.abc import Callable
from typing import Any

import click

from apis.objects import Key
from apis.resources import parse_quantity
from liqoctl import lazy, options
from liqoctl.forge.move import MoveOptions
from liqoctl.lazy import Side


@options.verb("liqoctl move volume data -n shop --target-node milan")
def move() -> None:
    """Bring data to another cluster."""


def _quantity(text: str) -> str:
    parse_quantity(text)
    return text


def _amount(flag: str, default: str | None, what: str) -> Callable[..., Any]:
    return click.option(
        f"--containers-{flag}",
        type=options.Parsed("quantity", _quantity),
        default=default,
        show_default=default is not None,
        help=f"{what} of the pods that copy.",
    )


EXAMPLES = options.examples(
    "liqoctl move volume data -n shop --target-node milan",
    "liqoctl move volume data-store-0 -n shop --target-node turin --containers-ram-limits 256Mi",
)


@move.command("volume", epilog=EXAMPLES)
@click.argument("name", metavar="PVC", shell_complete=options.names_of("claim"))
@click.option(
    "--target-node", required=True, help="Node to move the data to, or a virtual node's cluster."
)
@click.option(
    "--image",
    default="",
    help="Image of the pods that copy, with sh, tar, find and sha256sum.  [default: pyliqo's own]",
)
@_amount("cpu-requests", "50m", "Requested CPU")
@_amount("cpu-limits", None, "Greatest CPU")
@_amount("ram-requests", "64Mi", "Requested memory")
@_amount("ram-limits", None, "Greatest memory")
@options.timeout("5m")
@options.on_cluster()
async def move_volume(
    side: Side, name: str, target_node: str, image: str, timeout: float, **amounts: str | None
) -> None:
    """Move the data of a claim of class liqo to another cluster, while no pod uses it.

    The data is copied and compared before the claim is deleted, and the claim is made again on the
    target; meanwhile the target holds it twice. Interrupted, the same command goes on from where it
    was. --timeout bounds each wait for a pod or a volume, and not the copying.
    """
    resources = {kind: given for kind in ("requests", "limits") if (given := _given(amounts, kind))}
    wanted = MoveOptions(Key(side.namespace, name), target_node, image, resources)
    await lazy.move.move(side, wanted, timeout_s=timeout)


def _given(amounts: dict[str, str | None], kind: str) -> dict[str, str]:
    names = {"cpu": f"containers_cpu_{kind}", "memory": f"containers_ram_{kind}"}
    return {name: value for name, flag in names.items() if (value := amounts[flag])}
