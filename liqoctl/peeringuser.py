"""Makes and removes the user with which a consumer's administrator peers, and nothing else.

Source: docs/parity.md § 7.6.
"""

import secrets
from datetime import timedelta

import click

from apis import authentication, keys, times
from apis import objects as objects_
from apis.objects import Key, Object
from certs import kubeconfig, pki
from kube import clock
from kube.cluster import Selection
from liqoctl import clusters, handshake
from liqoctl.clusters import Side
from liqoctl.forge import peering as forge


async def generate(side: Side, consumer: str, liqo: str, lifetime: timedelta) -> bytes:
    """Return the kubeconfig of a new user for ``consumer``.

    Raises:
        click.ClickException: there is one already: delete it first, its key is not kept.
    """
    namespace = await handshake.ensure_namespace(side, consumer)
    if await _bindings(side, consumer):
        message = f"{consumer} has a peering user, whose key is not kept here"
        cure = f"liqoctl delete peering-user --consumer-cluster-id {consumer} first"
        raise click.ClickException(f"{message}: {cure}")
    name = forge.user(consumer, secrets.token_bytes(forge.RANDOM_BYTES))
    key = pki.new_key()
    certificate = await _certificate(side, key, consumer, name, lifetime)
    for kind, wanted in forge.grants(consumer, name, namespace, liqo):
        await clusters.keep(side, kind, wanted)
    access = side.cluster.access
    provider = await handshake.cluster_id(side.cluster, liqo)
    return kubeconfig.forge(
        kubeconfig.Identity(
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
    approval = forge.approval(made, times.seconds(clock.now()))
    await side.cluster.patch(kind, where, approval, subresource="approval")
    signed = await clusters.until(
        side, kind, where, lambda found: bool(_signed(found)), what=f"the certificate {where}"
    )
    return _signed(signed)


def _signed(found: Object | None) -> bytes:
    return authentication.decoded(objects_.status(found), "certificate")


async def delete(side: Side, consumer: str) -> None:
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
