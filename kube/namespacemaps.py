"""The NamespaceMap by which this cluster offloads to one provider, told from that one's own."""

from apis import keys, ownership
from apis.objects import Object
from kube.cluster import Selection


def ours(tenant_namespace: str, provider: str) -> Selection[Object]:
    """Return the selection of the one map that goes to ``provider``.

    Where that cluster offloads to this one, too, the replica of its map lies beside ours, with the
    same label for the peer.
    """
    labels = ownership.originals_for(provider)
    return Selection(keys.NAMESPACE_MAP, Object, tenant_namespace, labels=labels)
