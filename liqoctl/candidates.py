"""Names of objects for a shell's completion. A cluster that is slow offers no names."""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from apis import keys
from apis.objects import Kind
from kube.client import ClusterClient
from kube.cluster import Selection
from liqoctl import clusters
from liqoctl.options import Session
from liqoctl.output import Progress

PATIENCE_S: Final = 2.0
MOST: Final = 100
_OF_NAMESPACE: Final = (keys.POD, keys.PERSISTENT_VOLUME_CLAIM)
"""Kinds of which a command means one in the namespace it works in."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""
    uid: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta


def names(who: Session, kind: Kind, prefix: str) -> list[str]:
    """Return names of objects of ``kind`` that begin with ``prefix``, at most a hundred.

    Raises:
        click.ClickException: the cluster does not answer, or refuses.
        TimeoutError: it takes longer than a user waits for a shell.
    """
    found: set[str] = set()

    async def work(cluster: ClusterClient, _progress: Progress) -> None:
        where = who.namespace
        if kind in _OF_NAMESPACE:
            where = where or cluster.access.namespace or "default"
        async with asyncio.timeout(PATIENCE_S):
            listed = await cluster.list(Selection(kind, _Named, where if kind.namespaced else ""))
        found.update(key.name for key in listed.items)

    clusters.run(who, work, needs_install=False)
    return _first(found, prefix)


def _first(found: Iterable[str], prefix: str) -> list[str]:
    return sorted(name for name in found if name.startswith(prefix))[:MOST]


KINDS: Final = {
    "cluster": keys.FOREIGN_CLUSTER,
    "namespace": keys.NAMESPACE,
    "pod": keys.POD,
    "claim": keys.PERSISTENT_VOLUME_CLAIM,
    "slice": keys.RESOURCE_SLICE,
    "virtual node": keys.VIRTUAL_NODE,
    "tenant": keys.TENANT,
}
