"""What others wrote, as it may be shown: bounded, and what cannot be printed escaped.

Source: security.md B2; hostile.md H14, M29.
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
