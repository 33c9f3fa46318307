"""The statuses of a local pod's containers: the provider's, or that they ended.

Source: docs/parity.md § 5.5.4, 5.5.5; SEC-B2.
"""

from datetime import datetime
from typing import Final

from apis import keys, objects
from apis.objects import Object
from kubelet.pods.sanitize import Filter, mapping, mappings

CANNOT_RUN: Final = 128
"""The exit code that a kubelet writes of a container that could not start."""


def mirrored(local: Object, theirs: Object, clean: Filter, which: str) -> list[Object]:
    """Return the provider's statuses of the containers that the local pod has, in its order."""
    field = which.removesuffix("s") + "Statuses"
    offered = {str(item.get("name")): item for item in mappings(theirs.get(field))}
    status: Object = objects.status(local)
    have = {str(item.get("name")): item for item in status.get(field) or []}
    policy = "Never" if which == "ephemeralContainers" else local["spec"].get("restartPolicy")
    made = []
    for container in local["spec"].get(which) or []:
        name = container["name"]
        before = have.get(name) or {}
        after = clean.container(container, offered[name], before) if name in offered else None
        made.append(_settled(have.get(name), after, {"restartPolicy": policy, **container}))
    return [item for item in made if item is not None]


def _settled(before: Object | None, after: Object | None, container: Object) -> Object | None:
    """Return ``after``, unless the API server refuses to let the container leave its end.

    Source: Kubernetes, pkg/apis/core/validation, ValidateContainerStateTransition.
    """
    ended = mapping(mapping((before or {}).get("state")).get("terminated"))
    if not ended or "terminated" in mapping((after or {}).get("state")):
        return after
    return after if may_run_again(container, int(ended.get("exitCode") or 0)) else before


def may_run_again(container: Object, exit_code: int) -> bool:
    """Whether a container that ended so may run again: by its own rules, else by its policy.

    Shape: a Container; without a ``restartPolicy`` of its own it has that of its pod.
    Source: Kubernetes, "Pod Lifecycle", individual container restart policy and rules.
    """
    rules = container.get("restartPolicyRules") or []
    first: Object = next((rule for rule in rules if _applies(rule, exit_code)), {})
    if first.get("action") == "Restart":
        return True
    policy = container.get("restartPolicy") or "Always"
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _applies(rule: Object, exit_code: int) -> bool:
    asked = mapping(rule.get("exitCodes"))
    is_listed = exit_code in (asked.get("values") or [])
    return is_listed if asked.get("operator") == "In" else bool(asked) and not is_listed


def ended(local: Object, which: str) -> set[str]:
    """Return the names of the containers that have ended, by the status of the local pod."""
    listed = objects.status(local).get(which.removesuffix("s") + "Statuses") or []
    return {item["name"] for item in listed if "terminated" in mapping(item.get("state"))}


def refused(container: Object, message: str, now: datetime) -> Object:
    """Return the status of a container that the provider does not take: it never began."""
    end = keys.FAILED_REFLECTION, CANNOT_RUN, now
    made = _ended(None, container["name"], container["image"], end)
    made["state"]["terminated"]["message"] = message
    return made


def refusal(local: Object, name: str) -> str:
    """Return why the provider does not take an ephemeral container, "" if it does."""
    listed = objects.status(local).get("ephemeralContainerStatuses") or []
    said: Object = next((item for item in listed if item.get("name") == name), {})
    end = mapping(mapping(said.get("state")).get("terminated"))
    return str(end.get("message", "")) if end.get("reason") == keys.FAILED_REFLECTION else ""


def all_ended(local: Object, reason: str, exit_code: int, now: datetime) -> Object:
    """Return all of them as ended now: of the init containers those that were told of.

    Shape: ``initContainerStatuses`` and ``containerStatuses`` of a Pod's status.
    """
    status: Object = objects.status(local)
    images = {item["name"]: item.get("image", "") for item in local["spec"]["containers"]}
    ended: Object = {}
    for which in ("initContainers", "containers"):
        field = which.removesuffix("s") + "Statuses"
        have = {item["name"]: item for item in status.get(field) or []}
        names = [item["name"] for item in local["spec"].get(which) or []]
        ended[field] = [
            _ended(have.get(name), name, images.get(name, ""), (reason, exit_code, now))
            for name in names
            if name in have or which == "containers"
        ]
    return ended


def _ended(have: Object | None, name: str, image: str, end: tuple[str, int, datetime]) -> Object:
    reason, exit_code, now = end
    state = mapping((have or {}).get("state"))
    if "terminated" in state:
        return have or {}
    terminated = {"exitCode": exit_code, "reason": reason, "finishedAt": objects.timestamp(now)}
    started = mapping(state.get("running")).get("startedAt")
    blank = {"name": name, "restartCount": 0, "image": image, "imageID": ""}
    return {
        **(have or blank),
        "ready": False,
        "started": False,
        "state": {"terminated": {**terminated, **({"startedAt": started} if started else {})}},
    }
