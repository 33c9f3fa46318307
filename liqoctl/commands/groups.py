"""The verbs that several kinds share: each command of theirs is added where its kind is."""

from liqoctl import options


@options.verb(
    "liqoctl create virtualnode milan --remote-cluster-id milan --kubeconfig-secret-name milan",
    "liqoctl create nonce --remote-cluster-id rome",
)
def create() -> None:
    """Make objects of a peering: slices, virtual nodes, tenants, identities, nonces."""


@options.verb("liqoctl delete virtualnode milan", "liqoctl delete tenant rome")
def delete() -> None:
    """Remove objects of a peering."""


@options.verb(
    "liqoctl get tenant",
    "liqoctl get nonce --remote-cluster-id rome",
    "liqoctl get reflections -n shop",
)
def get() -> None:
    """Show objects of a peering."""


@options.verb(
    "liqoctl generate tenant --remote-cluster-id milan --nonce NONCE > tenant.yaml",
    "liqoctl generate peering-user --consumer-cluster-id rome > for-rome.kubeconfig",
)
def generate() -> None:
    """Print objects for the other cluster's administrator, where nobody reaches both clusters."""


@options.verb("liqoctl force unpeer milan")
def force() -> None:
    """Give up a peer that does not come back."""
