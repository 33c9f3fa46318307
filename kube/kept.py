"""How many bytes are kept of what one peer says, of all kinds and namespaces together.

Source: hostile.md H14; part 2, cause 2.
"""

from dataclasses import dataclass

from kube import errors


@dataclass
class Kept:
    """Shared by all informers that follow one peer."""

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
