"""Replicas come and go, all at once too, behind a Service of a real API server.

Source: docs/parity.md A-31, A-34, A-36; F-30, F-36; SEC-I7.
"""

import signal
from collections.abc import AsyncIterator

import aiohttp
import pytest

from apis import keys
from apis.objects import Key, named
from certs.rotation import RotationOptions
from kube.errors import KubeError
from sandbox.controlplane import Plane
from tests.factories import pod
from tests.kube.running import until_so
from tests.webhook.replicas import Load, Replica, Service, certified, filling

pytestmark = pytest.mark.cluster


@pytest.fixture
async def volumes(service: Service, replicas: list[Replica]) -> AsyncIterator[None]:
    """Register the Service, make its certificates and fill the volumes of all replicas."""
    settings = RotationOptions(namespace=service.namespace)

    def fill(data: dict[str, bytes]) -> None:
        for replica in replicas:
            replica.fill(data)

    await service.register()
    async with certified(service, settings), filling(service.cluster, settings, fill):
        yield


async def join(service: Service, plane: Plane, *replicas: Replica) -> None:
    for replica in replicas:
        replica.start(plane.kubeconfig)
    for replica in replicas:
        await until_so(replica.is_ready, "a replica that is ready")
        await service.join(replica)


async def test_a_rolling_restart_under_load_fails_no_admission(
    service: Service, plane: Plane, volumes: None, replicas: list[Replica]
) -> None:
    """As the Deployment does it: one more first, then one less.

    An API server keeps its connections to an endpoint that is none any more: those it has to lose
    while the old replica drains.
    """
    await join(service, plane, *replicas[:2])
    load = Load(plane.kubeconfig, await service.offloaded(), per_s=20)
    async with load.running():
        await load.steady()
        for old, new in zip(replicas[:2], replicas[2:], strict=True):
            await join(service, plane, new)
            await load.more(20)
            await service.leave(old)
            await load.more(20)
            old.tell(signal.SIGTERM)
            await until_so(old.has_ended, "the end of the drain")
            await load.more(20)

    assert load.failures == []
    assert load.admitted >= 80
    assert [old.status for old in replicas[:2]] == [0, 0]


async def test_breaking_the_glass_lets_everything_pass_until_the_manifests_are_applied_again(
    service: Service, plane: Plane, volumes: None, replicas: list[Replica]
) -> None:
    """No replica runs, and ``liqo-certs`` does."""
    namespace, key = await service.offloaded(), Key("", service.run)
    cluster, kind = service.cluster, keys.MUTATING_WEBHOOKS

    async def is_refused() -> bool:
        return "pod.mutate.liqo.io" in await webhook_refusal(service, namespace)

    await until_so(is_refused, "a refusal, for nobody serves")
    found = await cluster.get_live(kind, key)
    assert found
    await cluster.delete(kind, key, uid=found["metadata"]["uid"])

    async def passes() -> bool:
        return not await webhook_refusal(service, namespace)

    await until_so(passes, "a pod")
    for _ in range(20):
        assert await webhook_refusal(service, namespace) == ""
    assert await cluster.get_live(kind, key) is None

    await service.register()
    await until_so(service.bundle, "the caBundle")
    await join(service, plane, replicas[0])
    load = Load(plane.kubeconfig, namespace)
    async with load.running():
        await load.steady()


async def webhook_refusal(service: Service, namespace: str) -> str:
    """Return why a pod is refused in ``namespace``, or an empty string."""
    body = pod(namespace, "x")
    body["metadata"] = {"generateName": "x-", "namespace": namespace}
    try:
        await service.cluster.create(keys.POD, body)
    except KubeError as error:
        return str(error)
    return ""


async def test_metrics_are_for_those_whom_the_api_server_lets(
    service: Service, plane: Plane, volumes: None, replicas: list[Replica]
) -> None:
    await join(service, plane, replicas[0])
    tokens = [await token(service, name) for name in ("scraper", "other")]
    role = {"rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}
    await service.cluster.create(
        keys.CLUSTER_ROLE, named(keys.CLUSTER_ROLE, Key("", service.run), **role)
    )
    await service.cluster.create(
        keys.CLUSTER_ROLE_BINDING,
        named(
            keys.CLUSTER_ROLE_BINDING,
            Key("", service.run),
            roleRef={
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": service.run,
            },
            subjects=[
                {"kind": "ServiceAccount", "name": "scraper", "namespace": service.namespace}
            ],
        ),
    )

    async def may_scrape() -> bool:
        return await scraped(replicas[0], tokens[0]) == 200

    await until_so(may_scrape, "the metrics")
    assert await scraped(replicas[0], tokens[1]) == 403
    assert await scraped(replicas[0], "") == 401
    assert await scraped(replicas[0], "not.a.token") == 401


async def token(service: Service, name: str) -> str:
    """Return a token of a new ServiceAccount."""
    key = Key(service.namespace, name)
    await service.cluster.create(keys.SERVICE_ACCOUNT, named(keys.SERVICE_ACCOUNT, key))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = await service.cluster.post(keys.SERVICE_ACCOUNT, key, "token", request)
    return str(made["status"]["token"])


async def scraped(replica: Replica, token: str) -> int:
    """Return the status of the metrics page for the bearer of ``token``."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"https://127.0.0.1:{replica.port}/metrics"
    async with aiohttp.ClientSession() as http, http.get(url, ssl=False, headers=headers) as got:
        return got.status
