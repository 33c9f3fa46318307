"""``liqoctl authenticate``, ``unauthenticate``, ``peer``, ``unpeer``, ``force unpeer``."""

import functools
from collections.abc import Callable
from typing import Any, Final

import click

from liqoctl import lazy, options
from liqoctl.lazy import PeerClusters, Side
from liqoctl.options import Session, force

_BOTH = "--kubeconfig rome.kubeconfig --remote-kubeconfig milan.kubeconfig"
_PROXY = click.option(
    "--proxy-url", default="", help="Proxy through which the consumer reaches the provider."
)
_GIVES_UP = "Give {cluster_id} up? Its pods count as lost, and what it keeps stays there."
_WAIT = options.switch("--wait", default=True, show_default=True, help="Wait until it is done.")


def _refused(
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


_IN_BAND = _refused("--in-band", "say --proxy-url instead, or leave it out", option=options.switch)
_NO_GATEWAY: Final = (
    "leave it out; where an IP fabric joins the clusters, run the controllers of both "
    "with --ip-fabric instead"
)
_OF_GATEWAYS: Final = (
    "--gw-client-address",
    "--gw-client-port",
    "--gw-server-service-loadbalancerip",
    "--gw-server-service-location",
    "--gw-server-service-nodeport",
    "--gw-server-service-port",
    "--gw-server-service-type",
    "--mtu",
)


def _gateway_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of ``peer`` for Liqo's gateways, each of which is refused."""
    for flag in _OF_GATEWAYS:
        function = _refused(flag, _NO_GATEWAY, hidden=True)(function)
    return function


@options.command(epilog=options.examples(f"liqoctl authenticate {_BOTH}"))
@_IN_BAND
@_PROXY
@options.PROVIDER_SERVER
@options.PROVIDER_POD_CIDR
@options.REPLACE
@_WAIT
@options.timeout("2m")
@options.on_both("authentication")
async def authenticate(peers: PeerClusters, **given: Any) -> None:
    """Let this cluster, the consumer, sign in to the remote one, its provider.

    It may be repeated, and goes on where it was interrupted. What the provider says to it is waited
    for in any case; with --no-wait the kubeconfig that the consumer makes of that is not.
    """
    await lazy.peer.authenticate(peers, lazy.peer.Authentication(**given))


@options.command(epilog=options.examples(f"liqoctl unauthenticate {_BOTH}"))
@_WAIT
@options.STANDSTILL
@options.on_both("unauthentication")
async def unauthenticate(peers: PeerClusters, *, wait: bool) -> None:
    """Undo authenticate, once no slice needs it."""
    await lazy.peer.unauthenticate(peers, wait=wait)


@options.command(
    epilog=options.examples(
        f"liqoctl peer {_BOTH}",
        f"liqoctl peer {_BOTH} --cpu 8 --memory 16Gi",
        f"liqoctl peer {_BOTH} --resource-slice-class shared --resource nvidia.com/gpu=1",
    )
)
@options.amounts
@click.option("--resource-slice-class", default="", help="Class of the slice.  [default: default]")
@options.switch(
    "--create-resource-slice",
    default=True,
    show_default=True,
    help="Ask for resources, by a slice called like the provider.",
)
@options.switch(
    "--create-virtual-node",
    default=True,
    show_default=True,
    help="Make a virtual node of the slice, called like it.",
)
@options.switch(
    "--networking-disabled",
    expose_value=False,
    help="For command lines of Liqo: the network between the clusters is not pyliqo's.",
)
@options.switch(
    "--skip-validation",
    expose_value=False,
    help="For command lines of Liqo: the network that it would validate is not pyliqo's.",
)
@_IN_BAND
@_gateway_flags
@_PROXY
@options.PROVIDER_SERVER
@options.PROVIDER_POD_CIDR
@options.REPLACE
@options.timeout("10m")
@options.on_both("peering")
async def peer(
    peers: PeerClusters,
    resources: dict[str, str],
    resource_slice_class: str,
    *,
    create_resource_slice: bool,
    create_virtual_node: bool,
    **given: Any,
) -> None:
    """Let this cluster, the consumer, use the remote one, its provider.

    Authentication, then a slice of the provider's resources, then a virtual node. It may be
    repeated, and goes on where it was interrupted. The other direction is a second peer with the
    kubeconfigs exchanged.
    """
    asked = {
        "class_": resource_slice_class,
        "resources": resources,
        "makes_node": create_virtual_node,
        "left_out": options.left_out(create_virtual_node="makes_node"),
    }
    how = lazy.peer.Authentication(**given)
    await lazy.peer.peer(peers, asked if create_resource_slice else None, how)


@options.command(
    epilog=options.examples(
        f"liqoctl unpeer {_BOTH}",
        f"liqoctl unpeer {_BOTH} --skip-confirm",
        "liqoctl unpeer --force --remote-cluster-id milan",
    )
)
@options.switch("--force", help="Give up a provider that does not come back.")
@click.option("--remote-cluster-id", default="", help="Cluster ID of the provider, with --force.")
@options.switch("--delete-namespaces", help="Delete the tenant namespaces too.")
@_WAIT
@options.STANDSTILL
@options.global_flags
@options.remote_flags
def unpeer(session: Session, remote: Callable[[], Session], timeout: float, **given: Any) -> None:
    """Undo peer: delete slices, virtual nodes with their pods, identity and tenant.

    Asks first. With --force the provider is not asked: it is given up, and what it keeps is listed.
    """
    cluster_id = given.pop("remote_cluster_id")
    if given.pop("force"):
        if not cluster_id:
            raise click.UsageError("--force needs --remote-cluster-id: the provider is not asked")
        session.confirm(_GIVES_UP.format(cluster_id=cluster_id))
        work = functools.partial(lazy.peer.force, provider=cluster_id)
        lazy.clusters.run(session, work, "unpeering", timeout)
        return
    provider = remote()
    session.confirm("End the peering? Pods on the provider end, and so do its twins.")
    ending = functools.partial(lazy.peer.met, functools.partial(lazy.peer.unpeer, **given))
    lazy.clusters.run_both(session, provider, ending, "unpeering", timeout)


@force.command("unpeer", epilog=options.examples("liqoctl force unpeer milan"))
@click.argument("cluster_id", type=options.CLUSTER_ID, shell_complete=options.names_of("cluster"))
@options.STANDSTILL
@options.on_cluster("unpeering", asks=_GIVES_UP)
async def force_unpeer(side: Side, cluster_id: str) -> None:
    """End the peering with a provider that does not come back; it is not asked."""
    await lazy.peer.force(side, cluster_id)
