"""Which generation of a local pod the provider speaks of.

Source: behaviour.md 5.5.5; Kubernetes, Pod, status.observedGeneration and that of conditions.
"""

from apis import keys, objects
from apis.objects import Object


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
    sent = objects.annotations(remote).get(keys.LOCAL_POD_GENERATION, "1")
    if seen < has or not sent.isdecimal():
        return had
    return int(max(had or 0, min(int(sent), wants)))
