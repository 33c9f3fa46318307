"""Stops what rests on absence while suspiciously much is absent at once.

A list that is empty, or half, is what a broken server, a lost right or a restored store looks like.
What only such a list lacks is asked for live anyway; while the breaker is open nothing is deleted
or made again for its sake, and it is told: by a virtual kubelet on its Node, by a reflector on the
NamespaceOffloading. Of a server that is known to have gone back to an older state, whatever is
missing is suspicious. Source: docs/parity.md SEC-B9; F-12.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from apis.objects import Key
from kube.informer import Change, Informer

FEW: Final = 5
PART: Final = 0.2
HOLD_S: Final = 60.0
"""After that it is believed: each single one is still asked for live."""


class Breaker:
    """Open while more than five objects, and more than a fifth, are absent from lists only.

    One is enough where the server has gone back to an older state.
    """

    def __init__(
        self, on_change: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_change, self._clock = on_change, clock
        self._watched: list[Informer[Any]] = []
        self._absent: dict[Informer[Any], dict[Key, float]] = {}
        """Of those of the watched that miss something: since when, the oldest first."""
        self._was_open = False

    def watch(self, informer: Informer[Any]) -> Callable[[], None]:
        """Count what ``informer`` misses; return how to stop that."""
        self._watched.append(informer)

        def on_change(change: Change[Any]) -> None:
            if change.new is None and not change.was_seen:
                self._note(informer, [change.key])
            elif absent := self._absent.get(informer):
                absent.pop(change.key, None)
            if self._absent or self._was_open:
                self._look()

        unsubscribe = informer.subscribe(on_change)

        def stop() -> None:
            unsubscribe()
            self._watched.remove(informer)
            self._absent.pop(informer, None)
            self._look()

        return stop

    def suspect(self, informer: Informer[Any], keys: Iterable[Key]) -> None:
        """Count ``keys`` as missed by ``informer``, which has not had them since it began.

        For a process that begins, and knows from elsewhere what should be there.
        """
        self._note(informer, keys)
        self._look()

    def is_open(self) -> bool:
        """Whether nothing may rest on absence now: asked at each decision, mostly for nothing."""
        return any(self._is_suspicious(informer) for informer in list(self._absent))

    @property
    def is_after_restore(self) -> bool:
        """Whether a server has gone back to an older state."""
        return any(informer.went_back for informer in self._watched)

    def missing(self) -> int:
        """Return how many are absent from lists and were not seen to go; 0 while it is closed."""
        if not self.is_open():
            return 0
        return sum(self._missed(informer) for informer in list(self._absent))

    def _note(self, informer: Informer[Any], keys: Iterable[Key]) -> None:
        absent, now = self._absent.setdefault(informer, {}), self._clock()
        for key in keys:
            absent.pop(key, None)  # it is the newest now
            absent[key] = now

    def _is_suspicious(self, informer: Informer[Any]) -> bool:
        missing = self._missed(informer)
        if informer.went_back:
            return missing > 0
        return missing > FEW and missing > PART * (missing + len(informer.items()))

    def _missed(self, informer: Informer[Any]) -> int:
        """Return how many count still; the others are forgotten."""
        absent, since = self._absent[informer], self._clock() - HOLD_S
        while absent and next(iter(absent.values())) <= since:
            del absent[next(iter(absent))]
        if not absent:
            del self._absent[informer]
        return len(absent)

    def _look(self) -> None:
        if self.is_open() != self._was_open:
            self._was_open = not self._was_open
            self._on_change()
