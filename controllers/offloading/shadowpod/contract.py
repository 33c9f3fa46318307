"""What the life of a ShadowPod's Pod needs to know of Quotas, and of Pods that ended."""

from contextlib import AbstractContextManager
from typing import Protocol

from apis.objects import Object
from apis.quotas import Refusal
from apis.resources import Resources


class Ledger(Protocol):
    """Who may have a Pod: what the Quotas have booked. Source: docs/parity.md § 4.10."""

    def is_booked(self, shadow: Object) -> bool:
        """Whether there is room for the Pod of ``shadow``, set aside for it."""
        ...

    def covers(self, shadow: Object, usage: Resources) -> bool:
        """Whether so much is set aside for the Pod of ``shadow``, which exists."""
        ...

    def put_off(self, shadow: Object) -> None:
        """Give back what is set aside for ``shadow``: there can be no Pod of it now."""
        ...

    def ask(self, shadow: Object) -> None:
        """Let ``shadow`` be judged again after that."""
        ...

    def refusal(self, shadow: Object) -> Refusal | None:
        """Return why it has to wait; None while nobody has judged it."""
        ...

    def creating(self, uid: str) -> AbstractContextManager[None]:
        """Return within what the Pod is created, or grows, so that its booking stays."""
        ...


class Ends(Protocol):
    """How Pods were seen to end."""

    def of(self, shadow: Object) -> str:
        """Return the final phase of the Pod of ``shadow``; empty while none was seen."""
        ...

    def forget(self, shadow: Object) -> None:
        """Forget what the ShadowPod itself says now."""
        ...


class NoEnds:
    """Nobody looks on."""

    def of(self, _shadow: Object) -> str:
        return ""

    def forget(self, _shadow: Object) -> None:
        return
