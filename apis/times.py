"""Times as Kubernetes writes them (RFC 3339, UTC), and durations as Go does."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = r"([0-9]{1,9}(?:[.][0-9]{1,9})?)(ms|s|m|h)"
_DURATION: Final = re.compile(f"(?:{_PART})+|0")


def seconds(moment: datetime) -> str:
    """Return ``moment``, which is aware, as a Time: ``2025-01-31T12:00:00Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro(moment: datetime) -> str:
    """Return ``moment`` as a MicroTime, which Go refuses without its six digits."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> datetime | None:
    """Return the moment that ``text`` names, aware; None for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def duration(text: str) -> float:
    """Return the seconds of a duration such as ``20s``, ``1m30s``, ``500ms`` or ``0``.

    Source: Go, ``time.ParseDuration``.

    Raises:
        ValueError: ``text`` is not a duration.
    """
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration such as 20s or 2m")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))


# Clocks -------------------------------------------------------------------------------------------


def ahead(date: str, now: datetime) -> timedelta:
    """Return by how much who answered with the header ``date`` is ahead of ``now``; 0 for none.

    Shape: an HTTP date (RFC 9110, 5.6.7), of whole seconds.
    """
    try:
        return parsedate_to_datetime(date) - now
    except (TypeError, ValueError, OverflowError):  # none, without a zone, or of no calendar
        return timedelta()
