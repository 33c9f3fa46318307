"""The real Prometheus, told to scrape as the Prometheus operator tells it of our monitors.

Debian's package brings it with promtool; ``python -m sandbox prepare`` installs it.
"""

import contextlib
import json
import math
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from apis import objects
from apis.objects import Object
from sandbox import controlplane
from tests.webhook.reviews import wait_until

PROMTOOL: Final = Path("/usr/bin/promtool")
NEEDS: Final = pytest.mark.skipif(
    not PROMTOOL.exists(), reason="Debian's package prometheus is not on this machine"
)
_OFTEN: Final = {"scrape_interval": "1s", "evaluation_interval": "1s"}


@dataclass(frozen=True)
class Server:
    """A Prometheus that runs."""

    url: str

    def asked(self, path: str, **query: str) -> Any:
        """Return the data of an answer of its API."""
        url = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  # our own
            return json.load(answer)["data"]

    def values(self, expr: str) -> list[float]:
        """Return the numbers that ``expr`` yields now."""
        found = self.asked("/api/v1/query", query=expr)["result"]
        numbers = [float(one["value"][1]) for one in found]
        return [number for number in numbers if not math.isnan(number)]


@contextlib.contextmanager
def running(
    folder: Path,
    jobs: Sequence[dict[str, Any]],
    rule_files: Sequence[Path] = (),
    consoles: Path | None = None,
) -> Iterator[Server]:
    """Run Prometheus, which scrapes ``jobs`` each second; ``folder`` is for its own files."""
    config = folder / "prometheus.yaml"
    files = [str(file) for file in rule_files]
    told = {"global": _OFTEN, "rule_files": files, "scrape_configs": list(jobs)}
    config.write_text(yaml.safe_dump(told), encoding="utf-8")
    (own,) = controlplane.free_ports(1)
    flags = [f"--storage.tsdb.path={folder / 'series'}", f"--web.listen-address=127.0.0.1:{own}"]
    if consoles is not None:
        flags += [f"--web.console.templates={consoles}", f"--web.console.libraries={consoles}"]
    said, server = folder / "prometheus.log", Server(f"http://127.0.0.1:{own}")
    with said.open("wb") as log:
        command = [str(PROMTOOL.with_name("prometheus")), f"--config.file={config}", *flags]
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def answers() -> bool:
        assert process.poll() is None, said.read_text()[-2000:]
        try:
            return server.values("vector(1)") == [1]
        except OSError:  # it has only begun
            return False

    try:
        wait_until(answers)
        yield server
    finally:
        process.kill()
        process.wait()


def job(endpoint: dict[str, Any], name: str, token: str, authority: Path) -> dict[str, Any]:
    """Return how Prometheus scrapes ``endpoint`` of a monitor, but not what.

    ``token`` is the bearer's, ``authority`` the file of the CA that the monitor names by a Secret.
    """
    tls = endpoint["tlsConfig"]
    told = {"server_name": tls["serverName"], "ca_file": str(authority)} if "ca" in tls else {}
    return {
        "job_name": name,
        "scheme": endpoint["scheme"],
        "metrics_path": endpoint["path"],
        "authorization": {"credentials": token},
        "tls_config": told or {"insecure_skip_verify": tls["insecureSkipVerify"]},
    }


def labels_of(monitor: dict[str, Any]) -> str:
    """Return the label selector of a PodMonitor as kubectl takes it."""
    selector = monitor["spec"]["selector"]
    equal = [f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()]
    listed = selector.get("matchExpressions", ())
    return ",".join([*equal, *(f"{one['key']} in ({','.join(one['values'])})" for one in listed)])


def targets(pods: Iterable[Object], port: str) -> list[dict[str, Any]]:
    """Return where the containers of ``pods`` answer that have a port named ``port``.

    Debian's Prometheus cannot look into a cluster, so what it would find is told: pods with an
    address that do not end.
    """
    return [
        {
            "targets": [f"{pod['status']['podIP']}:{open_port['containerPort']}"],
            "labels": {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]},
        }
        for pod in pods
        if pod["status"].get("podIP") and not objects.is_terminating(pod)
        for container in pod["spec"]["containers"]
        for open_port in container.get("ports", ())
        if open_port.get("name") == port
    ]
