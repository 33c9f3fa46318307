"""``liqoctl cordon|uncordon|drain|activate`` and ``liqoctl set|get sharing``: for providers."""

from typing import Any

import click

from apis import providerpolicy
from apis.objects import Key
from liqoctl import lazy, options
from liqoctl.forge import sharing
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
@options.global_flags
def cordon_tenant(name: str, timeout: float, session: Session) -> None:
    """Stop taking new slices and new pods of a consumer; running pods stay."""
    lazy.provider.condition_tenant(session, name, lazy.provider.CORDONED, timeout_s=timeout)


@uncordon.command("tenant", epilog=options.examples("liqoctl uncordon tenant rome"))
@click.argument("name", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant"))
@options.timeout("2m")
@options.global_flags
def uncordon_tenant(name: str, timeout: float, session: Session) -> None:
    """Uncordon a consumer; warn if it is not cordoned."""
    lazy.provider.uncordon_tenant(session, name, timeout_s=timeout)


@drain.command("tenant", epilog=options.examples("liqoctl drain tenant rome --timeout 10m"))
@click.argument("name", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant"))
@options.switch(
    "--force", help="Remove rights and namespaces even if pods are left after the timeout."
)
@options.timeout("2m")
@options.global_flags
def drain_tenant(name: str, timeout: float, session: Session, *, force: bool) -> None:
    """Remove a consumer's pods, then its rights and namespaces.

    It is cordoned at once, and evicts its pods as its disruption budgets allow. Where it does not
    in time, it stays cordoned, and the command ends with 1 and says what is left; --force sends
    it away then, whatever it does.
    """
    question = f"Drain tenant {name}? Its namespaces here are deleted, with all that is in them."
    options.confirm(session, question)

    lazy.provider.drain_tenant(session, name, timeout_s=timeout, is_forced=force)


@activate.command("tenant", epilog=options.examples("liqoctl activate tenant rome"))
@click.argument("name", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant"))
@options.timeout("2m")
@options.global_flags
def activate_tenant(name: str, timeout: float, session: Session) -> None:
    """Let a consumer back in, whether it was cordoned or drained."""
    lazy.provider.condition_tenant(session, name, lazy.provider.ACTIVE, timeout_s=timeout)


_SLICE_EXAMPLE = "resourceslice mypool --remote-cluster-id rome"


@cordon.command("resourceslice", epilog=options.examples(f"liqoctl cordon {_SLICE_EXAMPLE}"))
@click.argument("name", shell_complete=options.names_of("slice"))
@_CONSUMER
@options.timeout("2m")
@options.global_flags
def cordon_resourceslice(name: str, consumer: str, timeout: float, session: Session) -> None:
    """Stop taking new pods of a slice; running pods stay."""
    lazy.provider.cordon_slice(session, Key(session.namespace, name), consumer, timeout_s=timeout)


@uncordon.command("resourceslice", epilog=options.examples(f"liqoctl uncordon {_SLICE_EXAMPLE}"))
@click.argument("name", shell_complete=options.names_of("slice"))
@_CONSUMER
@options.timeout("2m")
@options.global_flags
def uncordon_resourceslice(name: str, consumer: str, timeout: float, session: Session) -> None:
    """Take new pods of a slice again, whether it was cordoned or drained."""
    lazy.provider.uncordon_slice(session, Key(session.namespace, name), consumer, timeout_s=timeout)


@drain.command("resourceslice", epilog=options.examples(f"liqoctl drain {_SLICE_EXAMPLE}"))
@click.argument("name", shell_complete=options.names_of("slice"))
@_CONSUMER
@options.timeout("2m")
@options.global_flags
def drain_resourceslice(name: str, consumer: str, timeout: float, session: Session) -> None:
    """Have the consumer evict the pods of a slice, and wait until they are gone.

    The virtual node that its slice makes goes meanwhile; `liqoctl uncordon resourceslice` lets it
    come back.
    """
    lazy.provider.drain_slice(session, Key(session.namespace, name), consumer, timeout_s=timeout)


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
@click.option(
    "--resource", type=options.KeyValues(), multiple=True, help="Percent of one resource."
)
@click.option(
    "--limits",
    type=options.Amounts(),
    multiple=True,
    help="The most that is granted in all, of any class.",
)
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
    wanted = sharing.SharingOptions(
        tenant=given["tenant"],
        percentage=given["percentage"],
        by_resource=_percents(options.merged_pairs(given["resource"])),
        rounding=given["rounding"],
        limits=options.merged_pairs(given["limits"]),
    )
    if wanted == sharing.SharingOptions(tenant=wanted.tenant):
        raise click.UsageError(
            "say what to set: --sharing-percentage, --resource, --limits or --rounding"
        )
    lazy.provider.set_sharing(session, wanted, output)


def _percents(given: dict[str, str]) -> dict[str, int]:
    for name, text in given.items():
        if not text.isdecimal() or int(text) > 100:  # noqa: PLR2004  # percent
            raise click.BadParameter(f"{name}={text}: percent are whole numbers from 0 to 100")
    return {name: int(text) for name, text in given.items()}


@get.command(
    "sharing", epilog=options.examples("liqoctl get sharing", "liqoctl get sharing -o json")
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="Print JSON or YAML.")
@options.global_flags
def get_sharing(session: Session, output: str | None) -> None:
    """Show what is shared with each consumer, and what that comes to now. Reads only."""
    lazy.provider.get_sharing(session, output)
