"""What the pods of this node use: Prometheus samples of their own, and the kubelet's summary.

The provider sends it, so only what concerns pods that are here is believed.

Source: docs/parity.md § 5.7, 5.8; Kubernetes, "Node metrics data"; kubelet API ``stats/v1alpha1``.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from apis import objects, prometheus
from apis.objects import Key, Object
from apis.prometheus import Family, Sample

CPU: Final = "container_cpu_usage_seconds_total"
MEMORY: Final = "container_memory_working_set_bytes"
_NODE_CPU: Final = "node_cpu_usage_seconds_total"
_NODE_MEMORY: Final = "node_memory_working_set_bytes"
_NANOS: Final = 10**9
_MILLIS: Final = 1000
_SLACK: Final = timedelta(days=1)
_FRESH_MS: Final = 5 * 60 * _MILLIS
"""How far from now the time of a sample may be that others scrape."""
_MICROSECONDS: Final = 6
MOST_BYTES: Final = 64 * 2**20
"""Of what a provider says at once of all pods of the node."""
_BYTES, _BYTES_OF_POD = 2**20, 2**16
MOST_OF_CONTAINER: Final = 400
MOST_OF_POD: Final = 200
"""Samples of what belongs to no container of the pod: its network, its sandbox."""
MOST_OF_CLAIM: Final = 16
"""Samples of one claim: kubelets have seven."""
MOST_OF_NAMES: Final = 2**14
"""Characters of the names of a large pod's containers and claims."""
LABELS: Final = frozenset(
    {
        "namespace", "pod", "container", "id", "image", "name", "cpu", "device", "interface",
        "failure_type", "scope", "operation", "state", "tcp_state", "udp_state", "ulimit",
        "pagesize", "major", "minor", "probe_type", "result", "pod_uid", "uid", "le",
    }
)  # fmt: skip
"""Source: cadvisor, "Monitoring cAdvisor with Prometheus"; Kubernetes, "Node metrics data"."""
_NAME: Final = re.compile(r"(container|pod|prober_probe|kubelet_container)_[a-z0-9_]{1,100}")
_MOST: Final = 2**63 - 1
"""More than anybody uses; who reads an amount as an integer of 64 bits loses the whole answer
by one that is not a number."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What metrics need of a pod that is here: all of a thousand, decoded, would be 20 MiB."""

    uid: str
    created: str | None
    containers: frozenset[str]
    claims: frozenset[str] = frozenset()

    @classmethod
    def of(cls, pod: Object) -> "Measured":
        created = pod["metadata"].get("creationTimestamp")
        return cls(objects.uid(pod), created, containers(pod), claims(pod))

    @classmethod
    def bounded(cls, pod: Object) -> "Measured | None":
        """Return it of ``pod``; None of one with more names than anybody keeps."""
        made = cls.of(pod)
        size = sum(map(len, (*made.containers, *made.claims)))
        return made if size <= MOST_OF_NAMES else None


class UsageSample(NamedTuple):
    """What a counter of CPU said last, and the billionths of a core since the time before."""

    seconds: float
    at_ms: int
    cores: int | None = None


class NodeCpu:
    """CPU seconds of all pods that were ever here, which never go down though pods go away.

    Of each container that is here the last reading is kept, nothing older.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._last: dict[tuple[Key, str], UsageSample] = {}

    def add(self, samples: Iterable[Sample], here: Mapping[Key, Measured], now_ms: int) -> float:
        """Return the seconds, with what ``samples`` of containers tell of since the last time."""
        now: dict[tuple[Key, str], UsageSample] = {}
        for one in samples:
            container = (pod_of(one), one.labels.get("container", ""))
            before = self._last.get(container)
            now[container] = after = _read(before, _used(one), _at(one, now_ms))
            # A counter that fell began again: its container was restarted.
            began = before.seconds if before and before.seconds <= after.seconds else 0.0
            self._seconds += after.seconds - began
        kept = {one: last for one, last in self._last.items() if one[0] in here}
        self._last = {**kept, **now}  # a pod that was passed over once is not counted again
        return self._seconds

    def last(self, pod: Key, container: str) -> UsageSample | None:
        return self._last.get((pod, container))


def _read(before: UsageSample | None, seconds: float, at_ms: int) -> UsageSample:
    if before is None or seconds < before.seconds:
        return UsageSample(seconds, at_ms)
    if at_ms <= before.at_ms:
        return before._replace(seconds=seconds)  # the same one again
    rate = (seconds - before.seconds) / (at_ms - before.at_ms) * _MILLIS
    return UsageSample(seconds, at_ms, _nanos(rate))


def _at(sample: Sample, now_ms: int) -> int:
    return int(sample.at) if sample.at else now_ms


def _nanos(amount: float) -> int:
    return min(int(amount * _NANOS), _MOST)


def most_bytes(pods: int) -> int:
    """Return how many bytes a provider may say of so many pods: much, for a few containers each."""
    return min(_BYTES + pods * _BYTES_OF_POD, MOST_BYTES)


def pod_of(sample: Sample) -> Key:
    return Key(sample.labels.get("namespace", ""), sample.labels.get("pod", ""))


def of_pods(text: str, here: Mapping[Key, Measured]) -> list[Family]:
    """Return what ``text`` says of pods that are here and their containers.

    Metrics that cadvisor and kubelets have of pods, with the labels that these give them, and so
    many samples that an ordinary container is far below; and of claims that these pods mount, as
    kubelets have them. Source: docs/parity.md H6; docs/decisions/0013 (10).
    """
    told: Counter[tuple[Key, str]] = Counter()
    mounted = {Key(key.namespace, name) for key, pod in here.items() for name in pod.claims}

    def keep(sample: Sample) -> bool:
        if claim := prometheus.claim_of(sample):
            about, most = (claim, ""), MOST_OF_CLAIM
            is_known = claim in mounted and abs(sample.number()) <= _MOST
        else:
            about = pod_of(sample), sample.labels.get("container", "")
            most = MOST_OF_CONTAINER if about[1] else MOST_OF_POD
            is_known = bool(_NAME.fullmatch(sample.name)) and LABELS.issuperset(sample.labels)
            is_known = is_known and _is_here(sample, here)
        if is_known:
            told[about] += 1
        return is_known and told[about] <= most

    return prometheus.families([text], keep, is_of_kubelets)


def timely(families: Iterable[Family], now_ms: int) -> list[Family]:
    """Return ``families``, without the times of samples that are not of these minutes.

    Who scrapes them then takes its own time, as of a provider whose clock is wrong.
    Source: docs/parity.md H6.
    """
    return [
        replace(family, samples=[_timely(one, now_ms) for one in family.samples])
        for family in families
    ]


def _timely(sample: Sample, now_ms: int) -> Sample:
    return sample if abs(_at(sample, now_ms) - now_ms) <= _FRESH_MS else sample._replace(at="")


def is_of_kubelets(name: str) -> bool:
    """Whether cadvisor or kubelets have a metric of that name, or of its kind, of pods."""
    return bool(_NAME.fullmatch(name)) or prometheus.is_of_claims(name)


def _is_here(sample: Sample, here: Mapping[Key, Measured]) -> bool:
    pod = here.get(pod_of(sample))
    container = sample.labels.get("container", "")
    is_known = pod is not None and (container in {"", "POD"} or container in pod.containers)
    return is_known and abs(sample.number()) <= _MOST  # so is no NaN


def _used(sample: Sample) -> float:
    return max(0.0, sample.number())


def containers(pod: Object) -> frozenset[str]:
    fields = ("containers", "initContainers", "ephemeralContainers")
    return frozenset(item["name"] for field in fields for item in pod["spec"].get(field) or [])


def claims(pod: Object) -> frozenset[str]:
    """Return the names of the claims that ``pod`` mounts, those made for it included.

    Source: Kubernetes, "Generic ephemeral volumes".
    """
    name, found = pod["metadata"]["name"], set()
    for volume in pod["spec"].get("volumes") or []:
        if claim := volume.get("persistentVolumeClaim"):
            found.add(claim["claimName"])
        elif "ephemeral" in volume:
            found.add(f"{name}-{volume['name']}")
    return frozenset(found)


def of_node(
    families: Iterable[Family], here: Mapping[Key, Measured], cpu: NodeCpu, now_ms: int
) -> list[Family]:
    """Return the node's own metrics, of which no kubelet speaks: the sum over its pods."""
    samples = {family.name: family.samples for family in families}
    seconds = cpu.add(samples.get(CPU, ()), here, now_ms)
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
    about: Object,
    here: Mapping[Key, Measured],
    families: Iterable[Family],
    cpu: NodeCpu,
    now: datetime,
) -> Object:
    """Return the answer of ``/stats/summary``.

    Shape: ``about`` names the node and says since when it runs; ``families`` are of pods that are
    ``here`` (``of_pods``). A sample of a time that makes no sense is passed over. What a container
    uses now follows from two readings: before there are two it is left out, as kubelets do. Times
    are RFC 3339.
    """
    now_ms = int(now.timestamp() * _MILLIS)
    samples = {family.name: family.samples for family in families}
    seconds = cpu.add(samples.get(CPU, ()), here, now_ms)
    told: dict[Key, list[Object]] = {}
    of_memory = {_container_of(one): _used(one) for one in samples.get(MEMORY, ())}
    for one in samples.get(CPU, ()):
        pod, name = container = _container_of(one)
        reading, at = cpu.last(*container), _time(_at(one, now_ms), now)
        if reading and at and name in here[pod].containers:
            amount = min(int(of_memory.get(container, 0)), _MOST)
            usage = {"cpu": _cpu(at, reading), "memory": _memory(at, amount)}
            told.setdefault(pod, []).append({"name": name, "startTime": here[pod].created, **usage})
    pods = [_pod(key, here[key], told[key]) for key in sorted(told)]
    latest = max((one["cpu"]["time"] for one in pods), default=objects.timestamp(now))
    total = _usage(latest, pods)
    total["cpu"]["usageCoreNanoSeconds"] = _nanos(seconds)
    return {"node": {**about, **total}, "pods": pods}


def _container_of(sample: Sample) -> tuple[Key, str]:
    return pod_of(sample), sample.labels.get("container", "")


def _time(at_ms: int, now: datetime) -> str | None:
    """Return the time if it is one, and neither ancient nor of tomorrow."""
    at_s = at_ms / _MILLIS
    if abs(at_s - now.timestamp()) > _SLACK.total_seconds():
        return None
    return objects.timestamp(datetime.fromtimestamp(at_s, now.tzinfo))


def _pod(key: Key, pod: Measured, told: list[Object]) -> Object:
    reference = {**key._asdict(), "uid": pod.uid}
    at = max(one["cpu"]["time"] for one in told)
    return {"podRef": reference, "startTime": pod.created, "containers": told, **_usage(at, told)}


def _cpu(at: str, reading: UsageSample) -> Object:
    used = {"time": at, "usageCoreNanoSeconds": _nanos(reading.seconds)}
    return used if reading.cores is None else {**used, "usageNanoCores": reading.cores}


def _usage(at: str, parts: Iterable[Mapping[str, Any]]) -> Object:
    """Return the sums over ``parts``, of CPU those that are known."""
    parts = list(parts)
    cpu: Object = {"time": at}
    for name in ("usageCoreNanoSeconds", "usageNanoCores"):
        known = [part["cpu"][name] for part in parts if name in part["cpu"]]
        cpu |= {name: min(sum(known), _MOST)} if known else {}
    memory = sum(part["memory"]["usageBytes"] for part in parts)
    return {"cpu": cpu, "memory": _memory(at, min(memory, _MOST))}


def _memory(at: str, amount: int) -> Object:
    return {"time": at, "usageBytes": amount, "workingSetBytes": amount}
