"""Tenants, identities, nonces and peering users, one by one.

With them two clusters peer that nobody reaches at once: each side prints what the other applies.
Source: behaviour.md 7.4 ("Manual equivalent"), 7.6.
"""

from typing import Any, Final

import click

from apis import keys
from liqoctl import late, options
from liqoctl.commands.groups import create, delete, generate, get
from liqoctl.options import Session

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
    late.peercli.create_nonce(session, remote_cluster_id, timeout_s=timeout)


@get.command("nonce", epilog=options.examples("liqoctl get nonce --remote-cluster-id rome"))
@options.REMOTE_CLUSTER_ID
@options.global_flags
def get_nonce(session: Session, remote_cluster_id: str) -> None:
    """On a provider: print the nonce for a consumer."""
    late.peercli.get_nonce(session, remote_cluster_id)


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
    late.peercli.generate_tenant(
        session, remote_cluster_id, given, output=output, timeout_s=timeout
    )


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
    late.peercli.generate_identity(
        session, remote_cluster_id, remote_tenant_namespace, output=output, timeout_s=timeout
    )


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
    how = late.peercli.Authentication(proxy_url, replaces=replace)
    late.peercli.create_tenant(session, remote, how, timeout_s=timeout)


@create.command("identity", epilog=options.examples(f"liqoctl create identity {_BOTH}"))
@_PROXY
@options.PROVIDER_SERVER
@options.PROVIDER_POD_CIDR
@options.REPLACE
@options.timeout("2m")
@options.global_flags
@options.remote_flags
def create_identity(session: Session, remote: Session, timeout: float, **given: Any) -> None:
    """Store how this cluster gets in at the remote one: the second half of authenticate."""
    how = late.peercli.Authentication(
        given["proxy_url"],
        replaces=given["replace"],
        server=given["provider_server"],
        pod_networks=given["provider_pod_cidr"],
    )
    late.peercli.create_identity(session, remote, how, timeout_s=timeout)


@get.command("tenant", epilog=options.examples("liqoctl get tenant", "liqoctl get tn rome -o yaml"))
@click.argument(
    "cluster_id", default="", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant")
)
@options.SHOWN
@options.global_flags
def get_tenant(session: Session, cluster_id: str, output: str | None) -> None:
    """On a provider: show its consumers, or one of them."""
    late.peercli.show(session, keys.TENANT, cluster_id, output)


@get.command("identity", epilog=options.examples("liqoctl get identity", "liqoctl get id milan"))
@click.argument(
    "cluster_id", default="", type=options.CLUSTER_ID, shell_complete=options.names_of("cluster")
)
@options.SHOWN
@options.global_flags
def get_identity(session: Session, cluster_id: str, output: str | None) -> None:
    """On a consumer: show how it signs in to its providers, or to one of them."""
    late.peercli.show(session, keys.IDENTITY, cluster_id, output)


@delete.command("tenant", epilog=options.examples("liqoctl delete tenant rome"))
@click.argument("cluster_id", type=options.CLUSTER_ID, shell_complete=options.names_of("tenant"))
@options.timeout("2m")
@options.global_flags
def delete_tenant(session: Session, cluster_id: str, timeout: float) -> None:
    """On a provider: take every right of a consumer away, and what it has here."""
    options.confirm(session, f"Remove tenant {cluster_id}? Its pods here end.")
    late.peercli.delete(session, keys.TENANT, cluster_id, timeout_s=timeout)


@delete.command("identity", epilog=options.examples("liqoctl delete identity milan"))
@click.argument("cluster_id", type=options.CLUSTER_ID, shell_complete=options.names_of("cluster"))
@options.timeout("2m")
@options.global_flags
def delete_identity(session: Session, cluster_id: str, timeout: float) -> None:
    """On a consumer: forget how it signs in to a provider."""
    options.confirm(session, f"Remove the identities towards {cluster_id}?")
    late.peercli.delete(session, keys.IDENTITY, cluster_id, timeout_s=timeout)


@get.command(
    "kubeconfig", epilog=options.examples("liqoctl get kubeconfig --remote-cluster-id milan")
)
@click.argument("identity", default="")
@options.REMOTE_CLUSTER_ID
@options.global_flags
def get_kubeconfig(session: Session, identity: str, remote_cluster_id: str) -> None:
    """On a consumer: print the kubeconfig of an Identity; that of the control plane by default."""
    late.peercli.get_kubeconfig(session, remote_cluster_id, identity)


@generate.command(
    "peering-user",
    epilog=options.examples(
        "liqoctl generate peering-user --consumer-cluster-id rome > for-rome.kubeconfig",
        "liqoctl peer --kubeconfig rome.kubeconfig --remote-kubeconfig for-rome.kubeconfig",
    ),
)
@_CONSUMER
@click.option(
    "--lifetime", type=options.Duration(), default="24h", show_default=True, help="How long it is."
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
    late.peercli.generate_peering_user(session, consumer_cluster_id, lifetime)


@delete.command(
    "peering-user",
    epilog=options.examples("liqoctl delete peering-user --consumer-cluster-id rome"),
)
@_CONSUMER
@options.global_flags
def delete_peering_user(session: Session, consumer_cluster_id: str) -> None:
    """On a provider: take the rights of a consumer's peering user away."""
    late.peercli.delete_peering_user(session, consumer_cluster_id)
