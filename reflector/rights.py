"""Rights that are missing for a kind that was opted in, told in the namespace that misses it."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from apis import keys
from apis.objects import Key, Kind, Object, named
from kube import errors
from kube.cluster import Cluster
from reflector.told import FAILED, SUCCESSFUL, Tell

AGAIN_S: Final = 1800.0
"""What is still missing is told again so often: API servers forget Events after an hour."""


class Rights:
    """Tells it on the NamespaceOffloading: without the right to list no object is known to tell on.

    Source: faults.md F34.
    """

    def __init__(self, home: Cluster, namespace: str, kind: Kind, tell: Tell) -> None:
        self._home, self._tell, self._kind = home, tell, kind
        self._where = Key(namespace, keys.OFFLOADING_NAME)
        self._missing: dict[str, str] = {}
        self._changed = asyncio.Event()

    def of(self, cluster: str) -> Callable[[str], None]:
        """Return what notes which right is missing in ``cluster``, in its words; "" for none."""

        def note(said: str) -> None:
            self._missing |= {cluster: said}
            self._changed.set()

        return note

    async def run(self) -> None:
        """Tell until cancelled."""
        told = ""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if told else None):
                    await self._changed.wait()
            self._changed.clear()
            missing = [f"on {where}: {said}" for where, said in self._missing.items() if said]
            if missing or told:
                told = "; ".join(missing)
                await self._say(told)

    async def _say(self, missing: str) -> None:
        offloading = await self._offloading()
        if missing:
            text = f"{self._kind.resource} cannot be followed {missing}: grant get, list and watch"
            self._tell(offloading, "Warning", FAILED, text)
        else:
            text = f"{self._kind.resource} can be followed again"
            self._tell(offloading, "Normal", SUCCESSFUL, text)

    async def _offloading(self) -> Object:
        with contextlib.suppress(errors.KubeError):  # its UID is only for kubectl describe
            found = await self._home.get_live(keys.NAMESPACE_OFFLOADING, self._where)
            if found:
                return found
        return named(keys.NAMESPACE_OFFLOADING, self._where)
