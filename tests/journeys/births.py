"""How often a pod was born on the provider."""

import asyncio
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
        self._news = asyncio.Event()

    async def record(self, both: world.Pair, namespace: str) -> None:
        """Note them until cancelled; a watch ends now and then, and is followed by another."""
        selection = Selection(keys.POD, dict, namespace=namespace)
        listing = await both.milan.list(selection)
        version = listing.version
        for pod in listing.items.values():
            self._note(pod)
        while True:
            async with contextlib.aclosing(both.milan.watch(selection, version)) as events:
                async for event in events:
                    version = event.version
                    if event.type == "ADDED":
                        self._note(event.object)

    async def has_all(self, pods: world.World) -> None:
        """Wait until all ``pods``, which another watch showed, are recorded here."""
        expected = {pod["metadata"]["uid"] for pod in pods.values()}
        async with asyncio.timeout(world.PATIENCE_S):
            while not expected <= set().union(*self.uids.values()):
                self._news.clear()
                await self._news.wait()

    def _note(self, pod: Object) -> None:
        metadata = pod["metadata"]
        self.uids[metadata["annotations"][keys.LOCAL_POD_UID]].add(metadata["uid"])
        self._news.set()
