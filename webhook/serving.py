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
from pathlib import Path
from types import FrameType
from typing import Any, Final

from gunicorn import glogging
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.workers import base

from apis import keys

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

    bind: str
    tls: Path
    drain: Drain
    client_ca: Path | None
    """Who signs the client certificates of API servers; None asks for none."""
    client_names: frozenset[str]
    kubeconfig: Path | None
    is_enforced: bool
    json_logs: bool | None


class GunicornServer(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """One worker, which calls ``load`` after the fork and so has its own informers."""

    def __init__(self, settings: WebhookOptions, load: Callable[[], object]) -> None:
        self._load = load
        tls, authority = settings.tls, settings.client_ca
        self._settings: dict[str, object] = {
            "bind": settings.bind,
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
        """Return the app and what it needs; gunicorn asks in the worker."""
        return self._load()


class Worker(base.Worker):  # type: ignore[misc]  # gunicorn has no types
    """The process that answers; all that takes is imported in it, after the fork."""

    drain = Drain()

    def handle_exit(self, _sig: int, _frame: FrameType | None) -> None:
        """Begin to drain; the next tick of the loop sees it."""
        self.drain.begin()

    def run(self) -> None:
        """Serve until told to end, or until gunicorn itself is gone."""
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


# The command line of ``python3 -m webhook`` -------------------------------------------------------

_ABOUT: Final = "The admission webhook of one cluster."


def parse_options(argv: Sequence[str] | None) -> WebhookOptions:
    """Return what ``argv`` asks for, or the process's own command line; end with what is wrong."""
    given = _parser().parse_args(argv)
    return WebhookOptions(
        bind=address(given.host, given.port),
        tls=given.tls_dir,
        drain=Drain(given.drain_seconds),
        client_ca=given.client_ca,
        client_names=frozenset(given.client_name),
        kubeconfig=given.kubeconfig,
        is_enforced=given.enable_resource_enforcement,
        json_logs=given.json_logs,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m webhook", description=_ABOUT)
    _add_serving(parser)
    parser.add_argument(
        "--kubeconfig", type=Path, help="kubeconfig file; without it this pod's own identity"
    )
    parser.add_argument(
        "--enable-resource-enforcement",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="judge ShadowPods by the Quota of the one who creates them (%(default)s)",
    )
    parser.add_argument(
        "--json-logs",
        action=argparse.BooleanOptionalAction,
        help="JSON log lines; by default unless standard error is a terminal",
    )
    return parser


def _add_serving(parser: argparse.ArgumentParser) -> None:
    """Add where it listens, to whom, and how it ends."""
    parser.add_argument(
        "--tls-dir",
        type=Path,
        default=Path("/etc/liqo/tls"),
        help="directory with tls.crt and tls.key; read again when they change (%(default)s)",
    )
    parser.add_argument(
        "--host",
        default="0.0.0.0",  # noqa: S104  # a pod has one address, which it learns late
        help="address to listen on (%(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=keys.WEBHOOK_PORT, help="port to listen on (%(default)s)"
    )
    parser.add_argument(
        "--client-ca",
        type=Path,
        help="answer reviews only to clients with a certificate that this PEM file vouches for",
    )
    parser.add_argument(
        "--client-name",
        action="append",
        default=[],
        help="with --client-ca: only to certificates of this common name; may be repeated",
    )
    parser.add_argument(
        "--drain-seconds",
        type=float,
        default=DRAIN_S,
        help="serve on for so long after SIGTERM, not ready any more (%(default)s)",
    )
