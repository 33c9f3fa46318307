"""Tenants, identities, nonces and peering users, one by one.

With them two clusters peer that nobody reaches at once: each side prints what the other applies.
Source: docs/parity.md § 7.4, 7.6.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import click

from apis import keys
from apis.objects import Kind
from liqoctl import lazy, options
from liqoctl.lazy import PeerClusters, Side
from liqoctl.options import Session, create, delete, generate, get

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
@options.global_flags
def create_nonce(session: Session, remote_cluster_id: str, timeout: float) -> None:
    """On a provider: make a nonce that the consumer signs to prove its name."""

    async def work(side: Side) -> None:
        # Else a namespace is made, and waited for.
        await lazy.clusters.check_installed(side.cluster, session)
        await lazy.identity.create_nonce(side, remote_cluster_id)

    lazy.identity.run(session, "creating the nonce", timeout, work)


@get.command("nonce", epilog=options.examples("liqoctl get nonce --remote-cluster-id rome"))
@options.REMOTE_CLUSTER_ID
@options.global_flags
def get_nonce(session: Session, remote_cluster_id: str) -> None:
    """On a provider: print the nonce for a consumer."""

    async def work(side: Side) -> None:
        lazy.output.echo(await lazy.identity.nonce(side, remote_cluster_id))

    _read(session, "reading the nonce", work)


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
@options.global_flags
def generate_tenant(  # noqa: PLR0913, PLR0917  # each a flag
    session: Session, remote_cluster_id: str, nonce: str, remote_tenant_namespace: str,
    proxy_url: str, output: str, timeout: float,
) -> None:  # fmt: skip
    """On a consumer: print the Tenant that the provider's administrator applies."""
    given = {"nonce": nonce, "namespace": remote_tenant_namespace, "proxyURL": proxy_url}

    async def work(side: Side) -> None:
        where, metadata = session.liqo_namespace, session.metadata
        made = await lazy.identity.tenant(side, remote_cluster_id, given, where, metadata)
        lazy.output.dump([made], output)

    lazy.identity.run(session, "generating the tenant", timeout, work)


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
@options.global_flags
def generate_identity(
    session: Session,
    remote_cluster_id: str,
    remote_tenant_namespace: str,
    output: str,
    timeout: float,
) -> None:
    """On a provider: print the Identity that the consumer's administrator applies."""

    async def work(side: Side) -> None:
        made = await lazy.identity.identity(
            side,
            remote_cluster_id,
            remote_tenant_namespace,
            session.liqo_namespace,
            session.metadata,
        )
        lazy.output.dump([made], output)

    lazy.identity.run(session, "generating the identity", timeout, work)


@create.command("tenant", epilog=options.examples(f"liqoctl create tenant {_BOTH}"))
@_PROXY
@options.REPLACE
@options.timeout("2m")
@options.global_flags
@options.remote_flags
def create_tenant(
    session: Session, remote: Session, proxy_url: str, timeout: float, *, replace: bool
) -> None:
    """Let this cluster in at the remote one: the first half of authenticate."""
    how = lazy.peer.Authentication(proxy_url, replaces=replace)

    async def work(peers: PeerClusters) -> None:
        await lazy.peer.let_in(peers, how)

    lazy.peer.run(session, remote, "creating the tenant", timeout, work)


@create.command("identity", epilog=options.examples(f"liqoctl create identity {_BOTH}"))
@_PROXY
@options.PROVIDER_SERVER
@options.PROVIDER_POD_CIDR
@options.REPLACE
@options.timeout("2m")
@options.global_flags
@options.remote_flags
def create_identity(session: Session, remote: Session, timeout: float, **given: Any) -> None:
    """Store this cluster's credentials for the remote one: the second half of authenticate."""
    how = lazy.peer.Authentication(
        given["proxy_url"],
        replaces=given["replace"],
        server=given["provider_server"],
        pod_networks=given["provider_pod_cidr"],
    )

    async def work(peers: PeerClusters) -> None:
        cluster = peers.provider.cluster
        (tenant,) = await lazy.identity.found(cluster, keys.TENANT, peers.consumer_id)
        await lazy.peer.sign_in(peers, tenant, how)

    lazy.peer.run(session, remote, "creating the identity", timeout, work)


@get.command(
    "tenant", epilog=options.examples("liqoctl get tenant -o wide", "liqoctl get tn rome -o yaml")
)
@click.argument(
    "cluster_id", default="", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant")
)
@options.shown
@options.global_flags
def get_tenant(session: Session, cluster_id: str, output: str | None, *, in_all: bool) -> None:
    """On a provider: show its consumers, or one of them."""
    lazy.identity.show(session, keys.TENANT, cluster_id, lazy.output.Shown(output, in_all))


@get.command("identity", epilog=options.examples("liqoctl get identity", "liqoctl get id milan"))
@click.argument(
    "cluster_id", default="", type=options.CLUSTER_ID, shell_complete=options.names_of("cluster")
)
@options.shown
@options.global_flags
def get_identity(session: Session, cluster_id: str, output: str | None, *, in_all: bool) -> None:
    """On a consumer: show the credentials for its providers, or for one of them."""
    lazy.identity.show(session, keys.IDENTITY, cluster_id, lazy.output.Shown(output, in_all))


@delete.command("tenant", epilog=options.examples("liqoctl delete tenant rome"))
@click.argument("cluster_id", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant"))
@options.timeout("2m")
@options.global_flags
def delete_tenant(session: Session, cluster_id: str, timeout: float) -> None:
    """On a provider: remove a consumer, its rights and its objects."""
    options.confirm(session, f"Remove tenant {cluster_id}? Its pods here end.")
    _delete(session, keys.TENANT, cluster_id, timeout)


@delete.command("identity", epilog=options.examples("liqoctl delete identity milan"))
@click.argument("cluster_id", type=options.CLUSTER_ID, shell_complete=options.names_of("cluster"))
@options.timeout("2m")
@options.global_flags
def delete_identity(session: Session, cluster_id: str, timeout: float) -> None:
    """On a consumer: delete the credentials for a provider."""
    options.confirm(session, f"Remove the identities towards {cluster_id}?")
    _delete(session, keys.IDENTITY, cluster_id, timeout)


def _delete(session: Session, kind: Kind, cluster_id: str, timeout_s: float) -> None:
    async def work(side: Side) -> None:
        await lazy.identity.delete(side, kind, cluster_id)

    lazy.identity.run(session, "deleting", timeout_s, work)


def _read(session: Session, what: str, work: Callable[[Side], Awaitable[None]]) -> None:
    lazy.identity.run(session, what, lazy.identity.READ_S, work)


@get.command(
    "kubeconfig", epilog=options.examples("liqoctl get kubeconfig --remote-cluster-id milan")
)
@click.argument("identity", default="")
@options.REMOTE_CLUSTER_ID
@options.global_flags
def get_kubeconfig(session: Session, identity: str, remote_cluster_id: str) -> None:
    """On a consumer: print the kubeconfig of an Identity; that of the control plane by default."""

    async def work(side: Side) -> None:
        found = await lazy.identity.identity_kubeconfig(side, remote_cluster_id, identity)
        lazy.output.echo(found, ends_line=False)

    _read(session, "reading the kubeconfig", work)


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
    type=options.Duration(),
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
@options.global_flags
def generate_peering_user(session: Session, consumer_cluster_id: str, lifetime: float) -> None:
    """On a provider: print a kubeconfig with which the consumer's administrator can peer."""

    async def work(side: Side) -> None:
        made = await lazy.identity.peering_user_kubeconfig(
            side, consumer_cluster_id, session.liqo_namespace, timedelta(seconds=lifetime)
        )
        lazy.output.echo(made.decode(), ends_line=False)

    _read(session, "making the peering user", work)


@delete.command(
    "peering-user",
    epilog=options.examples("liqoctl delete peering-user --consumer-cluster-id rome"),
)
@_CONSUMER
@options.global_flags
def delete_peering_user(session: Session, consumer_cluster_id: str) -> None:
    """On a provider: remove the rights of a consumer's peering user."""

    async def work(side: Side) -> None:
        await lazy.identity.delete_peering_user(side, consumer_cluster_id)

    _read(session, "removing the peering user", work)
