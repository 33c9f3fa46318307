"""An API server as its administrator sees it: raw requests, and waiting for what they answer."""

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from kube import credentials
from sandbox.layout import Files, Listening

_CALL_S: Final = 60.0
_PAUSE_S: Final = 0.1


class RefusedError(Exception):
    """The API server answered with an error; the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class NotYetError(Exception):
    """What was waited for did not come in time; the message says what, and where to look."""


@dataclass(frozen=True)
class Api:
    """One API server, in the name of its administrator."""

    files: Files
    server: str

    def request(self, method: str, path: str, body: Any = None, *, kind: str = "json") -> Any:
        """Return the JSON that the server answers, or the text where it is none.

        Raises:
            RefusedError: it answered with an error.
            OSError: it did not answer.
        """
        content = None if body is None else json.dumps(body)
        with self._connection() as connection:
            connection.request(method, path, content, {"Content-Type": f"application/{kind}"})
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status >= http.client.BAD_REQUEST:
            raise RefusedError(answer.status, text.strip())
        return json.loads(text) if text.startswith("{") else text

    def apply(self, path: str, document: dict[str, Any]) -> None:
        """Apply ``document`` server-side at ``path``."""
        query = "?fieldManager=sandbox&force=true"
        self.request("PATCH", path + query, document, kind="apply-patch+yaml")

    def is_ready(self) -> bool:
        """Whether the server answers, and says that it is ready."""
        with contextlib.suppress(OSError, RefusedError, http.client.HTTPException):
            return bool(self.request("GET", "/readyz") == "ok")
        return False

    @contextlib.contextmanager
    def _connection(self) -> Iterator[http.client.HTTPSConnection]:
        pki = self.files.pki
        tls = credentials.trusting((pki / "ca.crt").read_bytes())
        tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        host = urlsplit(self.server).netloc
        with contextlib.closing(
            http.client.HTTPSConnection(host, timeout=_CALL_S, context=tls)
        ) as connection:
            yield connection


def of(files: Files, at: Listening) -> Api:
    """Return the API server that listens there."""
    return Api(files, at.server)


def wait_until(holds: Callable[[], bool], what: str, *, timeout_s: float) -> None:
    """Return once ``holds()``.

    Raises:
        NotYetError: it did not within ``timeout_s`` seconds.
    """
    end = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end:
            raise NotYetError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(_PAUSE_S)
