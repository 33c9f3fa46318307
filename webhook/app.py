"""The WSGI app: a route for each webhook, for probes and for metrics, and reviews as HTTP.

A refusal is an answer (HTTP 200, ``allowed: false``); a failure is a 4xx or 5xx, and what a failure
means is the failure policy of the webhook configuration.
"""

import contextlib
import functools
import hmac
import logging
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from wsgiref.types import WSGIEnvironment

import flask
import msgspec
import werkzeug.exceptions
from flask.sessions import NullSession, SessionInterface
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.http import parse_options_header
from werkzeug.routing import MapAdapter

from apis import keys, objects
from apis.objects import Object
from kube import authz
from kube import metrics as kube_metrics
from kube.errors import KubeError, NotReachableError
from webhook import admission, handlers, webhooks
from webhook.admission import Handler, MalformedError, WebhookHandler
from webhook.handlers import Labels, Lookup
from webhook.metrics import Reviewed


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


class ReviewResponse(flask.Response):
    """A response whose body is all there, and whose headers are right as they are."""

    automatically_set_content_length = False  # anybody who serves the app knows it

    def get_wsgi_response(
        self, _environ: WSGIEnvironment
    ) -> tuple[Iterable[bytes], str, list[tuple[str, str]]]:
        """Return body, status and headers."""
        return self.iter_encoded(), self.status, self.headers.to_wsgi_list()


class NoSession(SessionInterface):
    """Nobody who comes here is known by a cookie."""

    _NONE: Final = NullSession()

    def open_session(self, _app: flask.Flask, _request: flask.Request) -> NullSession:
        """Return the session of everybody, which cannot be written to."""
        return self._NONE


class App(flask.Flask):
    """A Flask app as lean as this one may be: no sessions, no hooks.

    What Flask looks for at each request, and never finds here, costs as much as a judgement.
    """

    response_class = ReviewResponse
    session_interface = NoSession()

    @functools.lru_cache(maxsize=64)  # noqa: B019  # there is one app
    def _at(self, method: str, path: str) -> MapAdapter:
        return self.url_map.bind("", path_info=path, default_method=method)

    def create_url_adapter(self, request: flask.Request | None) -> MapAdapter | None:
        """Return what finds the route: by method and path alone, since no host has others."""
        return None if request is None else self._at(request.method, request.path)

    def preprocess_request(self) -> None:
        """Do nothing: there are no hooks."""

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``func``: no view is a coroutine."""
        return func

    def do_teardown_request(self, _error: BaseException | None = None) -> None:
        """Do nothing: there are no hooks."""

    def do_teardown_appcontext(self, _error: BaseException | None = None) -> None:
        """Do nothing: there are no hooks."""

    def process_response(self, response: flask.Response) -> flask.Response:
        """Return ``response``: there are no hooks, and no session to save."""
        return response


def webhook_handlers(
    lookup: Lookup,
    label: Labels | None = None,
    *,
    is_enforced: bool = False,
) -> Mapping[str, WebhookHandler]:
    """Return who answers at which path; webhook configurations name these paths.

    Without ``label`` labelling namespaces is left to the controllers.
    """
    partial = functools.partial
    pod = partial(handlers.mutate_pod, lookup)
    final = partial(handlers.validate_pod, lookup)
    offloading = partial(handlers.validate_namespace_offloading, lookup)
    fill_shadow = partial(handlers.mutate_shadow_pod, is_enforced=is_enforced)
    shadow = partial(handlers.validate_shadow_pod, lookup, is_enforced=is_enforced)
    unknown = partial(handlers.needs_the_server, lookup)
    strange = partial(handlers.knows_no_twin, lookup)
    answers: dict[str, tuple[Handler, Callable[[str], bool]]] = {
        "/mutate/pod": (pod, unknown),
        "/mutate/pod/update": (partial(handlers.mutate_pod_update, lookup), unknown),
        "/mutate/daemonsets": (handlers.mutate_daemon_set, _never),
        "/mutate/foreign-cluster": (handlers.mutate_foreign_cluster, _never),
        "/mutate/resourceslices": (handlers.mutate_resource_slice, _never),
        "/mutate/shadowpods": (fill_shadow, _never),
        "/mutate/tenants": (handlers.mutate_tenant, _never),
        "/mutate/virtualnodes": (partial(handlers.mutate_virtual_node, lookup), _always),
        "/validate/namespace-offloading": (offloading, _always),
        "/validate/pod": (final, unknown),
        "/validate/pod/binding": (
            partial(handlers.validate_binding, lookup),
            _always,
        ),
        "/validate/pod/connection": (partial(handlers.validate_pod_connection, lookup), _always),
        "/validate/resourceslices": (partial(handlers.validate_resource_slice, lookup), _always),
        "/validate/shadowpods": (shadow, strange),
        "/validate/tenants": (partial(handlers.validate_tenant, lookup), _always),
        "/validate/virtualnodes": (partial(handlers.validate_virtual_node, lookup), _always),
    }
    for path, kind in webhooks.ORDERED.items():
        answers[path] = partial(handlers.mutate_annotations, lookup, kind), strange
    if label is not None:
        answers[keys.LABELLING_PATH] = partial(handlers.label_namespace, lookup, label), _always
    return {path: _judge(webhooks.of_path(path), *how) for path, how in answers.items()}


def _judge(row: webhooks.Row, handler: Handler, waits: Callable[[str], bool]) -> WebhookHandler:
    return WebhookHandler(row.kind, row.operations, handler, row.subresources, waits)


def _always(_namespace: str) -> bool:
    return True


def _never(_namespace: str) -> bool:
    return False


def waits(judged: Mapping[str, WebhookHandler], path: str, body: bytes) -> bool:
    """Whether the answer at ``path`` mostly takes until an API server has answered."""
    judge = judged.get(path) or judged.get(path.rpartition("/")[0])
    return (
        path == authz.METRICS_PATH if judge is None else judge.waits(admission.namespace_in(body))
    )


def create_app(
    judged: Mapping[str, WebhookHandler],
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
            path: ("POST", Reviews(path, judge, is_caller=access.is_caller))
            for path, judge in judged.items()
        },
    }
    _, labelling = routes.pop(keys.LABELLING_PATH, ("", None))
    if labelling is not None:
        behind = functools.partial(_behind, access.secret_path, labelling)
        routes[f"{keys.LABELLING_PATH}/<segment>"] = ("POST", behind)
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


def _behind(
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
_JSON: Final = (("Content-Type", "application/json"),)
logger = logging.getLogger(__name__)


class Reviews:
    """The view of one path; ``is_caller`` is asked about the certificate of the one who comes."""

    def __init__(
        self,
        path: str,
        judge: WebhookHandler,
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


def _judged(judge: WebhookHandler, counts: Reviewed, body: bytes, left_s: float) -> flask.Response:
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
    return ReviewResponse([msgspec.json.encode(body)], status, _JSON)


def _record(counts: Reviewed, response: Object) -> None:
    changed = "changed" if "patch" in response else "allowed"
    verdict = changed if response["allowed"] else "denied"
    why = response["auditAnnotations"]["verdict"].partition(":")[0]
    counts.of(verdict, why if response["allowed"] else response["status"]["reason"])
    level = logging.INFO if verdict == "denied" else logging.DEBUG
    if logger.isEnabledFor(level):
        logger.log(level, "Answered review", extra={"uid": response["uid"], "verdict": verdict})
