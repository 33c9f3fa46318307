"""Tenants, identities, nonces and peering users, one by one.

With them two clusters peer that nobody reaches at once: each side prints what the other applies.
Source: docs/parity.md § 7.4, 7.6.
"""

import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from apis import authentication, keys, naming
from apis import objects as objects_
from apis.objects import Key, Kind, Object
from kube import clock
from kube.cluster import Cluster, Selection
from liqoctl import authentication as auth
from liqoctl import clusters, options, output
from liqoctl.authentication import BOTH, PROXY, PeerClusters
from liqoctl.clusters import Side
from liqoctl.forge import peering as forge
from liqoctl.options import Shown

if TYPE_CHECKING:
    from kube.client import ClusterClient


_CONSUMER = click.option(
    "--consumer-cluster-id",
    required=True,
    type=options.CLUSTER_ID,
    help="Cluster ID of the consumer.",
)
_FORM = options.output("yaml", "json", default="yaml", show_default=True)


@options.create.command("nonce", "liqoctl create nonce --remote-cluster-id rome")
@options.REMOTE_CLUSTER_ID
@options.timeout("2m")
@clusters.on_cluster("creating the nonce")
async def create_nonce(side: Side, remote_cluster_id: str) -> None:
    """On a provider: make a nonce that the consumer signs to prove its name."""
    await clusters.check_installed(side)  # else a namespace is made, and waited for
    namespace = await auth.ensure_namespace(side, remote_cluster_id)
    await auth.nonce(side, namespace, remote_cluster_id)
    side.info(f"nonce for {remote_cluster_id}: made; it is good for one use within ten minutes")


@options.get.command("nonce", "liqoctl get nonce --remote-cluster-id rome")
@options.REMOTE_CLUSTER_ID
@clusters.on_cluster("reading the nonce")
async def get_nonce(side: Side, remote_cluster_id: str) -> None:
    """On a provider: print the nonce for a consumer."""
    where = Key(await _namespace(side.cluster, remote_cluster_id), keys.NONCE_SECRET)
    cure = f"liqoctl create nonce --remote-cluster-id {remote_cluster_id}"
    output.echo(await _in_secret(side, where, "nonce", f"secret {where} holds no nonce: {cure}"))


@options.generate.command(
    "tenant", "liqoctl generate tenant --remote-cluster-id milan --nonce NONCE"
)
@options.REMOTE_CLUSTER_ID
@click.option("--nonce", default="", help="What liqoctl get nonce prints on the provider.")
@click.option(
    "--remote-tenant-namespace",
    default="",
    help="Namespace for this cluster on the provider.  [default: liqo-tenant-ID]",
)
@PROXY
@_FORM
@options.timeout("2m")
@clusters.on_cluster("generating the tenant")
async def generate_tenant(  # noqa: PLR0913  # each flag
    side: Side, remote_cluster_id: str,
    *, nonce: str, remote_tenant_namespace: str, proxy_url: str, form: str,
) -> None:  # fmt: skip
    """On a consumer: print the Tenant that the provider's administrator applies."""
    liqo = side.session.liqo_namespace
    consumer = await auth.cluster_id(side.cluster, liqo)
    here = await auth.ensure_namespace(side, remote_cluster_id)
    key = await auth.private_key(side.cluster, liqo)
    signed = Key(here, keys.SIGNED_NONCE_SECRET)
    hint = f"give --nonce, as liqoctl get nonce prints it there, or {signed}"
    text = nonce or await _in_secret(side, signed, "nonce", f"there is no nonce: {hint}")
    signature = await auth.signature_of(side, here, remote_cluster_id, text)
    if nonce:  # a Secret that was written by hand is left to its author
        await clusters.remove(side, keys.SECRET, signed)
    where = Key(remote_tenant_namespace or naming.tenant_namespace(consumer), consumer)
    proof = auth.proof_of(key, consumer, signature)
    output.dump([forge.tenant(where, consumer, proof, side.session.metadata, proxy_url)], form)


@options.generate.command("identity", "liqoctl generate identity --remote-cluster-id rome")
@options.REMOTE_CLUSTER_ID
@click.option(
    "--remote-tenant-namespace",
    default="",
    help="Namespace for this cluster on the consumer.  [default: liqo-tenant-ID]",
)
@_FORM
@options.timeout("2m")
@clusters.on_cluster("generating the identity")
async def generate_identity(
    side: Side, remote_cluster_id: str, remote_tenant_namespace: str, form: str
) -> None:
    """On a provider: print the Identity that the consumer's administrator applies."""
    made = await identity(side, remote_cluster_id, remote_tenant_namespace)
    output.dump([made], form)


@options.create.command("tenant", f"liqoctl create tenant {BOTH}")
@PROXY
@options.REPLACE
@options.timeout("2m")
@auth.on_both("creating the tenant")
async def create_tenant(peers: PeerClusters, **given: Any) -> None:
    """Let this cluster in at the remote one: the first half of authenticate."""
    await auth.let_in(peers, auth.Authentication(**given))


@options.create.command("identity", f"liqoctl create identity {BOTH}")
@PROXY
@options.PROVIDER_SERVER
@options.PROVIDER_POD_CIDR
@options.REPLACE
@options.timeout("2m")
@auth.on_both("creating the identity")
async def create_identity(peers: PeerClusters, **given: Any) -> None:
    """Store this cluster's credentials for the remote one: the second half of authenticate."""
    cluster = peers.provider.cluster
    (tenant,) = await found(cluster, keys.TENANT, peers.consumer_id)
    await auth.sign_in(peers, tenant, auth.Authentication(**given))


@options.get.command("tenant", "liqoctl get tenant -o wide", "liqoctl get tn rome -o yaml")
@clusters.named("cluster_id", keys.TENANT, default="")
@options.shown
@clusters.on_cluster(f"reading every {keys.TENANT}")
async def get_tenant(side: Side, cluster_id: str, how: Shown) -> None:
    """On a provider: show its consumers, or one of them."""
    await _show(side, keys.TENANT, cluster_id, how)


@options.get.command("identity", "liqoctl get identity", "liqoctl get id milan")
@clusters.named("cluster_id", keys.FOREIGN_CLUSTER, default="")
@options.shown
@clusters.on_cluster(f"reading every {keys.IDENTITY}")
async def get_identity(side: Side, cluster_id: str, how: Shown) -> None:
    """On a consumer: show the credentials for its providers, or for one of them."""
    await _show(side, keys.IDENTITY, cluster_id, how)


@options.delete.command("tenant", "liqoctl delete tenant rome")
@clusters.named("cluster_id", keys.TENANT)
@options.timeout("2m")
@clusters.on_cluster("deleting", asks="Remove tenant {cluster_id}? Its pods here end.")
async def delete_tenant(side: Side, cluster_id: str) -> None:
    """On a provider: remove a consumer, its rights and its objects."""
    await _delete(side, keys.TENANT, cluster_id)


@options.delete.command("identity", "liqoctl delete identity milan")
@clusters.named("cluster_id", keys.FOREIGN_CLUSTER)
@options.timeout("2m")
@clusters.on_cluster("deleting", asks="Remove the identities towards {cluster_id}?")
async def delete_identity(side: Side, cluster_id: str) -> None:
    """On a consumer: delete the credentials for a provider."""
    await _delete(side, keys.IDENTITY, cluster_id)


@options.get.command("kubeconfig", "liqoctl get kubeconfig --remote-cluster-id milan")
@click.argument("identity", default="")
@options.REMOTE_CLUSTER_ID
@clusters.on_cluster("reading the kubeconfig")
async def get_kubeconfig(side: Side, identity: str, remote_cluster_id: str) -> None:
    """On a consumer: print the kubeconfig of an Identity; that of the control plane by default."""
    called = identity or naming.controlplane_identity(remote_cluster_id)
    namespace = await _namespace(side.cluster, remote_cluster_id)
    where = Key(namespace, naming.kubeconfig_secret(called))
    lack = f"secret {where} does not exist: identity {called} has none"
    output.echo(await _in_secret(side, where, keys.KUBECONFIG_KEY, lack), ends_line=False)


@options.generate.command(
    "peering-user",
    "liqoctl generate peering-user --consumer-cluster-id rome > for-rome.kubeconfig",
    "liqoctl peer --kubeconfig rome.kubeconfig --remote-kubeconfig for-rome.kubeconfig",
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
@clusters.on_cluster("making the peering user")
async def generate_peering_user(side: Side, consumer_cluster_id: str, lifetime: float) -> None:
    """On a provider: print a kubeconfig with which the consumer's administrator can peer."""
    from certs import pki

    consumer = consumer_cluster_id
    namespace = await auth.ensure_namespace(side, consumer)
    if await _bindings(side, consumer):
        message = f"{consumer} has a peering user, whose key is not kept here"
        cure = f"liqoctl delete peering-user --consumer-cluster-id {consumer} first"
        raise click.ClickException(f"{message}: {cure}")
    name = forge.user(consumer, secrets.token_bytes(forge.RANDOM_BYTES))
    key = pki.new_key()
    certificate = await _certificate(side, key, consumer, name, timedelta(seconds=lifetime))
    liqo = side.session.liqo_namespace
    for kind, wanted in forge.grants(consumer, name, namespace, liqo):
        await clusters.keep(side, kind, wanted)
    access = side.cluster.access
    provider = await auth.cluster_id(side.cluster, liqo)
    made = pki.kubeconfig(
        pki.KubeconfigIdentity(
            name=name,
            cluster_id=provider,
            server=access.server,
            ca=access.ca,
            certificate=certificate,
            key=key,
            namespace=namespace,
        )
    )
    output.echo(made.decode(), ends_line=False)


@options.delete.command("peering-user", "liqoctl delete peering-user --consumer-cluster-id rome")
@_CONSUMER
@clusters.on_cluster("removing the peering user")
async def delete_peering_user(side: Side, consumer_cluster_id: str) -> None:
    """On a provider: remove the rights of a consumer's peering user."""
    found = await _bindings(side, consumer_cluster_id)
    if not found:
        raise click.ClickException(f"{consumer_cluster_id} has no peering user")
    for key in found:
        await clusters.remove(side, keys.ROLE_BINDING, key)


async def _show(side: Side, kind: Kind, peer: str, how: Shown) -> None:
    output.show(kind, await found(side.cluster, kind, peer), how, is_list=not peer)


async def _in_secret(side: Side, where: Key, name: str, lack: str) -> str:
    """Return what the Secret at ``where`` has under ``name``.

    Raises:
        click.ClickException: it has nothing there, with ``lack`` as message.
    """
    found = forge.data_in(await side.cluster.get_live(keys.SECRET, where), name)
    if not found:
        raise click.ClickException(lack)
    return found.decode()


async def identity(side: Side, consumer: str, remote_tenant_namespace: str) -> Object:
    """Return the Identity by which ``consumer`` signs in to this cluster, the provider.

    Its Tenant may just have been applied: what the controllers say to it is waited for.

    Raises:
        click.ClickException: the consumer is not let in.
    """
    liqo = side.session.liqo_namespace
    said = await auth.cluster_data(side.cluster, liqo)
    provider = str(said[keys.CLUSTER_ID_KEY])
    found = await _judged(side, consumer)
    where = remote_tenant_namespace or naming.tenant_namespace(provider)
    networks = await auth.pod_networks(side.cluster, liqo, said)
    return auth.identity_of(found, where, provider, side.session.metadata, networks)


async def _judged(side: Side, consumer: str) -> Object:
    where = Key(await _namespace(side.cluster, consumer), consumer)
    if await side.cluster.get_live(keys.TENANT, where) is None:
        cure = f"apply what liqoctl generate tenant prints on {consumer}"
        raise click.ClickException(f"tenant {where} does not exist: {cure}")
    found = await clusters.until(
        side, keys.TENANT, where, lambda tenant: bool(forge.is_ready(tenant)),
        what=f"tenant {where} to be judged", why=forge.complaint,
    )  # fmt: skip
    return found or {}


async def _namespace(cluster: "ClusterClient", peer: str) -> str:
    found = await auth.tenant_namespace(cluster, peer)
    if not found:
        raise click.ClickException(f"there is no tenant namespace for {peer}: nothing is peered")
    return found


async def found(cluster: Cluster, kind: Kind, peer: str) -> list[Object]:
    """Return the objects of ``kind`` about ``peer``, or about all peers.

    Raises:
        click.ClickException: there is no such object about that peer.
    """
    listed = (await cluster.list(Selection(kind, Object))).items
    chosen = [
        {"apiVersion": kind.api_version, "kind": kind.kind, **listed[key]}
        for key in sorted(listed)
        if not peer or peer in {key.name, (listed[key].get("spec") or {}).get("clusterID")}
    ]
    if peer and not chosen:
        raise click.ClickException(f"there is no {kind} about {peer}")
    return chosen


async def _delete(side: Side, kind: Kind, peer: str) -> None:
    for obj in await found(side.cluster, kind, peer):
        key = Key(obj["metadata"]["namespace"], obj["metadata"]["name"])
        await clusters.remove(side, kind, key, why="what belongs to it is being removed")


async def _certificate(
    side: Side, key: bytes, consumer: str, name: str, lifetime: timedelta
) -> bytes:
    from certs import pki

    kind = keys.CERTIFICATE_SIGNING_REQUEST
    request = pki.new_csr(key, common_name=name, organizations=[keys.PEER_ORGANIZATION])
    wanted = forge.signing_request(request, consumer, name, lifetime)
    made = await side.cluster.create(kind, wanted)
    where = objects_.key_of(made)
    approval = forge.approval(made, objects_.timestamp(clock.now()))
    await side.cluster.patch(kind, where, approval, subresource="approval")
    signed = await clusters.until(
        side, kind, where, lambda found: bool(_signed(found)), what=f"the certificate {where}"
    )
    return _signed(signed)


def _signed(found: Object | None) -> bytes:
    return authentication.decoded(objects_.status(found), "certificate")


async def _bindings(side: Side, consumer: str) -> list[Key]:
    of = Selection(keys.ROLE_BINDING, Object, labels=forge.selector(consumer))
    return sorted((await side.cluster.list(of)).items)
