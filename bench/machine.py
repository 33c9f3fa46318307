"""What a run was measured on: the machine, versions, and settings that change the figures."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from bench import children, figures
from bench.limits import RAISED
from bench.settings import LIQO_VARIABLE, Settings
from bench.stage import CONSUMER, Stage
from sandbox import components, network
from sandbox.layout import Site

PACKAGES: Final = ("pyliqo", "aiohttp", "msgspec", "kubernetes", "Flask", "gunicorn", "matplotlib")
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


async def versions(stage: Stage) -> dict[str, str]:
    """Return the versions of what was measured and of what measured it."""
    server = await stage.rome.version()
    return {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES},
        "kubernetes": str(server.get("gitVersion", "")),
        "commit": _commit(),
    }


def settings(stage: Stage, given: Settings) -> dict[str, Any]:
    """Return the settings of the run that its figures depend on."""
    etcd = components.Component(stage.sites[CONSUMER], "etcd")
    command = Path(f"/proc/{etcd.pid}/cmdline").read_text() if etcd.pid else ""
    liqo = os.environ.get(LIQO_VARIABLE)
    return {
        "arms": list(given.arms),
        "suites": list(given.suites),
        "sizes": list(given.sizes),
        "repetitions": given.repetitions,
        "virtual_nodes": list(given.virtual_nodes),
        "soak_min": given.soak_min,
        "fsync": "--unsafe-no-fsync" not in command,
        "limits_of_controller_manager_and_scheduler": " ".join(RAISED),
        "simulated_nodes": 1,
        "liqo": "not supported yet" if liqo else "not run",
        "load_before": _load(),
    }


def afterwards(stage: Stage) -> dict[str, Any]:
    """Return what only the end of the run tells: how slow the disk was, who else was busy."""
    return {"fsync_p99_ms": fsync_p99_ms(stage.sites[CONSUMER]), "load_after": _load()}


def fsync_p99_ms(site: Site) -> float | None:
    """Return how long etcd's slowest syncs took since its start; None when it does not tell."""
    command = network.inside(site.slot, ["python3", "-c", _METRICS])
    url = f"{site.listening.etcd}/metrics"
    asked = subprocess.run(  # nsenter and a constant
        [*command, url], capture_output=True, text=True, check=False
    )
    buckets = [line for line in asked.stdout.splitlines() if line.startswith(_FSYNC)]
    pairs = [(line.split('le="')[1].split('"')[0], float(line.split()[-1])) for line in buckets]
    return None if not pairs else round(figures.histogram(pairs, 0.99) * 1000, 3)


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
