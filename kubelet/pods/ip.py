"""The IP object of an offloaded pod, by which an IP fabric tells third parties of its address.

Source: docs/parity.md § 1.14.
"""

from apis import keys, objects
from apis.objects import Object


def of(pod: Object) -> Object | None:
    """Return what says how ``pod`` is reached; None for one that runs nowhere else, or not yet.

    The IPAM answers with ``status.ip``. The pod owns it, so it goes with it.
    """
    address = objects.status(pod).get("podIP")
    is_offloaded = objects.labels(pod).get(keys.SHADOW_POD_LABEL) == "true"
    if not address or not is_offloaded or objects.is_terminating(pod):
        return None
    where = objects.key_of(pod)
    metadata = {
        "labels": {keys.POD_NAME: where.name, keys.POD_NAMESPACE: where.namespace},
        "ownerReferences": [objects.owner_reference(keys.POD, pod, block=False)],
    }
    return objects.named(keys.IP, where, metadata=metadata, spec={"ip": address})


def is_for(found: Object, wanted: Object) -> bool:
    """Whether ``found`` says what ``wanted`` does, of the same pod."""
    return _owner(found) == _owner(wanted) and found.get("spec", {}).get("ip") == _ip(wanted)


def is_of_a_pod(found: Object) -> bool:
    """Whether ``found`` was made for the pod of its name, be it an earlier one."""
    labels, where = objects.labels(found), objects.key_of(found)
    said = (labels.get(keys.POD_NAMESPACE), labels.get(keys.POD_NAME))
    return said == (where.namespace, where.name)


def _owner(ip: Object) -> list[str]:
    return [one["uid"] for one in ip["metadata"].get("ownerReferences") or ()]


def _ip(wanted: Object) -> str:
    return str(wanted["spec"]["ip"])
