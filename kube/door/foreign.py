"""What an API server said, unread. Source: docs/decisions/0013 (20)."""

from typing import final


@final
class Foreign:
    """Bytes that arrived, whose number is all that code sees of them.

    mypy holds everybody to it: they have no other method, and ``kube.door.reading`` opens them.
    """

    __slots__ = ("_said",)

    def __init__(self, said: bytes) -> None:
        self._said = said

    def __len__(self) -> int:
        return len(self._said)


def said(by: Foreign) -> bytes:
    """Return the bytes: for ``kube.door.reading`` alone, which a test of all sources holds."""
    return by._said  # noqa: SLF001  # the way in, in one place
