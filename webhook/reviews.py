"""The reviews as HTTP: one Flask view for each path.

A refusal is an answer (HTTP 200, ``allowed: false``); a failure is a 4xx or 5xx, and what a failure
means is the failure policy of the webhook configuration.
"""

import contextlib
import functools
import logging
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from wsgiref.types import WSGIEnvironment

import flask
import msgspec
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header

from apis import objects
from apis.objects import Object
from kube.errors import KubeError, NotReachableError
from webhook import admission
from webhook.admission import Judge, MalformedError
from webhook.metrics import Reviewed

MAX_BODY: Final = 7 * 2**20
"""Two objects of 3 MB and 1 MB around them, as in controller-runtime."""
DEFAULT_TIMEOUT_S: Final = 10.0
MAX_TIMEOUT_S: Final = 30.0
ARRIVED: Final = "pyliqo.arrived"
"""In the environment of a request: when it came, on the monotonic clock."""
CERTIFICATE: Final = "pyliqo.certificate"
"""There, too: what ``ssl.SSLSocket.getpeercert`` says of the client, None without TLS."""
SHARE: Final = 0.8
"""Of the API server's patience: what is left pays for the way there and back."""

_LONGEST_QUERY: Final = 256
_JSON: Final = (("Content-Type", "application/json"),)
logger = logging.getLogger(__name__)


class Answer(flask.Response):
    """A response whose body is all there, and whose headers are right as they are."""

    automatically_set_content_length = False  # anybody who serves the app knows it

    def get_wsgi_response(
        self, _environ: WSGIEnvironment
    ) -> tuple[Iterable[bytes], str, list[tuple[str, str]]]:
        """Return body, status and headers."""
        return self.iter_encoded(), self.status, self.headers.to_wsgi_list()


class Reviews:
    """The view of one path; ``is_caller`` is asked about the certificate of the one who comes."""

    def __init__(
        self,
        path: str,
        judge: Judge,
        *,
        is_caller: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> None:
        self._judge = judge
        self._counts = Reviewed(path)
        self._is_caller = is_caller

    def __call__(self) -> flask.Response:
        environ = flask.request.environ
        if self._is_caller is not None and not self._is_caller(environ.get(CERTIFICATE) or {}):
            return _said(401, "only API servers are answered, by their certificate")
        if not _is_json(environ.get("CONTENT_TYPE", "")) or "HTTP_CONTENT_ENCODING" in environ:
            return _said(415, "send application/json, not encoded")
        body = _body(environ)
        began = float(environ.get(ARRIVED) or time.monotonic())
        left_s = _budget_of(environ["QUERY_STRING"]) - (time.monotonic() - began)
        if left_s <= 0:
            self._counts.shed("queue")
            return _said(503, "the webhook has too much to do: try again")
        answer = _judged(self._judge, self._counts, body, left_s)
        self._counts.took(time.monotonic() - began)
        return answer


def budget_s(timeout: str | None) -> float:
    """Return the seconds that an answer may take, by the ``timeout`` of the request's URL.

    Shape: a duration as Go prints it, ``10s`` or ``1m0s``; anything else counts as 10 s.
    """
    seconds = 0.0
    with contextlib.suppress(ValueError):
        seconds = objects.parse_duration(timeout or "")
    return SHARE * min(seconds or DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S)


def _body(environ: WSGIEnvironment) -> bytes:
    """Return the body, which the server of the app has read already.

    Raises:
        RequestEntityTooLarge: it is too large, and perhaps nobody read it.
    """
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > MAX_BODY:
        raise RequestEntityTooLarge
    return bytes(environ["wsgi.input"].read(length))


@functools.lru_cache(maxsize=64)
def _budget_of(query: str) -> float:
    found = urllib.parse.parse_qs(query[:_LONGEST_QUERY]).get("timeout")
    return budget_s(found[-1] if found else None)


@functools.lru_cache(maxsize=64)
def _is_json(content_type: str) -> bool:
    return parse_options_header(content_type)[0] == "application/json"


def _judged(judge: Judge, counts: Reviewed, body: bytes, left_s: float) -> flask.Response:
    """Return the answer to a review; what nobody foresaw is told as 500."""
    try:
        answer = admission.answer(admission.parse(body, budget_s=left_s), judge)
    except MalformedError as error:
        counts.of("malformed", "BadRequest")
        return _answered(400, admission.malformed(error))
    except KubeError as error:
        if isinstance(error, NotReachableError):
            counts.shed("lookup")
        else:
            counts.of("unavailable", "lookup")
        reason = {"reason": str(error)}
        logger.warning("Looking up what a review needs did not succeed", extra=reason)
        silent = "the API server did not tell the webhook in time what it needs to judge: try again"
        return _said(503, silent)
    except Exception:
        counts.of("error", "InternalError")
        logger.exception("Judging a review did not succeed")
        return _said(500, "the webhook could not judge this: its log says why")
    _record(counts, answer["response"])
    return _answered(200, answer)


def _said(status: int, message: str) -> flask.Response:
    return _answered(status, {"message": message})


def _answered(status: int, body: Object) -> flask.Response:
    return Answer([msgspec.json.encode(body)], status, _JSON)


def _record(counts: Reviewed, response: Object) -> None:
    changed = "changed" if "patch" in response else "allowed"
    verdict = changed if response["allowed"] else "denied"
    why = response["auditAnnotations"]["verdict"].partition(":")[0]
    counts.of(verdict, why if response["allowed"] else response["status"]["reason"])
    level = logging.INFO if verdict == "denied" else logging.DEBUG
    if logger.isEnabledFor(level):
        logger.log(level, "Answered review", extra={"uid": response["uid"], "verdict": verdict})
