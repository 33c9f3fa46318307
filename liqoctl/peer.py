"""``liqoctl peer``, ``unpeer`` and ``force unpeer``, by the consumer's administrator.

Source: docs/parity.md § 7.5.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from apis import keys, slices
from apis import objects as objects_
from apis.objects import Key, Object
from apis.offloading import NamespaceMap
from kube.cluster import Cluster
from liqoctl import authentication as auth
from liqoctl import clusters, options
from liqoctl import resourceslice as asking
from liqoctl.authentication import AS_USUAL, BOTH, Authentication, PeerClusters
from liqoctl.clusters import Side
from liqoctl.forge import resourceslice, virtualnode
from liqoctl.forge.resourceslice import SliceOptions
from liqoctl.options import Session, cli

_GIVES_UP = "Give {cluster_id} up? Its pods count as lost, and what it keeps stays there."


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
        function = auth.refused(flag, _NO_GATEWAY, hidden=True)(function)
    return function


@cli.command(
    "peer",
    f"liqoctl peer {BOTH}",
    f"liqoctl peer {BOTH} --cpu 8 --memory 16Gi",
    f"liqoctl peer {BOTH} --resource-slice-class shared --resource nvidia.com/gpu=1",
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
@auth.IN_BAND
@_gateway_flags
@auth.PROXY
@options.PROVIDER_SERVER
@options.PROVIDER_POD_CIDR
@options.REPLACE
@options.timeout("10m")
@auth.on_both("peering")
async def peer_command(
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
    how = Authentication(**given)
    await peer(peers, asked if create_resource_slice else None, how)


@cli.command(
    "unpeer",
    f"liqoctl unpeer {BOTH}",
    f"liqoctl unpeer {BOTH} --skip-confirm",
    "liqoctl unpeer --force --remote-cluster-id milan",
)
@options.switch("--force", help="Give up a provider that does not come back.")
@click.option("--remote-cluster-id", default="", help="Cluster ID of the provider, with --force.")
@options.switch("--delete-namespaces", help="Delete the tenant namespaces too.")
@auth.WAIT
@options.STANDSTILL
@options.global_flags
@options.remote_flags
def unpeer_command(
    session: Session, remote: Callable[[], Session], timeout_s: float, **given: Any
) -> None:
    """Undo peer: delete slices, virtual nodes with their pods, identity and tenant.

    Asks first. With --force the provider is not asked: it is given up, and what it keeps is listed.
    """
    cluster_id = given.pop("remote_cluster_id")
    if given.pop("force"):
        if not cluster_id:
            raise click.UsageError("--force needs --remote-cluster-id: the provider is not asked")
        session.confirm(_GIVES_UP.format(cluster_id=cluster_id))
        work = functools.partial(force, provider=cluster_id)
        clusters.run(session, work, "unpeering", timeout_s)
        return
    provider = remote()
    session.confirm(
        "End the peering? Pods on the provider end, and their remote namespaces are deleted."
    )
    ending = functools.partial(auth.met, functools.partial(unpeer, **given))
    clusters.run_both(session, provider, ending, "unpeering", timeout_s)


@options.force.command("unpeer", "liqoctl force unpeer milan")
@clusters.named("cluster_id", keys.FOREIGN_CLUSTER)
@options.STANDSTILL
@clusters.on_cluster("unpeering", asks=_GIVES_UP)
async def force_unpeer(side: Side, cluster_id: str) -> None:
    """End the peering with a provider that does not come back; it is not asked."""
    await force(side, cluster_id)


async def peer(
    peers: PeerClusters, asked: Mapping[str, Any] | None, how: Authentication = AS_USUAL
) -> None:
    """Let the consumer use the provider; what is done already is left as it is.

    Shape: ``asked`` has fields of ``SliceOptions``; None: no slice is made.

    Raises:
        click.ClickException: the provider refuses.
    """
    await revive(peers.consumer, peers.provider_id)
    await auth.authenticate(peers, how)
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
    here = await auth.ensure_namespace(peers.consumer, provider)
    said = {"class_": "", "metadata": metadata, **asked}
    wanted = SliceOptions(provider, here, provider, **said)
    answered, where = await asking.ask(peers.consumer, wanted), wanted.where
    said = resourceslice.answers(answered)
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
    found = objects_.condition(node, "Ready")
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
    await auth.unauthenticate(peers, wait=wait)
    if delete_namespaces:
        await _delete_namespaces(peers)


async def forsake(side: Side, provider: str, *, waits: bool = True) -> str:
    """Delete the slices and virtual nodes for ``provider``; return their namespace, if any.

    A NamespaceMap goes with the last virtual node; one that is left has lost it.
    """
    here = await auth.tenant_namespace(side.cluster, provider)
    if not here:
        side.info(f"there is no tenant namespace for {provider}")
        return ""
    for kind in (keys.RESOURCE_SLICE, keys.VIRTUAL_NODE, keys.NAMESPACE_MAP):
        for key in await auth.for_peer(side.cluster, kind, here, provider):
            why = "pods are leaving its node, as disruption budgets allow"
            await clusters.remove(side, kind, key, why=why, waits=waits)
    return here


async def _delete_namespaces(peers: PeerClusters) -> None:
    sides = ((peers.consumer, peers.provider_id), (peers.provider, peers.consumer_id))
    for side, peer_ in sides:
        name = await auth.tenant_namespace(side.cluster, peer_)
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
    here = await auth.tenant_namespace(side.cluster, provider)
    orphans = await _twins(side.cluster, here, provider) if here else []
    await clusters.keep(side, keys.FOREIGN_CLUSTER, wanted)
    if not await forsake(side, provider):
        return
    await auth.sign_off(side, here, provider, waits=True)
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
