"""Takes away all that a run made, also one that was killed: everything carries one label."""

import asyncio
import contextlib
from typing import Final

from apis import keys, naming
from apis.objects import Key, Kind
from bench import load, waiting
from bench.stage import PROVIDER
from kube import errors
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.slim import Partial

CUSTOM_RESOURCE: Final = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
    namespaced=False,
)  # fmt: skip
_SIMULATED: Final = "type=simulated"


async def sweep(rome: ClusterClient, milan: ClusterClient) -> None:
    """Remove every leftover from both clusters, the inner before the outer."""
    marked = load.PART
    for kind in (keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS):
        for cluster in (rome, milan):
            await everything(cluster, Selection(kind, Partial, labels=marked))
    for namespace in await names(rome, Selection(keys.NAMESPACE, Partial, labels=marked)):
        await unoffload(rome, namespace.name)
    tenant = naming.tenant_namespace(PROVIDER)
    with contextlib.suppress(errors.NotFoundError):
        await everything(rome, Selection(keys.VIRTUAL_NODE, Partial, tenant, labels=marked))
    await asyncio.gather(
        *(
            everything(cluster, Selection(keys.NAMESPACE, Partial, labels=marked))
            for cluster in (rome, milan)
        )
    )
    for cluster in (rome, milan):
        await definitions(cluster)
        await everything(cluster, Selection(keys.NODE, Partial, labels=_SIMULATED))
    await everything(rome, Selection(keys.NODE, Partial, labels=marked))
    await everything(milan, Selection(keys.PROVIDER_POLICY, Partial, labels=marked))


async def definitions(cluster: ClusterClient) -> None:
    """Remove the kinds that a run defined."""
    await everything(cluster, Selection(CUSTOM_RESOURCE, Partial, labels=load.PART))


async def remove(cluster: ClusterClient, kind: Kind, key: Key) -> None:
    """Delete what is there under ``key``, if anything."""
    found = await cluster.get_live(kind, key)
    if found:
        await cluster.delete(kind, key, uid=found["metadata"]["uid"])


async def gone(cluster: ClusterClient, kind: Kind, key: Key) -> None:
    """Return once nothing is under ``key``.

    Raises:
        RuntimeError: it stays.
    """
    await waiting.until(
        lambda: cluster.get_live(kind, key), lambda found: found is None, what=f"{kind} {key} gone"
    )


async def unoffload(rome: ClusterClient, namespace: str) -> None:
    """Stop the offloading of a namespace, if it is offloaded; wait until its twin is gone."""
    key = Key(namespace, keys.OFFLOADING_NAME)
    with contextlib.suppress(errors.NotFoundError):
        await remove(rome, keys.NAMESPACE_OFFLOADING, key)
        await gone(rome, keys.NAMESPACE_OFFLOADING, key)


async def everything(cluster: ClusterClient, selection: Selection[Partial]) -> None:
    """Remove all that is selected, and wait until it is gone."""
    found = await names(cluster, selection)
    for key in found:
        await remove(cluster, selection.kind, key)
    for key in found:
        await gone(cluster, selection.kind, key)


async def names(cluster: ClusterClient, selection: Selection[Partial]) -> list[Key]:
    """Return what is selected."""
    return list((await cluster.list(selection)).items)
