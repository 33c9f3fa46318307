"""The time of day. What lasts is measured by a monotonic clock: this one may be set."""

import datetime as dt
from typing import NamedTuple


def now() -> dt.datetime:
    """Return the time of day, aware, in UTC: the default of every ``clock`` argument."""
    return dt.datetime.now(dt.UTC)  # noqa: TID251  # the one place that reads it


class Deadline(NamedTuple):
    """A time of day that comes, on the monotonic clock, no later than it is away when noted."""

    at: dt.datetime
    by: float

    @classmethod
    def noted(cls, at: dt.datetime, now: dt.datetime, monotonic: float) -> "Deadline":
        return cls(at, monotonic + (at - now).total_seconds())

    def left_s(self, now: dt.datetime, monotonic: float) -> float:
        """Return the seconds until it has come by either clock."""
        return min((self.at - now).total_seconds(), self.by - monotonic)
