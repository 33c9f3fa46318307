"""The verbs that several kinds share: each command of theirs is added where its kind is."""

from typing import Final

import click

from liqoctl import options

_ALIASES: Final = {
    "vn": "virtualnode",
    "virtualnodes": "virtualnode",
    "rs": "resourceslice",
    "rslice": "resourceslice",
    "resourceslices": "resourceslice",
    "tn": "tenant",
    "tenants": "tenant",
    "id": "identity",
    "identities": "identity",
}


@click.group(
    cls=options.AliasGroup,
    aliases=_ALIASES,
    epilog=options.examples(
        "liqoctl create virtualnode milan --remote-cluster-id milan --kubeconfig-secret-name milan",
        "liqoctl create nonce --remote-cluster-id rome",
    ),
)
def create() -> None:
    """Make objects of a peering: slices, virtual nodes, tenants, identities, nonces."""


@click.group(
    cls=options.AliasGroup,
    aliases=_ALIASES,
    epilog=options.examples("liqoctl delete virtualnode milan", "liqoctl delete tenant rome"),
)
def delete() -> None:
    """Remove objects of a peering."""


@click.group(
    cls=options.AliasGroup,
    aliases=_ALIASES,
    epilog=options.examples(
        "liqoctl get tenant",
        "liqoctl get nonce --remote-cluster-id rome",
        "liqoctl get reflections -n shop",
    ),
)
def get() -> None:
    """Show objects of a peering."""


@click.group(
    cls=options.AliasGroup,
    aliases=_ALIASES,
    epilog=options.examples(
        "liqoctl generate tenant --remote-cluster-id milan --nonce NONCE > tenant.yaml",
        "liqoctl generate peering-user --consumer-cluster-id rome > for-rome.kubeconfig",
    ),
)
def generate() -> None:
    """Print what somebody else applies: for peers whose clusters nobody reaches at once."""


@click.group(epilog=options.examples("liqoctl force unpeer milan"))
def force() -> None:
    """Do without a peer that does not come back."""
