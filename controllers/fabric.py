"""What an IP fabric says, where one joins the clusters: the flag ``--ip-fabric``.

Its kinds are only read here; a cluster that does not know them has nothing of them.
Source: docs/parity.md § 1.14.
"""

from collections.abc import Callable
from typing import Final

from apis import keys, remap
from apis.objects import Object
from apis.remap import Remap
from controllers import watches
from controllers.manager import Manager
from kube import errors
from kube.cluster import Selection
from kube.informer import Informer

CONFIGURATIONS: Final = watches.every(keys.CONFIGURATION)
_OF_PODS: Final = f"{keys.NETWORK_TYPE}={keys.POD_CIDR}"
_OF_API_SERVERS: Final = f"{keys.IP_TYPE}={keys.API_SERVER_IP}"


def configurations(manager: Manager) -> Informer[Object] | None:
    """Return how peers are reached; None without a fabric."""
    return _informer(manager, CONFIGURATIONS)


def networks(manager: Manager) -> Informer[Object] | None:
    """Return the networks of this cluster's pods; None without a fabric."""
    selection = watches.every(keys.NETWORK, namespace=manager.namespace, labels=_OF_PODS)
    return _informer(manager, selection)


def api_servers(manager: Manager) -> Informer[Object] | None:
    """Return by which addresses peers reach this cluster's API server; None without a fabric."""
    selection = watches.every(keys.IP, namespace=manager.namespace, labels=_OF_API_SERVERS)
    return _informer(manager, selection)


def reached(manager: Manager) -> Callable[[str], Remap]:
    """Return the question by which addresses a peer is reached; as they are without a fabric."""
    known = configurations(manager)
    return lambda peer: remap.of_peer(known.items().values(), peer) if known else Remap()


def _informer(manager: Manager, selection: Selection[Object]) -> Informer[Object] | None:
    if not manager.limits.has_fabric:
        return None
    return manager.informer(selection, may_lack=(errors.NotFoundError,))
