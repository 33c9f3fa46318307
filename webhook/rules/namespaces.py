"""Which namespace gets the label that has its pods judged, from admission itself. Pure.

Source: docs/parity.md § 3.2; SEC-D4.
"""

from apis import keys, naming
from apis.objects import Object, is_terminating, labels


def enabled(namespace: Object, by: str) -> Object | None:
    """Return the merge patch that labels ``namespace`` for the NamespaceOffloading of UID ``by``.

    None where there is a label already, no matter who set it, or none is due. What is labelled so
    is
    marked, and anybody who keeps the label may take it back; it is written to what was read, or not
    at all.
    """
    if keys.SCHEDULING_ENABLED in labels(namespace) or is_terminating(namespace):
        return None
    if naming.is_system(namespace["metadata"]["name"]):
        return None
    return {
        "metadata": {
            "labels": {keys.SCHEDULING_ENABLED: "true"},
            "annotations": {keys.SCHEDULING_ENABLED_BY: by},
            "resourceVersion": namespace["metadata"]["resourceVersion"],
        }
    }
