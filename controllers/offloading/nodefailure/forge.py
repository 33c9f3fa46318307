"""When a Pod that ends has to be removed by force. Pure.

Source: docs/parity.md § 4.13; F-24.
"""

from datetime import datetime

from apis import keys, objects
from apis.objects import Object


def is_ending(pod: Object) -> bool:
    """Whether it is a ShadowPod's, ends, and is on a node."""
    is_ours = objects.labels(pod).get(keys.MANAGED_BY) == keys.MANAGED_BY_SHADOW_POD
    return is_ours and objects.is_terminating(pod) and bool(pod["spec"].get("nodeName"))


def has_failed(node: Object) -> bool:
    """Whether a real node is not Ready: nobody there says that a Pod has ended."""
    is_virtual = objects.labels(node).get(keys.NODE_TYPE) == keys.VIRTUAL_NODE_TYPE
    found = objects.status(node).get("conditions")
    return not is_virtual and not objects.is_condition_true(found, "Ready")


def grace_left_s(pod: Object, now: datetime) -> float:
    """Return for how many seconds its containers may still end by themselves."""
    ends = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])
    return (ends - now).total_seconds()
