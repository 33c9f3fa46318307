"""The statuses of a local pod's containers: the provider's, or that they ended.

Source: behaviour.md 5.5.4, 5.5.5; security.md B2.
"""

from datetime import datetime

from apis.objects import Object
from kubelet.forge.clean import Filter, mapping, mappings, stamp


def mirrored(local: Object, theirs: Object, clean: Filter, which: str) -> list[Object]:
    """Return the provider's statuses of the containers that the local pod has, in its order."""
    field = which.removesuffix("s") + "Statuses"
    offered = {str(item.get("name")): item for item in mappings(theirs.get(field))}
    status: Object = local.get("status") or {}
    have = {str(item.get("name")): item for item in status.get(field) or []}
    policy = str(local["spec"].get("restartPolicy") or "Always")
    made = []
    for container in local["spec"].get(which) or []:
        name = container["name"]
        after = clean.container(container, offered[name]) if name in offered else None
        always = container.get("restartPolicy") == "Always"
        made.append(_settled(have.get(name), after, "Always" if always else policy))
    return [item for item in made if item is not None]


def _settled(before: Object | None, after: Object | None, policy: str) -> Object | None:
    """Return ``after``, unless the API server refuses to let the container leave its end.

    Source: Kubernetes, pkg/apis/core/validation, ValidateContainerStateTransition.
    """
    ended = mapping(mapping((before or {}).get("state")).get("terminated"))
    restarts = policy == "Always" or (policy == "OnFailure" and ended.get("exitCode") != 0)
    if not ended or restarts or "terminated" in mapping((after or {}).get("state")):
        return after
    return before


def all_ended(local: Object, reason: str, exit_code: int, now: datetime) -> Object:
    """Return all of them as ended now: of the init containers those that were told of.

    Shape: ``initContainerStatuses`` and ``containerStatuses`` of a Pod's status.
    """
    status: Object = local.get("status") or {}
    ended: Object = {}
    for which in ("initContainers", "containers"):
        field = which.removesuffix("s") + "Statuses"
        have = {item["name"]: item for item in status.get(field) or []}
        names = [item["name"] for item in local["spec"].get(which) or []]
        ended[field] = [
            _ended(local, have.get(name), name, (reason, exit_code, now))
            for name in names
            if name in have or which == "containers"
        ]
    return ended


def _ended(local: Object, have: Object | None, name: str, end: tuple[str, int, datetime]) -> Object:
    reason, exit_code, now = end
    state = mapping((have or {}).get("state"))
    if "terminated" in state:
        return have or {}
    images = {item["name"]: item.get("image", "") for item in local["spec"]["containers"]}
    terminated = {"exitCode": exit_code, "reason": reason, "finishedAt": stamp(now)}
    started = mapping(state.get("running")).get("startedAt")
    blank = {"name": name, "restartCount": 0, "image": images.get(name, ""), "imageID": ""}
    return {
        **(have or blank),
        "ready": False,
        "started": False,
        "state": {"terminated": {**terminated, **({"startedAt": started} if started else {})}},
    }
