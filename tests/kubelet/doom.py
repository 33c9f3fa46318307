"""A client whose process is killed at its nth write."""

from typing import Any, Final, cast

from kube.cluster import Cluster

READS: Final = frozenset({"get", "get_live", "list"})
WRITES: Final = frozenset({"create", "apply", "patch", "patch_status", "delete", "post"})
SIDES: Final = (False, True)
ROUNDS: Final = 12


class KilledError(Exception):
    """SIGKILL: whatever was in memory is gone."""


class Doom:
    """Kills the one who makes call number ``at``, once; ``is_after`` when the server has done it.

    Reads in a row are one call: nothing happens between them.
    """

    def __init__(self, at: int = -1, *, is_after: bool = False) -> None:
        self.at, self.is_after, self.calls = at, is_after, 0
        self.stops: list[tuple[int, bool]] = []
        """Where one can be killed, and on which side."""
        self.rounds = ROUNDS
        """In which everybody works, until nothing changes any more."""
        self._is_reading = False

    def enter(self, round_: int) -> None:
        self._is_reading = False

    def number(self, *, is_read: bool) -> int:
        if not (is_read and self._is_reading):
            self.stops += (
                [(self.calls, False)] if is_read else [(self.calls, side) for side in SIDES]
            )
            self.calls += 1
        self._is_reading = is_read
        return self.calls - 1

    def strike(self, number: int, *, is_after: bool) -> None:
        """End the call of that number, before the server does it or after."""
        if number == self.at and is_after == self.is_after:
            self.at = -1
            raise KilledError

    def over(self, cluster: Cluster) -> Cluster:
        """Return ``cluster`` as a process sees it that may die."""
        return cast("Cluster", _Doomed(cluster, self))


class _Doomed:
    def __init__(self, cluster: Cluster, doom: Doom) -> None:
        self._cluster, self._doom = cluster, doom

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cluster, name)
        if name not in READS | WRITES:
            return found

        async def call(*args: Any, **rest: Any) -> Any:
            doom = self._doom
            number = doom.number(is_read=name in READS)
            doom.strike(number, is_after=False)
            answer = await found(*args, **rest)
            doom.strike(number, is_after=True)
            return answer

        return call
