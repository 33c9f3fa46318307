"""Our policies on pods, which take the NamespaceOffloading of a pod's namespace as parameter."""

import copy
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

from apis.objects import Object
from sandbox import binaries
from sandbox.kubectl import Kubectl, KubectlError
from tests.factories import namespace, pod
from tests.manifests import documents
from tests.webhook.reviews import offloading, wait_until

NAMES: Final = frozenset({"liqo-judged-pods", "liqo-added-tolerations"})
KINDS: Final = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
GROUP: Final = "admissionregistration.k8s.io"
_GATE: Final = "--feature-gates=MutatingAdmissionPolicy=true"
AGAIN: Final = "create the pod again in a moment"


def manifest() -> str:
    return listed_as_json(_ours())


def of_namespaces(run: str) -> list[Object]:
    """Return them for the namespaces with the label ``judged: <run>`` alone."""
    found: list[Object] = []
    for obj in copy.deepcopy(_ours()):
        obj["metadata"]["name"] += f"-{run}"
        spec = obj["spec"]
        if "policyName" in spec:
            spec["policyName"] += f"-{run}"
        else:
            chosen = spec["matchConstraints"]["namespaceSelector"]["matchExpressions"]
            chosen.append({"key": "judged", "operator": "In", "values": [run]})
        found.append(obj)
    return found


def _ours() -> list[Object]:
    return [obj for obj in documents.of_kind(*KINDS) if obj["metadata"]["name"] in NAMES]


# MutatingAdmissionPolicies, a beta in the usual version of Kubernetes -----------------------------


def flags(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return by which flags the usual version of the API server serves them."""
    is_usual = not any(name.startswith(binaries.VERSION_VARIABLE) for name in environment)
    return (_GATE, f"--runtime-config={GROUP}/v1beta1=true") if is_usual else ()


def mutating(kubectl: Kubectl) -> str:
    """Return those of ``manifests/mutating`` as the server has them, "" if it has no such kind."""
    text = (documents.ROOT / "mutating" / "annotations.yaml").read_text(encoding="utf-8")
    versions = (one for one in ("v1", "v1beta1") if _is_served(kubectl, one))
    found = next(versions, "")
    return text.replace(f"{GROUP}/v1\n", f"{GROUP}/{found}\n") if found else ""


def _is_served(kubectl: Kubectl, version: str) -> bool:
    try:
        found = json.loads(kubectl.run("get", "--raw", f"/apis/{GROUP}/{version}"))
    except KubectlError:
        return False
    return any(one["name"] == "mutatingadmissionpolicies" for one in found["resources"])


def listed_as_json(objects: Any) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def wait_until_in_force(kubectl: Kubectl) -> None:
    """Return when pods that nobody judges are refused where somebody offloads."""
    space = f"closed-{secrets.token_hex(4)}"
    made: list[Object] = [namespace(space), offloading(space, podOffloadingStrategy="Remote")]
    kubectl.run("apply", "-f", "-", stdin=listed_as_json(made))
    wait_until(lambda: AGAIN in policy_refusal(kubectl, space))
    kubectl.run("delete", "namespace", space, "--wait=false")


def policy_refusal(kubectl: Kubectl, space: str, **rest: Any) -> str:
    """Return why a pod of ``space`` is refused, or an empty string; nothing changes."""
    try:
        kubectl.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod(space, **rest)))
    except KubectlError as error:
        return str(error)
    return ""
