"""Reading parts of an object that no schema has vouched for. Pure.

What is not of the expected shape is the sender's mistake, and never an error of ours.
"""

from typing import Any, Final

from apis.objects import Object

INVALID: Final = 422


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


# Why something that was asked for is refused, as the one who asked is told. Pure ------------------


class DeniedError(Exception):
    """The request is understood and refused; users see the message, so say what to do."""

    def __init__(self, message: str, *, code: int = 403) -> None:
        super().__init__(message)
        self.code = code
