"""The WSGI app: the table of paths and judges, probes and metrics."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import flask
import werkzeug.exceptions
from flask.typing import ResponseReturnValue

from apis import keys
from kube import gate
from kube import metrics as kube_metrics
from webhook import handlers
from webhook.admission import Judge
from webhook.handlers import Lookup
from webhook.reviews import Reviews


@dataclass(frozen=True)
class Doors:
    """Who may come in where, and whether anybody should."""

    is_ready: Callable[[], bool] = lambda: True
    may_scrape: Callable[[str], None] = lambda _authorization: None
    """Raises UnauthenticatedError or DeniedError for who may not read the metrics."""
    is_caller: Callable[[Mapping[str, Any]], bool] | None = None
    """Whether a client certificate is an API server's; None asks for none."""


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
    connection = partial(handlers.validate_pod_connection, lookup)
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
        "/validate/pod/binding": Judge(keys.POD, create, binding, ("binding",)),
        "/validate/pod/connection": Judge(
            keys.POD, frozenset({"CONNECT"}), connection, ("attach", "exec", "portforward")
        ),
        "/validate/resourceslices": Judge(keys.RESOURCE_SLICE, both, resource_slice),
        "/validate/shadowpods": Judge(keys.SHADOW_POD, both, shadow),
        "/validate/tenants": Judge(keys.TENANT, both, tenant),
        "/validate/virtualnodes": Judge(keys.VIRTUAL_NODE, both, node),
    }


def create_app(
    lookup: Lookup,
    *,
    runtime_class: str,
    is_enforced: bool = False,
    doors: Doors = Doors(),  # frozen
) -> flask.Flask:
    """Build the WSGI app; everything it touches comes in as an argument."""
    app = flask.Flask("webhook", static_folder=None)
    table = judges(lookup, runtime_class=runtime_class, is_enforced=is_enforced)
    app.add_url_rule("/healthz", endpoint="healthz", view_func=lambda: "ok")
    app.add_url_rule("/readyz", endpoint="readyz", view_func=functools.partial(_ready, doors))
    app.add_url_rule("/metrics", endpoint="metrics", view_func=functools.partial(_metrics, doors))
    app.register_error_handler(werkzeug.exceptions.HTTPException, _http_error)
    app.register_error_handler(gate.UnauthenticatedError, functools.partial(_refused, 401))
    app.register_error_handler(gate.DeniedError, functools.partial(_refused, 403))
    reviews = Reviews(table, app.wsgi_app, is_caller=doors.is_caller)
    app.wsgi_app = reviews  # type: ignore[method-assign]  # as Flask documents
    return app


def _ready(doors: Doors) -> ResponseReturnValue:
    return ("ok", 200) if doors.is_ready() else ("not filled yet, or about to end", 503)


def _metrics(doors: Doors) -> ResponseReturnValue:
    doors.may_scrape(flask.request.headers.get("Authorization", ""))
    return flask.Response(kube_metrics.page(), content_type=kube_metrics.CONTENT_TYPE)


def _refused(code: int, error: Exception) -> ResponseReturnValue:
    return flask.jsonify({"message": str(error)}), code


def _http_error(error: werkzeug.exceptions.HTTPException) -> ResponseReturnValue:
    return flask.jsonify({"message": error.description or error.name}), error.code or 500
