"""The time of day; durations are monotonic and not here."""

import datetime as dt


def now() -> dt.datetime:
    """Return the time of day, aware, in UTC: the default of every ``clock`` argument."""
    return dt.datetime.now(dt.UTC)  # noqa: TID251  # the one place that reads it
