"""What the provider says about a pod with its ShadowPod and its Pod, and what that means here.

Source: docs/parity.md § 4.10, 5.5.5.
"""

from apis import keys, objects, quotas
from apis.objects import Object
from kubelet.forge import status


def refusal(shadow: Object, type_: str = "Admitted") -> str:
    """Return why the provider does not admit the pod, or a change of it; "" if it does."""
    found = objects.find_condition(status.status_of(shadow).get("conditions"), type_) or {}
    if found.get("status") != "False":
        return ""
    return str(found.get("message") or found.get("reason") or "refused")


def deferral(shadow: Object) -> str:
    """Return why the pod may not grow yet; "" if nothing of it waits for room."""
    listed = status.status_of(shadow).get("conditions")
    found = objects.find_condition(listed, keys.UPDATED_CONDITION) or {}
    waits = found.get("status") == "False" and found.get("reason") == quotas.EXCEEDED
    return str(found.get("message") or "") if waits else ""


def is_replaced(shadow: Object, remote: Object) -> bool:
    """Whether the provider ends the pod to make it again: how its containers end then is no end.

    A kubelet reports Succeeded or Failed of any pod that is deleted. Work that was finished
    before is finished for the ShadowPod too.
    """
    ended = objects.is_terminating(remote) and objects.is_finished(remote)
    return ended and not objects.is_finished(shadow)


def has_ended(shadow: Object, remote: Object | None) -> bool:
    """Whether the pod has ended on the provider, and is not made again there."""
    if objects.is_finished(shadow):
        return True
    return remote is not None and objects.is_finished(remote) and not is_replaced(shadow, remote)


def is_awaited(local: Object, shadow: Object, remote: Object | None) -> bool:
    """Whether nothing came of the ShadowPod yet: neither a Pod nor an end."""
    is_over = objects.is_finished(shadow)
    return remote is None and not status.has_started(local) and not is_over


def is_counted(local: Object) -> bool:
    """Whether somebody counts how the pod ends."""
    always = local["spec"].get("restartPolicy", "Always") == "Always"
    return not always or bool(objects.finalizers(local))
