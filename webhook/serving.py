"""gunicorn, with TLS from a Secret volume, and the settings that were measured for it.

Source: stack.md 6.2 and 6.3; security.md D9 and E1; faults.md F27 and F36.
"""

import logging
import signal
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import flask
from gunicorn import glogging
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.workers import gthread

from certs import pki
from webhook import metrics

READ_S: Final = 3.0
"""What a client may take for a handshake or a read; a silent one would hold a thread for ever."""
DRAIN_S: Final = 10.0
"""What a process that is to end serves on, not ready any more: all API servers know it by then."""
BEGUN_S: Final = 15.0
"""What was begun then has, at most; with the drain less than the pod is given."""
FAILED: Final = Arbiter.APP_LOAD_ERROR
"""The exit status of a worker after which gunicorn starts no other, and ends with it."""
logger = logging.getLogger(__name__)


class Drain:
    """How long the process serves on after it was told to end."""

    def __init__(self, seconds: float = DRAIN_S) -> None:
        self.seconds = seconds
        self._ends: float | None = None

    def begin(self) -> None:
        """Say that the process was told to end."""
        if self._ends is None:
            self._ends = time.monotonic() + self.seconds

    @property
    def has_begun(self) -> bool:
        """Whether it was told to end."""
        return self._ends is not None

    @property
    def is_over(self) -> bool:
        """Whether it may end now."""
        return self._ends is not None and time.monotonic() >= self._ends


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

    def __init__(self, load: Callable[[], flask.Flask], settings: Settings) -> None:
        self._load = load
        tls, authority = settings.tls, settings.client_ca
        self._settings: dict[str, object] = {
            "bind": settings.bind,
            "worker_class": type("DrainingWorker", (Worker,), {"drain": settings.drain}),
            "workers": 1,  # metrics stay simple; replicas give availability
            "threads": 4,  # the work is CPU: more threads only lengthen the tail
            "keepalive": 120,  # the API server keeps idle connections for 90 s
            "timeout": 120,  # a machine that paused is no reason to end all workers on it
            "graceful_timeout": int(settings.drain.seconds + BEGUN_S),
            "http_protocols": "h1",  # an idle h2 connection would hold a thread
            "preload_app": False,  # threads do not survive the fork
            "control_socket_disable": True,  # the root file system is read-only
            "worker_tmp_dir": "/dev/shm",  # noqa: S108  # gunicorn's heartbeat, in memory
            "forwarded_allow_ips": "",  # no proxy stands in between, and none is believed
            "certfile": str(tls / "tls.crt"),
            "keyfile": str(tls / "tls.key"),
            "ca_certs": str(authority) if authority else None,
            # Not required: probes have no certificate, and the app asks for one elsewhere.
            "cert_reqs": ssl.CERT_OPTIONAL if authority else ssl.CERT_NONE,
            "do_handshake_on_connect": False,  # in a thread, with a deadline
            "ssl_context": CachedContext().get,
            "logger_class": Log,
        }
        super().__init__()

    def load_config(self) -> None:
        """Take the settings above; command line and environment have no say."""
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> flask.Flask:
        """Return the app; gunicorn asks in the worker."""
        return self._load()


class Worker(gthread.ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """gthread, with new connections in its poller until they say something, not in a thread.

    Told to end it serves on for a while, and each answer closes its connection: an idle one could
    be closed while a request is on its way, which API servers do not repeat.
    """

    drain = Drain()

    def handle_exit(self, _sig: int, _frame: FrameType | None) -> None:
        """Begin to drain; ``notify``, which gunicorn calls each second, ends it."""
        self.drain.begin()
        self.max_keepalived = 0
        self.method_queue.defer(lambda: None)

    def notify(self) -> None:
        """Say that the worker lives, and stop it when the drain is over."""
        super().notify()
        if self.alive and self.drain.is_over:
            super().handle_exit(signal.SIGTERM, None)

    def enqueue_req(self, conn: Any) -> None:
        """Note when a request came: waiting for a thread is part of its time."""
        conn.arrived = time.monotonic()
        super().enqueue_req(conn)

    def handle(self, conn: Any) -> Any:
        """Answer what ``conn`` sends; gunicorn alone would wait 5 s for it to begin."""
        if not conn.initialized and not self._begin(conn):
            return False
        if not conn.data_ready and not conn.wait_for_data(0):
            return gthread._DEFER  # noqa: SLF001  # what its own handle returns then
        if conn.initialized:  # else its socket has no place for it
            conn.sock.arrived = conn.arrived
        return super().handle(conn)

    def _cap_keepalive(self, deadline: float) -> None:
        """Close connections that only wait, be it for their first request, by ``deadline``."""
        super()._cap_keepalive(deadline)
        for conn in self.pending_conns:
            conn.timeout = min(conn.timeout, deadline)

    def _begin(self, conn: Any) -> bool:
        """Shake hands as soon as the client begins; it may send its first request much later."""
        if not conn.wait_for_data(0):
            return True
        try:
            conn.init()
        except OSError:
            return False
        conn.data_ready = conn.sock.pending() > 0
        return True


class Log(glogging.Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's own lines, in the format of all others."""

    def setup(self, cfg: Any) -> None:  # noqa: ARG002  # as inherited
        """Leave the lines to the root logger."""
        self.error_log.propagate = True
        self.error_log.setLevel(logging.INFO)


class ImpatientSocket(ssl.SSLSocket):
    """A TLS connection whose handshake and reads end in time, answered or not."""

    arrived = 0.0
    """When the request that is answered came, on the monotonic clock."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002  # as inherited
        self.settimeout(READ_S)
        super().do_handshake(block)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        if self.gettimeout() != 0:  # not while gunicorn's poller has it
            self.settimeout(READ_S)
        return super().recv(buflen, flags)


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
    """Return ``context``, with TLS 1.2 or later, forward secrecy and impatient connections."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.sslsocket_class = ImpatientSocket
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
