"""gunicorn with the settings that were measured for it, how it ends, and the command line.

Its own process only looks after the worker, so what that imports is not imported here. It serves on
for a while when it is to end, and leaves no request without an answer.
Source: docs/parity.md A-36; SEC-D9; F-36.
"""

import argparse
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any, Final

from gunicorn import glogging
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.workers import base

from apis import keys
from kube import flags
from kube.flags import flag

FAILED: Final = Arbiter.APP_LOAD_ERROR
"""The exit status of a worker after which gunicorn starts no other, and ends with it."""


DRAIN_S: Final = 10.0
"""What a process that is to end serves on, not ready any more: all API servers know it by then."""
LINGER_S: Final = 2.0
"""What connections have after that, for a request that is on its way already."""
BEGUN_S: Final = 15.0
"""What was begun then has, at most; with the drain less than the pod is given."""


class Drain:
    """How long the process serves on after it was told to end."""

    def __init__(self, seconds: float = DRAIN_S) -> None:
        self.seconds = seconds
        self._ends: float | None = None

    def begin(self) -> None:
        if self._ends is None:
            self._ends = time.monotonic() + self.seconds

    @property
    def has_begun(self) -> bool:
        return self._ends is not None

    @property
    def is_over(self) -> bool:
        return self._ends is not None and time.monotonic() >= self._ends


@dataclass(frozen=True)
class WebhookOptions:
    """What the command line says: where to listen, whom to trust, and how to end."""

    tls: Path = flag(
        "directory with tls.crt and tls.key, which are read again when they change",
        "--tls-dir",
        type=Path,
        default=Path("/etc/liqo/tls"),
    )
    host: str = flag(
        "address to listen on",
        "--host",
        default="0.0.0.0",  # noqa: S104  # a pod has one address, which it learns late
    )
    port: int = flag("port to listen on", "--port", type=int, default=keys.WEBHOOK_PORT)
    client_ca: Path | None = flag(
        "answer only reviews of clients whose certificate an authority of this PEM file has signed",
        "--client-ca",
        type=Path,
    )
    client_names: tuple[str, ...] = flag(
        "with --client-ca: common name that the client's certificate has; may be repeated",
        "--client-name",
        action="append",
    )
    drain_s: float = flag(
        "seconds for which it serves after SIGTERM, without being ready",
        "--drain-seconds",
        type=float,
        default=DRAIN_S,
    )
    kubeconfig: Path | None = flag(
        "kubeconfig file (default: the pod's service account)", "--kubeconfig", type=Path
    )
    is_enforced: bool = flag(
        "refuse ShadowPods that the Quota of their creator has no room for",
        "--enable-resource-enforcement",
        action=flags.ON_OFF,
        default=False,
    )
    json_logs: bool | None = flag(
        "write log lines as JSON (default: unless standard error is a terminal)",
        "--json-logs",
        action=flags.ON_OFF,
    )

    @cached_property
    def drain(self) -> Drain:
        return Drain(self.drain_s)


def parse_options(argv: Sequence[str] | None) -> WebhookOptions:
    """Return what ``argv`` asks for, or the process's own command line; end with what is wrong."""
    about = "Serves the admission webhook of one cluster."
    parser = argparse.ArgumentParser(prog="python3 -m webhook", description=about)
    options = flags.parsed(parser, WebhookOptions, argv)
    for name in ("tls.crt", "tls.key"):
        if not (options.tls / name).is_file():
            parser.error(f"--tls-dir {options.tls}: it has no file {name}")
    return options


class GunicornServer(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """One worker, which calls ``load`` after the fork and so has its own informers."""

    def __init__(self, settings: WebhookOptions, load: Callable[[], object]) -> None:
        self._load = load
        tls, authority = settings.tls, settings.client_ca
        self._settings: dict[str, object] = {
            "bind": address(settings.host, settings.port),
            "worker_class": type("DrainingWorker", (Worker,), {"drain": settings.drain}),
            "workers": 1,  # metrics stay simple; replicas give availability
            "threads": 4,  # for what has to wait, or is large
            "keepalive": 120,  # the API server keeps idle connections for 90 s
            "timeout": 120,  # a machine that paused is no reason to end all workers on it
            "graceful_timeout": int(settings.drain.seconds + BEGUN_S),
            "http_protocols": "h1",  # what API servers speak to webhooks
            "preload_app": False,  # what is loaded belongs to the worker's loop
            "control_socket_disable": True,  # the root file system is read-only
            "worker_tmp_dir": "/dev/shm",  # noqa: S108  # gunicorn's heartbeat, in memory
            "forwarded_allow_ips": "",  # no proxy stands in between, and none is believed
            "certfile": str(tls / "tls.crt"),
            "keyfile": str(tls / "tls.key"),
            "ca_certs": str(authority) if authority else None,
            # Not required: probes have no certificate, and the app asks for one elsewhere.
            "cert_reqs": ssl.CERT_OPTIONAL if authority else ssl.CERT_NONE,
            "logger_class": Log,
        }
        super().__init__()

    def load_config(self) -> None:
        """Take the settings above; command line and environment have no say."""
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> object:
        return self._load()


class Worker(base.Worker):  # type: ignore[misc]  # gunicorn has no types
    """The process that answers; all that takes is imported in it, after the fork."""

    drain = Drain()

    def handle_exit(self, _sig: int, _frame: FrameType | None) -> None:
        """Begin to drain; the next tick of the loop sees it."""
        self.drain.begin()

    def run(self) -> None:
        from webhook.worker import RequestServer  # noqa: PLC0415  # the process that forks stays small

        RequestServer(self, self.drain).run()


class Log(glogging.Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's own lines, in the format of all others."""

    def setup(self, cfg: Any) -> None:  # noqa: ARG002  # as inherited
        self.error_log.propagate = True
        self.error_log.setLevel(logging.INFO)


def address(host: str, port: int) -> str:
    """Return what to bind to: IPv6 addresses stand in brackets.

    Raises:
        ValueError: no such port.
    """
    if not 0 <= port < 2**16:
        raise ValueError(f"port {port} is out of range")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
