"""What each command about peers does, from its flags to the clusters or to stdout."""

from kube.client import ClusterClient
from liqoctl.options import Session
from liqoctl.output import Progress
from liqoctl.work import handshake, objects, peering, session
from liqoctl.work.handshake import Peers
from liqoctl.work.peering import End, Slice
from liqoctl.work.session import Side

__all__ = ["End", "Slice"]


async def _meet(consumer: Side, provider: Side, who: Session) -> Peers:
    return await handshake.meet(consumer, provider, who.namespace, who.metadata)


def authenticate(who: Session, remote: Session, *, proxy_url: str, timeout_s: float) -> None:
    """Let the consumer sign in."""

    async def work(consumer: Side, provider: Side) -> None:
        async with objects.within(timeout_s, "authentication"):
            await handshake.authenticate(await _meet(consumer, provider, who), proxy_url)

    session.run_both(who, remote, work)


def unauthenticate(who: Session, remote: Session, *, waits: bool, timeout_s: float) -> None:
    """Take the consumer's identity back."""

    async def work(consumer: Side, provider: Side) -> None:
        async with objects.within(timeout_s, "unauthentication"):
            await peering.unauthenticate(await _meet(consumer, provider, who), End(waits=waits))

    session.run_both(who, remote, work)


def peer(who: Session, remote: Session, wanted: Slice, *, proxy_url: str, timeout_s: float) -> None:
    """Let the consumer use the provider."""

    async def work(consumer: Side, provider: Side) -> None:
        async with objects.within(timeout_s, "peering"):
            await peering.peer(await _meet(consumer, provider, who), wanted, proxy_url)

    session.run_both(who, remote, work)


def unpeer(who: Session, remote: Session, end: End, *, timeout_s: float) -> None:
    """End a peering."""

    async def work(consumer: Side, provider: Side) -> None:
        async with objects.within(timeout_s, "unpeering"):
            await peering.unpeer(await _meet(consumer, provider, who), end)

    session.run_both(who, remote, work)


def force(who: Session, provider: str, *, timeout_s: float) -> None:
    """End a peering without the provider."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        async with objects.within(timeout_s, "unpeering"):
            await peering.force(Side(cluster, progress), provider)

    session.run(who, work)
