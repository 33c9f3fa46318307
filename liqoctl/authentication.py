"""``liqoctl authenticate`` and ``unauthenticate``: a consumer proves to a provider who it is.

Source: docs/parity.md § 7.4.
"""

import asyncio
import contextlib
import functools
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from apis import authentication, keys, naming, ownership
from apis import objects as objects_
from apis.authentication import AuthParams
from apis.networks import announced_networks
from apis.objects import Key, Kind, Object
from kube import clock, errors
from kube.cluster import Cluster, Selection
from liqoctl import clusters, options
from liqoctl.clusters import Side, Work
from liqoctl.forge import manifests
from liqoctl.forge import peering as forge
from liqoctl.forge.peering import Consumer, Entrance, Metadata, Verdict
from liqoctl.options import Session, cli

if TYPE_CHECKING:
    from kube.client import ClusterClient


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


def on_both(what: str) -> Callable[[Work], Callable[..., None]]:
    """Add the global flags and the provider's, and hand both clusters over as ``peers``.

    ``--timeout`` bounds what is done, such as ``peering``.
    """

    def decorate(work: Work) -> Callable[..., None]:
        @functools.wraps(work)
        def run(
            session: Session, remote: Callable[[], Session], timeout_s: float, **given: Any
        ) -> None:
            both = functools.partial(met, functools.partial(work, **given))
            clusters.run_both(session, remote(), both, what, timeout_s)

        return options.global_flags(options.remote_flags(run))

    return decorate


async def met(work: Work, here: Side, there: Side) -> None:
    await work(await meet(here, there))


BOTH = "--kubeconfig rome.kubeconfig --remote-kubeconfig milan.kubeconfig"
PROXY = click.option(
    "--proxy-url", default="", help="Proxy through which the consumer reaches the provider."
)
WAIT = options.switch("--wait", default=True, show_default=True, help="Wait until it is done.")


def refused(
    flag: str, cure: str, *, option: Callable[..., Any] = click.option, **rest: Any
) -> Callable[..., Any]:
    """Return an option of Liqo's network, which is refused with ``cure``: pyliqo has no network."""

    def refuse(_: click.Context, param: click.Parameter, given: object) -> None:
        if given not in (None, False):
            message = "is of Liqo's network between the clusters, and pyliqo has none"
            raise click.BadParameter(f"{message}: {cure}", param=param)

    help_ = "Refused: an option of Liqo's network, which pyliqo does not have."
    made: Callable[..., Any] = option(flag, expose_value=False, callback=refuse, help=help_, **rest)
    return made


IN_BAND = refused("--in-band", "say --proxy-url instead, or leave it out", option=options.switch)


@cli.command("authenticate", f"liqoctl authenticate {BOTH}")
@IN_BAND
@PROXY
@options.PROVIDER_SERVER
@options.PROVIDER_POD_CIDR
@options.REPLACE
@WAIT
@options.timeout("2m")
@on_both("authentication")
async def authenticate_command(peers: PeerClusters, **given: Any) -> None:
    """Let this cluster, the consumer, sign in to the remote one, its provider.

    It may be repeated, and goes on where it was interrupted. What the provider says to it is waited
    for in any case; with --no-wait the kubeconfig that the consumer makes of that is not.
    """
    await authenticate(peers, Authentication(**given))


@cli.command("unauthenticate", f"liqoctl unauthenticate {BOTH}")
@WAIT
@options.STANDSTILL
@on_both("unauthentication")
async def unauthenticate_command(peers: PeerClusters, *, wait: bool) -> None:
    """Undo authenticate, once no slice needs it."""
    await unauthenticate(peers, wait=wait)


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
    except (errors.NotFoundError, errors.ForbiddenError):
        texts = [str(said.get(keys.POD_CIDRS_KEY, ""))]
    else:
        listed = found.items.values()
        texts = [str(objects_.spec(each).get("cidr", "")) for each in listed]
        texts = texts or [str(said.get(keys.POD_CIDRS_KEY, ""))]
    return announced_networks(",".join(texts))


async def tenant_namespace(cluster: "ClusterClient", peer: str) -> str:
    """Return the namespace for ``peer``, whatever its name; empty if it is missing.

    Raises:
        click.ClickException: there are several.
    """
    labels = manifests.tenant_namespace_selector(peer)
    try:
        listed = (await cluster.list(Selection(keys.NAMESPACE, Object, labels=labels))).items
    except errors.ForbiddenError:
        return await _the_one_it_knows(cluster, peer)
    if len(listed) > 1:
        found = ", ".join(sorted(key.name for key in listed))
        raise click.ClickException(f"several tenant namespaces for {peer}: {found}; keep one")
    return next((key.name for key in listed), "")


async def _the_one_it_knows(cluster: "ClusterClient", peer: str) -> str:
    """Return the namespace for ``peer`` that a peering user knows: its kubeconfig names it."""
    for name in (cluster.access.namespace, naming.tenant_namespace(peer)):
        with contextlib.suppress(errors.ForbiddenError):
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
    from certs import identity

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
        tenant = await _judged(peers.provider, _as_administered(wanted, found), found)
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


AGAIN_S: Final = 10.0
"""In which controllers that are new, after an installation, judge a Tenant that was refused."""


async def _judged(provider: Side, wanted: Object, before: Object | None) -> Object:
    """Return the Tenant ``wanted``, made if need be, once its consumer is let in."""
    await clusters.keep(provider, keys.TENANT, wanted)
    where = objects_.key_of(wanted)
    if forge.is_judged(before):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_S):
                is_news = forge.is_judged_unlike(before)
                await clusters.reached(provider.cluster, keys.TENANT, where, is_news)
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
        what = f"identity {where}"
        await _check_entrance(peers.consumer, peers.provider, announced, named, what)
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
    from certs import identity, pki

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


async def unauthenticate(peers: PeerClusters, *, wait: bool = True) -> None:
    """Delete the identity of the consumer, then what lets it in at the provider.

    Raises:
        click.ClickException: slices for the provider still need it.
    """
    here = await tenant_namespace(peers.consumer.cluster, peers.provider_id)
    if here:
        left = await for_peer(peers.consumer.cluster, keys.RESOURCE_SLICE, here, peers.provider_id)
        if left and wait:
            names = ", ".join(str(key) for key in left)
            raise click.ClickException(f"resourceslices need the identity: delete {names} first")
        await sign_off(peers.consumer, here, peers.provider_id, waits=wait)
    there = await tenant_namespace(peers.provider.cluster, peers.consumer_id)
    if there:
        where = Key(there, peers.consumer_id)
        why = "what the consumer left there is being removed"
        await clusters.remove(peers.provider, keys.TENANT, where, why=why, waits=wait)
        await clusters.remove(peers.provider, keys.SECRET, Key(there, keys.NONCE_SECRET))


async def sign_off(side: Side, namespace: str, provider: str, *, waits: bool) -> None:
    name = naming.controlplane_identity(provider)
    await clusters.remove(side, keys.IDENTITY, Key(namespace, name), waits=waits)
    if waits:
        # They go after it; with them goes what the provider holds of this cluster.
        await clusters.until_gone(side, keys.RENEW, [Key(namespace, name)])
        secret = Key(namespace, naming.kubeconfig_secret(name))
        await clusters.until_gone(side, keys.SECRET, [secret])
    await clusters.remove(side, keys.SECRET, Key(namespace, keys.SIGNED_NONCE_SECRET))


async def for_peer(cluster: Cluster, kind: Kind, namespace: str, peer: str) -> list[Key]:
    found = (await cluster.list(Selection(kind, Object, namespace))).items
    return [
        key
        for key, obj in found.items()
        if peer in {objects_.spec(obj).get("clusterID"), ownership.destination(obj)}
    ]


# What a provider announces, held against what the consumer's administrator knows ------------------

_API_SERVERS = f"{keys.SERVICE_NAME}=kubernetes"


async def _check_entrance(
    consumer: Side, provider: Side, announced: AuthParams, named: Entrance, what: str
) -> None:
    """Let ``announced`` pass if the administrator knows it, or says so at a terminal.

    Raises:
        click.UsageError: nobody can be asked; the message has the flag to type.
        click.ClickException: it is refused, or the administrator says no.
    """
    entrance = Entrance(announced.api_server, announced.proxy_url)
    access = provider.cluster.access
    kubeconfig = Entrance(access.server, access.proxy)
    if forge.judge(entrance, Consumer(kubeconfig, Entrance(""))).verdict is Verdict.OK:
        return
    known = Consumer(kubeconfig, named)
    judged = forge.judge(entrance, await _informed(consumer, known, entrance))
    said = f"{what}: {judged.why} (the kubeconfig leads to {access.server})"
    url = entrance.proxy if judged.flag == forge.PROXY_FLAG else entrance.server
    if judged.verdict is Verdict.REFUSE:
        raise click.ClickException(f"{said}: refused, its administrator has to announce another")
    if judged.verdict is Verdict.OK:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{said}: if that is right, add {judged.flag}={url}")
    click.confirm(f"{said}. Is that right?", abort=True, err=True)


async def _informed(consumer: Side, known: Consumer, announced: Entrance) -> Consumer:
    """Return ``known`` with the consumer's addresses, as far as it may be asked for them."""
    cluster = consumer.cluster
    nodes = await _listed(cluster, Selection(keys.NODE, Object))
    slices = await _listed(
        cluster, Selection(keys.ENDPOINT_SLICE, Object, "default", labels=_API_SERVERS)
    )
    ranges = await _listed(cluster, Selection(keys.SERVICE_CIDR, Object))
    service: Object | None = None
    with contextlib.suppress(errors.KubeError):
        service = await cluster.get_live(keys.SERVICE, Key("default", "kubernetes"))
    own = {
        *(
            str(each.get("address"))
            for node in nodes
            for each in objects_.status(node).get("addresses") or []
        ),
        *(
            one
            for each in slices
            for end in each.get("endpoints") or []
            for one in end["addresses"]
        ),
        *(objects_.spec(service).get("clusterIPs") or []),
        forge.host(cluster.access.server),
    }
    networks = [
        *(cidr for node in nodes for cidr in objects_.spec(node).get("podCIDRs") or []),
        *(cidr for each in ranges for cidr in objects_.spec(each).get("cidrs") or []),
    ]
    hosts = filter(None, (forge.host(announced.server), forge.host(announced.proxy)))
    resolved = {name: await _resolved(name) for name in hosts}
    return Consumer(known.kubeconfig, known.named, frozenset(own), tuple(networks), resolved)


async def _listed(cluster: Cluster, of: Selection[Object]) -> list[Object]:
    try:
        return [*(await cluster.list(of)).items.values()]
    except (errors.ForbiddenError, errors.NotFoundError):
        return []


async def _resolved(name: str) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(address[0]) for *_, address in found]
