"""Which generation of a local pod the provider speaks of.

Source: docs/parity.md § 5.5.5; Kubernetes, Pod, status.observedGeneration and that of conditions.
"""

from typing import Final

from apis import keys, objects
from apis.objects import Object

_MOST_DIGITS: Final = 18
"""More than a generation of 64 bits ever has to say here."""


def taken_up(local: Object, remote: Object, before: Object, theirs: Object) -> int | None:
    """Return the generation of ``local`` that ``theirs`` tells of; None if nobody says.

    Shape: ``theirs`` is the status of the Pod ``remote`` or one of its conditions, ``before`` what
    ``local`` had in its place.
    """
    had: int | None = before.get("observedGeneration")
    seen = theirs.get("observedGeneration")
    has, wants = remote["metadata"].get("generation"), local["metadata"].get("generation")
    if not all(isinstance(one, int) for one in (seen, has, wants)):
        return had
    sent = _sent(remote)
    if seen < has or sent is None:
        return had
    return int(max(had or 0, min(sent, wants)))


def _sent(remote: Object) -> int | None:
    """Return of which generation of the local pod ``remote`` was made; None if that is no number.

    Source: docs/parity.md H25.
    """
    noted: object = objects.annotations(remote).get(keys.LOCAL_POD_GENERATION, "1")
    if not isinstance(noted, str) or not noted.isascii() or len(noted) > _MOST_DIGITS:
        return None
    return int(noted) if noted.isdecimal() else None
