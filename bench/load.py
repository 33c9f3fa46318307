"""What the load consists of: pods, Deployments, objects to reflect, admission reviews; pure."""

import base64
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

from apis import keys
from apis.objects import Key, Kind, Object, named
from bench.observe import DATA, ITEM, NUMBERED, SEQUENCE

PART: Final = "bench.pyliqo.io/part"
"""Label of everything that a run makes besides its load, so that all of it can be found."""
TAINT: Final = "bench.pyliqo.io/only"
"""Of virtual nodes whose pods end where no container runs."""
REPLAYED: Final = "bench.pyliqo.io/replayed"
"""Of nodes whose pods are the business of ``floor`` and ``ideal`` alone."""
POD_BYTES: Final = 4096
_LINE: Final = 96


def pod(namespace: str, name: str, *, size: int = 0, read: str = "", **spec: Any) -> Object:
    """Return a pod that no kubelet pulls an image for, filled up with variables to ``size``.

    It reads the ConfigMap and the Secret called ``read``, if that is said.
    """
    made = named(
        keys.POD,
        Key(namespace, name),
        metadata={"labels": {ITEM: "pod"}},
        spec={**_pod_spec(), **spec},
    )
    if read:
        made["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": read}}]
        made["spec"]["volumes"] = [{"name": "read", "secret": {"secretName": read}}]
    missing = size - len(json.dumps(made))
    variables = [
        {"name": f"BENCH_{number:04}", "value": "x" * (_LINE - 40)}
        for number in range(max(missing, 0) // _LINE)
    ]
    if variables:
        made["spec"]["containers"][0]["env"] = variables
    return made


def deployment(namespace: str, name: str, replicas: int, **spec: Any) -> Object:
    """Return a Deployment of such pods."""
    labels = {"app": name, ITEM: "pod"}
    template = {"metadata": {"labels": labels}, "spec": {**_pod_spec(), **spec}}
    whole = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
        "revisionHistoryLimit": 0,
    }
    return named(keys.DEPLOYMENT, Key(namespace, name), spec=whole)


def item(kind: Kind, namespace: str, name: str, sequence: int) -> Object:
    """Return a ConfigMap, Secret or Service in its state number ``sequence``."""
    made = named(kind, Key(namespace, name), **changed(kind, sequence))
    made["metadata"]["labels"] = {ITEM: kind.plural}
    if kind == keys.SERVICE:
        made["spec"] = {"ports": [{"port": 80}], "selector": {"app": name}}
    return made


def changed(kind: Kind, sequence: int) -> Object:
    """Return the changes that bring such an object into its state number ``sequence``."""
    if kind == keys.SERVICE:
        return {"metadata": {"annotations": {SEQUENCE: str(sequence)}}}
    return {"data": {DATA: told(kind, sequence), "filling": told(kind, "x" * 200)}}


def told(kind: Kind, text: object) -> str:
    """Return how an object of ``kind`` shows ``text`` in its data."""
    whole = str(text)
    return base64.b64encode(whole.encode()).decode() if kind == keys.SECRET else whole


def flip(pod_status: Mapping[str, Any], sequence: int) -> Object:
    """Return a status whose condition ``NUMBERED`` says ``sequence``, all else as it was."""
    conditions = [
        {**one, "message": str(sequence)} if one["type"] == NUMBERED else one
        for one in pod_status["conditions"]
    ]
    return {"conditions": conditions}


def review(namespace: str, size: int) -> Object:
    """Return the AdmissionReview of the creation of a pod, of about ``size`` bytes."""
    made = pod(namespace, "reviewed", size=size - 700)
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": secrets.token_hex(16),
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {"username": "bench", "groups": ["system:authenticated"]},
            "object": made,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def tolerates(key: str) -> list[Object]:
    """Return the tolerations of pods that may go to nodes with the taint ``key``."""
    return [{"key": key, "operator": "Exists"}]


def _pod_spec() -> Object:
    resources = {"requests": {"cpu": "1m", "memory": "1Mi"}}
    container = {"name": "main", "image": "localhost/bench:none", "resources": resources}
    return {
        "containers": [container],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
    }
