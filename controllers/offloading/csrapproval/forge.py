"""What the request of one virtual kubelet has to say, and the verdict on it."""

import base64
from datetime import datetime
from typing import Final

from apis import keys, objects
from apis.objects import Key, Object

SIGNER: Final = "kubernetes.io/kubelet-serving"
APPROVED: Final = "Approved"
DENIED: Final = "Denied"
REASON: Final = "VirtualKubeletServing"
ORGANIZATION: Final = "system:nodes"

_USAGES: Final = (
    ["digital signature", "key encipherment", "server auth"],
    ["digital signature", "server auth"],
)
_ACCOUNT: Final = "system:serviceaccount:"
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"


def is_pending(request: Object) -> bool:
    """Whether nobody has decided on ``request`` yet, and it is for our signer."""
    decided = {each["type"] for each in objects.status(request).get("conditions") or []}
    return request["spec"].get("signerName") == SIGNER and not decided & {APPROVED, DENIED}


def requestor(request: Object) -> Key | None:
    """Return the service account that asks, by the name that the API server wrote down."""
    username = str(request["spec"].get("username", ""))
    namespace, colon, name = username.removeprefix(_ACCOUNT).partition(":")
    if not username.startswith(_ACCOUNT) or not colon or not namespace or not name:
        return None
    return Key(namespace, name)


def node_of(request: Object) -> str:
    """Return the virtual node that ``request`` may be for, "" for none."""
    account = requestor(request)
    return account.name if account else ""


def pod_of(request: Object) -> tuple[str, str]:
    """Return name and UID of the pod whose token signed ``request``; empty when unknown."""
    extra = request["spec"].get("extra") or {}
    return _only(extra.get(_POD_NAME)), _only(extra.get(_POD_UID))


def pod_address(pod: Object) -> str:
    """Return the address at which the kubelet API of ``pod`` is reached; empty before there is."""
    return str(objects.status(pod).get("podIP") or "")


def pem(request: Object) -> bytes:
    """Return the PEM text in ``request``; empty where that is not base64."""
    try:
        return base64.b64decode(request["spec"].get("request", ""), validate=True)
    except ValueError:  # binascii.Error, and what is not ASCII
        return b""


def usage_problems(request: Object) -> list[str]:
    """Return what is wrong with the usages: they have to be those of a server, and no others."""
    usages = sorted(request["spec"].get("usages") or [])
    return [] if usages in _USAGES else [f"its usages are {', '.join(usages) or 'none'}"]


def is_pod_of(pod: Object, account: Key, uid: str) -> bool:
    """Whether ``pod`` is that very one, and runs the virtual kubelet of ``account``."""
    labels = objects.labels(pod)
    return (
        objects.uid(pod) == uid
        and pod["spec"].get("serviceAccountName") == account.name
        and labels.get(keys.COMPONENT) == keys.VIRTUAL_KUBELET
        and labels.get(keys.VIRTUAL_NODE_LABEL) == account.name
    )


def verdict(request: Object, type_: str, message: str, now: datetime) -> Object:
    before = objects.status(request).get("conditions") or []
    moment = objects.timestamp(now)
    condition = {
        "type": type_,
        "status": "True",
        "reason": REASON,
        "message": message,
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
    }
    version = {"resourceVersion": request["metadata"]["resourceVersion"]}
    return {"metadata": version, "status": {"conditions": [*before, condition]}}


def _only(values: list[str] | None) -> str:
    return values[0] if values and len(values) == 1 else ""
