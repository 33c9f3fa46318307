"""Times as Kubernetes writes them (RFC 3339, UTC)."""

from datetime import UTC, datetime


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
