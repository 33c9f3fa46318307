"""How often a pod was born on the provider."""

import contextlib
from collections import defaultdict

from apis import keys
from kube.cluster import Selection
from tests.journeys import world


class Births:
    """Every Pod that milan ever had in a namespace, by the local pod that it stands for."""

    def __init__(self) -> None:
        self.uids: dict[str, set[str]] = defaultdict(set)

    async def record(self, both: world.Pair, namespace: str) -> None:
        selection = Selection(keys.POD, dict, namespace=namespace)
        listing = await both.milan.list(selection)
        async with contextlib.aclosing(both.milan.watch(selection, listing.version)) as events:
            async for event in events:
                if event.type == "ADDED":
                    metadata = event.object["metadata"]
                    self.uids[metadata["annotations"][keys.LOCAL_POD_UID]].add(metadata["uid"])
