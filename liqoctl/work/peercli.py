"""What each command about peers does, from its flags to the clusters or to stdout."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final

from apis import keys
from apis.objects import Kind
from kube.client import ClusterClient
from liqoctl.forge import tables
from liqoctl.options import Session
from liqoctl.output import Progress, dump, echo
from liqoctl.work import handshake, identities, objects, peering, peeringuser, session
from liqoctl.work.handshake import Authentication, Peers
from liqoctl.work.peering import End, Slice
from liqoctl.work.session import Side

__all__ = ["Authentication", "End", "Slice"]

READ_S: Final = 60.0


def _run_both(
    who: Session,
    remote: Session,
    what: str,
    timeout_s: float,
    work: Callable[[Peers], Awaitable[object]],
) -> None:
    async def bounded(consumer: Side, provider: Side) -> None:
        async with objects.within(timeout_s, what):
            namespaces = (_liqo(who), _liqo(remote))
            await work(await handshake.meet(consumer, provider, namespaces, who.metadata))

    session.run_both(who, remote, bounded)


def authenticate(who: Session, remote: Session, how: Authentication, *, timeout_s: float) -> None:
    """Let the consumer sign in."""

    async def work(peers: Peers) -> None:
        await handshake.authenticate(peers, how)

    _run_both(who, remote, "authentication", timeout_s, work)


def unauthenticate(who: Session, remote: Session, *, waits: bool, timeout_s: float) -> None:
    """Take the consumer's identity back."""

    async def work(peers: Peers) -> None:
        await peering.unauthenticate(peers, End(waits=waits))

    _run_both(who, remote, "unauthentication", timeout_s, work)


def peer(
    who: Session, remote: Session, wanted: Slice, how: Authentication, *, timeout_s: float
) -> None:
    """Let the consumer use the provider."""

    async def work(peers: Peers) -> None:
        await peering.peer(peers, wanted, how)

    _run_both(who, remote, "peering", timeout_s, work)


def unpeer(who: Session, remote: Session, end: End, *, timeout_s: float) -> None:
    """End a peering."""

    async def work(peers: Peers) -> None:
        await peering.unpeer(peers, end)

    _run_both(who, remote, "unpeering", timeout_s, work)


def force(who: Session, provider: str, *, timeout_s: float) -> None:
    """End a peering without the provider."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        async with objects.within(timeout_s, "unpeering"):
            await peering.force(Side(cluster, progress), provider)

    session.run(who, work)


def create_tenant(who: Session, remote: Session, how: Authentication, *, timeout_s: float) -> None:
    """Let the consumer in at the provider, and no more."""

    async def work(peers: Peers) -> None:
        await handshake.let_in(peers, how)

    _run_both(who, remote, "creating the tenant", timeout_s, work)


def create_identity(
    who: Session, remote: Session, how: Authentication, *, timeout_s: float
) -> None:
    """Store at the consumer how it gets in at the provider that let it in."""

    async def work(peers: Peers) -> None:
        cluster = peers.provider.cluster
        (tenant_,) = await identities.found(cluster, keys.TENANT, peers.consumer_id)
        await handshake.sign_in(peers, tenant_, how)

    _run_both(who, remote, "creating the identity", timeout_s, work)


def _run(
    who: Session, what: str, timeout_s: float, work: Callable[[Side], Awaitable[None]]
) -> None:
    async def bounded(cluster: ClusterClient, progress: Progress) -> None:
        async with objects.within(timeout_s, what):
            await work(Side(cluster, progress))

    session.run(who, bounded)


def create_nonce(who: Session, consumer: str, *, timeout_s: float) -> None:
    """Have a nonce made for a consumer."""

    async def work(side: Side) -> None:
        await session.check_installed(side.cluster, who)  # else a namespace is made, and waited for
        await identities.create_nonce(side, consumer)

    _run(who, "creating the nonce", timeout_s, work)


def get_nonce(who: Session, consumer: str) -> None:
    """Print the nonce for a consumer."""

    async def work(side: Side) -> None:
        echo(await identities.nonce(side, consumer))

    _run(who, "reading the nonce", READ_S, work)


def generate_tenant(
    who: Session, provider: str, given: Mapping[str, str], *, output: str, timeout_s: float
) -> None:
    """Print the Tenant for a provider."""

    async def work(side: Side) -> None:
        made = await identities.tenant(side, provider, given, _liqo(who), who.metadata)
        dump([made], output)

    _run(who, "generating the tenant", timeout_s, work)


def generate_identity(
    who: Session, consumer: str, namespace: str, *, output: str, timeout_s: float
) -> None:
    """Print the Identity for a consumer."""

    async def work(side: Side) -> None:
        made = await identities.identity(side, consumer, namespace, _liqo(who), who.metadata)
        dump([made], output)

    _run(who, "generating the identity", timeout_s, work)


def generate_peering_user(who: Session, consumer: str, lifetime_s: float) -> None:
    """Print the kubeconfig of a new user for a consumer's administrator."""

    async def work(side: Side) -> None:
        lifetime = timedelta(seconds=lifetime_s)
        made = await peeringuser.generate(side, consumer, _liqo(who), lifetime)
        echo(made.decode(), ends_line=False)

    _run(who, "making the peering user", READ_S, work)


def delete_peering_user(who: Session, consumer: str) -> None:
    """Take the rights of a consumer's peering user away."""
    what = "removing the peering user"
    _run(who, what, READ_S, lambda side: peeringuser.delete(side, consumer))


def get_kubeconfig(who: Session, provider: str, name: str) -> None:
    """Print the kubeconfig of an Identity."""

    async def work(side: Side) -> None:
        echo(await identities.kubeconfig(side, provider, name), ends_line=False)

    _run(who, "reading the kubeconfig", READ_S, work)


def show(who: Session, kind: Kind, peer: str, output: str | None) -> None:
    """Print what there is of ``kind``, or all about one peer."""

    async def work(side: Side) -> None:
        found = await identities.found(side.cluster, kind, peer)
        if output:
            dump(found, output, is_list=not peer)
        else:
            for line in tables.lines(kind, found):
                echo(line)

    _run(who, f"reading every {kind}", READ_S, work)


def delete(who: Session, kind: Kind, peer: str, *, timeout_s: float) -> None:
    """Delete what ``kind`` says about a peer."""
    _run(who, "deleting", timeout_s, lambda side: identities.delete(side, kind, peer))


def _liqo(who: Session) -> str:
    return who.namespace or keys.LIQO_NAMESPACE
