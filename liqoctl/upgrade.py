"""An upgrade takes no right away before the process that needed it has ended.

The controller manager gives itself a part of its rights, in each twin and tenant namespace. One of
an older version, that had them in the whole cluster, goes on with them until the new one leads.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from apis import keys, objects, whose
from apis.objects import Key, Object
from kube.cluster import Cluster, Selection
from liqoctl.forge import manifests
from liqoctl.output import Progress

BOUND_S: Final = 60.0
"""A consumer that is refused gets nothing, and so does the controller manager in its twins."""
_POLL_S: Final = 0.5
_OF_PEERS: Final = Selection(keys.NAMESPACE, Object, labels=whose.PEERS)
_BINDINGS: Final = Selection(
    keys.ROLE_BINDING, Object, labels=f"{keys.APP_MANAGED_BY}=liqo,{keys.REMOTE_CLUSTER_ID}"
)


async def widened(cluster: Cluster, made: Sequence[Object]) -> list[Object]:
    """Return ``made`` with all that the roles among them allow in the cluster now."""
    return [
        manifests.with_old_rules(
            obj, await cluster.get_live(manifests.kind_of(obj), objects.key_of(obj))
        )
        if obj["kind"] in manifests.ROLES
        else obj
        for obj in made
    ]


async def until_bound(cluster: Cluster, progress: Progress) -> None:
    """Return once the controller manager has bound itself everywhere, or say where it did not."""
    with progress.waiting("the controllers to have their rights in each namespace"):
        try:
            async with asyncio.timeout(BOUND_S):
                while await _unbound(cluster):  # noqa: ASYNC110  # two kinds, and not for long
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            names = ", ".join(await _unbound(cluster))
            progress.warning(f"the controllers have no rights in these namespaces: {names}")


async def _unbound(cluster: Cluster) -> list[str]:
    namespaces = (await cluster.list(_OF_PEERS)).items.values()
    bound = (await cluster.list(_BINDINGS)).items
    names = (objects.key_of(one).name for one in namespaces if manifests.is_opened(one))
    return sorted(name for name in names if Key(name, keys.CONTROLLER_MANAGER) not in bound)
