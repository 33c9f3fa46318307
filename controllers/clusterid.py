"""The name and the key pair of this cluster, made once, and which networks its pods have."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from apis import authentication, keys, naming, networks, objects
from apis.networks import NodeAddresses
from apis.objects import Key, Object, named
from certs import identity, pki
from controllers.manager import Controller
from kube.cluster import Cluster
from kube.controller import TerminalError, WatchSource
from kube.errors import AlreadyExistsError
from kube.informer import Change
from kube.localaddresses import NODES, is_moved

_SHOWN_OF_UID: Final = 8

logger = logging.getLogger(__name__)


async def ensure(cluster: Cluster, namespace: str = keys.LIQO_NAMESPACE) -> str:
    """Return the cluster ID, which is made once unless an administrator has set one.

    It is what the About API says of the cluster, else ``cluster-`` and 8 hex of the UID of
    kube-system.
    Source: KEP-2149, ClusterId.

    Raises:
        TerminalError: the ConfigMap is there and holds no ID.
    """
    key = Key(namespace, keys.CLUSTER_ID_CONFIG_MAP)
    found = await cluster.get_live(keys.CONFIG_MAP, key)
    if found is None:
        found = await _create(cluster, key)
    cluster_id = str((found.get("data") or {}).get(keys.CLUSTER_ID_KEY, ""))
    if not cluster_id:
        message = f"configmap {key} has no {keys.CLUSTER_ID_KEY}: set it to this cluster's ID"
        raise TerminalError("NoClusterID", message)
    return cluster_id


async def _said(cluster: Cluster) -> str:
    """Return what the About API says, if it may be the name of a cluster here."""
    for kind in keys.CLUSTER_PROPERTIES:
        found = await cluster.get_live(kind, Key("", keys.CLUSTER_ID_PROPERTY))
        said = str(objects.spec(found).get("value") or "")
        if naming.is_dns_label(said):
            return said
        if said:
            logger.warning(
                "The ID of the About API is not used: it is no DNS label", extra={"id": said[:300]}
            )
    return ""


async def _derived(cluster: Cluster) -> str:
    system = await cluster.get_live(keys.NAMESPACE, Key("", "kube-system"))
    if system is None:
        raise TerminalError("NoClusterID", "namespace kube-system is missing: no ID can be derived")
    return f"cluster-{objects.uid(system).replace('-', '')[:_SHOWN_OF_UID]}"


async def _create(cluster: Cluster, key: Key) -> Object:
    cluster_id = await _said(cluster) or await _derived(cluster)
    wanted = objects.named(
        keys.CONFIG_MAP,
        key,
        metadata={"labels": {keys.APP_NAME: keys.CLUSTER_ID_CONFIG_MAP}},
        data={keys.CLUSTER_ID_KEY: cluster_id},
    )
    logger.info("Creating cluster ID", extra={"cluster": cluster_id})
    try:
        return await cluster.create(keys.CONFIG_MAP, wanted)
    except AlreadyExistsError:
        return await cluster.get_live(keys.CONFIG_MAP, key) or wanted


# The key pair, by which this cluster proves who it is to its providers ----------------------------

_PRIVATE = "privateKey"
_PUBLIC = "publicKey"


async def ensure_key(cluster: Cluster, namespace: str = keys.LIQO_NAMESPACE) -> bytes:
    """Return the private key, PEM, from the Secret ``authentication-keys``.

    Raises:
        TerminalError: the Secret is there and holds no key.
    Source: docs/parity.md § 2.5, "Local key pair".
    """
    key = Key(namespace, keys.AUTHENTICATION_KEYS)
    found = await cluster.get_live(keys.SECRET, key) or await _create_key(cluster, key)
    try:
        private = authentication.decoded(found.get("data") or {}, _PRIVATE)
        pki.public_key(private)
    except ValueError as error:
        message = f"secret {key} has no usable {_PRIVATE}: delete it and peer again"
        raise TerminalError("NoKeyPair", message) from error
    return private


async def _create_key(cluster: Cluster, key: Key) -> Object:
    private = identity.new_key()
    data = {
        _PRIVATE: authentication.encoded(private),
        _PUBLIC: authentication.encoded(pki.public_key(private)),
    }
    wanted = named(
        keys.SECRET,
        key,
        metadata={"labels": {keys.LIQO_MANAGED: "true"}},
        type="Opaque",
        data=data,
    )
    logger.info("Creating the key pair of this cluster", extra={"secret": str(key)})
    try:
        return await cluster.create(keys.SECRET, wanted)
    except AlreadyExistsError:
        return await cluster.get_live(keys.SECRET, key) or wanted


# The networks of its pods, beside the cluster ID --------------------------------------------------
# A peering user may read that ConfigMap and no Node; ``liqoctl peer`` names the networks to the
# consumer, which publishes no address outside of them. Source: docs/decisions/0013 (5).

AGAIN_S: Final = 600.0
"""Seconds after which it is looked at again, since nothing tells that somebody changed it."""


class PodNetworksReconciler(Controller):
    """Its one key is that of the ConfigMap."""

    name = "podnetworks"

    def watches(self) -> Sequence[WatchSource[Any]]:
        return [self.watch(NODES, self._by_node)]

    def _by_node(self, change: Change[NodeAddresses]) -> Iterable[Key]:
        where = Key(self.manager.namespace, keys.CLUSTER_ID_CONFIG_MAP)
        return [where] if change.old is None or is_moved(change) else []

    async def reconcile(self, key: Key) -> float | None:
        nodes = (await self.all(NODES)).values()
        of_nodes = (text for node in nodes for text in node.pod_networks())
        flags = networks.parse_networks(self.limits.pod_cidrs)
        wanted = networks.joined_networks(flags or networks.pod_networks_of_nodes(of_nodes))
        found = await self.live.get_live(keys.CONFIG_MAP, key)
        had = ((found or {}).get("data") or {}).get(keys.POD_CIDRS_KEY, "")
        if found is not None and had != wanted:
            changes = {"data": {keys.POD_CIDRS_KEY: wanted or None}}
            await self.live.patch(keys.CONFIG_MAP, key, changes)
        return AGAIN_S
