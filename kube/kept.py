"""How many bytes are kept of what one peer says, of all kinds and namespaces together.

Source: docs/parity.md H14; part 2, cause 2.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kube import errors


@dataclass
class Budget:
    """A number of bytes that several take from."""

    most: int
    used: int = 0

    def take(self, what: str, size: int, instead_of: int) -> None:
        """Count ``size`` bytes of ``what`` that take the place of ``instead_of`` others.

        Raises:
            TooMuchError: that would be more than ``most`` in all.
        """
        after = self.used + size - instead_of
        if after > self.most and size > instead_of:
            raise errors.TooMuchError(f"{what} has more than is kept of a peer, {self.most} bytes")
        self.used = after

    def give_back(self, size: int) -> None:
        """Count ``size`` bytes no longer."""
        self.used -= size


@dataclass
class Kept(Budget):
    """Shared by all informers that follow one peer.

    Lists that arrive are counted together, too, by themselves: as long as one is read, what it
    takes the place of is still there. So at most twice ``most`` bytes are there of a peer.
    """

    _lists: Budget = field(init=False)

    def __post_init__(self) -> None:
        self._lists = Budget(self.most)

    @contextmanager
    def arriving(self) -> Iterator["Arriving"]:
        """Yield what counts the pages of one list, until it has arrived or failed."""
        arriving = Arriving(self._lists)
        try:
            yield arriving
        finally:
            self._lists.give_back(arriving.size)


@dataclass
class Arriving:
    """A list whose pages are read one after another."""

    _lists: Budget
    size: int = 0

    def has(self, what: str, size: int) -> None:
        """Take note that ``size`` bytes of ``what`` are there by now.

        Raises:
            TooMuchError: that is more, with the other lists that arrive, than is kept of a peer.
        """
        self._lists.take(what, size, self.size)
        self.size = size
