"""Whether the namespace of a pod lets it run on this virtual node: the last gate before it does.

Admission says it earlier, where it is asked; this holds however the pod came to be bound.
Source: docs/parity.md § 3.1; SEC-D5.
"""

from dataclasses import replace

from apis import keys, objects, placement
from apis.objects import Object
from apis.offloading import NamespaceOffloading, PodOffloadingStrategy

_VIRTUAL: Object = {"metadata": {"labels": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}}}


def forbids(local: Object, offloading: Object | None, node: Object | None) -> str:
    """Return why ``offloading``, that of its namespace, keeps ``local`` off ``node``; "" if not.

    Who owns the pod is not asked, nor what it says of itself, but for the runtime class: its pods
    belong on virtual nodes under every strategy. Without ``offloading`` another rule decides; where
    ``node`` is not known, only the strategy is judged.
    """
    if offloading is None or objects.is_terminating(offloading):
        return ""
    name = f"namespaceoffloading {objects.key_of(offloading)}"
    try:
        asked = NamespaceOffloading.parse(offloading)
    except ValueError as error:
        return f"{name} cannot be read: {error}: correct it"
    if placement.is_forced(local):
        asked = replace(asked, strategy=PodOffloadingStrategy.REMOTE)
    if node is None:
        asked = replace(asked, cluster_selector=())
    obstacles = placement.forbidden(asked, node or _VIRTUAL)
    if not obstacles:
        return ""
    return f"{name}: {obstacles[0].text}: change it, or delete the pod and let it be placed again"
