"""When a ResourceSlice may be made, and what its consumer may change. Pure.

Source: behaviour.md 3.5.
"""

from collections.abc import Iterable
from typing import Final

from apis import keys
from apis.objects import Key, Object, annotations, labels
from webhook.admission import Admitted, DeniedError
from webhook.rules import shape

CONTROL_PLANES: Final = "liqo.io"
"""The group of the control planes of other clusters."""
PROVIDERS: Final = (keys.CORDON, keys.CORDON_TENANT, keys.DRAIN)
"""Annotations by which a provider keeps a slice in check."""


def is_replica(obj: Object) -> bool:
    """Whether it came from another cluster, where its name was judged."""
    shape.check(obj, "ResourceSlice")
    return labels(obj).get(keys.REPLICATED) == "true"


def check_create(key: Key, local: Iterable[Key]) -> Admitted:
    """Admit a slice of this cluster; ``local`` are those there are, in all namespaces.

    Raises:
        DeniedError: another one has its name, which will be a node's.
    """
    for other in local:
        if other.name == key.name and other != key:
            message = f"metadata.name: resource slice {other} has this name, and nodes are called"
            raise DeniedError(f"{message} after their slices: choose another", code=409)
    return Admitted()


def check_update(old: Object, new: Object, groups: Iterable[str]) -> Admitted:
    """Admit a change; a consumer does not change whose it is, nor whether it is cordoned.

    Raises:
        DeniedError: a consumer does.
    """
    shape.check(old, "ResourceSlice")
    shape.check(new, "ResourceSlice")
    if CONTROL_PLANES not in groups:
        return Admitted()
    if labels(old).get(keys.REMOTE_CLUSTER_ID) != labels(new).get(keys.REMOTE_CLUSTER_ID):
        message = f"metadata.labels: {keys.REMOTE_CLUSTER_ID} is the provider's to change"
        raise DeniedError(f"{message}: leave it as it was")
    for name in PROVIDERS:
        if annotations(old).get(name) != annotations(new).get(name):
            message = f"metadata.annotations: {name} is the provider's to change"
            raise DeniedError(f"{message}: leave it as it was")
    return Admitted()
