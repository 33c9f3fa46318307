"""What the pods of this node use: Prometheus samples of their own, and the kubelet's summary.

The provider sends it, so only what concerns pods that are here is believed.

Source: behaviour.md 5.7, 5.8; Kubernetes, "Node metrics data"; kubelet API ``stats/v1alpha1``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from apis import exposition, objects, quantity
from apis.exposition import Family, Sample
from apis.objects import Key, Object
from kubelet.forge import clean

CPU: Final = "container_cpu_usage_seconds_total"
MEMORY: Final = "container_memory_working_set_bytes"
_NODE_CPU: Final = "node_cpu_usage_seconds_total"
_NODE_MEMORY: Final = "node_memory_working_set_bytes"
_NANOS: Final = 10**9
_MICROSECONDS: Final = 6
_MOST: Final = 2**63 - 1
"""More than anybody uses; who reads an amount as an integer of 64 bits loses the whole answer
by one that is none."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What metrics need of a pod that is here: all of a thousand, decoded, would be 20 MiB."""

    uid: str
    created: str | None
    containers: frozenset[str]

    @classmethod
    def of(cls, pod: Object) -> "Measured":
        """Return it of ``pod``."""
        created = pod["metadata"].get("creationTimestamp")
        return cls(objects.uid(pod), created, containers(pod))


class NodeCpu:
    """CPU seconds of all pods that were ever here, which never go down though pods go away."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._last: dict[tuple[Key, str], float] = {}

    def add(self, samples: Iterable[Sample], here: Mapping[Key, Measured]) -> float:
        """Return the seconds, with what ``samples`` of containers tell of since the last time."""
        now = {(pod_of(one), one.labels.get("container", "")): _used(one) for one in samples}
        for container, seconds in now.items():
            before = self._last.get(container, 0.0)
            # A counter that fell began anew: its container was restarted.
            self._seconds += seconds - before if seconds >= before else seconds
        kept = {one: seconds for one, seconds in self._last.items() if one[0] in here}
        self._last = {**kept, **now}  # a pod that was passed over once is not counted anew
        return self._seconds


def pod_of(sample: Sample) -> Key:
    """Return the pod that ``sample`` is about."""
    return Key(sample.labels.get("namespace", ""), sample.labels.get("pod", ""))


def of_pods(text: str, here: Mapping[Key, Measured]) -> list[Family]:
    """Return what ``text`` says of pods that are here and their containers."""
    return exposition.families([text], lambda sample: _is_here(sample, here))


def _is_here(sample: Sample, here: Mapping[Key, Measured]) -> bool:
    pod = here.get(pod_of(sample))
    container = sample.labels.get("container", "")
    is_known = pod is not None and (container in {"", "POD"} or container in pod.containers)
    return is_known and abs(sample.number()) <= _MOST  # so is no NaN


def _used(sample: Sample) -> float:
    return max(0.0, sample.number())


def containers(pod: Object) -> frozenset[str]:
    """Return the names of all containers of ``pod``."""
    fields = ("containers", "initContainers", "ephemeralContainers")
    return frozenset(item["name"] for field in fields for item in pod["spec"].get(field) or [])


def of_node(
    families: Iterable[Family], here: Mapping[Key, Measured], cpu: NodeCpu, now_ms: int
) -> list[Family]:
    """Return the node's own metrics, of which no kubelet speaks: the sum over its pods."""
    samples = {family.name: family.samples for family in families}
    seconds = cpu.add(samples.get(CPU, ()), here)
    memory = sum(map(_used, samples.get(MEMORY, ())))
    return [
        _of_node(_NODE_CPU, "counter", round(seconds, _MICROSECONDS), now_ms),
        _of_node(_NODE_MEMORY, "gauge", min(int(memory), _MOST), now_ms),
    ]


def _of_node(name: str, kind: str, value: float, now_ms: int) -> Family:
    about = [f"# HELP {name} [STABLE] Sum over the pods of the node", f"# TYPE {name} {kind}"]
    return Family(name, about, [Sample(name, {}, str(value), str(now_ms))])


# The summary --------------------------------------------------------------------------------------


def summary(
    node: str, started: str, pods: Mapping[Key, Measured], measured: Mapping[Key, Object]
) -> Object:
    """Return the answer of ``/stats/summary``.

    Shape: ``measured`` are PodMetrics by the local pod they are about; what is not here, or makes
    no sense, is passed over. Times are RFC 3339.
    """
    told = [
        one
        for key, metrics in sorted(measured.items())
        if key in pods and (one := _pod(key, pods[key], metrics))
    ]
    latest = max((one["cpu"]["time"] for one in told), default=started)
    total = {"nodeName": node, "startTime": started, **_usage(latest, told)}
    return {"node": total, "pods": told}


def _pod(key: Key, pod: Measured, metrics: Object) -> Object | None:
    at = metrics.get("timestamp")
    if not clean.is_time(at):
        return None
    try:
        told = [
            {
                "name": one["name"],
                "startTime": pod.created,
                "cpu": {"time": at, "usageNanoCores": _amount(one, "cpu", 1)},
                "memory": _memory(at, _amount(one, "memory", _NANOS)),
            }
            for one in metrics.get("containers") or []
            if one.get("name") in pod.containers
        ]
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
    reference = {**key._asdict(), "uid": pod.uid}
    return {"podRef": reference, "startTime": pod.created, "containers": told, **_usage(at, told)}


def _usage(at: str, parts: Iterable[Mapping[str, Any]]) -> Object:
    parts = list(parts)
    cores = sum(part["cpu"]["usageNanoCores"] for part in parts)
    memory = sum(part["memory"]["usageBytes"] for part in parts)
    return {
        "cpu": {"time": at, "usageNanoCores": min(cores, _MOST)},
        "memory": _memory(at, min(memory, _MOST)),
    }


def _memory(at: str, amount: int) -> Object:
    return {"time": at, "usageBytes": amount, "workingSetBytes": amount}


def _amount(container: Mapping[str, Any], resource: str, unit: int) -> int:
    """Return what ``container`` uses of ``resource``, in so many billionths.

    Raises:
        ValueError: nobody uses that much.
    """
    told = quantity.parse((container.get("usage") or {}).get(resource, "0"))
    amount = max(0, told.nanos) // unit
    if amount > _MOST:
        raise ValueError(f"{resource} of {told}")
    return amount
