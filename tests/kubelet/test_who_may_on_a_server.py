"""The kubelet API, whose questions a real API server answers: by its RBAC, its tokens, its pods.

Source: docs/parity.md SEC-D1 to SEC-D3.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from apis import keys
from apis.objects import Key, Object, named
from kube.client import ClusterClient
from tests.kubelet import rigs
from tests.kubelet.callers import (
    GRANTED,
    TABLE,
    TOKENS,
    Credential,
    leads_nowhere_else,
    only_the_very_pod_is_reached,
    opens_its_routes_and_no_other,
)
from tests.kubelet.rigs import Rig
from tests.kubelet.worlds import TWIN, WEB

pytestmark = pytest.mark.cluster

ALL: set[tuple[str, str]] = {
    (verb, part)
    for verb in ("get", "create")
    for part in ("proxy", "stats", "metrics", "pods", "log")
}


async def allow(cluster: ClusterClient, user: str, rights: set[tuple[str, str]]) -> None:
    """Give a user and the service account of that name ``rights`` on the node."""
    rules = [
        {"apiGroups": [""], "resources": [f"nodes/{part}"], "verbs": [verb]}
        for verb, part in sorted(rights)
    ]
    key = Key("", f"tests-{user}")
    group = {"apiGroup": keys.RBAC_GROUP}
    await cluster.create(keys.CLUSTER_ROLE, named(keys.CLUSTER_ROLE, key, rules=rules))
    binding = named(
        keys.CLUSTER_ROLE_BINDING,
        key,
        roleRef={**group, "kind": "ClusterRole", "name": key.name},
        subjects=[
            {**group, "kind": "User", "name": user},
            {"kind": "ServiceAccount", "namespace": WEB.namespace, "name": user},
        ],
    )
    await cluster.create(keys.CLUSTER_ROLE_BINDING, binding)


async def token_of(cluster: ClusterClient, user: str) -> str:
    """Return a token of the service account ``user``, which is made for that."""
    key = Key(WEB.namespace, user)
    await cluster.create(keys.SERVICE_ACCOUNT, named(keys.SERVICE_ACCOUNT, key))
    asked: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = await cluster.post(keys.SERVICE_ACCOUNT, key, "token", asked)
    return str(made["status"]["token"])


@pytest.fixture
async def rig_on_server(own_server: ClusterClient) -> AsyncIterator[Rig]:
    for name in (WEB.namespace, TWIN.namespace):
        await own_server.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
    for user, rights in {**GRANTED, "admin": ALL}.items():
        await allow(own_server, user, rights)
    async with rigs.kubelet_api_between(own_server, own_server) as found:
        found.answer = (200, '{"metadata":{},"items":[]}')
        yield found


async def test_by_the_rules_and_tokens_of_a_server_nobody_gets_further_than_his_rights(
    rig_on_server: Rig, own_server: ClusterClient
) -> None:
    """The whole table, all tricks with paths, and every way for a pod to be another one."""
    tokens = {known: await token_of(own_server, user) for known, user in TOKENS.items()}

    def signed(by: Credential) -> Credential:
        headers = by.headers
        for known, token in tokens.items():
            headers = headers.replace(f"Bearer {known}", f"Bearer {token}")
        return dataclasses.replace(by, headers=headers)

    await until_known(rig_on_server)
    for by, expected in TABLE.values():
        await opens_its_routes_and_no_other(rig_on_server, signed(by), expected)
    await leads_nowhere_else(rig_on_server)
    await only_the_very_pod_is_reached(rig_on_server, "/containerLogs/shop/{}/main")


async def until_known(rig: Rig) -> None:
    """The server learns of bindings a moment after they were written; a no is kept for a while."""
    body: Object = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "admin",
            "resourceAttributes": {"verb": "get", "resource": "nodes", "subresource": "log"},
        },
    }
    async with asyncio.timeout(300):
        while True:
            asked = {**body, "metadata": {}}
            found = await rig.local.create(keys.SUBJECT_ACCESS_REVIEW, asked)
            if found["status"]["allowed"]:
                return
            await asyncio.sleep(0.05)
