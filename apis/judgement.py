"""What the webhook did to a pod, in one line that the pod carries."""

import re
from dataclasses import dataclass
from typing import Final

from apis import keys, objects
from apis.objects import Object
from apis.offloading import NamespaceOffloading, PodOffloadingStrategy

TOLERATION: Final = "toleration"
NODE_AFFINITY: Final = "nodeAffinity"
_ADDED: Final = (TOLERATION, NODE_AFFINITY)
_NOTHING: Final = "nothing"
_LINE: Final = re.compile(
    r'strategy=(\w+) generation=(\d{1,18}) added=([\w,]+)(?: nodes="([^"]*)")?', re.ASCII
)
_MOST: Final = 400
"""Characters of the nodes in words; more are not noted."""


@dataclass(frozen=True)
class Judgement:
    """By which strategy a pod was judged, and what was added to it for that."""

    strategy: PodOffloadingStrategy
    generation: int
    """Of the NamespaceOffloading that said so."""
    added: frozenset[str] = frozenset()
    nodes: str | None = None
    """The node affinity that the pod had then, in the words of ``nodeselector.text``.

    As long as it has that and tolerates virtual nodes nobody has undone what was done to it, and
    the API server does not ask again (``pod.validate.liqo.io`` in the manifests).
    """

    @classmethod
    def by(
        cls, offloading: NamespaceOffloading, added: frozenset[str], nodes: str | None = None
    ) -> "Judgement":
        """Return that ``offloading`` was what ``added`` came from."""
        shown = nodes if nodes is not None and len(nodes) <= _MOST else None
        return cls(offloading.strategy, offloading.generation, added, shown)

    @classmethod
    def parse(cls, text: str) -> "Judgement | None":
        """Return what ``text`` says, None if it is no such line: anybody may write one."""
        found = _LINE.fullmatch(text)
        if found is None or found[1] not in {one.value for one in PodOffloadingStrategy}:
            return None
        added = frozenset(found[3].split(",")) - {_NOTHING}
        if not added <= set(_ADDED):
            return None
        return cls(PodOffloadingStrategy(found[1]), int(found[2]), added, found[4])

    @classmethod
    def of(cls, pod: Object) -> "Judgement | None":
        """Return what ``pod`` carries, None if nobody judged it."""
        return cls.parse(str(objects.annotations(pod).get(keys.PLACEMENT) or ""))

    def is_of(self, offloading: NamespaceOffloading) -> bool:
        """Whether ``offloading``, as it is now, was what it came from."""
        return (self.strategy, self.generation) == (offloading.strategy, offloading.generation)

    def __str__(self) -> str:
        added = ",".join(one for one in _ADDED if one in self.added) or _NOTHING
        line = f"strategy={self.strategy.value} generation={self.generation} added={added}"
        return line if self.nodes is None else f'{line} nodes="{self.nodes}"'
