"""Metrics of a provider, read in the name of its consumer."""

import contextlib
from collections.abc import AsyncIterator

from apis import keys
from apis.objects import Key
from kube import client, peer
from kube.client import ClusterClient
from kube.cluster import Selection

SCRAPE = f"{keys.METRICS_ROOT}/scrape"


@contextlib.asynccontextmanager
async def consumer(rome: ClusterClient) -> AsyncIterator[ClusterClient]:
    """Yield a client of milan in the name of rome's virtual kubelet."""
    nodes = await rome.list(Selection(keys.VIRTUAL_NODE, dict))
    key, node = next(item for item in nodes.items.items() if item[0].name == "milan")
    name = node["spec"]["kubeconfigSecretRef"]["name"]
    secret = await rome.get(keys.SECRET, Key(key.namespace, name))
    assert secret

    async with client.connect(peer.identity(secret), user_agent="rome") as there:
        yield there
