"""Whether what was found still says what we want of it."""

from collections.abc import Mapping
from typing import Any


def keeps(found: Any, wanted: Any) -> bool:
    """Whether every field of ``wanted`` is in ``found`` with that value.

    Fields that a server filled in, or somebody else added, do not count. Lists have to be equally
    long, and each item keeps its counterpart. A wanted empty map or list may be absent.
    """
    if isinstance(wanted, Mapping):
        return _keeps_map(found, wanted)
    if isinstance(wanted, list):
        return _keeps_list(found or [], wanted)
    return bool(found == wanted)


def _keeps_map(found: Any, wanted: Mapping[str, Any]) -> bool:
    if not wanted:
        return found is None or isinstance(found, Mapping)
    if not isinstance(found, Mapping):
        return False
    return all(keeps(found.get(name), value) for name, value in wanted.items())


def _keeps_list(found: Any, wanted: list[Any]) -> bool:
    if not isinstance(found, list) or len(found) != len(wanted):
        return False
    return all(keeps(have, want) for have, want in zip(found, wanted, strict=True))
