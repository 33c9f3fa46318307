"""gunicorn, and the settings that were measured for it.

Its own process only looks after the worker, so what that imports is not imported here.
Source: docs/parity.md SEC-D9; F-36.
"""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from gunicorn import glogging
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.workers import base

from webhook.drain import BEGUN_S, Drain

FAILED: Final = Arbiter.APP_LOAD_ERROR
"""The exit status of a worker after which gunicorn starts no other, and ends with it."""


@dataclass(frozen=True)
class Settings:
    """Where to listen, and whom to trust."""

    bind: str
    tls: Path
    drain: Drain
    client_ca: Path | None = None
    """Who signs the client certificates of API servers; None asks for none."""


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """One worker, which calls ``load`` after the fork and so has its own informers."""

    def __init__(self, settings: Settings, load: Callable[[], object]) -> None:
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
        from webhook.worker import Loop  # noqa: PLC0415  # the process that forks stays small

        Loop(self, self.drain).run()


class Log(glogging.Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's own lines, in the format of all others."""

    def setup(self, cfg: Any) -> None:  # noqa: ARG002  # as inherited
        """Leave the lines to the root logger."""
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
