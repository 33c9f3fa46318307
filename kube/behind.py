"""Whether an API server still has all that it had: its store may be restored from an older state.

Such a server takes a watch from a version that it does not have yet, and tells nothing of what
happens until it has: who followed it would miss that for ever. So a watch that was lost with its
connection goes on only once the server has said which version it has. Source: docs/parity.md F-12.
"""

from typing import Any, Final
from weakref import WeakSet

from kube.cluster import Selection

_LONGEST: Final = 20
"""Digits of the largest version: servers count in 64 bits."""


class Doubts:
    """The selections whose watch was lost, and whose server said nothing since."""

    def __init__(self) -> None:
        self._lost: WeakSet[Selection[Any]] = WeakSet()

    def lost(self, of: Selection[Any]) -> None:
        """Note that the watch of ``of`` broke."""
        self._lost.add(of)

    def asked(self, of: Selection[Any]) -> None:
        """Note that the server says which version it has."""
        self._lost.discard(of)

    def __contains__(self, of: Selection[Any]) -> bool:
        return of in self._lost


def is_behind(version: str, since: str) -> bool:
    """Whether ``version``, the server's own, is older than ``since``, which it gave us before.

    Source: Kubernetes API concepts, "Resource versions": of one resource they may be compared.
    """
    return _is_number(version) and _is_number(since) and int(version) < int(since)


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdecimal() and len(version) <= _LONGEST
