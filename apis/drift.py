"""Whether what was found still says what we want of it."""

import hashlib
from collections.abc import Mapping
from typing import Any

from apis import keys, objects
from apis.objects import Object


def stamped(wanted: Object) -> Object:
    """Return ``wanted`` with the digest of all that is sent."""
    text = objects.canonical(wanted)
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    metadata = wanted["metadata"]
    annotations = {**(metadata.get("annotations") or {}), keys.APPLIED: digest}
    return {**wanted, "metadata": {**metadata, "annotations": annotations}}


def is_current(wanted: Object, shown: Object, found: Object) -> bool:
    """Whether applying ``wanted``, which is stamped, would change nothing.

    The digest tells that nothing else was sent last, and so that nothing has to be taken back;
    ``shown``, the part of ``wanted`` that servers leave as it is, that nobody has changed it since.
    What others added stays theirs.
    """
    sent = objects.annotations(wanted)[keys.APPLIED]
    return objects.annotations(found).get(keys.APPLIED) == sent and keeps(found, shown)


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
