"""Into which pods of its twin namespaces a consumer may reach: those of its ShadowPods. Pure.

Source: docs/parity.md SEC-A23.
"""

from collections.abc import Iterable

from apis import keys, objects, whose
from apis.objects import Object
from apis.validation import DeniedError
from webhook.admission import Admitted


def is_by_its_consumer(namespace: Object | None, user: str, groups: Iterable[str]) -> bool:
    """Whether the consumer that ``namespace`` is a twin of asks: by name, or by a kubelet's group.

    Source: docs/parity.md § 2.5, certificates.
    """
    consumer = whose.consumer_of(namespace)
    return bool(consumer) and (user == consumer or consumer in groups)


def check(pod: Object | None, subresource: str) -> Admitted:
    """Admit that a consumer reaches into ``pod``.

    Raises:
        DeniedError: somebody of the provider put it there.
    """
    if pod is None:
        return Admitted(verdict="allowed: no such pod")
    owner = objects.controller_of(pod) or {}
    group = str(owner.get("apiVersion")).partition("/")[0]
    if (group, owner.get("kind")) == (keys.SHADOW_POD.group, keys.SHADOW_POD.kind):
        return Admitted(verdict="allowed: of a ShadowPod")
    message = f"{subresource}: the pod is not of a ShadowPod, so it is the provider's own"
    raise DeniedError(f"{message}: choose one that was offloaded, or ask the provider")
