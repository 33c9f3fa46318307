"""What others wrote, as it may be shown: bounded, and what cannot be printed escaped.

Source: docs/parity.md SEC-B2; H14, M29.
"""

import re
from typing import Final

MOST: Final = 1024
"""Characters of a message, as many as Kubernetes keeps of an Event's."""
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def clamp(value: object, most: int = MOST) -> str:
    """Return at most ``most`` characters of ``value``, empty unless it is a text."""
    if not isinstance(value, str):
        return ""
    head = value[:most]  # first, lest a long one cost time
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", head)[:most]


_HARMFUL: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What moves a terminal or turns text around; tab, line feed and carriage return do not."""


def data(value: object, most_bytes: int) -> str:
    """Return at most ``most_bytes`` of ``value`` that programs may read, empty unless it is a text.

    It is as it was, but for what would be harmful where it is shown. Source: docs/decisions/0013
    (10).
    """
    if not isinstance(value, str):
        return ""
    shown = _HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", value[:most_bytes])
    return shown.encode()[:most_bytes].decode(errors="ignore")


def pairs(text: str) -> dict[str, str]:
    """Return {"a": "1", "b": "2"} for ``a=1,b=2``; blanks around a pair do not count.

    Raises:
        ValueError: a pair lacks its ``=`` or its key.
    """
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, sign, value = part.partition("=")
        if not sign or not name:
            raise ValueError(f"{part!r} is not key=value")
        found[name] = value
    return found


def without_userinfo(text: str) -> str:
    """Return ``text`` without the user names and passwords of URLs in it. RFC 3986, 3.2.1.

    A password may have a ``/`` that nobody escaped, and a proxy a URL without a scheme.
    """
    return _WORD.sub(lambda found: _without_userinfo(found[0]), text)


def _without_userinfo(word: str) -> str:
    head, at, rest = word.rpartition("@")
    before, slashes, _ = head.partition("//")
    return f"{before}{slashes}{rest}" if at and slashes else rest if ":" in head else word


_WORD: Final = re.compile(r"\S+")
