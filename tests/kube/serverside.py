"""Objects of a real API server, and connections to it."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator

from apis import keys
from apis.objects import Key, Object, uid
from kube import client, credentials
from kube.client import ClusterClient
from kube.cluster import Cluster
from sandbox.controlplane import Plane
from tests.factories import config_map
from tests.kube.running import Gate


@contextlib.asynccontextmanager
async def connected(plane: Plane, gate: Gate | None = None) -> AsyncIterator[ClusterClient]:
    who = await credentials.from_file(plane.kubeconfig)
    if gate:
        who = dataclasses.replace(who, server=f"https://127.0.0.1:{gate.port}")
    async with client.connect(who, user_agent="pyliqo-tests") as cluster:
        yield cluster


async def create_labelled(cluster: Cluster, namespace: str, name: str) -> Object:
    obj = config_map(namespace, name, its="last words")
    obj["metadata"]["labels"] = {"test": ""}
    return await cluster.create(keys.CONFIG_MAP, obj)


async def made(cluster: Cluster, plane: Plane) -> str:
    obj = {"metadata": {"generateName": "test-"}}
    return str((await cluster.create(keys.NAMESPACE, obj))["metadata"]["name"])


async def remove_object(cluster: Cluster, obj: Object) -> None:
    key = Key(obj["metadata"]["namespace"], obj["metadata"]["name"])
    await cluster.delete(keys.CONFIG_MAP, key, uid=uid(obj))
