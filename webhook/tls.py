"""TLS from a Secret volume that changes while it is served. Source: docs/parity.md F-27."""

import logging
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from certs import pki
from kube import credentials
from webhook import metrics

logger = logging.getLogger(__name__)


class CachedContext:
    """One TLS context for all connections, made again when the Secret volume changes."""

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
    """Return ``context``, with TLS 1.2 or later, forward secrecy, and clients verified as by Go.

    API servers keep no session to resume, and open a connection for nearly each of many reviews at
    once: what they could resume it by is a tenth of what a handshake costs here.
    """
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.num_tickets = 0
    return credentials.verifying(context)


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


class PresentContext(ssl.SSLContext):
    """For each new connection the TLS context that is the right one then."""

    def __new__(cls, _current: Callable[[], ssl.SSLContext]) -> Self:
        """Return one for servers."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, current: Callable[[], ssl.SSLContext]) -> None:
        self._current = current

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Begin TLS, as asyncio asks for it."""
        return self._current().wrap_bio(*args, **kwargs)
