"""JSON read strictly: no key twice, no number but JSON's own, no depth without end. Pure.

Source: docs/parity.md A-2 to A-9; SEC-D8.
"""

import itertools
import json
import math
from typing import Any, Final, NoReturn

import msgspec

MAX_DEPTH: Final = 200
MAX_NESTED: Final = 2**19
"""Lists and objects in one body: what the two largest objects of an API server have, and more."""

_KEPT: Final = b"{}[]"
_REST: Final = bytes(sorted(set(range(256)) - set(_KEPT) - set(b'"')))
_STEPS: Final = bytes.maketrans(_KEPT, b"\x01\xff\x01\xff")
"""One level down, one up, as signed bytes."""
_AT_ONCE: Final = 2**16
"""Brackets that are counted before another thread may have its turn."""


def decode(body: bytes) -> Any:
    """Return the JSON value in ``body``, read strictly.

    What is written back as it came has no key twice and no number but JSON's own, and is what API
    servers send; everything else is read again by the slower ``_read_strictly``.

    Raises:
        ValueError: not JSON in UTF-8, or nothing that API servers send: the message says so.
    """
    _check_shape(body)
    try:
        value = msgspec.json.decode(body)
        is_plain = msgspec.json.encode(value) == _as_written_here(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        is_plain = False
    if not is_plain:
        value = None  # a large one does not have to be there twice
        value = _read_strictly(body)
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


def _check_shape(body: bytes) -> None:
    """Check that ``body`` is nested neither too deep nor too often; it need be no JSON yet.

    Each byte is looked at a fixed number of times, whatever the depth, and nothing is decoded.

    Raises:
        ValueError: it is.
    """
    if _openings(body) <= MAX_DEPTH:
        return
    brackets = _brackets(body)
    if _openings(brackets) > MAX_NESTED:
        raise ValueError(f"more than {MAX_NESTED} lists and objects")
    steps = memoryview(brackets.translate(_STEPS)).cast("b")
    depth = 0
    for start in range(0, len(steps), _AT_ONCE):
        depths = list(itertools.accumulate(steps[start : start + _AT_ONCE], initial=depth))
        if max(depths) > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        depth = depths[-1]


def _openings(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def _brackets(body: bytes) -> bytes:
    """Return the brackets in ``body`` that are in no text."""
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    kept = plain.translate(None, _REST).replace(b'""', b"")  # most texts have no brackets
    return b"".join(kept.split(b'"')[::2])
