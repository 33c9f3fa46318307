"""Tenants, identities, nonces and peering users, one by one.

With them two clusters peer that nobody reaches at once: each side prints what the other applies.
Source: docs/parity.md § 7.4, 7.6.
"""

from datetime import timedelta
from typing import Any, Final

import click

from apis import keys
from liqoctl import lazy, options
from liqoctl.lazy import PeerClusters, Side
from liqoctl.options import create, delete, generate, get

_BOTH: Final = "--kubeconfig rome.kubeconfig --remote-kubeconfig milan.kubeconfig"
_PROXY = click.option(
    "--proxy-url", default="", help="Proxy through which the consumer reaches the provider."
)
_CONSUMER = click.option(
    "--consumer-cluster-id",
    required=True,
    type=options.CLUSTER_ID,
    help="Cluster ID of the consumer.",
)
_FORM = click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True
)


@create.command("nonce", epilog=options.examples("liqoctl create nonce --remote-cluster-id rome"))
@options.REMOTE_CLUSTER_ID
@options.timeout("2m")
@options.on_cluster("creating the nonce")
async def create_nonce(side: Side, remote_cluster_id: str) -> None:
    """On a provider: make a nonce that the consumer signs to prove its name."""
    await lazy.clusters.check_installed(side)  # else a namespace is made, and waited for
    await lazy.identity.create_nonce(side, remote_cluster_id)


@get.command("nonce", epilog=options.examples("liqoctl get nonce --remote-cluster-id rome"))
@options.REMOTE_CLUSTER_ID
@options.on_cluster("reading the nonce")
async def get_nonce(side: Side, remote_cluster_id: str) -> None:
    """On a provider: print the nonce for a consumer."""
    lazy.output.echo(await lazy.identity.nonce(side, remote_cluster_id))


@generate.command(
    "tenant",
    epilog=options.examples("liqoctl generate tenant --remote-cluster-id milan --nonce NONCE"),
)
@options.REMOTE_CLUSTER_ID
@click.option("--nonce", default="", help="What liqoctl get nonce prints on the provider.")
@click.option(
    "--remote-tenant-namespace",
    default="",
    help="Namespace for this cluster on the provider.  [default: liqo-tenant-ID]",
)
@_PROXY
@_FORM
@options.timeout("2m")
@options.on_cluster("generating the tenant")
async def generate_tenant(side: Side, remote_cluster_id: str, output: str, **given: str) -> None:
    """On a consumer: print the Tenant that the provider's administrator applies."""
    lazy.output.dump([await lazy.identity.tenant(side, remote_cluster_id, **given)], output)


@generate.command(
    "identity", epilog=options.examples("liqoctl generate identity --remote-cluster-id rome")
)
@options.REMOTE_CLUSTER_ID
@click.option(
    "--remote-tenant-namespace",
    default="",
    help="Namespace for this cluster on the consumer.  [default: liqo-tenant-ID]",
)
@_FORM
@options.timeout("2m")
@options.on_cluster("generating the identity")
async def generate_identity(
    side: Side, remote_cluster_id: str, remote_tenant_namespace: str, output: str
) -> None:
    """On a provider: print the Identity that the consumer's administrator applies."""
    made = await lazy.identity.identity(side, remote_cluster_id, remote_tenant_namespace)
    lazy.output.dump([made], output)


@create.command("tenant", epilog=options.examples(f"liqoctl create tenant {_BOTH}"))
@_PROXY
@options.REPLACE
@options.timeout("2m")
@options.on_both("creating the tenant")
async def create_tenant(peers: PeerClusters, **given: Any) -> None:
    """Let this cluster in at the remote one: the first half of authenticate."""
    await lazy.peer.let_in(peers, lazy.peer.Authentication(**given))


@create.command("identity", epilog=options.examples(f"liqoctl create identity {_BOTH}"))
@_PROXY
@options.PROVIDER_SERVER
@options.PROVIDER_POD_CIDR
@options.REPLACE
@options.timeout("2m")
@options.on_both("creating the identity")
async def create_identity(peers: PeerClusters, **given: Any) -> None:
    """Store this cluster's credentials for the remote one: the second half of authenticate."""
    cluster = peers.provider.cluster
    (tenant,) = await lazy.identity.found(cluster, keys.TENANT, peers.consumer_id)
    await lazy.peer.sign_in(peers, tenant, lazy.peer.Authentication(**given))


@get.command(
    "tenant", epilog=options.examples("liqoctl get tenant -o wide", "liqoctl get tn rome -o yaml")
)
@click.argument(
    "cluster_id", default="", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant")
)
@options.shown
@options.on_cluster(f"reading every {keys.TENANT}")
async def get_tenant(side: Side, cluster_id: str, how: Any) -> None:
    """On a provider: show its consumers, or one of them."""
    await lazy.identity.show(side, keys.TENANT, cluster_id, how)


@get.command("identity", epilog=options.examples("liqoctl get identity", "liqoctl get id milan"))
@click.argument(
    "cluster_id", default="", type=options.CLUSTER_ID, shell_complete=options.names_of("cluster")
)
@options.shown
@options.on_cluster(f"reading every {keys.IDENTITY}")
async def get_identity(side: Side, cluster_id: str, how: Any) -> None:
    """On a consumer: show the credentials for its providers, or for one of them."""
    await lazy.identity.show(side, keys.IDENTITY, cluster_id, how)


@delete.command("tenant", epilog=options.examples("liqoctl delete tenant rome"))
@click.argument("cluster_id", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant"))
@options.timeout("2m")
@options.on_cluster("deleting", asks="Remove tenant {cluster_id}? Its pods here end.")
async def delete_tenant(side: Side, cluster_id: str) -> None:
    """On a provider: remove a consumer, its rights and its objects."""
    await lazy.identity.delete(side, keys.TENANT, cluster_id)


@delete.command("identity", epilog=options.examples("liqoctl delete identity milan"))
@click.argument("cluster_id", type=options.CLUSTER_ID, shell_complete=options.names_of("cluster"))
@options.timeout("2m")
@options.on_cluster("deleting", asks="Remove the identities towards {cluster_id}?")
async def delete_identity(side: Side, cluster_id: str) -> None:
    """On a consumer: delete the credentials for a provider."""
    await lazy.identity.delete(side, keys.IDENTITY, cluster_id)


@get.command(
    "kubeconfig", epilog=options.examples("liqoctl get kubeconfig --remote-cluster-id milan")
)
@click.argument("identity", default="")
@options.REMOTE_CLUSTER_ID
@options.on_cluster("reading the kubeconfig")
async def get_kubeconfig(side: Side, identity: str, remote_cluster_id: str) -> None:
    """On a consumer: print the kubeconfig of an Identity; that of the control plane by default."""
    found = await lazy.identity.identity_kubeconfig(side, remote_cluster_id, identity)
    lazy.output.echo(found, ends_line=False)


@generate.command(
    "peering-user",
    epilog=options.examples(
        "liqoctl generate peering-user --consumer-cluster-id rome > for-rome.kubeconfig",
        "liqoctl peer --kubeconfig rome.kubeconfig --remote-kubeconfig for-rome.kubeconfig",
    ),
)
@_CONSUMER
@click.option(
    "--lifetime",
    type=options.DURATION,
    default="24h",
    show_default=True,
    help="How long its certificate lasts.",
)
@click.option(
    "--tls-compatibility-mode",
    type=click.Choice(["auto", "true", "false"]),
    default="auto",
    expose_value=False,
    help="For command lines of Liqo: its key is ECDSA P-256 in any case, which TLS libraries know.",
)
@options.on_cluster("making the peering user")
async def generate_peering_user(side: Side, consumer_cluster_id: str, lifetime: float) -> None:
    """On a provider: print a kubeconfig with which the consumer's administrator can peer."""
    lasts = timedelta(seconds=lifetime)
    made = await lazy.identity.peering_user_kubeconfig(side, consumer_cluster_id, lasts)
    lazy.output.echo(made.decode(), ends_line=False)


@delete.command(
    "peering-user",
    epilog=options.examples("liqoctl delete peering-user --consumer-cluster-id rome"),
)
@_CONSUMER
@options.on_cluster("removing the peering user")
async def delete_peering_user(side: Side, consumer_cluster_id: str) -> None:
    """On a provider: remove the rights of a consumer's peering user."""
    await lazy.identity.delete_peering_user(side, consumer_cluster_id)
