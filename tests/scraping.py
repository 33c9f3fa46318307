"""Reading the metrics of a process, as who may: with the token of an account that has the role."""

import asyncio
from typing import Final

import aiohttp

from apis import keys
from apis.objects import Key, named
from kube.cluster import Cluster
from tests.controllers.support import ensure_namespace
from tests.kube.running import until_so
from tests.manifests import documents

PATIENCE_S: Final = 120.0
ACCOUNTS = "scrapers"
"""The namespace of the accounts."""


async def token(cluster: Cluster, account: Key) -> str:
    """Return a token of ``account``, which is made if it is not there."""
    await ensure_namespace(cluster, account.namespace)
    if await cluster.get_live(keys.SERVICE_ACCOUNT, account) is None:
        await cluster.create(keys.SERVICE_ACCOUNT, named(keys.SERVICE_ACCOUNT, account))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = await cluster.post(keys.SERVICE_ACCOUNT, account, "token", request)
    return str(made["status"]["token"])


async def reader(cluster: Cluster) -> str:
    """Return a token whose bearer may read metrics, once the API server says so."""
    account = Key(ACCOUNTS, "reader")
    role = documents.named("ClusterRole", keys.METRICS_READER_ROLE)
    binding = named(
        keys.CLUSTER_ROLE_BINDING,
        Key("", keys.METRICS_READER_ROLE),
        roleRef={
            "apiGroup": keys.RBAC_GROUP,
            "kind": "ClusterRole",
            "name": role["metadata"]["name"],
        },
        subjects=[{"kind": "ServiceAccount", "name": account.name, "namespace": ACCOUNTS}],
    )
    await cluster.apply(keys.CLUSTER_ROLE, role, manager="tests")
    await cluster.apply(keys.CLUSTER_ROLE_BINDING, binding, manager="tests")
    review = {
        "apiVersion": keys.SUBJECT_ACCESS_REVIEW.api_version,
        "kind": keys.SUBJECT_ACCESS_REVIEW.kind,
        "metadata": {},
        "spec": {
            "user": f"system:serviceaccount:{ACCOUNTS}:{account.name}",
            "nonResourceAttributes": {"verb": "get", "path": "/metrics"},
        },
    }

    async def is_allowed() -> bool:
        answer = await cluster.create(keys.SUBJECT_ACCESS_REVIEW, review)
        return answer["status"]["allowed"] is True

    await until_so(is_allowed)
    return await token(cluster, account)


async def page(port: int, bearer: str = "", path: str = "/metrics") -> tuple[int, str]:
    """Return status and text of what the process at ``port`` answers; 0 if nobody listens."""
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    url = f"https://127.0.0.1:{port}{path}"
    try:
        async with (
            aiohttp.ClientSession() as http,
            http.get(url, ssl=False, headers=headers) as answer,
        ):
            return answer.status, await answer.text()
    except aiohttp.ClientError:
        return 0, ""


async def first_page(port: int, bearer: str) -> tuple[int, str]:
    """Return as ``page`` does, of a process that may still start."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await page(port, bearer))[0]:  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.05)
    return found
