"""The WSGI app: a table of paths, one view, and what goes wrong around it, said as HTTP.

A refusal is an answer (HTTP 200, ``allowed: false``); a failure is a 4xx or 5xx, and what a failure
means is the failure policy of the webhook configuration.
"""

import functools
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import flask
import werkzeug.exceptions
from flask.typing import ResponseReturnValue

from apis import keys
from apis.objects import Object
from kube import gate
from kube import metrics as kube_metrics
from kube.errors import KubeError, NotReachableError
from webhook import admission, handlers, metrics
from webhook.admission import Judge, MalformedError
from webhook.handlers import Lookup

MAX_BODY: Final = 7 * 2**20
"""Two objects of 3 MB and 1 MB around them, as in controller-runtime."""
DEFAULT_TIMEOUT_S: Final = 10.0
MAX_TIMEOUT_S: Final = 30.0
SHARE: Final = 0.8
"""Of the API server's patience: what is left pays for the way there and back."""

_DURATION: Final = re.compile(
    r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,9})ms)?"
)
logger = logging.getLogger(__name__)


def judges(lookup: Lookup, *, runtime_class: str, is_enforced: bool = False) -> Mapping[str, Judge]:
    """Return who answers at which path; webhook configurations name these paths."""
    partial = functools.partial
    create = frozenset({"CREATE"})
    update = frozenset({"UPDATE"})
    both = create | update
    pod = partial(handlers.mutate_pod, lookup, runtime_class)
    early = partial(handlers.mutate_pod_early, lookup, runtime_class)
    final = partial(handlers.validate_pod, lookup, runtime_class)
    changed = partial(handlers.validate_pod_update, lookup, runtime_class)
    binding = partial(handlers.validate_binding, lookup, runtime_class)
    offloading = partial(handlers.validate_namespace_offloading, lookup, runtime_class)
    fill_node = partial(handlers.mutate_virtual_node, lookup)
    node = partial(handlers.validate_virtual_node, lookup)
    tenant = partial(handlers.validate_tenant, lookup)
    resource_slice = partial(handlers.validate_resource_slice, lookup)
    fill_shadow = partial(handlers.mutate_shadow_pod, is_enforced=is_enforced)
    shadow = partial(handlers.validate_shadow_pod, lookup, is_enforced=is_enforced)
    return {
        "/mutate/pod": Judge(keys.POD, create, pod),
        "/mutate/pod/early": Judge(keys.POD, create, early),
        "/mutate/foreign-cluster": Judge(
            keys.FOREIGN_CLUSTER, both, handlers.mutate_foreign_cluster
        ),
        "/mutate/shadowpods": Judge(keys.SHADOW_POD, create, fill_shadow),
        "/mutate/tenants": Judge(keys.TENANT, both, handlers.mutate_tenant),
        "/mutate/virtualnodes": Judge(keys.VIRTUAL_NODE, create, fill_node),
        "/validate/namespace-offloading": Judge(keys.NAMESPACE_OFFLOADING, both, offloading),
        "/validate/pod": Judge(keys.POD, create, final),
        "/validate/pod/update": Judge(keys.POD, update, changed),
        "/validate/pod/binding": Judge(keys.POD, create, binding, "binding"),
        **{
            f"/validate/pod/{part}": Judge(keys.POD, update, handlers.validate_pod_change, part)
            for part in ("ephemeralcontainers", "resize")
        },
        "/validate/resourceslices": Judge(keys.RESOURCE_SLICE, both, resource_slice),
        "/validate/shadowpods": Judge(keys.SHADOW_POD, both, shadow),
        "/validate/tenants": Judge(keys.TENANT, both, tenant),
        "/validate/virtualnodes": Judge(keys.VIRTUAL_NODE, both, node),
    }


@dataclass(frozen=True)
class Doors:
    """Who may come in where, and whether anybody should."""

    is_ready: Callable[[], bool] = lambda: True
    may_scrape: Callable[[str], None] = lambda _authorization: None
    """Raises UnauthenticatedError or DeniedError for who may not read the metrics."""
    callers: Callable[[Mapping[str, Any]], bool] | None = None
    """Whether a client certificate is an API server's; None asks for none."""


def create_app(
    lookup: Lookup,
    *,
    runtime_class: str,
    is_enforced: bool = False,
    doors: Doors = Doors(),  # frozen
) -> flask.Flask:
    """Build the WSGI app; everything it touches comes in as an argument."""
    app = flask.Flask("webhook", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    table = judges(lookup, runtime_class=runtime_class, is_enforced=is_enforced)
    for path, judge in table.items():
        view = functools.partial(_answer, path, judge, doors)
        app.add_url_rule(path, endpoint=path, view_func=view, methods=["POST"])
    app.add_url_rule("/healthz", endpoint="healthz", view_func=lambda: "ok")
    app.add_url_rule("/readyz", endpoint="readyz", view_func=functools.partial(_ready, doors))
    app.add_url_rule("/metrics", endpoint="metrics", view_func=functools.partial(_metrics, doors))
    app.register_error_handler(werkzeug.exceptions.HTTPException, _http_error)
    app.register_error_handler(MalformedError, _malformed)
    app.register_error_handler(KubeError, _unavailable)
    app.register_error_handler(gate.UnauthenticatedError, functools.partial(_refused, 401))
    app.register_error_handler(gate.DeniedError, functools.partial(_refused, 403))
    return app


def budget_s(timeout: str | None) -> float:
    """Return the seconds that an answer may take, by the ``timeout`` of the request's URL.

    Shape: a duration as Go prints it, ``10s`` or ``1m0s``; anything else counts as 10 s.
    """
    found = _DURATION.fullmatch(timeout or "")
    parts = [float(part or 0) for part in found.groups()] if found else []
    seconds = sum(part * unit for part, unit in zip(parts, (3600, 60, 1, 0.001), strict=False))
    return SHARE * min(seconds or DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S)


def _answer(path: str, judge: Judge, doors: Doors) -> ResponseReturnValue:
    request = flask.request
    if doors.callers is not None and not doors.callers(_certificate()):
        raise gate.UnauthenticatedError("only API servers are answered, by their certificate")
    if request.mimetype != "application/json" or request.content_encoding:
        raise werkzeug.exceptions.UnsupportedMediaType("send application/json, not encoded")
    body = request.get_data(cache=False)
    if request.content_length is None and len(body) >= MAX_BODY:  # chunked, and cut off there
        raise werkzeug.exceptions.RequestEntityTooLarge
    arrived = _arrived()
    left_s = budget_s(request.args.get("timeout")) - (time.monotonic() - arrived)
    if left_s <= 0:
        return _shed(path)
    try:
        answer = admission.review(body, judge, budget_s=left_s)
    finally:
        metrics.REVIEW_SECONDS.labels(path).observe(time.monotonic() - arrived)
    _record(path, answer["response"])
    return flask.jsonify(answer)


def _arrived() -> float:
    """Return when the request came, which may be long before a thread had time for it."""
    return float(getattr(_socket(), "arrived", 0) or time.monotonic())


def _certificate() -> Mapping[str, Any]:
    """Return the client's certificate, verified in the handshake; {} without one."""
    found: Mapping[str, Any] | None = getattr(_socket(), "getpeercert", dict)()
    return found or {}


def _socket() -> Any:
    return flask.request.environ.get("gunicorn.socket")


def _shed(path: str) -> ResponseReturnValue:
    metrics.REVIEWS.labels(path, "unavailable", "queue").inc()
    metrics.SHED.labels(path, "queue").inc()
    return flask.jsonify({"message": "the webhook has too much to do: try again"}), 503


def _record(path: str, response: Object) -> None:
    changed = "changed" if "patch" in response else "allowed"
    verdict = changed if response["allowed"] else "denied"
    why = response["auditAnnotations"]["verdict"].partition(":")[0]
    reason = why if response["allowed"] else response["status"]["reason"]
    metrics.REVIEWS.labels(path, verdict, reason).inc()
    level = logging.DEBUG if verdict == "allowed" else logging.INFO
    logger.log(level, "Answered review", extra={"uid": response["uid"], "verdict": verdict})


def _ready(doors: Doors) -> ResponseReturnValue:
    return ("ok", 200) if doors.is_ready() else ("not filled yet, or about to end", 503)


def _metrics(doors: Doors) -> ResponseReturnValue:
    doors.may_scrape(flask.request.headers.get("Authorization", ""))
    return flask.Response(kube_metrics.page(), content_type=kube_metrics.CONTENT_TYPE)


def _malformed(error: MalformedError) -> ResponseReturnValue:
    metrics.REVIEWS.labels(flask.request.path, "malformed", "BadRequest").inc()
    return flask.jsonify(admission.malformed(error)), 400


def _unavailable(error: KubeError) -> ResponseReturnValue:
    metrics.REVIEWS.labels(flask.request.path, "unavailable", "lookup").inc()
    if isinstance(error, NotReachableError):
        metrics.SHED.labels(flask.request.path, "lookup").inc()
    logger.warning("Looking up what a review needs did not succeed", extra={"reason": str(error)})
    message = "the API server did not tell the webhook in time what it needs to judge: try again"
    return flask.jsonify({"message": message}), 503


def _refused(code: int, error: Exception) -> ResponseReturnValue:
    return flask.jsonify({"message": str(error)}), code


def _http_error(error: werkzeug.exceptions.HTTPException) -> ResponseReturnValue:
    if isinstance(error, werkzeug.exceptions.InternalServerError):
        metrics.REVIEWS.labels(_known_path(), "error", "InternalError").inc()
    return flask.jsonify({"message": error.description or error.name}), error.code or 500


def _known_path() -> str:
    rule = flask.request.url_rule
    return rule.rule if rule else "other"
