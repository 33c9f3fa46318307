"""What an older version of pyliqo had and this one has not.

It is found by the label of all manifests; what somebody else applied with that label is his.
"""

import contextlib
from collections.abc import Iterable

from apis import objects
from apis.objects import Key, Kind, Object
from kube import errors
from kube.cluster import Cluster, Selection
from liqoctl.forge import manifests
from liqoctl.output import Progress


async def find(cluster: Cluster, wanted: Iterable[Object], manager: str) -> list[Object]:
    """Return, read live, what ``manager`` applied at some time and ``wanted`` lacks.

    The kinds are those of ``wanted``, the last first, so that nothing is asked of what is gone.
    """
    kept: dict[Kind, set[Key]] = {}
    for obj in wanted:
        kept.setdefault(manifests.kind_of(obj), set()).add(objects.key_of(obj))
    found = []
    for kind in reversed(kept):
        for key in sorted(await _labelled(cluster, kind) - kept[kind]):
            existing = await cluster.get_live(kind, key)
            if existing and manifests.is_applied_by(existing, manager):
                found.append(existing)
    return found


async def _labelled(cluster: Cluster, kind: Kind) -> set[Key]:
    with contextlib.suppress(errors.NotFoundError):  # the kind itself is not installed
        return set((await cluster.list(Selection(kind, Object, labels=manifests.OURS))).items)
    return set()


async def remove(cluster: Cluster, progress: Progress, found: Iterable[Object]) -> None:
    """Delete ``found``, but for kinds and namespaces: these hold what is not ours."""
    for obj in found:
        if manifests.is_prerequisite(obj):
            progress.info(f"{_named(obj)} is of an older version: delete it if nobody needs it")
            continue
        await cluster.delete(manifests.kind_of(obj), objects.key_of(obj), uid=objects.uid(obj))
        progress.info(f"{_named(obj)} of an older version removed")


def _named(obj: Object) -> str:
    return f"{manifests.kind_of(obj)} {objects.key_of(obj)}"
