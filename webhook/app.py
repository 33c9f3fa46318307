"""The WSGI app: the table of paths and judges, probes and metrics, each of them a route."""

import functools
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import flask
import werkzeug.exceptions
from flask.sessions import NullSession, SessionInterface
from flask.typing import ResponseReturnValue
from werkzeug.routing import MapAdapter

from apis import keys
from kube import authz
from kube import metrics as kube_metrics
from webhook import admission, handlers, table
from webhook.admission import Handler, Judge
from webhook.handlers import Labels, Lookup
from webhook.reviews import Answer, Reviews


@dataclass(frozen=True)
class Doors:
    """Who may come in where, and whether anybody should."""

    is_ready: Callable[[], bool] = lambda: True
    may_scrape: Callable[[str], None] = lambda _authorization: None
    """Raises UnauthenticatedError or NotAllowedError for who may not read the metrics."""
    is_caller: Callable[[Mapping[str, Any]], bool] | None = None
    """Whether a client certificate is an API server's; None asks for none."""
    door: Callable[[], str] = str
    """What ends the path of the one review that may write; empty lets nobody in."""


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

    response_class = Answer
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


def judges(
    lookup: Lookup,
    label: Labels | None = None,
    *,
    is_enforced: bool = False,
) -> Mapping[str, Judge]:
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
    for path, kind in table.ORDERED.items():
        answers[path] = partial(handlers.mutate_annotations, lookup, kind), strange
    if label is not None:
        answers[keys.LABELLING_PATH] = partial(handlers.label_namespace, lookup, label), _always
    return {path: _judge(table.of_path(path), *how) for path, how in answers.items()}


def _judge(row: table.Row, handler: Handler, waits: Callable[[str], bool]) -> Judge:
    return Judge(row.kind, row.operations, handler, row.subresources, waits)


def _always(_namespace: str) -> bool:
    return True


def _never(_namespace: str) -> bool:
    return False


def waits(judged: Mapping[str, Judge], path: str, body: bytes) -> bool:
    """Whether the answer at ``path`` mostly takes until an API server has answered."""
    judge = judged.get(path) or judged.get(path.rpartition("/")[0])
    return (
        path == authz.METRICS_PATH if judge is None else judge.waits(admission.namespace_in(body))
    )


def create_app(
    judged: Mapping[str, Judge],
    *,
    doors: Doors = Doors(),  # frozen
) -> flask.Flask:
    """Build the WSGI app; everything it touches comes in as an argument."""
    app = App("webhook", static_folder=None)
    app.url_map.merge_slashes = False  # nobody is sent elsewhere, as no host is known here
    routes: dict[str, tuple[str, Callable[..., ResponseReturnValue]]] = {
        "/healthz": ("GET", lambda: "ok"),
        "/readyz": ("GET", functools.partial(_ready, doors)),
        authz.METRICS_PATH: ("GET", functools.partial(_metrics, doors)),
        **{
            path: ("POST", Reviews(path, judge, is_caller=doors.is_caller))
            for path, judge in judged.items()
        },
    }
    _, labelling = routes.pop(keys.LABELLING_PATH, ("", None))
    if labelling is not None:
        behind = functools.partial(_behind, doors.door, labelling)
        routes[f"{keys.LABELLING_PATH}/<segment>"] = ("POST", behind)
    for path, (method, view) in routes.items():
        app.add_url_rule(
            path, endpoint=path, view_func=view, methods=[method], provide_automatic_options=False
        )
    app.register_error_handler(werkzeug.exceptions.HTTPException, _http_error)
    app.register_error_handler(authz.UnauthenticatedError, functools.partial(_refused, 401))
    app.register_error_handler(authz.NotAuthorizedError, functools.partial(_refused, 403))
    return app


def _ready(doors: Doors) -> ResponseReturnValue:
    return ("ok", 200) if doors.is_ready() else ("not filled yet, or about to end", 503)


def _metrics(doors: Doors) -> ResponseReturnValue:
    doors.may_scrape(flask.request.headers.get("Authorization", ""))
    return flask.Response(kube_metrics.page(), content_type=kube_metrics.CONTENT_TYPE)


def _behind(
    door: Callable[[], str], view: Callable[[], ResponseReturnValue], segment: str
) -> ResponseReturnValue:
    """Answer who knows the door; to all others there is nothing here."""
    wanted = door()
    if not wanted or not hmac.compare_digest(wanted.encode(), segment.encode()):
        raise werkzeug.exceptions.NotFound
    return view()


def _refused(code: int, error: Exception) -> ResponseReturnValue:
    return flask.jsonify({"message": str(error)}), code


def _http_error(error: werkzeug.exceptions.HTTPException) -> ResponseReturnValue:
    return flask.jsonify({"message": error.description or error.name}), error.code or 500
