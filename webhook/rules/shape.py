"""Whether an object is of its kind, as far as rules read it: ``apis.validation`` reads the rest.

What is not of the expected shape is the sender's mistake, and never an error of ours.
"""

from typing import Any

import msgspec

from apis.objects import Object
from webhook.admission import MalformedError


class _Metadata(msgspec.Struct, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[dict[str, Any]] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: dict[str, Any] | None = None


def check(obj: Object, kind: str) -> None:
    """Check the metadata of ``obj``, and that its spec is an object.

    Raises:
        MalformedError: something else is there.
    """
    fits(obj, _Object, kind)


def fits(obj: Object, shape: type[msgspec.Struct], kind: str) -> None:
    """Check what rules read of ``obj``, a ``kind``: what ``shape`` lacks is not looked at.

    Raises:
        MalformedError: something else is there.
    """
    try:
        msgspec.convert(obj, shape)
    except msgspec.ValidationError as error:
        raise MalformedError(f"not a {kind}: {error}") from error
