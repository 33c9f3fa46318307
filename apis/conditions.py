"""Lists of conditions: one per type, and a transition time that moves with the status only."""

from collections.abc import Iterable
from datetime import datetime

from apis import times
from apis.objects import Object


def find(conditions: Iterable[Object] | None, type_: str) -> Object | None:
    """Return the condition of this type, if there is one.

    What another cluster says may be of any shape: items that are not conditions are passed over.
    """
    listed = conditions if isinstance(conditions, Iterable) else ()
    fit = (found for found in listed if isinstance(found, dict))
    return next((found for found in fit if found.get("type") == type_), None)


def is_true(conditions: Iterable[Object] | None, type_: str) -> bool:
    found = find(conditions, type_)
    return found is not None and found.get("status") == "True"


def set_(  # noqa: PLR0913, PLR0917  # a condition has that many fields
    conditions: Iterable[Object] | None,
    type_: str,
    status: str,
    reason: str,
    message: str,
    now: datetime,
) -> list[Object]:
    """Return ``conditions`` with that of this type set, at its place; the others as they are.

    lastTransitionTime stays where the status does, so setting the same again changes nothing.

    Units: ``now`` is aware UTC.
    """
    before = list(conditions or ())
    old = find(before, type_)
    new = {**(old or {}), "type": type_, "status": status, "reason": reason, "message": message}
    if old is None or old.get("status") != status or not old.get("lastTransitionTime"):
        new["lastTransitionTime"] = times.seconds(now)
    if old is None:
        return [*before, new]
    kept = [new if found is old else found for found in before]
    return [found for found in kept if found is new or found.get("type") != type_]


def without(conditions: Iterable[Object] | None, type_: str) -> list[Object]:
    return [found for found in conditions or () if found.get("type") != type_]
