"""How far apart two clocks are."""

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime


def ahead(date: str, now: datetime) -> timedelta:
    """Return by how much who answered with the header ``date`` is ahead of ``now``; 0 for none.

    Shape: an HTTP date (RFC 9110, 5.6.7), of whole seconds.
    """
    try:
        return parsedate_to_datetime(date) - now
    except (TypeError, ValueError, OverflowError):  # none, without a zone, or of no calendar
        return timedelta()
