"""What a consumer signs to prove who it is, and why one text is good for one purpose only.

A provider's nonce says who may sign it, for whom, and until when. It is text, so that a signature
of it is never one of a certificate request; peers that run Liqo sign it as the word it is to them.
Source: docs/parity.md § 2.5, 4.8; SEC-A10.
"""

import base64
import binascii
import hashlib
from datetime import datetime, timedelta
from typing import Final

LIFETIME: Final = timedelta(minutes=10)
_OWN_SKEW: Final = timedelta(minutes=1)
"""By which the clocks of a provider's own controllers may differ."""
RANDOM_BYTES: Final = 32
_PREFIX: Final = "pyliqo-nonce-v1"
_MAX_LENGTH: Final = 512
_FIELDS: Final = 5
_MAX_DIGITS: Final = 20
_LIQO_BYTES: Final = 64


def text(consumer: str, provider: str, dice: bytes, now: datetime) -> str:
    """Return a nonce that ``consumer`` may sign for ``provider`` in the next ten minutes.

    Shape: ``pyliqo-nonce-v1/<consumer>/<provider>/<end, seconds since 1970>/<hex>``.
    """
    end = int((now + LIFETIME).timestamp())
    return f"{_PREFIX}/{consumer}/{provider}/{end}/{dice.hex()}"


def problem(
    nonce: str, consumer: str, provider: str, now: datetime, *, skew: timedelta = _OWN_SKEW
) -> str:
    """Return why ``nonce`` is not one that ``consumer`` may use at ``provider`` now; "" if it is.

    It names what is wrong and never the nonce. ``skew``: how far ahead the clock may be that made
    it.
    """
    fields = nonce.split("/") if len(nonce) <= _MAX_LENGTH else []
    if len(fields) != _FIELDS or fields[0] != _PREFIX or not _is_hex(fields[4]):
        return "it is not a nonce of this provider"
    if fields[1:3] != [consumer, provider]:
        return f"it was made for {fields[1]!r} at {fields[2]!r}, not for {consumer} at {provider}"
    left_s = _left_s(nonce, now)
    if left_s is None or left_s <= 0:
        return "it is older than ten minutes"
    is_ours = left_s <= (LIFETIME + skew).total_seconds()
    return (
        "" if is_ours else "it ends later than ten minutes from now: no provider makes such a one"
    )


def has_ended(nonce: str, now: datetime) -> bool:
    """Whether ``nonce`` is one of ours whose time is over, or none that we could have made."""
    left_s = _left_s(nonce, now)
    return left_s is None or not 0 < left_s <= (LIFETIME + _OWN_SKEW).total_seconds()


def reason_not_to_sign(nonce: str, consumer: str, provider: str, now: datetime) -> str:
    """Return why ``consumer`` does not sign what came as a nonce of ``provider``; "" if it does.

    What Liqo makes is signed too: base64 of exactly 64 bytes, which is nothing else by chance. The
    clock of the provider may be as far ahead of ours as it may be behind it.
    """
    return "" if _is_liqos(nonce) else problem(nonce, consumer, provider, now, skew=LIFETIME)


def fingerprint(data: bytes) -> str:
    """Return what stands for ``data`` where it may be read by others."""
    return hashlib.sha256(data).hexdigest()[:32]


def _left_s(nonce: str, now: datetime) -> float | None:
    """Return the seconds that ``nonce`` has left; None for what says none."""
    fields = nonce.split("/")
    if len(fields) != _FIELDS or not (fields[3].isascii() and fields[3].isdecimal()):
        return None
    return int(fields[3][:_MAX_DIGITS]) - now.timestamp()


def _is_liqos(nonce: str) -> bool:
    if len(nonce) > _MAX_LENGTH:
        return False
    try:
        return len(base64.b64decode(nonce, validate=True)) == _LIQO_BYTES
    except (binascii.Error, ValueError):
        return False


def _is_hex(word: str) -> bool:
    return len(word) == 2 * RANDOM_BYTES and set(word) <= set("0123456789abcdef")
