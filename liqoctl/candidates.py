"""Names of objects for a shell's completion. A cluster that is slow offers no names."""

import asyncio
from typing import Final

import msgspec

from apis import keys
from apis.objects import Kind
from kube.cluster import Selection
from liqoctl import clusters
from liqoctl.clusters import Side
from liqoctl.options import Session

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

    async def look(side: Side) -> None:
        where = side.namespace if kind in _OF_NAMESPACE else who.namespace
        async with asyncio.timeout(PATIENCE_S):
            of = Selection(kind, _Named, where if kind.namespaced else "")
            found.update(key.name for key in (await side.cluster.list(of)).items)

    clusters.run(who, look, needs_install=False)
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
