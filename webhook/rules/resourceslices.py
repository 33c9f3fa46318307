"""When a ResourceSlice may be made, what becomes of it, and what its consumer may change. Pure.

Source: docs/parity.md § 0.4, 3.5.
"""

from collections.abc import Iterable
from typing import Final

from apis import keys, ownership, placement
from apis.objects import Key, Object, annotations, labels
from apis.validation import DeniedError
from webhook import patch
from webhook.admission import Admitted
from webhook.rules import shape

CONTROL_PLANES: Final = "liqo.io"
"""The group of the control planes of other clusters."""
PROVIDERS: Final = (keys.CORDON, keys.CORDON_TENANT, keys.DRAIN)
"""Annotations by which a provider keeps a slice in check."""


_CREATE_NODE: Final = ("metadata", "annotations", keys.CREATE_VIRTUAL_NODE)


def mark(obj: Object, groups: Iterable[str]) -> Admitted:
    """Have a virtual node made of a slice that a user of this cluster asks for and says no more."""
    shape.check(obj, "ResourceSlice")
    is_of_this_cluster = CONTROL_PLANES not in groups and not ownership.is_marked(labels(obj))
    if not is_of_this_cluster or keys.CREATE_VIRTUAL_NODE in annotations(obj):
        return Admitted(verdict="unchanged")
    return Admitted(patch.put(obj, _CREATE_NODE, "true"), verdict="becomes a virtual node")


def is_replica(obj: Object) -> bool:
    """Whether it came from another cluster, where its name was judged."""
    shape.check(obj, "ResourceSlice")
    return ownership.is_marked(labels(obj))


def check_create(key: Key, local: Iterable[Key], node: Object | None = None) -> Admitted:
    """Admit a slice of this cluster; ``local`` are those there are, in all namespaces.

    ``node`` is the Node of its name, if there is one.

    Raises:
        DeniedError: another slice or a real node has its name, which will be a node's.
    """
    other = next((other for other in local if other.name == key.name and other != key), None)
    if node is not None and not placement.is_virtual(node):
        taken = f"there is a node {key.name!r}"
    elif other is not None:
        taken = f"resource slice {other} has this name"
    else:
        return Admitted()
    message = f"metadata.name: {taken}, and nodes are called after their slices: choose another"
    raise DeniedError(message, code=409)


def check_update(old: Object, new: Object, groups: Iterable[str]) -> Admitted:
    """Admit a change; a consumer does not change whose it is, nor whether it is cordoned.

    Raises:
        DeniedError: a consumer does.
    """
    shape.check(old, "ResourceSlice")
    shape.check(new, "ResourceSlice")
    if CONTROL_PLANES not in groups:
        return Admitted()
    if ownership.cluster_named_by(old) != ownership.cluster_named_by(new):
        message = f"metadata.labels: {keys.REMOTE_CLUSTER_ID} is the provider's to change"
        raise DeniedError(f"{message}: leave it as it was")
    for name in PROVIDERS:
        if annotations(old).get(name) != annotations(new).get(name):
            message = f"metadata.annotations: {name} is the provider's to change"
            raise DeniedError(f"{message}: leave it as it was")
    return Admitted()
