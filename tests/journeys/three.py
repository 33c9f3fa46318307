"""One consumer and two providers, one of which consumes as well."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apis import keys
from apis.objects import Key, Object
from kube import client, credentials
from kube.client import ClusterClient
from kube.cluster import Selection
from tests import pages
from tests.journeys import world

GUIDES: Final = Path(__file__).parents[2] / "docs/guides"
THIRD = "cool-firefly"
PEERINGS = (("rome", THIRD), (THIRD, "milan"))
"""Consumer and provider of each peering but that of the pair."""


@dataclass(frozen=True)
class Three:
    """A client of each cluster, by name."""

    clients: Mapping[str, ClusterClient]
    kubeconfigs: Mapping[str, Path]

    def __getitem__(self, name: str) -> ClusterClient:
        return self.clients[name]

    async def role(self, here: str, of: str) -> str:
        """Return what ``of`` is to ``here``."""
        found = await self[here].get_live(keys.FOREIGN_CLUSTER, Key("", of))
        return str(((found or {}).get("status") or {}).get("role"))

    async def offload(
        self, consumer: str, namespace: str, *providers: str, strategy: str = "Remote"
    ) -> None:
        """Offload a namespace to the providers and to no other."""
        term = {"key": keys.REMOTE_CLUSTER_ID, "operator": "In", "values": list(providers)}
        selector = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
        spec = {"clusterSelector": selector, "podOffloadingStrategy": strategy}
        made = world.offloading(namespace, **spec)
        await self[consumer].create(keys.NAMESPACE_OFFLOADING, made)
        key = Key(namespace, keys.OFFLOADING_NAME)
        await world.until_one(self[consumer], keys.NAMESPACE_OFFLOADING, key, is_offloaded)

    async def type_guide(
        self, page: str, folder: Path, edited: Callable[[str], str] = str, **env: Path | str
    ) -> list[str]:
        """Type a guide of rome and milan with the third cluster as milan; return what is printed.

        ``edited`` may change a block before it is typed.
        """
        clusters = {"CONSUMER": self.kubeconfigs["rome"], "PROVIDER": self.kubeconfigs[THIRD]}

        def typed(block: str) -> str:
            block = edited(block.replace("milan", THIRD))
            return pages.shell(block, folder, answer="", **clusters, **env)

        blocks = pages.blocks(GUIDES / page)
        return [await asyncio.to_thread(typed, block) for block in blocks]

    async def quotas(self) -> list[Key]:
        """Return the Quotas of the third cluster: each is a slice that somebody consumes."""
        return list((await self[THIRD].list(Selection(keys.QUOTA, Object))).items)


@contextlib.asynccontextmanager
async def connected(kubeconfigs: Mapping[str, Path]) -> AsyncIterator[Three]:
    """Yield clients of the clusters."""
    async with contextlib.AsyncExitStack() as stack:
        clients = {}
        for name, path in kubeconfigs.items():
            who = await credentials.from_file(path)
            connection = client.connect(who, user_agent="journeys")
            clients[name] = await stack.enter_async_context(connection)
        yield Three(clients, kubeconfigs)


def is_offloaded(offloading: Object) -> bool:
    return bool(offloading.get("status", {}).get("offloadingPhase") == "Ready")
