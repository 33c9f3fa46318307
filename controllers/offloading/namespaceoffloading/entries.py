"""Writes the entries of NamespaceMaps: those that come while one is on its way go together.

Each write of a map costs the server the whole of it, with a thousand entries 60 ms and more.
"""

import asyncio
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from apis import keys, objects
from apis.objects import Key, Object
from kube.cluster import Cluster
from kube.errors import ForbiddenError, InvalidError, KubeError


@dataclass
class _Group:
    """Entries that go in one patch, and what came of it."""

    entries: dict[str, str | None] = field(default_factory=dict)
    answer: Object | KubeError | None = None


class _Line:
    """Those who write one map: a group is on its way, and the next one is open."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.open = _Group()


class Entries:
    """One for all namespaces: a single entry waits for nobody, and a group for one answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lines: WeakValueDictionary[Key, _Line] = WeakValueDictionary()

    async def write(self, key: Key, namespace: str, wanted: str | None) -> Object:
        """Return the map ``key`` after its entry for ``namespace`` is ``wanted``, gone if None.

        Where the server refuses what is in a patch of several, each of them goes by itself.

        Raises:
            KubeError: what the server said to the patch that the entry was in.
        """
        line = self._lines.setdefault(key, _Line())
        group = line.open
        group.entries[namespace] = wanted
        async with line.turn:
            answer = group.answer
            if answer is None:  # the first of its group, or after one that was cancelled
                answer = await self._send(key, line, group)
            if isinstance(answer, ForbiddenError | InvalidError) and len(group.entries) > 1:
                answer = await self._patched(key, {namespace: wanted})
        if isinstance(answer, KubeError):
            raise answer
        return answer

    async def _send(self, key: Key, line: _Line, group: _Group) -> Object | KubeError:
        if line.open is group:
            line.open = _Group()
        group.answer = await self._patched(key, group.entries)
        return group.answer

    async def _patched(self, key: Key, entries: dict[str, str | None]) -> Object | KubeError:
        changes: Object = {
            "metadata": objects.UNTRACKED,
            "spec": {"desiredMapping": entries},
        }
        try:
            return await self._cluster.patch(keys.NAMESPACE_MAP, key, changes)
        except KubeError as error:
            return error
