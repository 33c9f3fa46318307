"""Where a process listens, as Go programs write it: ``:8082``, ``1.2.3.4:8082``, ``[::1]:8082``."""

import re
from typing import Final, NamedTuple

MOST: Final = 65535
_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:\s]*)):([0-9]{1,5})")


class Address(NamedTuple):
    """A host (empty: all interfaces) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse(text: str) -> Address | None:
    """Return the address that ``text`` means; None for an empty text or ``0``, which is nowhere.

    Raises:
        ValueError: it is no address.
    """
    if text in {"", "0"}:
        return None
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > MOST:
        raise ValueError(
            f"{text!r:.80} is no address such as :8082 or 127.0.0.1:8082 (0 serves nothing)"
        )
    return Address(found[1] or found[2], int(found[3]))
