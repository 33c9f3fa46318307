"""What a provider announces at peering, held against what the consumer's administrator knows."""

import asyncio
import contextlib
import socket
import sys

import click

from apis import keys, objects
from apis.authentication import AuthParams
from apis.objects import Key, Object
from kube import errors
from kube.cluster import Cluster, Selection
from liqoctl.clusters import Side
from liqoctl.forge import peering as forge
from liqoctl.forge.peering import Consumer, Entrance, Verdict

_NOTHING = Entrance("")
_API_SERVERS = f"{keys.SERVICE_NAME}=kubernetes"


async def check(
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
    if forge.judge(entrance, Consumer(kubeconfig, _NOTHING)).verdict is Verdict.OK:
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
            for each in objects.status(node).get("addresses") or []
        ),
        *(
            one
            for each in slices
            for end in each.get("endpoints") or []
            for one in end["addresses"]
        ),
        *(objects.spec(service).get("clusterIPs") or []),
        forge.host(cluster.access.server),
    }
    networks = [
        *(cidr for node in nodes for cidr in objects.spec(node).get("podCIDRs") or []),
        *(cidr for each in ranges for cidr in objects.spec(each).get("cidrs") or []),
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
