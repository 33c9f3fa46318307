"""Peering and its end, by the consumer's administrator.

Source: docs/parity.md § 7.5.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from apis import conditions, keys, naming, slices, whose
from apis import objects as objects_
from apis.objects import Key, Kind, Object
from apis.offloading import NamespaceMap
from kube.cluster import Cluster, Selection
from liqoctl import clusters, handshake
from liqoctl import resourceslice as asking
from liqoctl.clusters import Side
from liqoctl.forge import peering as forge
from liqoctl.forge import resourceslice, virtualnode
from liqoctl.handshake import AS_USUAL, Authentication, Peers


@dataclass(frozen=True)
class Slice:
    """What to ask the provider for."""

    class_: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)
    is_wanted: bool = True
    makes_node: bool = True
    left_out: frozenset[str] = frozenset()
    """As of ``liqoctl.forge.slices.Wanted``."""


async def peer(peers: Peers, wanted: Slice, how: Authentication = AS_USUAL) -> None:
    """Let the consumer use the provider; what is done already is left as it is.

    Raises:
        click.ClickException: the provider refuses.
    """
    await revive(peers.consumer, peers.provider_id)
    await handshake.authenticate(peers, how)
    if wanted.is_wanted:
        await _ask(peers, wanted)


async def revive(side: Side, provider: str) -> None:
    """Take back that ``provider`` is gone for good, if somebody said so."""
    key = Key("", provider)
    found = await side.cluster.get_live(keys.FOREIGN_CLUSTER, key)
    if found and keys.PERMANENTLY_UNREACHABLE in objects_.annotations(found):
        annotations = {keys.PERMANENTLY_UNREACHABLE: None}
        changes = {"metadata": {"annotations": annotations}}
        await side.cluster.patch(keys.FOREIGN_CLUSTER, key, changes)
        side.info(f"foreigncluster {provider}: is no longer given up")


async def _ask(peers: Peers, wanted: Slice) -> None:
    here = await handshake.ensure_namespace(peers.consumer, peers.provider_id)
    where = Key(here, peers.provider_id)
    asked = resourceslice.SliceOptions(
        name=where.name,
        namespace=here,
        cluster_id=peers.provider_id,
        class_=wanted.class_ or slices.DEFAULT_CLASS,
        resources=wanted.resources,
        makes_node=wanted.makes_node,
        metadata=peers.metadata,
        left_out=wanted.left_out if wanted.class_ else wanted.left_out | {"class_"},
    )
    answered = await asking.ask(peers.consumer, asked)
    said = forge.answers(answered)
    for type_ in ("Authentication", "Resources"):
        peers.consumer.info(f"resourceslice {where}: {type_} {said.get(type_, 'not answered')}")
    if set(said.values()) != {"Accepted"}:
        raise click.ClickException(f"resourceslice {where}: {_denial(answered)}")
    peers.consumer.info(f"resourceslice {where}: {resourceslice.grant(answered)}")
    if answered and slices.makes_virtual_node(answered):
        await _until_ready(peers.consumer, peers.provider_id)


async def _until_ready(side: Side, node: str) -> None:
    def is_ready(found: Object | None) -> bool:
        return virtualnode.is_ready(found, node)

    def why(found: Object | None) -> str:
        return _not_ready(found, node)

    what = f"node {node} to be ready"
    await clusters.until(side, keys.NODE, Key("", node), is_ready, what=what, why=why)
    side.info(f"node {node}: ready")


def _not_ready(node: Object | None, cluster_id: str) -> str:
    if node is None:
        return "it does not exist; see the virtualnode and the pods of its Deployment"
    if not virtualnode.is_for(node, cluster_id):
        cure = "delete the resourceslice, and create one of another name"
        return f"it is not the virtual node for cluster {cluster_id}: {cure}"
    found = conditions.find(objects_.status(node).get("conditions"), "Ready") or {}
    return f"{found.get('reason')}: {found.get('message')}"


def _denial(slice_: Object | None) -> str:
    found = objects_.status(slice_).get("conditions") or []
    denied = [each for each in found if each.get("status") != "Accepted"]
    told = [f"{one['type']} {one['status']}: {one.get('message', '')}" for one in denied]
    return "; ".join(told) or "the provider may have cordoned this tenant or slice"


@dataclass(frozen=True)
class End:
    """How to end a peering."""

    waits: bool = True
    deletes_namespaces: bool = False


async def unpeer(peers: Peers, end: End) -> None:
    """Take back all that ``peer`` made, and what was made with it, the consumer's side first."""
    await forsake(peers.consumer, peers.provider_id, waits=end.waits)
    await unauthenticate(peers, end)
    if end.deletes_namespaces:
        await _delete_namespaces(peers)


async def forsake(side: Side, provider: str, *, waits: bool = True) -> str:
    """Delete the slices and virtual nodes for ``provider``; return their namespace, if any.

    A NamespaceMap goes with the last virtual node; one that is left has lost it.
    """
    here = await handshake.tenant_namespace(side.cluster, provider)
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
        if peer in {objects_.spec(obj).get("clusterID"), whose.destination(obj)}
    ]


async def unauthenticate(peers: Peers, end: End) -> None:
    """Delete the identity of the consumer, then what lets it in at the provider.

    Raises:
        click.ClickException: slices for the provider still need it.
    """
    here = await handshake.tenant_namespace(peers.consumer.cluster, peers.provider_id)
    if here:
        left = await _for_peer(peers.consumer.cluster, keys.RESOURCE_SLICE, here, peers.provider_id)
        if left and end.waits:
            names = ", ".join(str(key) for key in left)
            raise click.ClickException(f"resourceslices need the identity: delete {names} first")
        await _sign_off(peers.consumer, here, peers.provider_id, waits=end.waits)
    there = await handshake.tenant_namespace(peers.provider.cluster, peers.consumer_id)
    if there:
        where = Key(there, peers.consumer_id)
        why = "what the consumer left there is being removed"
        await clusters.remove(peers.provider, keys.TENANT, where, why=why, waits=end.waits)
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


async def _delete_namespaces(peers: Peers) -> None:
    sides = ((peers.consumer, peers.provider_id), (peers.provider, peers.consumer_id))
    for side, peer_ in sides:
        name = await handshake.tenant_namespace(side.cluster, peer_)
        for kind in (keys.TENANT, keys.IDENTITY) if name else ():
            if await _any(side.cluster, kind, name):
                message = f"namespace {name} is kept: {kind}s in it serve the other direction"
                raise click.ClickException(f"{message}; unpeer that way first")
        if name:
            await clusters.remove(side, keys.NAMESPACE, Key("", name))


async def _any(cluster: Cluster, kind: Kind, namespace: str) -> bool:
    return bool((await cluster.list(Selection(kind, Object, namespace))).items)


async def force(side: Side, provider: str) -> None:
    """End the peering with a provider that does not come back, and say what it keeps."""
    key = Key("", provider)
    spec = {"clusterID": provider}
    annotations = {keys.PERMANENTLY_UNREACHABLE: "true"}
    wanted = objects_.named(
        keys.FOREIGN_CLUSTER, key, metadata={"annotations": annotations}, spec=spec
    )
    here = await handshake.tenant_namespace(side.cluster, provider)
    orphans = await _twins(side.cluster, here, provider) if here else []
    await clusters.keep(side, keys.FOREIGN_CLUSTER, wanted)
    if not await forsake(side, provider):
        return
    await _sign_off(side, here, provider, waits=True)
    if not await _any(side.cluster, keys.TENANT, here):
        await clusters.remove(side, keys.NAMESPACE, Key("", here))
    side.warning(f"left on {provider}: the tenant of this cluster, {_told(orphans)}")
    side.warning("should it come back, its administrator removes them: liqoctl delete tenant")


async def _twins(cluster: Cluster, namespace: str, provider: str) -> list[str]:
    found = await cluster.get_live(keys.NAMESPACE_MAP, Key(namespace, provider))
    current = NamespaceMap.parse(found).current if found else {}
    return sorted(entry.remote_namespace for entry in current.values())


def _told(twins: list[str]) -> str:
    return f"namespaces {', '.join(twins)}" if twins else "no namespaces"
