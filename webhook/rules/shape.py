"""Reading parts of an object that no schema has vouched for. Pure.

What is not of the expected shape is the sender's mistake, and never an error of ours.
"""

from typing import Any

import msgspec

from apis.objects import Object
from webhook.admission import DeniedError, MalformedError

INVALID = 422


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


def struct(value: Any, path: str) -> Object:
    """Return ``value`` if it is an object, {} if it is null."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DeniedError(f"{path} must be an object: correct it", code=INVALID)
    return value


def structs(value: Any, path: str) -> list[Object]:
    """Return ``value`` if it is a list of objects, [] if it is null."""
    return [struct(item, f"{path}[{index}]") for index, item in enumerate(items(value, path))]


def items(value: Any, path: str) -> list[Any]:
    """Return ``value`` if it is a list, [] if it is null."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise DeniedError(f"{path} must be a list: correct it", code=INVALID)
    return value


def text(value: Any, path: str) -> str:
    """Return ``value`` if it is a string, "" if it is null."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DeniedError(f"{path} must be a string: correct it", code=INVALID)
    return value
