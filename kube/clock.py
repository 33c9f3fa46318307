"""The time of day, and how Kubernetes writes it; durations are monotonic and not here."""

import datetime as dt
from typing import Final

SECONDS: Final = "%Y-%m-%dT%H:%M:%SZ"
MICROSECONDS: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


def now() -> dt.datetime:
    """Return the time of day, aware, in UTC: the default of every ``clock`` argument."""
    return dt.datetime.now(dt.UTC)  # noqa: TID251  # the one place that reads it


def seconds(moment: dt.datetime) -> str:
    """Return ``moment`` as a Time: ``2025-01-31T12:00:00Z``."""
    return moment.astimezone(dt.UTC).strftime(SECONDS)


def micro(moment: dt.datetime) -> str:
    """Return ``moment`` as a MicroTime, which Go refuses without its six digits."""
    return moment.astimezone(dt.UTC).strftime(MICROSECONDS)
