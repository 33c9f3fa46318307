"""Rights that are missing for a kind, told in the namespace that misses it."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from apis import keys, texts
from apis.objects import Key, Object, named
from apis.reflection import ReflectedKind
from apis.reflectionpolicy import ReflectionEvent, ReflectionSubject
from kube import errors
from kube.cluster import Cluster
from reflector.told import FAILED, SUCCESSFUL, Tell

AGAIN_S: Final = 1800.0
"""What is still missing is told again so often: API servers forget Events after an hour."""


class Rights:
    """Tells it on the NamespaceOffloading: without the right to list no object is known to tell on.

    Source: docs/parity.md F-34.
    """

    def __init__(self, home: Cluster, namespace: str, row: ReflectedKind, tell: Tell) -> None:
        self._home, self._tell, self.row = home, tell, row
        self._where = Key(namespace, keys.OFFLOADING_NAME)
        self._missing: dict[str, str] = {}
        self._told, self._is_known = "", False
        self._changed = asyncio.Event()

    def remember(self, destination: str, told: Mapping[ReflectionSubject, ReflectionEvent]) -> None:
        """Take what Events say for said: that it is over is told after a restart, too."""
        said = told.get(ReflectionSubject(destination, self.row.name))
        if said and said.reason == FAILED:
            self._told = said.message

    def listed(self) -> None:
        """Note that all was listed: the rights for it are there, as nobody said otherwise."""
        self._is_known = True
        self._changed.set()

    def of(self, cluster: str) -> Callable[[str], None]:
        """Return what notes which right is missing in ``cluster``, in its words; "" for none."""

        def note(said: str) -> None:
            self._is_known = self._is_known or bool(said)
            self._missing |= {cluster: said}
            self._changed.set()

        return note

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if self._told else None):
                    await self._changed.wait()
            self._changed.clear()
            missing = [f"on {where}: {said}" for where, said in self._missing.items() if said]
            if missing or (self._told and self._is_known):
                self._told = "; ".join(missing)
                await self._say(self._told)

    async def _say(self, missing: str) -> None:
        offloading, resource = await self._offloading(), self.row.kind.resource
        if missing:
            text = f"{resource} cannot be followed {missing}: grant get, list and watch"
            self._tell(offloading, "Warning", FAILED, texts.clamp(text))
        else:
            text = f"{resource} can be followed again"
            self._tell(offloading, "Normal", SUCCESSFUL, text)

    async def _offloading(self) -> Object:
        with contextlib.suppress(errors.KubeError):  # its UID is only for kubectl describe
            found = await self._home.get_live(keys.NAMESPACE_OFFLOADING, self._where)
            if found:
                return found
        return named(keys.NAMESPACE_OFFLOADING, self._where)
