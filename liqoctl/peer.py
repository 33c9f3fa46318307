"""Peering and its end, by the consumer's administrator, and the handshake within it.

Source: docs/parity.md § 7.4, 7.5.
"""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from apis import authentication, keys, naming, ownership, slices
from apis import objects as objects_
from apis.authentication import AuthParams
from apis.networks import announced_networks
from apis.objects import Key, Kind, Object
from apis.offloading import NamespaceMap
from certs import identity, pki
from kube import clock
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from kube.errors import ForbiddenError, NotFoundError
from liqoctl import clusters, servers
from liqoctl import resourceslice as asking
from liqoctl.clusters import Side
from liqoctl.forge import peering as forge
from liqoctl.forge import resourceslice, virtualnode
from liqoctl.forge.peering import Entrance, Metadata
from liqoctl.forge.resourceslice import SliceOptions

# The handshake: a consumer proves to a provider who it is -----------------------------------------


@dataclass(frozen=True)
class PeerClusters:
    """Two clusters, one of which is to use the other."""

    consumer: Side
    provider: Side
    consumer_id: str
    provider_id: str
    pod_networks: str = ""
    """In which the provider says that its pods are."""


@dataclass(frozen=True)
class Authentication:
    """How a consumer is to get in: what the flags say, each by its name."""

    proxy_url: str = ""
    wait: bool = True
    """Also for the kubeconfig that the consumer's controllers make."""
    replace: bool = False
    """Also what is there for another cluster of that name."""
    provider_server: str = ""
    """The API server of the provider, in the administrator's own words; empty: the kubeconfig's."""
    provider_pod_cidr: str = ""
    """By comma; empty: the networks that were named before, or that the provider says."""


AS_USUAL: Final = Authentication()


async def met(work: Callable[[PeerClusters], Awaitable[object]], here: Side, there: Side) -> None:
    """Do ``work`` with the two clusters, the consumer and its provider, as of ``meet``."""
    await work(await meet(here, there))


async def meet(consumer: Side, provider: Side) -> PeerClusters:
    """Return the two clusters with their names.

    Raises:
        click.ClickException: pyliqo is not installed, or both are the same cluster.
    """
    said = []
    for side in (consumer, provider):
        said.append(await cluster_data(side.cluster, side.session.liqo_namespace))
        side.info(f"cluster ID {said[-1][keys.CLUSTER_ID_KEY]}")
    names = [str(each[keys.CLUSTER_ID_KEY]) for each in said]
    networks = await pod_networks(provider.cluster, provider.session.liqo_namespace, said[1])
    if names[0] == names[1]:
        message = f"both clusters are called {names[0]}: a cluster cannot peer with itself; "
        raise click.ClickException(f"{message}check the kubeconfigs, or install one again")
    return PeerClusters(consumer, provider, names[0], names[1], networks)


async def cluster_id(cluster: Cluster, namespace: str) -> str:
    """Return the cluster's own name.

    Raises:
        click.ClickException: it has none: pyliqo is not installed there.
    """
    return str((await cluster_data(cluster, namespace))[keys.CLUSTER_ID_KEY])


async def cluster_data(cluster: Cluster, namespace: str) -> Object:
    """Return what the cluster says of itself: its name, and the networks of its pods if any.

    Raises:
        click.ClickException: it has no name: pyliqo is not installed there.
    """
    key = Key(namespace, keys.CLUSTER_ID_CONFIG_MAP)
    found = await cluster.get_live(keys.CONFIG_MAP, key)
    data: Object = (found or {}).get("data") or {}
    if not data.get(keys.CLUSTER_ID_KEY):
        raise click.ClickException(f"configmap {key} names no cluster: liqoctl install first")
    return data


async def pod_networks(cluster: Cluster, namespace: str, said: Object) -> str:
    """Return in which networks a provider says that its pods are, as the annotation has them.

    Its Network objects say so where it is Liqo's, else what it ``said`` beside its cluster ID.
    """
    labels = f"{keys.NETWORK_TYPE}={keys.POD_CIDR}"
    try:
        found = await cluster.list(Selection(keys.NETWORK, Object, namespace, labels=labels))
    except (NotFoundError, ForbiddenError):
        texts = [str(said.get(keys.POD_CIDRS_KEY, ""))]
    else:
        listed = found.items.values()
        texts = [str(objects_.spec(each).get("cidr", "")) for each in listed]
        texts = texts or [str(said.get(keys.POD_CIDRS_KEY, ""))]
    return announced_networks(",".join(texts))


async def tenant_namespace(cluster: ClusterClient, peer: str) -> str:
    """Return the namespace for ``peer``, whatever its name; empty if it is missing.

    Raises:
        click.ClickException: there are several.
    """
    labels = forge.tenant_namespace_selector(peer)
    try:
        listed = (await cluster.list(Selection(keys.NAMESPACE, Object, labels=labels))).items
    except ForbiddenError:
        return await _the_one_it_knows(cluster, peer)
    if len(listed) > 1:
        found = ", ".join(sorted(key.name for key in listed))
        raise click.ClickException(f"several tenant namespaces for {peer}: {found}; keep one")
    return next((key.name for key in listed), "")


async def _the_one_it_knows(cluster: ClusterClient, peer: str) -> str:
    """Return the namespace for ``peer`` that a peering user knows: its kubeconfig names it."""
    for name in (cluster.access.namespace, naming.tenant_namespace(peer)):
        with contextlib.suppress(ForbiddenError):
            found = name and await cluster.get_live(keys.NAMESPACE, Key("", name))
            if found and objects_.labels(found).get(keys.REMOTE_CLUSTER_ID) == peer:
                return name
    return ""


async def ensure_namespace(side: Side, peer: str) -> str:
    if found := await tenant_namespace(side.cluster, peer):
        return found
    made = await clusters.keep(side, keys.NAMESPACE, forge.tenant_namespace(peer))
    return str(made["metadata"]["name"])


async def authenticate(peers: PeerClusters, how: Authentication = AS_USUAL) -> None:
    """Let the consumer in at the provider, and give it the identity to get in by."""
    tenant = await let_in(peers, how)
    await sign_in(peers, tenant, how)


async def let_in(peers: PeerClusters, how: Authentication) -> Object:
    """Return the Tenant of the consumer at the provider once it is let in (steps 1 to 7).

    Raises:
        click.ClickException: the provider refuses, or knows another cluster of the consumer's name;
            the message says why.
    """
    here = await ensure_namespace(peers.consumer, peers.provider_id)
    there = await ensure_namespace(peers.provider, peers.consumer_id)
    key = await private_key(peers.consumer.cluster, peers.consumer.session.liqo_namespace)
    where = Key(there, peers.consumer_id)
    found = await peers.provider.cluster.get_live(keys.TENANT, where)
    if (why := forge.other_key(found, key)) and not how.replace:
        raise click.ClickException(why)
    is_ours = identity.is_public_key_of(_spec(found, "publicKey"), key)
    if found and is_ours and forge.is_let_in(found):
        tenant = await _certified(peers.provider, where)
    else:
        text = await nonce(peers.provider, there, peers.consumer_id)
        signature = await signature_of(peers.consumer, here, peers.provider_id, text)
        proof = proof_of(key, peers.consumer_id, signature, found)
        metadata = peers.consumer.session.metadata
        wanted = forge.tenant(where, peers.consumer_id, proof, metadata, how.proxy_url)
        tenant = await _judged(peers.provider, _as_administered(wanted, found))
    await clusters.remove(peers.consumer, keys.SECRET, Key(here, keys.SIGNED_NONCE_SECRET))
    return tenant


async def _certified(provider: Side, where: Key) -> Object:
    """Return the Tenant of a consumer that is let in, once its certificate is good."""
    found = await clusters.until(
        provider, keys.TENANT, where, lambda tenant: forge.is_let_in_now(tenant, clock.now()),
        what=f"a certificate for tenant {where} that has not ended", why=forge.complaint,
    )  # fmt: skip
    provider.info(f"tenant {where}: is let in already")
    return found or {}


async def _judged(provider: Side, wanted: Object) -> Object:
    """Return the Tenant ``wanted``, made if need be, once its consumer is let in."""
    await clusters.keep(provider, keys.TENANT, wanted)
    where = objects_.key_of(wanted)
    judged = await clusters.until(
        provider, keys.TENANT, where, forge.is_judged,
        what=f"tenant {where} to be let in", why=forge.complaint,
    )  # fmt: skip
    if judged is None or not forge.is_let_in(judged):
        raise click.ClickException(f"tenant {where}: {forge.complaint(judged)}")
    provider.info(f"tenant {where}: let in")
    return judged


async def sign_in(peers: PeerClusters, tenant: Object, how: Authentication) -> None:
    """Store how the consumer gets in (steps 8 to 10); its controllers do the rest.

    Raises:
        click.ClickException: it gets in already, at another cluster of the provider's name; or
            the provider announces an entrance that the consumer's administrator did not name.
    """
    here = await ensure_namespace(peers.consumer, peers.provider_id)
    where = Key(here, naming.controlplane_identity(peers.provider_id))
    found = await peers.consumer.cluster.get_live(keys.IDENTITY, where)
    networks = how.provider_pod_cidr or forge.pod_networks(found) or peers.pod_networks
    metadata = peers.consumer.session.metadata
    wanted = identity_of(tenant, here, peers.provider_id, metadata, networks)
    if (why := forge.other_server(found, wanted)) and not how.replace:
        raise click.ClickException(why)
    announced = AuthParams.parse(forge.params_of(tenant))
    if not forge.is_entrance_of(found, announced):
        named = Entrance(how.provider_server, how.proxy_url)
        await servers.check(peers.consumer, peers.provider, announced, named, f"identity {where}")
    await clusters.keep(peers.consumer, keys.IDENTITY, wanted, whole=["authParams"])
    peers.consumer.info(f"identity {where}: {forge.told_networks(networks)}")
    if not how.wait:
        return
    await clusters.until(
        peers.consumer, keys.IDENTITY, where, forge.has_secret,
        what=f"the kubeconfig of identity {where}",
    )  # fmt: skip
    secret = Key(here, naming.kubeconfig_secret(where.name))
    await clusters.until(
        peers.consumer, keys.SECRET, secret,
        lambda held: forge.is_by(held, announced.certificate),
        what=f"secret {secret} to sign in by the new certificate",
    )  # fmt: skip
    peers.consumer.info(f"identity {where}: has its kubeconfig")


def identity_of(
    tenant: Object, namespace: str, provider: str, metadata: Metadata, networks: str
) -> Object:
    """Return the Identity by which the consumer of ``tenant`` signs in.

    ``networks`` are those of the provider's pods, as the annotation has them.

    Raises:
        click.ClickException: it is not let in yet.
    """
    status = objects_.status(tenant)
    if not forge.params_of(tenant) or not status.get("tenantNamespace"):
        raise click.ClickException(f"it is not let in: {forge.complaint(tenant)}")
    key = Key(namespace, naming.controlplane_identity(provider))
    params = AuthParams.parse(forge.params_of(tenant))
    made = forge.identity(key, provider, params, status["tenantNamespace"], metadata)
    return forge.with_networks(made, networks)


async def private_key(cluster: Cluster, namespace: str) -> bytes:
    """Return the consumer's own key.

    Raises:
        click.ClickException: it has none: its controllers do not run.
    """
    where = Key(namespace, keys.AUTHENTICATION_KEYS)
    found = await cluster.get_live(keys.SECRET, where)
    if key := forge.data_in(found, "privateKey"):
        return key
    message = f"secret {where} holds no key: the controllers of this cluster make it; do they run?"
    raise click.ClickException(message)


async def nonce(provider: Side, namespace: str, consumer: str) -> str:
    where = Key(namespace, keys.NONCE_SECRET)
    await clusters.keep(provider, keys.SECRET, forge.nonce(namespace, consumer))
    found = await clusters.until(
        provider, keys.SECRET, where,
        lambda secret: bool(forge.data_in(secret, "nonce")), what=f"the nonce in secret {where}",
    )  # fmt: skip
    return forge.data_in(found, "nonce").decode()


async def signature_of(consumer: Side, namespace: str, provider: str, text: str) -> bytes:
    where = Key(namespace, keys.SIGNED_NONCE_SECRET)
    before = await consumer.cluster.get_live(keys.SECRET, where)
    if before and forge.data_in(before, "nonce") != text.encode():
        await clusters.remove(consumer, keys.SECRET, where)
    await clusters.keep(consumer, keys.SECRET, forge.signed_nonce(namespace, provider, text))
    found = await clusters.until(
        consumer, keys.SECRET, where,
        lambda secret: bool(forge.data_in(secret, "signedNonce")),
        what=f"the signature in secret {where}",
    )  # fmt: skip
    return forge.data_in(found, "signedNonce")


def proof_of(
    key: bytes, consumer: str, signature: bytes, before: Object | None = None
) -> dict[str, bytes]:
    """Return what proves the consumer's name; the request it made ``before`` is kept."""
    public = identity.public_key(key)
    request = _spec(before, "csr")
    if not identity.is_key_of(request, public):
        organizations = [keys.PEER_ORGANIZATION]
        request = pki.new_csr(key, common_name=consumer, organizations=organizations)
    return {"publicKey": public, "csr": request, "signature": signature}


def _spec(obj: Object | None, name: str) -> bytes:
    return authentication.decoded(objects_.spec(obj), name)


def _as_administered(wanted: Object, found: Object | None) -> Object:
    """Return the Tenant with what the provider's administrator set on it."""
    spec = objects_.spec(found)
    kept = {name: spec[name] for name in ("tenantCondition", "authzPolicy") if name in spec}
    return {**wanted, "spec": {**wanted["spec"], **kept}}


# Peering, and its end -----------------------------------------------------------------------------


async def peer(
    peers: PeerClusters, asked: Mapping[str, Any] | None, how: Authentication = AS_USUAL
) -> None:
    """Let the consumer use the provider; what is done already is left as it is.

    Shape: ``asked`` has fields of ``SliceOptions``; None: no slice is made.

    Raises:
        click.ClickException: the provider refuses.
    """
    await revive(peers.consumer, peers.provider_id)
    await authenticate(peers, how)
    if asked is not None:
        await _ask(peers, asked)


async def revive(side: Side, provider: str) -> None:
    """Take back that ``provider`` is gone for good, if somebody said so."""
    key = Key("", provider)
    found = await side.cluster.get_live(keys.FOREIGN_CLUSTER, key)
    if found and keys.PERMANENTLY_UNREACHABLE in objects_.annotations(found):
        annotations = {keys.PERMANENTLY_UNREACHABLE: None}
        changes = {"metadata": {"annotations": annotations}}
        await side.cluster.patch(keys.FOREIGN_CLUSTER, key, changes)
        side.info(f"foreigncluster {provider}: is no longer given up")


async def _ask(peers: PeerClusters, asked: Mapping[str, Any]) -> None:
    provider, metadata = peers.provider_id, peers.consumer.session.metadata
    here = await ensure_namespace(peers.consumer, provider)
    said = {"class_": "", "metadata": metadata, **asked}
    wanted = SliceOptions(provider, here, provider, **said)
    answered, where = await asking.ask(peers.consumer, wanted), wanted.where
    said = forge.answers(answered)
    for type_ in ("Authentication", "Resources"):
        peers.consumer.info(f"resourceslice {where}: {type_} {said.get(type_, 'not answered')}")
    if set(said.values()) != {"Accepted"}:
        raise click.ClickException(f"resourceslice {where}: {_denial(answered)}")
    peers.consumer.info(f"resourceslice {where}: {resourceslice.grant(answered)}")
    if answered and slices.makes_virtual_node(answered):
        await _until_ready(peers.consumer, peers.provider_id)


async def _until_ready(side: Side, node: str) -> None:
    await clusters.until(
        side, keys.NODE, Key("", node), lambda found: virtualnode.is_ready(found, node),
        what=f"node {node} to be ready", why=lambda found: _not_ready(found, node),
    )  # fmt: skip
    side.info(f"node {node}: ready")


def _not_ready(node: Object | None, cluster_id: str) -> str:
    if node is None:
        return "it does not exist; see the virtualnode and the pods of its Deployment"
    if not virtualnode.is_for(node, cluster_id):
        cure = "delete the resourceslice, and create one of another name"
        return f"it is not the virtual node for cluster {cluster_id}: {cure}"
    found = objects_.find_condition(objects_.status(node).get("conditions"), "Ready") or {}
    return f"{found.get('reason')}: {found.get('message')}"


def _denial(slice_: Object | None) -> str:
    found = objects_.status(slice_).get("conditions") or []
    denied = [each for each in found if each.get("status") != "Accepted"]
    told = [f"{one['type']} {one['status']}: {one.get('message', '')}" for one in denied]
    return "; ".join(told) or "the provider may have cordoned this tenant or slice"


async def unpeer(
    peers: PeerClusters, *, wait: bool = True, delete_namespaces: bool = False
) -> None:
    """Take back all that ``peer`` made, and what was made with it, the consumer's side first."""
    await forsake(peers.consumer, peers.provider_id, waits=wait)
    await unauthenticate(peers, wait=wait)
    if delete_namespaces:
        await _delete_namespaces(peers)


async def forsake(side: Side, provider: str, *, waits: bool = True) -> str:
    """Delete the slices and virtual nodes for ``provider``; return their namespace, if any.

    A NamespaceMap goes with the last virtual node; one that is left has lost it.
    """
    here = await tenant_namespace(side.cluster, provider)
    if not here:
        side.info(f"there is no tenant namespace for {provider}")
        return ""
    for kind in (keys.RESOURCE_SLICE, keys.VIRTUAL_NODE, keys.NAMESPACE_MAP):
        for key in await _for_peer(side.cluster, kind, here, provider):
            why = "pods are leaving its node, as disruption budgets allow"
            await clusters.remove(side, kind, key, why=why, waits=waits)
    return here


async def _for_peer(cluster: Cluster, kind: Kind, namespace: str, peer: str) -> list[Key]:
    found = (await cluster.list(Selection(kind, Object, namespace))).items
    return [
        key
        for key, obj in found.items()
        if peer in {objects_.spec(obj).get("clusterID"), ownership.destination(obj)}
    ]


async def unauthenticate(peers: PeerClusters, *, wait: bool = True) -> None:
    """Delete the identity of the consumer, then what lets it in at the provider.

    Raises:
        click.ClickException: slices for the provider still need it.
    """
    here = await tenant_namespace(peers.consumer.cluster, peers.provider_id)
    if here:
        left = await _for_peer(peers.consumer.cluster, keys.RESOURCE_SLICE, here, peers.provider_id)
        if left and wait:
            names = ", ".join(str(key) for key in left)
            raise click.ClickException(f"resourceslices need the identity: delete {names} first")
        await _sign_off(peers.consumer, here, peers.provider_id, waits=wait)
    there = await tenant_namespace(peers.provider.cluster, peers.consumer_id)
    if there:
        where = Key(there, peers.consumer_id)
        why = "what the consumer left there is being removed"
        await clusters.remove(peers.provider, keys.TENANT, where, why=why, waits=wait)
        await clusters.remove(peers.provider, keys.SECRET, Key(there, keys.NONCE_SECRET))


async def _sign_off(side: Side, namespace: str, provider: str, *, waits: bool) -> None:
    name = naming.controlplane_identity(provider)
    await clusters.remove(side, keys.IDENTITY, Key(namespace, name), waits=waits)
    if waits:
        # They go after it; with them goes what the provider holds of this cluster.
        await clusters.until_gone(side, keys.RENEW, [Key(namespace, name)])
        secret = Key(namespace, naming.kubeconfig_secret(name))
        await clusters.until_gone(side, keys.SECRET, [secret])
    await clusters.remove(side, keys.SECRET, Key(namespace, keys.SIGNED_NONCE_SECRET))


async def _delete_namespaces(peers: PeerClusters) -> None:
    sides = ((peers.consumer, peers.provider_id), (peers.provider, peers.consumer_id))
    for side, peer_ in sides:
        name = await tenant_namespace(side.cluster, peer_)
        for kind in (keys.TENANT, keys.IDENTITY) if name else ():
            if await clusters.listed(side.cluster, kind, name):
                message = f"namespace {name} is kept: {kind}s in it serve the other direction"
                raise click.ClickException(f"{message}; unpeer that way first")
        if name:
            await clusters.remove(side, keys.NAMESPACE, Key("", name))


async def force(side: Side, provider: str) -> None:
    """End the peering with a provider that does not come back, and say what it keeps."""
    key = Key("", provider)
    spec = {"clusterID": provider}
    annotations = {keys.PERMANENTLY_UNREACHABLE: "true"}
    wanted = objects_.named(
        keys.FOREIGN_CLUSTER, key, metadata={"annotations": annotations}, spec=spec
    )
    here = await tenant_namespace(side.cluster, provider)
    orphans = await _twins(side.cluster, here, provider) if here else []
    await clusters.keep(side, keys.FOREIGN_CLUSTER, wanted)
    if not await forsake(side, provider):
        return
    await _sign_off(side, here, provider, waits=True)
    if not await clusters.listed(side.cluster, keys.TENANT, here):
        await clusters.remove(side, keys.NAMESPACE, Key("", here))
    side.warning(f"left on {provider}: the tenant of this cluster, {_told(orphans)}")
    side.warning("should it come back, its administrator removes them: liqoctl delete tenant")


async def _twins(cluster: Cluster, namespace: str, provider: str) -> list[str]:
    found = await cluster.get_live(keys.NAMESPACE_MAP, Key(namespace, provider))
    current = NamespaceMap.parse(found).current if found else {}
    return sorted(entry.remote_namespace for entry in current.values())


def _told(twins: list[str]) -> str:
    return f"namespaces {', '.join(twins)}" if twins else "no namespaces"
