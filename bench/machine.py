"""What a run was measured on: the machine, versions, and settings that change the figures."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from bench import children, counters, figures, liqo
from bench.settings import Settings
from bench.stage import CONSUMER, Stage
from sandbox import components, network
from sandbox.layout import Site

PACKAGES: Final = ("pyliqo", "aiohttp", "msgspec", "kubernetes", "Flask", "gunicorn", "matplotlib")
_LIMITED: Final = ("kube-controller-manager", "kube-scheduler")
SLOW_SYNC_S: Final = "0.016"
"""A bound of etcd's histogram of syncs: twice what most of them take."""
_FSYNC: Final = "etcd_disk_wal_fsync_duration_seconds_bucket"
_METRICS: Final = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"


def describe() -> dict[str, Any]:
    """Return CPU, cores, memory and kernel."""
    return {
        "cpu": _field(Path("/proc/cpuinfo"), "model name"),
        "cores": os.cpu_count(),
        "memory": _field(Path("/proc/meminfo"), "MemTotal"),
        "kernel": platform.release(),
    }


async def versions(stage: Stage, given: Settings) -> dict[str, str]:
    """Return the versions of what was measured and of what measured it."""
    server = await stage.rome.version()
    return {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES},
        "cluster": str(server.get("gitVersion", "")),
        "etcd": etcd_version(_metrics(stage.sites[CONSUMER])),
        "commit": _commit(),
        **({"liqo": liqo.commit(given.liqo)} if given.liqo and given.liqo_arms else {}),
    }


def settings(stage: Stage, given: Settings) -> dict[str, Any]:
    """Return the settings of the run that its figures depend on."""
    etcd = components.Component(stage.sites[CONSUMER], "etcd")
    command = Path(f"/proc/{etcd.pid}/cmdline").read_text() if etcd.pid else ""
    return {
        "arms": list(given.arms),
        "suites": list(given.suites),
        "sizes": list(given.sizes),
        "repetitions": given.repetitions,
        "delays_ms": list(given.delays),
        "virtual_nodes": list(given.virtual_nodes),
        "soak_min": given.soak_min,
        "minutes": given.minutes,
        "fsync": "--unsafe-no-fsync" not in command,
        "limits": {name: _limits(stage.sites[CONSUMER], name) for name in _LIMITED},
        "simulated_nodes": 1,
        "liqo": "networking off" if given.liqo_arms else "not run",
        "limits_of_liqo_unlimited": " ".join(liqo.RAISED),
        "load_before": _load(),
    }


def afterwards(stage: Stage) -> dict[str, Any]:
    """Return what only the end of the run tells: how slow the disk was, who else was busy."""
    return {
        "fsync_p99_ms": fsync_p99_ms(stage.sites[CONSUMER]),
        "load_after": _load(),
        "left_out": stage.plan.cut,
        "took": stage.plan.told(),
    }


def fsync_p99_ms(site: Site) -> float | None:
    """Return how long etcd's slowest syncs took since its start; None when it does not tell."""
    pairs = _syncs(site)
    return None if not pairs else round(figures.histogram(pairs, 0.99) * 1000, 3)


def slow_syncs(site: Site) -> float:
    """Return how many syncs of etcd's log have taken longer than 16 ms since it started."""
    counts = dict(_syncs(site))
    return counts.get("+Inf", 0.0) - counts.get(SLOW_SYNC_S, 0.0)


def _syncs(site: Site) -> list[tuple[str, float]]:
    """Return (le, cumulated count) of how long etcd's syncs took, [] when it does not tell."""
    buckets = [line for line in _metrics(site).splitlines() if line.startswith(_FSYNC)]
    return [(line.split('le="')[1].split('"')[0], float(line.split()[-1])) for line in buckets]


def etcd_version(metrics: str) -> str:
    """Return what etcd says in its metrics that it is; pure."""
    _, _, rest = metrics.partition('etcd_server_version{server_version="')
    return rest.partition('"')[0]


def _metrics(site: Site) -> str:
    command = network.inside(site.slot, ["python3", "-c", _METRICS])
    asked = subprocess.run(  # nsenter and a constant
        [*command, f"{site.listening.etcd}/metrics"], capture_output=True, text=True, check=False
    )
    return asked.stdout


def _limits(site: Site, name: str) -> str:
    """Return how fast a component lets itself ask its API server."""
    argv = counters.argv(components.Component(site, name).pid or 0)
    return " ".join(flag for flag in argv if flag.startswith("--kube-api-")) or "default"


def _load() -> float:
    return round(os.getloadavg()[0], 1)


def _field(file: Path, name: str) -> str:
    lines = file.read_text().splitlines()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, "")


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    asked = subprocess.run(  # a constant
        command, cwd=children.ROOT, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() if asked.returncode == 0 else ""
