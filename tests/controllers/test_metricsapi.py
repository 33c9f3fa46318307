"""No namespace waits for a metric agent that is away. Source: docs/decisions/0013 (29)."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from controllers.granting.metricsapi import forge
from controllers.granting.metricsapi.forge import Do, MetricsServiceState
from controllers.granting.metricsapi.reconciler import MetricsApiReconciler
from kube import client, clock, informer
from kube.client import ClusterClient
from sandbox.controlplane import Plane
from tests.controllers import whole
from tests.controllers.support import Told, end, ensure_namespace, manager_of
from tests.manifests import documents

NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
CONTAINER: Final = {"name": "main", "image": "none"}
AGENT: Final = Key(keys.LIQO_NAMESPACE, keys.METRIC_AGENT)
CLUSTER_ID: Final = Key(keys.LIQO_NAMESPACE, keys.CLUSTER_ID_CONFIG_MAP)


def service(status: str = "", since_s: float = 0, *, of: str = keys.METRIC_AGENT) -> Object:
    """Return the APIService, judged ``since_s`` seconds ago; without ``status`` not yet."""
    made = forge.wanted(keys.LIQO_NAMESPACE)
    made["metadata"]["creationTimestamp"] = objects.timestamp(NOW - timedelta(seconds=since_s))
    made["spec"]["service"]["name"] = of
    if status:
        since = NOW - timedelta(seconds=since_s)
        made["status"] = {
            "conditions": objects.set_condition(
                None, "Available", status, "NoAnswer", "timeout", since
            )
        }
    return made


def agent(available: int) -> Object:
    return named(keys.DEPLOYMENT, AGENT, status={"availableReplicas": available})


def after(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("found", "do", "again_s"),
    [
        pytest.param(
            MetricsServiceState(service("True", 90), agent(2), None), Do.NOTHING, None, id="answers"
        ),
        pytest.param(
            MetricsServiceState(service("True"), agent(2), after(-1)), Do.FORGET, None, id="again"
        ),
        pytest.param(
            MetricsServiceState(service("False", 10), agent(0), None),
            Do.NOTHING,
            20,
            id="just-away",
        ),
        pytest.param(
            MetricsServiceState(service("False", 30), agent(0), None), Do.REMOVE, None, id="away"
        ),
        pytest.param(
            MetricsServiceState(service("False", 31), agent(2), None),
            Do.REMOVE,
            None,
            id="firewall",
        ),
        pytest.param(
            MetricsServiceState(service("False", 31), None, None), Do.REMOVE, None, id="no-agent"
        ),
        pytest.param(
            MetricsServiceState(service("", 5), agent(0), None), Do.NOTHING, 25, id="not-judged-yet"
        ),
        pytest.param(
            MetricsServiceState(service("", 30), agent(0), None), Do.REMOVE, None, id="never-judged"
        ),
        pytest.param(
            MetricsServiceState(service("False", 99, of="x"), agent(0), None),
            Do.NOTHING,
            None,
            id="not-ours",
        ),
        pytest.param(
            MetricsServiceState(None, agent(2), None), Do.NOTHING, None, id="deleted-by-somebody"
        ),
        pytest.param(
            MetricsServiceState(None, agent(0), after(-1)), Do.NOTHING, None, id="still-away"
        ),
        pytest.param(
            MetricsServiceState(None, None, after(-1)), Do.NOTHING, None, id="agent-is-gone"
        ),
        pytest.param(MetricsServiceState(None, agent(1), after(0)), Do.MAKE, None, id="is-back"),
        pytest.param(
            MetricsServiceState(None, agent(1), after(9)), Do.NOTHING, 540, id="try-later"
        ),
    ],
)
def test_it_goes_when_nobody_answers_and_comes_back_with_an_agent(
    found: MetricsServiceState, do: Do, again_s: float | None
) -> None:
    step = forge.step(found, keys.LIQO_NAMESPACE, NOW)
    assert (step.do, step.again_s) == (do, again_s)


def test_while_agents_are_ready_and_not_reached_it_is_tried_every_ten_minutes() -> None:
    assert forge.mark(agent(0), NOW) == "2026-01-31T12:00:00Z"
    assert forge.mark(None, NOW) == "2026-01-31T12:00:00Z"
    assert forge.mark(agent(2), NOW) == "2026-01-31T12:10:00Z"


@pytest.mark.parametrize("text", ["", "soon", "2026-01-31T12:00:00", "9"])
def test_a_mark_that_is_no_time_counts_as_absent(text: str) -> None:
    where: Mapping[str, Any] = {"metadata": {"annotations": {keys.METRICS_API_AFTER: text}}}
    assert forge.marked(dict(where)) is None
    assert forge.marked(None) is None


def test_it_is_made_as_the_manifests_have_it() -> None:
    manifest = documents.named("APIService", keys.METRICS_API.name)
    made = forge.wanted(keys.LIQO_NAMESPACE)
    assert made["spec"] == manifest["spec"]
    assert made["metadata"]["labels"] == manifest["metadata"]["labels"]


@pytest.fixture
async def server(own_plane: Plane) -> AsyncIterator[ClusterClient]:
    """Yield a client of an API server with an APIService that nobody serves."""
    async with client.connect(own_plane.kubeconfig, user_agent="tests") as real:
        await ensure_namespace(real, keys.LIQO_NAMESPACE)
        pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": pod}
        objects_ = (
            (keys.CONFIG_MAP, named(keys.CONFIG_MAP, CLUSTER_ID)),
            (keys.DEPLOYMENT, named(keys.DEPLOYMENT, AGENT, spec=spec)),
            (keys.API_SERVICE, forge.wanted(keys.LIQO_NAMESPACE)),
        )
        made = [(kind, await real.create(kind, obj)) for kind, obj in objects_]
        yield real
        for kind, obj in made:
            await end(real, kind, objects.key_of(obj))


@pytest.mark.cluster
async def test_a_server_that_reaches_nobody_gets_its_namespaces_back(server: ClusterClient) -> None:
    told, later = Told(server), timedelta()
    manager = manager_of(server, events=told.recorder, clock=lambda: clock.now() + later)
    reconciler = MetricsApiReconciler(manager)
    await until_judged(server)
    wait = await reconciler.reconcile(AGENT)
    assert wait is not None
    assert 0 < wait <= 30
    assert await server.get(keys.API_SERVICE, keys.METRICS_API)

    later = timedelta(seconds=31)
    await reconciler.reconcile(AGENT)
    assert await server.get(keys.API_SERVICE, keys.METRICS_API) is None
    await reconciler.reconcile(AGENT)
    assert await server.get(keys.API_SERVICE, keys.METRICS_API) is None

    status = {"replicas": 2, "readyReplicas": 1, "availableReplicas": 1}
    await server.patch_status(keys.DEPLOYMENT, AGENT, status)
    await reconciler.reconcile(AGENT)
    made = await server.get(keys.API_SERVICE, keys.METRICS_API)
    assert made
    assert made["spec"]["service"] == {**forge.wanted("liqo")["spec"]["service"]}
    assert told.reasons == ["MetricsAPIRemoved", "MetricsAPIRestored"]


@pytest.mark.cluster
async def test_the_loop_looks_when_an_agent_becomes_ready(server: ClusterClient) -> None:
    found = await server.get(keys.API_SERVICE, keys.METRICS_API)
    assert found
    await server.delete(keys.API_SERVICE, keys.METRICS_API, uid=objects.uid(found))
    marked = {"metadata": {"annotations": {keys.METRICS_API_AFTER: objects.timestamp(clock.now())}}}
    await server.patch(keys.CONFIG_MAP, CLUSTER_ID, marked)
    async with whole.controlling(server, MetricsApiReconciler.setup), asyncio.timeout(60):
        status = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}
        await server.patch_status(keys.DEPLOYMENT, AGENT, status)
        await informer.until(
            server, keys.API_SERVICE, keys.METRICS_API, lambda found: found is not None
        )


async def until_judged(server: ClusterClient) -> None:
    def is_judged(found: Object | None) -> bool:
        return found is not None and bool((found.get("status") or {}).get("conditions"))

    async with asyncio.timeout(60):
        await informer.until(server, keys.API_SERVICE, keys.METRICS_API, is_judged)
