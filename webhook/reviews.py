"""The reviews as HTTP, answered in front of Flask, which would take longer than the judgement.

A refusal is an answer (HTTP 200, ``allowed: false``); a failure is a 4xx or 5xx, and what a failure
means is the failure policy of the webhook configuration.
"""

import functools
import http
import logging
import re
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import msgspec

from apis.objects import Object
from kube.errors import KubeError, NotReachableError
from webhook import admission
from webhook.admission import Judge, MalformedError, Request
from webhook.looks import WouldWait
from webhook.metrics import Reviewed

MAX_BODY: Final = 7 * 2**20
"""Two objects of 3 MB and 1 MB around them, as in controller-runtime."""
DEFAULT_TIMEOUT_S: Final = 10.0
MAX_TIMEOUT_S: Final = 30.0
ARRIVED: Final = "pyliqo.arrived"
"""In the environment of a request: when it came, on the monotonic clock."""
CERTIFICATE: Final = "pyliqo.certificate"
"""There, too: what ``ssl.SSLSocket.getpeercert`` says of the client, None without TLS."""
PARSED: Final = "pyliqo.parsed"
"""There, too: the review in its body, when the app is called for it once more."""
SHARE: Final = 0.8
"""Of the API server's patience: what is left pays for the way there and back."""

_LONGEST_QUERY: Final = 256
_STATUS: Final = {status.value: f"{status.value} {status.phrase}" for status in http.HTTPStatus}
_DURATION: Final = re.compile(
    r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,9})ms)?"
)
logger = logging.getLogger(__name__)


class Answer(NamedTuple):
    """An HTTP status and its body."""

    status: int
    body: Object


class Reviews:
    """WSGI: answers reviews itself, and leaves probes and metrics to ``rest``."""

    def __init__(
        self,
        table: Mapping[str, Judge],
        rest: WSGIApplication,
        *,
        is_caller: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> None:
        self._table = {path: (judge, Reviewed(path)) for path, judge in table.items()}
        self._rest = rest
        self._is_caller = is_caller

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        found = self._table.get(environ["PATH_INFO"])
        if found is None:
            return self._rest(environ, start_response)
        status, answer = self._answered(*found, environ)
        sent = msgspec.json.encode(answer)
        head = [("Content-Type", "application/json"), ("Content-Length", str(len(sent)))]
        start_response(_STATUS[status], head)
        return [sent]

    def _answered(self, judge: Judge, counts: Reviewed, environ: WSGIEnvironment) -> Answer:
        if self._is_caller is not None and not self._is_caller(_certificate(environ)):
            return _said(401, "only API servers are answered, by their certificate")
        if environ["REQUEST_METHOD"] != "POST":
            return _said(405, "send reviews by POST")
        if not _is_json(environ):
            return _said(415, "send application/json, not encoded")
        body = _read(environ)
        if body is None:
            return _said(413, f"an AdmissionReview has at most {MAX_BODY} bytes")
        began = _arrived(environ)
        left_s = _budget_of(environ["QUERY_STRING"]) - (time.monotonic() - began)
        if left_s <= 0 and PARSED not in environ:
            counts.shed("queue")
            return _said(503, "the webhook has too much to do: try again")
        answer = _judged(judge, counts, environ, body, left_s)
        counts.took(time.monotonic() - began)
        return answer


def budget_s(timeout: str | None) -> float:
    """Return the seconds that an answer may take, by the ``timeout`` of the request's URL.

    Shape: a duration as Go prints it, ``10s`` or ``1m0s``; anything else counts as 10 s.
    """
    found = _DURATION.fullmatch(timeout or "")
    parts = [float(part or 0) for part in found.groups()] if found else []
    seconds = sum(part * unit for part, unit in zip(parts, (3600, 60, 1, 0.001), strict=False))
    return SHARE * min(seconds or DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S)


def _judged(
    judge: Judge, counts: Reviewed, environ: WSGIEnvironment, body: bytes, left_s: float
) -> Answer:
    """Return the answer to a review; what nobody foresaw is told as 500."""
    try:
        answer = _reviewed(judge, environ, body, left_s)
    except MalformedError as error:
        counts.of("malformed", "BadRequest")
        return Answer(400, admission.malformed(error))
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
    return Answer(200, answer)


def _reviewed(judge: Judge, environ: WSGIEnvironment, body: bytes, left_s: float) -> Object:
    """Return the answer to the review in ``body``, parsed once however often the app is called."""
    known: Request | None = environ.pop(PARSED, None)
    request = replace(known, budget_s=left_s) if known else admission.parse(body, budget_s=left_s)
    try:
        return admission.answer(request, judge)
    except WouldWait:
        environ[PARSED] = request
        raise


def _said(status: int, message: str) -> Answer:
    return Answer(status, {"message": message})


def _is_json(environ: WSGIEnvironment) -> bool:
    kind = environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    return kind == "application/json" and not environ.get("HTTP_CONTENT_ENCODING")


def _read(environ: WSGIEnvironment) -> bytes | None:
    """Return the body, None if it is too large."""
    length = int(environ.get("CONTENT_LENGTH") or -1)
    if length > MAX_BODY:
        return None
    body: bytes = environ["wsgi.input"].read(length if length >= 0 else MAX_BODY + 1)
    return body if len(body) <= MAX_BODY else None


def _arrived(environ: WSGIEnvironment) -> float:
    """Return when the request came, which may be long before its turn came."""
    return float(environ.get(ARRIVED) or time.monotonic())


def _certificate(environ: WSGIEnvironment) -> Mapping[str, Any]:
    """Return the client's certificate, verified in the handshake; {} without one."""
    return environ.get(CERTIFICATE) or {}


@functools.lru_cache(maxsize=64)
def _budget_of(query: str) -> float:
    found = urllib.parse.parse_qs(query[:_LONGEST_QUERY]).get("timeout")
    return budget_s(found[-1] if found else None)


def _record(counts: Reviewed, response: Object) -> None:
    changed = "changed" if "patch" in response else "allowed"
    verdict = changed if response["allowed"] else "denied"
    why = response["auditAnnotations"]["verdict"].partition(":")[0]
    counts.of(verdict, why if response["allowed"] else response["status"]["reason"])
    level = logging.INFO if verdict == "denied" else logging.DEBUG
    if logger.isEnabledFor(level):
        logger.log(level, "Answered review", extra={"uid": response["uid"], "verdict": verdict})
