"""What a cluster holds of what is mostly not there: no watch before somebody needs one."""

import asyncio
import contextlib
from typing import Any, Final, TypeVar

from kube.cluster import Selection
from kube.informer import NEEDED, Informer

T = TypeVar("T")

AWAKE_S: Final = 10.0
"""For the list of a resting informer; who waits for it goes on without, and will fail itself."""
SETTLED_S: Final = 65.0
"""What a leader before us sent has come to its end by then: an API server gives a request a minute.

Source: Kubernetes, kube-apiserver, ``--request-timeout``.
"""


class RestingInformer(Informer[T]):
    """An informer without a watch for as long as nothing is there and nobody announces anything.

    For objects that one process makes itself: most of a thousand namespaces have none of a kind.
    What another one made before may come until ``settled``: then it lists once more.
    """

    def __init__(self, selection: Selection[T], *, settled: asyncio.Event, **chance: Any) -> None:
        super().__init__(selection, **chance)
        self._needed, self._follows = asyncio.Event(), asyncio.Event()
        self._settled, self._is_sure = settled, settled.is_set()

    async def awake(self) -> bool:
        """Let it follow from now on; return once it has listed again, or does not come to that.

        Who makes such an object calls this before, and looks again if the answer is False: until
        then nobody is told what becomes of it.
        """
        self._needed.set()
        if not self._follows.is_set() and not self.is_lacking:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AWAKE_S):
                    await self._follows.wait()
        return self._follows.is_set() and not self.is_lacking

    async def _rested(self) -> str:
        if self._items or self._needed.is_set():
            self._follows.set()
            return ""
        await self._wake()
        return NEEDED

    async def _wake(self) -> None:
        """Return once it is needed, or what is there is settled after it was listed."""
        if self._is_sure:
            await self._needed.wait()
            return
        waiting = [asyncio.create_task(each.wait()) for each in (self._needed, self._settled)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
        self._is_sure = self._settled.is_set()
