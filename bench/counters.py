"""Counters that do not depend on how busy the machine is: requests, CPU-seconds, PSS, bytes."""

import contextlib
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

from bench.result import Request
from sandbox import audit, cgroups
from sandbox.audit import Call
from sandbox.layout import Site

_OURS: Final = {
    "webhook": "webhook",
    "controllers": "controllers",
    "kubelet": "kubelet",
    "reflector": "reflector",
    "certs": "certs",
    "controllers.metricagent": "metric-agent",
}
"""Our processes, as they are started, ``python3 -m MODULE``, and what they are called here."""
OURS: Final = tuple(_OURS.values())
_AGENTS: Final = {f"{audit.OURS}{module.rpartition('.')[2]}" for module in _OURS}
LIQO: Final = {
    "webhook": "liqo-webhook",
    "virtual-kubelet": "liqo-kubelet",
    "liqo-controller-manager": "liqo-controllers",
    "crd-replicator": "liqo-replicator",
}
"""Liqo's processes: the name of the binary, by which they ask, and what they are called here."""
SYSTEM: Final = (*OURS, *LIQO.values())
"""What offloads, be it pyliqo or Liqo: never both of them run."""
SERVERS: Final = ("kube-apiserver", "etcd")
LOAD: Final = "load"
_CONTROL: Final = (*SERVERS, "kube-scheduler", "kube-controller-manager")
_NODE: Final = "node"
"""The real kubelet, containerd, its shims, kube-proxy, CoreDNS: no part of any arm."""
_MODULES: Final = {"sandbox.simulated": "simulated-kubelet", **_OURS}
_PACKAGES: Final = {module.partition(".")[0] for module in _OURS} | {"apis", "kube", "liqoctl"}
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_CPU_FIELDS: Final = slice(11, 15)
"""utime, stime, and those of its children that have ended, counted after the name."""
_UPLINK: Final = "uplink"
_CHANGES: Final = frozenset({"create", "update", "patch"})
_SUCCESS: Final = range(200, 300)
_SIMULATED: Final = "pyliqo-simulated"
_LOOKS: Final = 20
_NAMESPACES: Final = ("bench-", "liqo", "kube-")


class UnknownProcessError(Exception):
    """A process of ours that no figure would have; the message names it."""


class Component(NamedTuple):
    """A process, by what it is."""

    name: str
    cluster: str
    pid: int


def name_of(argv: Sequence[str]) -> str:
    """Return the component that runs as ``argv``.

    Raises:
        UnknownProcessError: it is a module of ours that is not listed here.
    """
    if not argv:
        return _NODE
    if "-m" in argv[:-1]:
        module = argv[argv.index("-m") + 1]
        if module not in _MODULES and module.partition(".")[0] in _PACKAGES:
            raise UnknownProcessError(f"bench/counters does not list python3 -m {module}")
        return _MODULES.get(module, _NODE)
    program = argv[0].rpartition("/")[2]
    return program if program in _CONTROL else _NODE


def components(sites: Mapping[str, Site], others: Mapping[int, str]) -> list[Component]:
    """Return all processes of the clusters, and ``others``: those of the run itself."""
    return [
        *(
            Component(name_of(argv(pid)), cluster, pid)
            for cluster, site in sites.items()
            for pid in _members(site.cgroup)
            if pid not in others
        ),
        *(Component(name, "", pid) for pid, name in others.items()),
    ]


def system(found: Iterable[Component]) -> list[Component]:
    """Return the processes of what offloads, pyliqo or Liqo."""
    return [component for component in found if component.name in SYSTEM]


def argv(pid: int) -> list[str]:
    """Return the command line of a process, [] when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def cpu_s(found: Iterable[Component]) -> dict[Component, float]:
    """Return the CPU-seconds that each process has used up to now."""
    return {component: _cpu_s(component.pid) for component in found}


def pss_mib(found: Iterable[Component]) -> dict[Component, float]:
    """Return the proportional set size of each process."""
    return {component: _pss_mib(component.pid) for component in found}


def by_name(figures: Mapping[Component, float]) -> dict[str, float]:
    """Return the sum of each component over processes and clusters, rounded."""
    sums: dict[str, float] = {}
    for component, value in figures.items():
        sums[component.name] = sums.get(component.name, 0.0) + value
    return {name: round(value, 3) for name, value in sorted(sums.items())}


def wire(found: Iterable[Component]) -> dict[str, float]:
    """Return the bytes that passed the interfaces of each cluster, both ways.

    ``CLUSTER/uplink`` is what left or entered the cluster, ``CLUSTER/inside`` the rest.
    """
    totals: dict[str, float] = {}
    for component in found:
        if component.name == "kube-apiserver":
            text = Path(f"/proc/{component.pid}/net/dev").read_text()
            for interface, count in interfaces(text):
                part = _UPLINK if interface == _UPLINK else "inside"
                where = f"{component.cluster}/{part}"
                totals[where] = totals.get(where, 0.0) + count
    return totals


def interfaces(text: str) -> Iterator[tuple[str, float]]:
    """Yield (interface, bytes received and sent) of the text of ``/proc/net/dev``."""
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        yield name.strip(), float(fields[0]) + float(fields[8])


def requests(cluster: str, calls: Iterable[Call]) -> list[Request]:
    """Return how often who asked for what; a failed one has its status beside the verb."""
    counted: Counter[tuple[str, str, str]] = Counter()
    for call in filter(is_of_run, calls):
        failed = "" if call.code in _SUCCESS or call.verb == "watch" else f" ({call.code})"
        counted[agent(call.agent), f"{call.verb}{failed}", call.resource] += 1
    return [Request(cluster, *what, count) for what, count in sorted(counted.items())]


def is_of_run(call: Call) -> bool:
    """Whether it has to do with the run: its own namespaces, the system's, and no namespace."""
    return call.namespace.startswith(_NAMESPACES) or call.namespace in {"", "default"}


def agent(text: str) -> str:
    """Return the name of a user agent without its version: ``pyliqo-kubelet``."""
    return text.partition(" ")[0].partition("/")[0]


def is_ours(name: str) -> bool:
    """Whether the agent is a process of pyliqo; simulated nodes belong to the sandbox.

    Raises:
        UnknownProcessError: it is called like ours, and not listed here.
    """
    if name.startswith(audit.OURS) and name not in _AGENTS | {_SIMULATED}:
        raise UnknownProcessError(f"bench/counters does not list the user agent {name}")
    return name in _AGENTS


def is_of_system(name: str) -> bool:
    """Whether the agent is a process of what offloads, pyliqo or Liqo."""
    return is_ours(name) or name in LIQO


def is_write(request: Request) -> bool:
    """Whether it counts as a write: not one that was refused, and no review."""
    return request.verb in audit.WRITES and not request.resource.endswith("reviews")


def no_ops(calls: Sequence[Call]) -> list[str]:
    """Return the writes of what offloads in ``calls``, of one cluster, that changed nothing.

    A write that changes something gets a version above all that were there when it came in. So one
    whose answer has a version that an earlier answer of the log had reached changed nothing.
    """
    answered = sorted((call.completed, call.version) for call in calls if call.version)
    when = [completed for completed, _ in answered]
    highest = [0, *accumulate((version for _, version in answered), max)]
    return [
        f"{agent(call.agent)} {call.verb} {call.resource} {call.namespace}/{call.name}"
        for call in filter(is_of_run, calls)
        if _may_be_no_op(call) and call.version <= highest[bisect_left(when, call.received)]
    ]


def _may_be_no_op(call: Call) -> bool:
    return (
        is_of_system(agent(call.agent))
        and call.verb in _CHANGES
        and call.code in _SUCCESS
        and call.version > 0
        and not call.dry_run
    )


def _members(group: str) -> set[int]:
    for _ in range(_LOOKS):
        with contextlib.suppress(FileNotFoundError):  # a pod ended while we looked
            return cgroups.members(group)
    return cgroups.members(group)


def _cpu_s(pid: int) -> float:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    return sum(map(int, stat.rpartition(") ")[2].split()[_CPU_FIELDS])) / _TICKS


def _pss_mib(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    sizes = (line.split()[1] for line in text.splitlines() if line.startswith("Pss:"))
    return sum(int(size) for size in sizes) / 1024
