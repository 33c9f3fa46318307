"""The paths, over Flask's test client. Source: docs/parity.md A-1 to A-13; § 3.1-3.2."""

import functools
import gc
import inspect
import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonpatch
import pytest
from flask.testing import FlaskClient

from apis import keys
from apis.objects import Key, Kind, Object, annotations, named
from apis.validation import DeniedError
from kube.authz import NotAuthorizedError, UnauthenticatedError
from kube.errors import NotReachableError
from tests import factories
from tests.webhook.reviews import Known, body, labelled_namespace, offloading, patch_of, review
from webhook import app, handlers, webhooks, worker
from webhook.admission import Admitted, Lookup, Request
from webhook.rules import namespaceoffloadings, peering, pods, shadowpods, virtualnodes

VALIDATE = "/validate/namespace-offloading"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "web-"},
    "spec": {"containers": [{"name": "main", "image": "nginx", "fromTheFuture": 1}]},
}
DOWN = NotReachableError("no answer in time")


def test_each_webhook_of_the_table_has_a_handler() -> None:
    judged = app.webhook_handlers(Known(), lambda *_: None)

    assert set(judged) == {row.path for row in webhooks.WEBHOOKS}


def test_each_handler_has_a_webhook_in_the_table() -> None:
    modules = [handlers, peering, namespaceoffloadings, pods, shadowpods, virtualnodes]
    found = {
        f"{module.__name__}:{name}"
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
        if next(iter(inspect.signature(function).parameters), "") == "request"
    }

    assert found == {row.handler for row in webhooks.WEBHOOKS}


def keep_names_short(request: Request, lookup: Lookup) -> Admitted:
    namespace = lookup.get(keys.NAMESPACE, Key("", request.namespace)) or {}
    if len(request.name) > int(annotations(namespace)["longest"]):
        raise DeniedError("metadata.name is too long: choose a shorter one")
    return Admitted()


def test_a_row_and_a_function_are_a_new_rule() -> None:
    row = webhooks.Row(
        "short.validate.example.com",
        "/validate/short",
        keys.CONFIG_MAP,
        frozenset({"CREATE"}),
        f"{__name__}:keep_names_short",
    )
    shop = named(keys.NAMESPACE, Key("", "shop"), metadata={"annotations": {"longest": "3"}})
    served = app.webhook_handlers(Known((keys.NAMESPACE, shop)), rows=[row])
    client = app.create_app(served).test_client()

    def is_allowed(name: str) -> bool:
        sent = body({"metadata": {"name": name}}, kind=keys.CONFIG_MAP, name=name)
        found = client.post(row.path, data=sent, content_type="application/json").get_json()
        return bool(found["response"]["allowed"])

    assert app.waits(served, row.path, b"")
    assert is_allowed("web")
    assert not is_allowed("webs")


def client(known: Known) -> FlaskClient:
    return app.create_app(app.webhook_handlers(known)).test_client()


def post(known: Known, path: str, sent: bytes, **kwargs: Any) -> Any:
    return client(known).post(path, data=sent, content_type="application/json", **kwargs)


def answer(known: Known, path: str, obj: Object | None = POD, **kwargs: Any) -> Object:
    found = post(known, path, body(obj, **kwargs))
    assert found.status_code == 200
    verdict: Object = found.get_json()
    return verdict


OFFLOADED = Known((keys.NAMESPACE_OFFLOADING, offloading(podOffloadingStrategy="Remote")))


def test_a_pod_is_changed_where_its_namespace_is_offloaded() -> None:
    found = answer(OFFLOADED, "/mutate/pod")

    changed = jsonpatch.apply_patch(POD, patch_of(found))
    assert changed["spec"]["tolerations"][0]["key"] == "virtual-node.liqo.io/not-allowed"
    assert changed["spec"]["containers"] == POD["spec"]["containers"]  # type: ignore[index]  # JSON
    assert found["response"]["auditAnnotations"] == {"verdict": "offloaded: Remote"}


def test_a_labelled_namespace_without_offloading_is_refused_early_with_the_cure() -> None:
    found = answer(Known((keys.NAMESPACE, labelled_namespace("shop"))), "/mutate/pod")["response"]

    assert found["allowed"] is False
    assert found["status"]["code"] == 500
    for part in (
        "namespace shop",
        "create or correct",
        "remove the label, also from the manifest",
        "try again",
    ):
        assert part in found["status"]["message"]


def test_a_pod_outside_is_untouched() -> None:
    known = Known((keys.NAMESPACE, labelled_namespace("shop", is_labelled=False)))

    found = answer(known, "/mutate/pod")["response"]

    assert found["allowed"] is True
    assert "patch" not in found


def test_an_offloading_that_ends_places_no_pod_any_more() -> None:
    ending = offloading(podOffloadingStrategy="Remote")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    known = Known((keys.NAMESPACE_OFFLOADING, ending), (keys.NAMESPACE, labelled_namespace("shop")))

    found = answer(known, "/mutate/pod")["response"]

    assert found["allowed"] is False
    assert "is being deleted" in found["status"]["message"]


@pytest.mark.parametrize("path", ["/mutate/pod", VALIDATE])
def test_a_lookup_that_failed_is_no_answer(path: str) -> None:
    kind = keys.NAMESPACE_OFFLOADING if path == VALIDATE else keys.POD
    obj = offloading() if path == VALIDATE else POD

    found = post(Known(error=DOWN), path, body(obj, kind=kind))

    assert found.status_code == 503
    assert "try again" in found.get_json()["message"]


def test_an_offloading_that_cannot_be_read() -> None:
    known = Known((keys.NAMESPACE_OFFLOADING, offloading(podOffloadingStrategy="Nowhere")))

    assert answer(known, "/mutate/pod")["response"]["allowed"] is False


def test_the_namespace_is_that_of_the_request() -> None:
    elsewhere = {**POD, "metadata": {"name": "web", "namespace": ""}}

    assert patch_of(answer(OFFLOADED, "/mutate/pod", elsewhere))


def test_validation_knows_the_cluster_and_the_others() -> None:
    config = {
        "metadata": {"namespace": "liqo", "name": "clusterid-configmap"},
        "data": {"CLUSTER_ID": "rome"},
    }
    known = Known((keys.CONFIG_MAP, config), (keys.NAMESPACE_OFFLOADING, offloading("b")))
    wanted = offloading(namespaceMappingStrategy="SelectedName", remoteNamespaceName="b-rome")

    found = answer(known, VALIDATE, wanted, kind=keys.NAMESPACE_OFFLOADING)["response"]

    assert found["allowed"] is False
    assert "already that of b" in found["status"]["message"]


def test_an_update_is_judged_against_the_old_object() -> None:
    found = answer(
        Known(error=DOWN),
        VALIDATE,
        offloading(podOffloadingStrategy="Remote"),
        kind=keys.NAMESPACE_OFFLOADING,
        operation="UPDATE",
        oldObject=offloading(),
    )["response"]

    assert found["allowed"] is True
    assert "not evicted" in found["warnings"][0]


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8"])
def test_json_is_taken(content_type: str) -> None:
    sent = client(OFFLOADED).post("/mutate/pod", data=body(POD), content_type=content_type)

    assert sent.status_code == 200


@pytest.mark.parametrize("content_type", ["text/plain", "application/yaml", "", "x"])
def test_another_type_is_415(content_type: str) -> None:
    sent = client(OFFLOADED).post("/mutate/pod", data=body(POD), content_type=content_type)

    assert sent.status_code == 415


def test_an_encoded_body_is_415() -> None:
    assert (
        post(OFFLOADED, "/mutate/pod", b"", headers={"Content-Encoding": "gzip"}).status_code == 415
    )


@pytest.mark.parametrize("method", ["get", "put", "delete", "patch"])
def test_another_method_is_405(method: str) -> None:
    assert getattr(client(OFFLOADED), method)("/mutate/pod").status_code == 405


@pytest.mark.parametrize("path", ["/mutate/pod/", "/mutate", "/mutate/pods", "//mutate/pod", "/"])
def test_another_path_is_404_and_nothing_is_redirected(path: str) -> None:
    assert post(OFFLOADED, path, body(POD)).status_code == 404


def test_seven_megabytes_pass_and_more_are_413() -> None:
    empty = len(body({**POD, "padding": ""}))
    fits = body({**POD, "padding": "x" * (app.MAX_BODY - empty)})

    assert post(OFFLOADED, "/mutate/pod", fits).status_code == 200
    assert post(OFFLOADED, "/mutate/pod", fits + b" ").status_code == 413


def test_what_is_malformed_is_400_with_the_uid() -> None:
    found = post(OFFLOADED, "/mutate/pod", body(POD, operation=5))

    assert found.status_code == 400
    assert found.get_json()["response"]["uid"] == review(POD)["request"]["uid"]


@pytest.mark.parametrize("spec", [None, [], "x", {"tolerations": {}}, {"affinity": 1}])
def test_a_pod_of_another_shape_is_400(spec: Any) -> None:
    assert post(OFFLOADED, "/mutate/pod", body({**POD, "spec": spec})).status_code == 400


def test_probes() -> None:
    is_ready = [False]
    access = app.AppAccess(is_ready=lambda: is_ready[0])
    probed = app.create_app(app.webhook_handlers(OFFLOADED), access=access)

    assert probed.test_client().get("/healthz").status_code == 200
    assert probed.test_client().get("/readyz").status_code == 503
    is_ready[0] = True
    assert probed.test_client().get("/readyz").status_code == 200


def metric_value(metric: str, *labels: str) -> float:
    text = client(OFFLOADED).get("/metrics").get_data(as_text=True)
    found = [
        line
        for line in text.splitlines()
        if line.startswith(f"{metric}{{") and all(f'="{label}"' in line for label in labels)
    ]
    return sum(float(line.rpartition(" ")[2]) for line in found)


REVIEWS = "pyliqo_webhook_reviews_total"


def test_verdicts_are_counted_with_the_class_of_their_reason() -> None:
    changed = (REVIEWS, "/mutate/pod", "changed", "offloaded")
    refused = (REVIEWS, "/mutate/pod", "denied", "InternalError")
    seconds = ("pyliqo_webhook_review_seconds_count", "/mutate/pod")
    before = [metric_value(*each) for each in (changed, refused, seconds)]

    answer(OFFLOADED, "/mutate/pod")
    answer(Known((keys.NAMESPACE, labelled_namespace("shop"))), "/mutate/pod")

    after = [metric_value(*each) for each in (changed, refused, seconds)]
    assert after == [before[0] + 1, before[1] + 1, before[2] + 2]


def came(waited_s: float = 0, *, name: str = "") -> Object:
    """Return how a review came: some time ago, from somebody with a certificate."""
    certificate = {"subject": ((("commonName", name),),)} if name else None
    return {app.ARRIVED: time.monotonic() - waited_s, app.CERTIFICATE: certificate}


def post_over(served: Any, how: Object, path: str = "/mutate/pod?timeout=3s") -> Any:
    return served.test_client().post(
        path, data=body(POD), content_type="application/json", environ_overrides=how
    )


def test_a_review_that_waited_too_long_for_a_thread_is_shed() -> None:
    known = Known((keys.NAMESPACE_OFFLOADING, offloading(podOffloadingStrategy="Remote")))
    served = app.create_app(app.webhook_handlers(known))
    before = metric_value("pyliqo_webhook_reviews_shed_total", "/mutate/pod", "queue")

    found = post_over(served, came(waited_s=2.4))

    assert found.status_code == 503
    assert "try again" in found.get_json()["message"]
    assert known.asked == []
    assert metric_value("pyliqo_webhook_reviews_shed_total", "/mutate/pod", "queue") == before + 1


def test_the_wait_for_a_thread_counts_as_time_for_the_answer() -> None:
    known = Known((keys.NAMESPACE_OFFLOADING, offloading(podOffloadingStrategy="Remote")))
    given: list[float] = []

    class Noting(Known):
        def within(self, seconds: float) -> Known:
            given.append(seconds)
            return known

    served = app.create_app(app.webhook_handlers(Noting()))

    assert post_over(served, came(2)).status_code == 200
    assert 0 < given[0] <= 0.4


def test_a_lookup_that_took_too_long_is_shed() -> None:
    before = metric_value("pyliqo_webhook_reviews_shed_total", "/mutate/pod", "lookup")

    post(Known(error=DOWN), "/mutate/pod", body(POD))

    assert metric_value("pyliqo_webhook_reviews_shed_total", "/mutate/pod", "lookup") == before + 1


@pytest.mark.parametrize(
    ("names", "name", "status"),
    [
        (frozenset(), "kube-apiserver", 200),
        (frozenset(), "", 401),
        (frozenset({"kube-apiserver"}), "kube-apiserver", 200),
        (frozenset({"kube-apiserver"}), "somebody", 401),
        (frozenset({"kube-apiserver"}), "", 401),
    ],
)
def test_with_client_authentication_others_get_401(
    names: frozenset[str], name: str, status: int
) -> None:
    access = app.AppAccess(is_caller=functools.partial(worker.is_one_of, names))
    served = app.create_app(app.webhook_handlers(OFFLOADED), access=access)

    assert post_over(served, came(name=name)).status_code == status
    assert served.test_client().get("/readyz").status_code == 200
    assert served.test_client().get("/healthz").status_code == 200
    assert served.test_client().post("/mutate/pod", data=b"").status_code == 401


@pytest.mark.parametrize(
    ("error", "status"),
    [(None, 200), (UnauthenticatedError("no token"), 401), (NotAuthorizedError("no right"), 403)],
)
def test_metrics_are_for_those_who_may(error: Exception | None, status: int) -> None:
    def may_scrape(authorization: str) -> None:
        assert authorization == "Bearer x"
        if error:
            raise error

    access = app.AppAccess(may_scrape=may_scrape)
    served = app.create_app(app.webhook_handlers(OFFLOADED), access=access).test_client()

    found = served.get("/metrics", headers={"Authorization": "Bearer x"})

    assert found.status_code == status
    assert (b"pyliqo_webhook_reviews" in found.data) == (status == 200)


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        ("10s", 8),
        ("1s", 0.8),
        ("500ms", 0.4),
        ("1m0s", 24),
        ("2.5s", 2),
        (None, 8),
        ("", 8),
        ("soon", 8),
        ("0s", 8),
        ("-5s", 8),
        ("9" * 50 + "s", 8),
    ],
)
def test_the_answer_takes_less_than_the_api_server_waits(
    timeout: str | None, seconds: float
) -> None:
    assert app.budget_s(timeout) == pytest.approx(seconds)


def test_parallel_reviews_get_the_verdicts_of_serial_ones() -> None:
    known = Known(
        (keys.NAMESPACE_OFFLOADING, offloading("remote", podOffloadingStrategy="Remote")),
        (keys.NAMESPACE_OFFLOADING, offloading("local", podOffloadingStrategy="Local")),
        (keys.NAMESPACE, labelled_namespace("labelled")),
    )
    served = app.create_app(app.webhook_handlers(known))
    namespaces = ["remote", "local", "labelled", "other"] * 500

    def verdict(name: str) -> str:
        sent = served.test_client().post("/mutate/pod", json=review(POD, namespace=name, uid=name))
        return json.dumps(sent.get_json(), sort_keys=True)

    with ThreadPoolExecutor(8) as threads:
        parallel = list(threads.map(verdict, namespaces))

    serial = {name: verdict(name) for name in set(namespaces)}
    assert parallel == [serial[name] for name in namespaces]


# What a change of strategy says -------------------------------------------------------------------


def on(node: str, name: str, namespace: str = "shop", **rest: Any) -> tuple[Kind, Object]:
    return keys.POD, factories.pod(namespace, name, spec={"nodeName": node}, **rest)


DAEMON = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
MILAN = named(
    keys.NODE, Key("", "milan"), metadata={"labels": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}}
)
RUNNING = (
    (keys.NODE, MILAN),
    on("worker", "a"),
    on("worker", "b"),
    on("milan", "c"),
    on("worker", "d", metadata={"ownerReferences": [DAEMON]}),
    on("worker", "e", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    on("worker", "f", namespace="elsewhere"),
    on("", "g"),
)


@factories.cases("old, new, told")
def test_a_change_of_strategy_counts_the_pods_that_violate_it(
    old: str, new: str, told: str
) -> None:
    found = answer(
        Known(*RUNNING),
        VALIDATE,
        offloading(podOffloadingStrategy=new),
        kind=keys.NAMESPACE_OFFLOADING,
        operation="UPDATE",
        oldObject=offloading(podOffloadingStrategy=old),
    )["response"]

    warnings = found.get("warnings", [])
    assert [told in text for text in warnings] == ([True] if told else [])


def test_of_50_namespaces_and_their_pods_nothing_stays() -> None:
    lives = 50
    known = Known((keys.NAMESPACE_OFFLOADING, offloading(podOffloadingStrategy="Remote")))
    asked = client(known)

    def live(numbers: range) -> Counter[type]:
        for number in numbers:
            pod = {**POD, "metadata": {"name": f"web-{number}"}}
            for path in ("/mutate/pod", "/validate/pod"):
                sent = body(pod, namespace=f"shop-{number}")
                assert asked.post(path, data=sent, content_type="application/json").is_json
        known.asked.clear()
        gc.collect()
        return Counter(map(type, gc.get_objects()))

    live(range(1))  # counting leaves something, too, once
    before = live(range(lives))
    after = live(range(lives, 2 * lives))

    assert {kind: more for kind in after if (more := after[kind] - before[kind]) >= lives} == {}
