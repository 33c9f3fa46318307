"""The steps of an authentication one by one, and the users with which administrators peer.

Source: docs/parity.md § 7.4, 7.6.
"""

import secrets
from datetime import timedelta

import click

from apis import authentication, keys, naming
from apis import objects as objects_
from apis.objects import Key, Kind, Object
from certs import pki
from kube import clock
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from liqoctl import clusters, output
from liqoctl import peer as peer_
from liqoctl.clusters import Side
from liqoctl.forge import peering as forge
from liqoctl.output import Shown


async def show(side: Side, kind: Kind, peer: str, how: Shown) -> None:
    output.show(kind, await found(side.cluster, kind, peer), how, is_list=not peer)


async def create_nonce(side: Side, consumer: str) -> None:
    namespace = await peer_.ensure_namespace(side, consumer)
    await peer_.nonce(side, namespace, consumer)
    side.info(f"nonce for {consumer}: made; it is good for one use within ten minutes")


async def nonce(side: Side, consumer: str) -> str:
    """Return the nonce that this cluster, the provider, has for ``consumer``.

    Raises:
        click.ClickException: there is no nonce.
    """
    namespace = await _namespace(side.cluster, consumer)
    where = Key(namespace, keys.NONCE_SECRET)
    found = forge.data_in(await side.cluster.get_live(keys.SECRET, where), "nonce")
    if not found:
        cure = f"liqoctl create nonce --remote-cluster-id {consumer}"
        raise click.ClickException(f"secret {where} holds no nonce: {cure}")
    return found.decode()


async def tenant(
    side: Side, provider: str, nonce: str, remote_tenant_namespace: str, proxy_url: str
) -> Object:
    """Return the Tenant by which ``provider`` is to know this cluster, the consumer.

    What is given may be empty: without a nonce that of the Secret ``liqo-signed-nonce`` is used, as
    for who writes that by hand.

    Raises:
        click.ClickException: there is no nonce.
    """
    liqo = side.session.liqo_namespace
    consumer = await peer_.cluster_id(side.cluster, liqo)
    here = await peer_.ensure_namespace(side, provider)
    key = await peer_.private_key(side.cluster, liqo)
    text = nonce or await _given_nonce(side.cluster, here)
    signature = await peer_.signature_of(side, here, provider, text)
    if nonce:  # a Secret that was written by hand is left to its author
        await clusters.remove(side, keys.SECRET, Key(here, keys.SIGNED_NONCE_SECRET))
    where = Key(remote_tenant_namespace or naming.tenant_namespace(consumer), consumer)
    proof = peer_.proof_of(key, consumer, signature)
    return forge.tenant(where, consumer, proof, side.session.metadata, proxy_url)


async def _given_nonce(cluster: Cluster, namespace: str) -> str:
    where = Key(namespace, keys.SIGNED_NONCE_SECRET)
    found = forge.data_in(await cluster.get_live(keys.SECRET, where), "nonce")
    if not found:
        message = (
            f"there is no nonce: give --nonce, as liqoctl get nonce prints it there, or {where}"
        )
        raise click.ClickException(message)
    return found.decode()


async def identity(side: Side, consumer: str, remote_tenant_namespace: str) -> Object:
    """Return the Identity by which ``consumer`` signs in to this cluster, the provider.

    Its Tenant may just have been applied: what the controllers say to it is waited for.

    Raises:
        click.ClickException: the consumer is not let in.
    """
    liqo = side.session.liqo_namespace
    said = await peer_.cluster_data(side.cluster, liqo)
    provider = str(said[keys.CLUSTER_ID_KEY])
    found = await _judged(side, consumer)
    where = remote_tenant_namespace or naming.tenant_namespace(provider)
    networks = await peer_.pod_networks(side.cluster, liqo, said)
    return peer_.identity_of(found, where, provider, side.session.metadata, networks)


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


async def _namespace(cluster: ClusterClient, peer: str) -> str:
    found = await peer_.tenant_namespace(cluster, peer)
    if not found:
        raise click.ClickException(f"there is no tenant namespace for {peer}: nothing is peered")
    return found


async def identity_kubeconfig(side: Side, provider: str, name: str) -> str:
    """Return the kubeconfig of the Identity ``name`` towards ``provider``.

    Raises:
        click.ClickException: there is no such kubeconfig.
    """
    called = name or naming.controlplane_identity(provider)
    where = Key(await _namespace(side.cluster, provider), naming.kubeconfig_secret(called))
    text = forge.data_in(await side.cluster.get_live(keys.SECRET, where), keys.KUBECONFIG_KEY)
    if not text:
        raise click.ClickException(f"secret {where} does not exist: identity {called} has none")
    return text.decode()


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


async def delete(side: Side, kind: Kind, peer: str) -> None:
    """Delete what ``kind`` says about ``peer``, and wait until it is gone."""
    for obj in await found(side.cluster, kind, peer):
        key = Key(obj["metadata"]["namespace"], obj["metadata"]["name"])
        await clusters.remove(side, kind, key, why="what belongs to it is being removed")


# Makes and removes the user with which a consumer's administrator peers, and noth -----------------
# Source: docs/parity.md § 7.6.


async def peering_user_kubeconfig(side: Side, consumer: str, lifetime: timedelta) -> bytes:
    """Return the kubeconfig of a new user for ``consumer``.

    Raises:
        click.ClickException: there is one already: delete it first, its key is not kept.
    """
    namespace = await peer_.ensure_namespace(side, consumer)
    if await _bindings(side, consumer):
        message = f"{consumer} has a peering user, whose key is not kept here"
        cure = f"liqoctl delete peering-user --consumer-cluster-id {consumer} first"
        raise click.ClickException(f"{message}: {cure}")
    name = forge.user(consumer, secrets.token_bytes(forge.RANDOM_BYTES))
    key = pki.new_key()
    certificate = await _certificate(side, key, consumer, name, lifetime)
    liqo = side.session.liqo_namespace
    for kind, wanted in forge.grants(consumer, name, namespace, liqo):
        await clusters.keep(side, kind, wanted)
    access = side.cluster.access
    provider = await peer_.cluster_id(side.cluster, liqo)
    return pki.kubeconfig(
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


async def _certificate(
    side: Side, key: bytes, consumer: str, name: str, lifetime: timedelta
) -> bytes:
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


async def delete_peering_user(side: Side, consumer: str) -> None:
    """Take every right of the peering users of ``consumer`` away: what they sign in by ends so.

    Raises:
        click.ClickException: there is no peering user.
    """
    found = await _bindings(side, consumer)
    if not found:
        raise click.ClickException(f"{consumer} has no peering user")
    for key in found:
        await clusters.remove(side, keys.ROLE_BINDING, key)


async def _bindings(side: Side, consumer: str) -> list[Key]:
    of = Selection(keys.ROLE_BINDING, Object, labels=forge.selector(consumer))
    return sorted((await side.cluster.list(of)).items)
