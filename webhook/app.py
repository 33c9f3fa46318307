"""The WSGI app: a route for each webhook, for probes and for metrics, and reviews as HTTP.

A refusal is an answer (HTTP 200, ``allowed: false``); a failure is a 4xx or 5xx, and what a failure
means is the failure policy of the webhook configuration.
"""

import contextlib
import functools
import hmac
import inspect
import logging
import pkgutil
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from wsgiref.types import WSGIEnvironment

import flask
import msgspec
import werkzeug.exceptions
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header
from werkzeug.routing import MapAdapter

from apis import keys, objects
from apis.objects import Object
from kube import authz
from kube import metrics as kube_metrics
from kube.errors import KubeError, NotReachableError
from webhook import admission
from webhook.admission import Admitted, Lookup, MalformedError, Request, WebhookHandler
from webhook.handlers import Labels
from webhook.metrics import Reviewed
from webhook.webhooks import WEBHOOKS, Row


@dataclass(frozen=True)
class AppAccess:
    """Who may come in where, and whether anybody should."""

    is_ready: Callable[[], bool] = lambda: True
    may_scrape: Callable[[str], None] = lambda _authorization: None
    """Raises UnauthenticatedError or NotAllowedError for who may not read the metrics."""
    is_caller: Callable[[Mapping[str, Any]], bool] | None = None
    """Whether a client certificate is an API server's; None asks for none."""
    secret_path: Callable[[], str] = str
    """What ends the path of the one review that may write; empty lets nobody in."""


class App(flask.Flask):
    """A Flask app of which each route has one method and no host."""

    @functools.lru_cache(maxsize=64)  # noqa: B019  # there is one app
    def _at(self, method: str, path: str) -> MapAdapter:
        return self.url_map.bind("", path_info=path, default_method=method)

    def create_url_adapter(self, request: flask.Request | None) -> MapAdapter | None:
        """Return what finds the route; Flask's own costs a tenth of a review."""
        return None if request is None else self._at(request.method, request.path)


def webhook_handlers(
    lookup: Lookup,
    label: Labels | None = None,
    *,
    is_enforced: bool = False,
    rows: Iterable[Row] = WEBHOOKS,
) -> Mapping[str, WebhookHandler]:
    """Return who answers at which path; webhook configurations name these paths.

    Without ``label`` labelling namespaces is left to the controllers.
    """
    given = {"label": label, "is_enforced": is_enforced}
    return {
        row.path: _handler_of(row, lookup, {**given, "kind": row.kind})
        for row in rows
        if label is not None or not row.writes
    }


def _handler_of(row: Row, lookup: Lookup, given: Mapping[str, Any]) -> WebhookHandler:
    function = pkgutil.resolve_name(row.handler)
    names = inspect.signature(function).parameters.keys() - {"request"}
    handle = functools.partial(function, **{name: given[name] for name in names - {"lookup"}})
    waits: Callable[[str], bool] = _never
    if "lookup" in names:
        handle = functools.partial(_bounded, handle, lookup)
        waits = functools.partial(pkgutil.resolve_name(row.waits), lookup) if row.waits else _always
    return WebhookHandler(row.kind, row.operations, handle, row.subresources, waits)


def _bounded(handle: Callable[..., Admitted], lookup: Lookup, request: Request) -> Admitted:
    """Call ``handle`` with what looks up only as long as the API server waits."""
    return handle(request, lookup=lookup.within(request.budget_s))


def _always(_namespace: str) -> bool:
    return True


def _never(_namespace: str) -> bool:
    return False


def waits(handlers: Mapping[str, WebhookHandler], path: str, body: bytes) -> bool:
    """Whether the answer at ``path`` mostly takes until an API server has answered."""
    handler = handlers.get(path) or handlers.get(path.rpartition("/")[0])
    if handler is None:
        return path == authz.METRICS_PATH
    return handler.waits(admission.namespace_in(body))


def create_app(
    handlers: Mapping[str, WebhookHandler],
    *,
    access: AppAccess = AppAccess(),  # frozen
) -> flask.Flask:
    """Build the WSGI app; everything it touches comes in as an argument."""
    app = App("webhook", static_folder=None)
    app.url_map.merge_slashes = False  # nobody is sent elsewhere, as no host is known here
    routes: dict[str, tuple[str, Callable[..., ResponseReturnValue]]] = {
        "/healthz": ("GET", lambda: "ok"),
        "/readyz": ("GET", functools.partial(_ready, access)),
        authz.METRICS_PATH: ("GET", functools.partial(_metrics, access)),
        **{
            path: ("POST", Reviews(path, handler, is_caller=access.is_caller))
            for path, handler in handlers.items()
        },
    }
    _, labelling = routes.pop(keys.LABELLING_PATH, ("", None))
    if labelling is not None:
        secret = functools.partial(_at_secret_path, access.secret_path, labelling)
        routes[f"{keys.LABELLING_PATH}/<segment>"] = ("POST", secret)
    for path, (method, view) in routes.items():
        app.add_url_rule(
            path, endpoint=path, view_func=view, methods=[method], provide_automatic_options=False
        )
    app.register_error_handler(werkzeug.exceptions.HTTPException, _http_error)
    app.register_error_handler(authz.UnauthenticatedError, functools.partial(_refused, 401))
    app.register_error_handler(authz.NotAuthorizedError, functools.partial(_refused, 403))
    return app


def _ready(access: AppAccess) -> ResponseReturnValue:
    return ("ok", 200) if access.is_ready() else ("not filled yet, or about to end", 503)


def _metrics(access: AppAccess) -> ResponseReturnValue:
    access.may_scrape(flask.request.headers.get("Authorization", ""))
    return flask.Response(kube_metrics.page(), content_type=kube_metrics.CONTENT_TYPE)


def _at_secret_path(
    secret_path: Callable[[], str], view: Callable[[], ResponseReturnValue], segment: str
) -> ResponseReturnValue:
    """Answer who knows the path; to all others there is nothing here."""
    wanted = secret_path()
    if not wanted or not hmac.compare_digest(wanted.encode(), segment.encode()):
        raise werkzeug.exceptions.NotFound
    return view()


def _refused(code: int, error: Exception) -> ResponseReturnValue:
    return flask.jsonify({"message": str(error)}), code


def _http_error(error: werkzeug.exceptions.HTTPException) -> ResponseReturnValue:
    return flask.jsonify({"message": error.description or error.name}), error.code or 500


# The reviews: one Flask view for each path --------------------------------------------------------

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
logger = logging.getLogger(__name__)


class Reviews:
    """The view of one path; ``is_caller`` is asked about the certificate of the one who comes."""

    def __init__(
        self,
        path: str,
        handler: WebhookHandler,
        *,
        is_caller: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> None:
        self._handler = handler
        self._counts = Reviewed(path)
        self._is_caller = is_caller

    def __call__(self) -> flask.Response:
        environ = flask.request.environ
        if self._is_caller is not None and not self._is_caller(environ.get(CERTIFICATE) or {}):
            return _message(401, "only API servers are answered, by their certificate")
        if not _is_json(environ.get("CONTENT_TYPE", "")) or "HTTP_CONTENT_ENCODING" in environ:
            return _message(415, "send application/json, not encoded")
        body = _body(environ)
        began = float(environ.get(ARRIVED) or time.monotonic())
        left_s = _budget_of(environ["QUERY_STRING"]) - (time.monotonic() - began)
        if left_s <= 0:
            self._counts.shed("queue")
            return _message(503, "the webhook has too much to do: try again")
        answer = _review(self._handler, self._counts, body, left_s)
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


def _review(
    handler: WebhookHandler, counts: Reviewed, body: bytes, left_s: float
) -> flask.Response:
    """Return the answer to a review; an unforeseen exception is answered as 500."""
    try:
        answer = admission.answer(admission.parse(body, budget_s=left_s), handler)
    except MalformedError as error:
        counts.of("malformed", "BadRequest")
        return _response(400, admission.malformed(error))
    except KubeError as error:
        if isinstance(error, NotReachableError):
            counts.shed("lookup")
        else:
            counts.of("unavailable", "lookup")
        reason = {"reason": str(error)}
        logger.warning("Looking up what a review needs did not succeed", extra=reason)
        silent = "the API server did not tell the webhook in time what it needs to judge: try again"
        return _message(503, silent)
    except Exception:
        counts.of("error", "InternalError")
        logger.exception("Judging a review did not succeed")
        return _message(500, "the webhook could not judge this: its log says why")
    _record(counts, answer["response"])
    return _response(200, answer)


def _message(status: int, message: str) -> flask.Response:
    return _response(status, {"message": message})


def _response(status: int, body: Object) -> flask.Response:
    return flask.Response(msgspec.json.encode(body), status, content_type="application/json")


def _record(counts: Reviewed, response: Object) -> None:
    changed = "changed" if "patch" in response else "allowed"
    verdict = changed if response["allowed"] else "denied"
    why = response["auditAnnotations"]["verdict"].partition(":")[0]
    counts.of(verdict, why if response["allowed"] else response["status"]["reason"])
    level = logging.INFO if verdict == "denied" else logging.DEBUG
    if logger.isEnabledFor(level):
        logger.log(level, "Answered review", extra={"uid": response["uid"], "verdict": verdict})
