"""What a consumer does in its twin namespaces: reach into pods, write annotations. Pure.

Source: docs/parity.md SEC-A23, X11.
"""

from collections.abc import Iterable

from apis import allowlist, keys, objects, ownership
from apis.objects import Kind, Object
from apis.validation import DeniedError
from webhook import patch
from webhook.admission import Admitted


def is_by_its_consumer(namespace: Object | None, user: str, groups: Iterable[str]) -> bool:
    """Whether the consumer that ``namespace`` is a twin of asks: by name, or by a kubelet's group.

    Source: docs/parity.md § 2.5, certificates.
    """
    consumer = ownership.consumer_of(namespace)
    return bool(consumer) and (user == consumer or consumer in groups)


def check_connection(pod: Object | None, subresource: str) -> Admitted:
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


def without_orders(kind: Kind, new: Object, old: Object, namespace: Object) -> Admitted:
    """Take the annotations off that programs of the provider obey, but those that were there.

    ``old`` is {} of an object that is created.
    """
    wanted, had = objects.annotations(new), objects.annotations(old) if old else {}
    listed = objects.annotations(namespace).get(keys.OFFERED_ANNOTATION_DOMAINS, "")
    gone = allowlist.refused(kind, wanted, had, filter(None, listed.split(",")))
    if not gone:
        return Admitted(verdict="unchanged: no order")
    kept = {name: value for name, value in wanted.items() if name not in gone}
    kept |= {name: had[name] for name in gone & had.keys()}
    warning = (
        f"metadata.annotations: {', '.join(sorted(gone))} left out: programs of the provider may "
        "obey that, ask it for annotationDomains of its ProviderPolicy"
    )
    changes = patch.put(new, ("metadata", "annotations"), kept)
    return Admitted(changes, [warning], "changed: left out what programs obey")
