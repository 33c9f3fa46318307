"""What simulated nodes say of themselves and of their pods; pure, so that the clock is given."""

import datetime as dt
import hashlib
import ipaddress
from typing import Any, Final, NamedTuple

from apis.objects import Object

EXIT_ANNOTATION: Final = "pyliqo.io/simulate-exit"
"""``<seconds>:<code>``: how long after its start a pod ends, and with which code."""
TAINT: Final = "pyliqo.io/simulated=true:NoSchedule"
CAPACITY: Final = {"cpu": "1000", "memory": "4Ti", "ephemeral-storage": "4Ti", "pods": "10000"}
LEASE_S: Final = 40
_ADDRESSES: Final = ipaddress.ip_network("100.64.0.0/10")
_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
_FINISHED: Final = ("Succeeded", "Failed")


class Exit(NamedTuple):
    """When and how a pod ends."""

    after_s: float
    code: int


def status(pod: Object, now: dt.datetime) -> Object | None:
    """Return the status to merge into that of ``pod``, or None when there is nothing to say yet.

    A new pod runs and is ready at once; one with ``EXIT_ANNOTATION`` that is not always restarted
    ends when its time has come.
    """
    said = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp") or said.get("phase") in _FINISHED:
        return None
    if said.get("phase") != "Running":
        return _running(pod, now)
    left_s = remaining_s(pod, now)
    return _ended(pod, now) if left_s is not None and left_s <= 0 else None


def remaining_s(pod: Object, now: dt.datetime) -> float | None:
    """Return in how many seconds a running pod ends; None when it does not end by itself."""
    wanted = exit_of(pod)
    said = pod.get("status") or {}
    if wanted is None or said.get("phase") != "Running" or "startTime" not in said:
        return None
    ran = now - dt.datetime.fromisoformat(said["startTime"])
    return max(wanted.after_s - ran.total_seconds(), 0.0)


def exit_of(pod: Object) -> Exit | None:
    """Return the end that ``pod`` asks for; None for pods that are restarted, and for nonsense."""
    asked = (pod["metadata"].get("annotations") or {}).get(EXIT_ANNOTATION, "")
    if pod["spec"].get("restartPolicy", "Always") == "Always":
        return None
    after_s, _, code = asked.partition(":")
    try:
        return Exit(float(after_s), int(code))
    except ValueError:
        return None


def node(name: str, taints: list[Object]) -> Object:
    """Return the simulated node ``name`` as it is created."""
    labels = {
        "type": "simulated",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}


def node_status(name: str, now: dt.datetime) -> Object:
    """Return the status of a node on which all is well."""
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [
        {**_condition("Ready", "True", now), "reason": "Simulated"},
        *({**_condition(each, "False", now), "reason": "Simulated"} for each in pressures),
    ]
    heard = [{**condition, "lastHeartbeatTime": _time(now)} for condition in conditions]
    return {
        "capacity": CAPACITY,
        "allocatable": CAPACITY,
        "conditions": heard,
        "addresses": [
            {"type": "InternalIP", "address": address(name)},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": _node_info(),
    }


def lease_spec(name: str, now: dt.datetime) -> Object:
    """Return the spec of the node's Lease, renewed at ``now``."""
    renewed = now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": name, "leaseDurationSeconds": LEASE_S, "renewTime": renewed}


def taint(text: str) -> Object:
    """Return the taint that ``text`` says as kubectl does: ``key=value:effect``.

    Raises:
        ValueError: it has no effect, or no key.
    """
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if not key or not effect:
        raise ValueError(f"{text!r} is not key=value:effect")
    return {"key": key, "value": value, "effect": effect}


def address(name: str) -> str:
    """Return an address for ``name``, always the same, out of a range that nobody routes."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return str(_ADDRESSES[1 + number % (_ADDRESSES.num_addresses - 2)])


def _running(pod: Object, now: dt.datetime) -> Object:
    ip = address(pod["metadata"].get("uid", ""))
    host = address(pod["spec"].get("nodeName", ""))
    state = {"running": {"startedAt": _time(now)}}
    return {
        "phase": "Running",
        **_observed(pod),
        "startTime": _time(now),
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": _conditions(pod, dict.fromkeys(_CONDITIONS, "True"), now),
        "initContainerStatuses": [
            _initialized(pod, container, now) for container in pod["spec"].get("initContainers", [])
        ],
        "containerStatuses": [
            _container(pod, container, state, runs=True)
            for container in pod["spec"].get("containers", [])
        ],
    }


def _ended(pod: Object, now: dt.datetime) -> Object:
    wanted = exit_of(pod)
    code = wanted.code if wanted else 0
    reason = "Error" if code else "Completed"
    state = {"terminated": _termination(pod["status"]["startTime"], now, code)}
    readiness = dict.fromkeys(("Ready", "ContainersReady", "PodReadyToStartContainers"), "False")
    because = "PodFailed" if code else "PodCompleted"
    return {
        "phase": "Failed" if code else "Succeeded",
        **_observed(pod),
        "conditions": [
            {**condition, "reason": because} if condition["status"] == "False" else condition
            for condition in _conditions(pod, {"Initialized": "True", **readiness}, now)
        ],
        "containerStatuses": [
            _container(pod, container, {"terminated": {**state["terminated"], "reason": reason}})
            for container in pod["spec"].get("containers", [])
        ],
    }


def _observed(pod: Object) -> Object:
    generation = pod["metadata"].get("generation")
    return {"observedGeneration": generation} if generation else {}


def _conditions(pod: Object, ours: dict[str, str], now: dt.datetime) -> list[Object]:
    """Return the conditions that others wrote, and ours: a merge replaces the list."""
    before = (pod.get("status") or {}).get("conditions") or []
    kept = [condition for condition in before if condition["type"] not in ours]
    return [*kept, *(_condition(name, value, now) for name, value in ours.items())]


def _condition(name: str, value: str, now: dt.datetime) -> Object:
    return {"type": name, "status": value, "lastTransitionTime": _time(now)}


def _container(pod: Object, container: Object, state: Object, *, runs: bool = False) -> Object:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": f"simulated://{container.get('image', '')}",
        "containerID": f"simulated://{pod['metadata'].get('uid', '')}/{container['name']}",
        "restartCount": 0,
        "ready": runs,
        "started": runs,
        "state": state,
    }


def _initialized(pod: Object, container: Object, now: dt.datetime) -> Object:
    if container.get("restartPolicy") == "Always":  # a sidecar
        return _container(pod, container, {"running": {"startedAt": _time(now)}}, runs=True)
    ended = {**_termination(_time(now), now, 0), "reason": "Completed"}
    return {**_container(pod, container, {"terminated": ended}), "ready": True}


def _termination(started: str, now: dt.datetime, code: int) -> dict[str, Any]:
    return {"exitCode": code, "startedAt": started, "finishedAt": _time(now)}


def _node_info() -> Object:
    silent = ("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "osImage", "systemUUID")
    said = {"architecture": "amd64", "operatingSystem": "linux"}
    versions = {"kubeletVersion": "simulated", "containerRuntimeVersion": "simulated://1"}
    return {**dict.fromkeys(silent, ""), **said, **versions}


def _time(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
