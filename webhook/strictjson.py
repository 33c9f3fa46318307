"""JSON read strictly: no key twice, no number but JSON's own, no depth without end. Pure.

Source: admission.md 2-9; security.md D8.
"""

import json
import math
from typing import Any, Final, NoReturn

import msgspec

MAX_DEPTH: Final = 200
_NO_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"{}[]")))


def decode(body: bytes) -> Any:
    """Return the JSON value in ``body``, read strictly.

    What is written back as it came has no key twice and no number but JSON's own, and is what API
    servers send; everything else is read again by the slower ``_read_strictly``.

    Raises:
        ValueError: not JSON in UTF-8, or nothing that API servers send: the message says so.
    """
    try:
        value = msgspec.json.decode(body)
        is_plain = msgspec.json.encode(value) == _as_written_here(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        is_plain = False
    if not is_plain:
        value = None  # a large one does not have to be there twice
        value = _read_strictly(body)
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _is_deep(body, value):
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    return value


def _as_written_here(body: bytes) -> bytes:
    """Return ``body`` without what Go escapes and we do not, and without its newline."""
    if b"\\u00" in body:
        for escaped, plain in ((b"\\u003c", b"<"), (b"\\u003e", b">"), (b"\\u0026", b"&")):
            body = body.replace(escaped, plain)
    return body[:-1] if body.endswith(b"\n") else body


def _read_strictly(body: bytes) -> Any:
    """Return the JSON value in ``body``.

    Python's reader accepts NaN and keys that occur twice, and overflows on depth; API servers
    send neither, and two readers of a doubled key may see two different objects.
    """
    try:
        text = body.decode("utf-8", "strict")
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
        if b"\\u" in body:  # the only way to a lone surrogate, which no answer could repeat
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise ValueError("not UTF-8 without a byte-order mark") from error
    except RecursionError as error:
        raise ValueError(f"nested deeper than {MAX_DEPTH}") from error
    except ValueError as error:
        raise ValueError(f"not strict JSON: {error}") from error
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is out of range")
    return number


def _is_deep(body: bytes, value: Any) -> bool:
    """Whether ``value``, which was read from ``body``, is nested too deep."""
    brackets = body.translate(None, _NO_BRACKETS)
    for _ in range(MAX_DEPTH // 2):
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if not brackets:  # a round takes one level away, or two
            return False
    return _depth_exceeds(value, MAX_DEPTH)  # or texts with brackets


def _depth_exceeds(value: Any, most: int) -> bool:
    level, depth = [value], 0
    while level := [node for node in level if isinstance(node, dict | list)]:
        depth += 1
        if depth > most:
            return True
        level = [
            child for node in level for child in (node.values() if isinstance(node, dict) else node)
        ]
    return False
