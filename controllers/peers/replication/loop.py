"""Replication to all peers, as one loop of the controller manager."""

from apis import keys
from controllers import selections
from controllers.manager import Manager, Term
from controllers.peers.replication.peers import Origin, Peers


def controller(manager: Manager) -> Term:
    origin = Origin(
        cluster_id=manager.cluster_id,
        live=manager.live,
        cached=manager.cached,
        informers={
            keys.NAMESPACE_MAP: manager.informer(selections.NAMESPACE_MAPS),
            keys.RESOURCE_SLICE: manager.informer(selections.RESOURCE_SLICES),
            keys.RENEW: manager.informer(selections.RENEWS),
        },
        events=manager.events,
        user_agent=manager.user_agent,
        foreign_clusters=manager.informer(selections.FOREIGN_CLUSTERS),
        namespaces=manager.informer(selections.PEER_NAMESPACES),
        identities=manager.informer(selections.IDENTITIES),
        secrets=manager.tenant_secrets(),
        may_write=manager.may_write,
        excess=manager.excess,
    )
    return lambda: [Peers(origin)]
