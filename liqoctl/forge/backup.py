"""What of a cluster has to be kept to make it again under its name, as ``kubectl apply`` takes it.

All else pyliqo makes again. Pure. Source: docs/backup.md.
"""

from typing import Any, Final

from apis import keys, objects
from apis.objects import Kind, Object

OURS: Final = (keys.VK_OPTIONS_TEMPLATE, keys.PROVIDER_POLICY)
"""Kinds of which every object is an administrator's word."""
_CONTENT: Final = ("type", "data", "spec")
_OF_SERVERS: Final = frozenset(
    {"kubectl.kubernetes.io/last-applied-configuration", "kubernetes.io/metadata.name"}
)
_IMAGE: Final = "containerImage"
"""Of the default template it follows the installation."""
_OF_PYLIQO: Final = frozenset({keys.SCHEDULING_ENABLED})
"""Labels of a user's namespace that its NamespaceOffloading brings back."""


def kept(kind: Kind, obj: Object) -> Object:
    """Return ``obj`` as it was said, without what a server or a controller adds."""
    metadata: dict[str, Any] = {
        name: obj["metadata"][name] for name in ("name", "namespace") if obj["metadata"].get(name)
    }
    for name, said in (("labels", objects.labels(obj)), ("annotations", objects.annotations(obj))):
        if own := {key: text for key, text in said.items() if not _is_added(key)}:
            metadata[name] = own
    made: Object = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    if kind == keys.NAMESPACE:
        return made
    made |= {name: obj[name] for name in _CONTENT if name in obj}
    if kind == keys.VK_OPTIONS_TEMPLATE and objects.labels(obj).get(keys.APP_MANAGED_BY) == "liqo":
        made["spec"] = {name: said for name, said in made["spec"].items() if name != _IMAGE}
    return made


def _is_added(key: str) -> bool:
    return key in _OF_SERVERS or key in _OF_PYLIQO
