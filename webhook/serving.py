"""gunicorn, with TLS from a Secret volume, and the settings that were measured for it.

Source: stack.md 6.2 and 6.3; security.md D9 and E1; faults.md F27 and F36.
"""

import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gunicorn import glogging
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter

from certs import pki
from webhook import metrics
from webhook.worker import BEGUN_S, Drain, Service, Worker

FAILED: Final = Arbiter.APP_LOAD_ERROR
"""The exit status of a worker after which gunicorn starts no other, and ends with it."""
logger = logging.getLogger(__name__)


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

    def __init__(self, load: Callable[[], Service], settings: Settings) -> None:
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
            "ssl_context": CachedContext().get,
            "logger_class": Log,
        }
        super().__init__()

    def load_config(self) -> None:
        """Take the settings above; command line and environment have no say."""
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> Service:
        """Return the app and what it needs; gunicorn asks in the worker."""
        return self._load()


class Log(glogging.Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's own lines, in the format of all others."""

    def setup(self, cfg: Any) -> None:  # noqa: ARG002  # as inherited
        """Leave the lines to the root logger."""
        self.error_log.propagate = True
        self.error_log.setLevel(logging.INFO)


class CachedContext:
    """One TLS context for all connections, made anew when the Secret volume changes."""

    def __init__(self) -> None:
        self._seen: tuple[tuple[int, int], ...] = ()
        self._context: ssl.SSLContext | None = None

    def get(self, config: Any, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """Return the context; gunicorn asks for every connection."""
        try:
            files = (config.certfile, config.keyfile, config.ca_certs)
            seen = tuple(_stamp(Path(path)) for path in files if path)
            if self._context is None or seen != self._seen:
                self._context, self._seen = hardened(make()), seen
                _announce(Path(config.certfile))
        except (OSError, ssl.SSLError):  # half-written or gone: the old pair serves on
            if self._context is None:
                raise
        return self._context


def _stamp(path: Path) -> tuple[int, int]:
    file = path.stat()
    return file.st_ino, file.st_mtime_ns


def hardened(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return ``context``, with TLS 1.2 or later and forward secrecy."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    return context


def is_one_of(names: frozenset[str], certificate: Mapping[str, Any]) -> bool:
    """Whether a client ``certificate`` is there, and its common name in ``names`` or these empty.

    Shape: as ``ssl.SSLSocket.getpeercert`` gives it.
    """
    fields = [field for part in certificate.get("subject", ()) for field in part]
    found = [value for name, value in fields if name == "commonName"]
    return len(found) == 1 and (not names or found[0] in names)


def _announce(certificate: Path) -> None:
    try:
        ends = pki.expiry(certificate.read_bytes())
    except (OSError, ValueError):
        return
    metrics.CERTIFICATE_EXPIRY.set(ends.timestamp())
    logger.info("Serving certificate", extra={"until": ends.isoformat()})


def address(host: str, port: int) -> str:
    """Return what to bind to: IPv6 addresses stand in brackets.

    Raises:
        ValueError: no such port.
    """
    if not 0 <= port < 2**16:
        raise ValueError(f"port {port} is out of range")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
