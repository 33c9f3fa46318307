"""The one contract for everything that loops."""

from typing import Protocol

from apis.objects import Key


class Reconciler(Protocol):
    """Brings one object's world to its desired state, from any state, any number of times."""

    async def reconcile(self, key: Key) -> float | None:
        """Return the seconds until the next look, or None to wait for an event.

        Raises:
            TerminalError: retrying cannot help; the loop records it, and waits for an event, or
                long.
            Exception: anything else is retried with backoff.
        """
        ...


class TerminalError(Exception):
    """``reason`` is a CamelCase word for conditions and events; the message is for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
