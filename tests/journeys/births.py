"""How often a pod was born on the provider."""

import contextlib
from collections import defaultdict

from apis import keys
from apis.objects import Object
from kube.cluster import Selection
from tests.journeys import world


class Births:
    """Every Pod that milan ever had in a namespace, by the local pod that it stands for."""

    def __init__(self) -> None:
        self.uids: dict[str, set[str]] = defaultdict(set)

    async def record(self, both: world.Pair, namespace: str) -> None:
        selection = Selection(keys.POD, dict, namespace=namespace)
        listing = await both.milan.list(selection)
        for pod in listing.items.values():
            self._note(pod)
        async with contextlib.aclosing(both.milan.watch(selection, listing.version)) as events:
            async for event in events:
                if event.type == "ADDED":
                    self._note(event.object)

    def _note(self, pod: Object) -> None:
        metadata = pod["metadata"]
        self.uids[metadata["annotations"][keys.LOCAL_POD_UID]].add(metadata["uid"])
