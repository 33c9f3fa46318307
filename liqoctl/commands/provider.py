"""``liqoctl cordon|uncordon|drain|activate`` and ``liqoctl set|get sharing``: for providers."""

import functools
from typing import Any

import click

from apis import providerpolicy
from apis.objects import Key
from liqoctl import lazy, options
from liqoctl.forge.sharing import SharingOptions
from liqoctl.lazy import Side
from liqoctl.options import Session, get

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


@cordon.command("tenant", epilog=options.examples("liqoctl cordon tenant rome"))
@click.argument("name", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant"))
@options.timeout("2m")
@options.on_cluster("making tenant {name} Cordoned")
async def cordon_tenant(side: Side, name: str) -> None:
    """Stop taking new slices and new pods of a consumer; running pods stay."""
    await lazy.provider.bring(side, Key(side.session.namespace, name), lazy.provider.CORDONED)


@uncordon.command("tenant", epilog=options.examples("liqoctl uncordon tenant rome"))
@click.argument("name", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant"))
@options.timeout("2m")
@options.on_cluster("uncordoning tenant {name}")
async def uncordon_tenant(side: Side, name: str) -> None:
    """Uncordon a consumer; warn if it is not cordoned."""
    await lazy.provider.uncordon_tenant(side, name)


@drain.command("tenant", epilog=options.examples("liqoctl drain tenant rome --timeout 10m"))
@click.argument("name", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant"))
@options.switch(
    "--force", help="Remove rights and namespaces even if pods are left after the timeout."
)
@options.timeout("2m")
@options.on_cluster(
    asks="Drain tenant {name}? Its namespaces here are deleted, with all that is in them."
)
async def drain_tenant(side: Side, name: str, timeout: float, *, force: bool) -> None:
    """Remove a consumer's pods, then its rights and namespaces.

    It is cordoned at once, and evicts its pods as its disruption budgets allow. Where it does not
    in time, it stays cordoned, and the command ends with 1 and says what is left; --force sends
    it away then, whatever it does.
    """
    await lazy.provider.drain_tenant(side, name, timeout, is_forced=force)


@activate.command("tenant", epilog=options.examples("liqoctl activate tenant rome"))
@click.argument("name", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant"))
@options.timeout("2m")
@options.on_cluster("making tenant {name} Active")
async def activate_tenant(side: Side, name: str) -> None:
    """Let a consumer back in, whether it was cordoned or drained."""
    await lazy.provider.bring(side, Key(side.session.namespace, name), lazy.provider.ACTIVE)


_SLICE_EXAMPLE = "resourceslice mypool --remote-cluster-id rome"


@cordon.command("resourceslice", epilog=options.examples(f"liqoctl cordon {_SLICE_EXAMPLE}"))
@click.argument("name", shell_complete=options.names_of("slice"))
@_CONSUMER
@options.timeout("2m")
@options.on_cluster("cordoning resourceslice {key}")
async def cordon_resourceslice(side: Side, name: str, consumer: str) -> None:
    """Stop taking new pods of a slice; running pods stay."""
    await lazy.provider.cordon_slice(side, name, consumer)


@uncordon.command("resourceslice", epilog=options.examples(f"liqoctl uncordon {_SLICE_EXAMPLE}"))
@click.argument("name", shell_complete=options.names_of("slice"))
@_CONSUMER
@options.timeout("2m")
@options.on_cluster("uncordoning resourceslice {key}")
async def uncordon_resourceslice(side: Side, name: str, consumer: str) -> None:
    """Take new pods of a slice again, whether it was cordoned or drained."""
    await lazy.provider.uncordon_slice(side, name, consumer)


@drain.command("resourceslice", epilog=options.examples(f"liqoctl drain {_SLICE_EXAMPLE}"))
@click.argument("name", shell_complete=options.names_of("slice"))
@_CONSUMER
@options.timeout("2m")
@options.on_cluster("draining resourceslice {key}")
async def drain_resourceslice(side: Side, name: str, consumer: str) -> None:
    """Have the consumer evict the pods of a slice, and wait until they are gone.

    The virtual node that its slice makes goes meanwhile; `liqoctl uncordon resourceslice` lets it
    come back.
    """
    await lazy.provider.drain_slice(side, name, consumer)


SHARING_EXAMPLES = options.examples(
    "liqoctl set sharing --sharing-percentage 80",
    "liqoctl set sharing --tenant rome --sharing-percentage 50 --resource nvidia.com/gpu=100",
    "liqoctl set sharing --sharing-percentage 80 -o yaml",
)


@set_.command("sharing", epilog=SHARING_EXAMPLES)
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
def set_sharing(session: Session, output: str | None, **given: Any) -> None:
    """Set how much of what is free is shared, with all consumers or with one.

    It is written to a ProviderPolicy, and holds at once.
    """
    wanted = SharingOptions(by_resource=_percents(given.pop("resource")), **given)
    if wanted == SharingOptions(tenant=wanted.tenant):
        raise click.UsageError(
            "say what to set: --sharing-percentage, --resource, --limits or --rounding"
        )
    work = functools.partial(lazy.provider.set_sharing, wanted=wanted, output=output)
    lazy.clusters.run(session, work)


def _percents(given: dict[str, str]) -> dict[str, int]:
    for name, text in given.items():
        if not text.isdecimal() or int(text) > 100:  # noqa: PLR2004  # percent
            raise click.BadParameter(f"{name}={text}: percent are whole numbers from 0 to 100")
    return {name: int(text) for name, text in given.items()}


@get.command(
    "sharing", epilog=options.examples("liqoctl get sharing", "liqoctl get sharing -o json")
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="Print JSON or YAML.")
@options.on_cluster()
async def get_sharing(side: Side, output: str | None) -> None:
    """Show what is shared with each consumer, and what that comes to now. Reads only."""
    await lazy.provider.get_sharing(side, output)
