"""When a certificate has to be made again: a chain of checks named for what they find. Pure.

Source: cert-manager's policy chains; docs/parity.md § 2.5, renewal after two thirds of the life.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from apis import authentication
from certs import pki
from certs.pki import Keypair


@dataclass(frozen=True)
class Held:
    """A certificate with its key as found, and what it is held against."""

    pair: Keypair | None
    trusted: bytes = b""
    """A PEM bundle: one of these has to have signed it."""
    dns: tuple[str, ...] = ()


Check: TypeAlias = Callable[[Held, Keypair, dt.datetime], str | None]


def reason_to_replace(held: Held, now: dt.datetime) -> str | None:
    """Return why the serving certificate ``held`` has to be made again, None while it need not."""
    return _first(_LEAF, held, now)


def reason_to_replace_ca(pair: Keypair | None, now: dt.datetime) -> str | None:
    """Return why the authority ``pair`` has to be followed by another, None while it need not."""
    return _first(_AUTHORITY, Held(pair), now)


def renewal(certificate: bytes, issued_at: dt.datetime | None, now: dt.datetime) -> dt.datetime:
    """Return when ``certificate``, which a signer gave at ``issued_at``, is to be renewed.

    That is when two thirds of its life are over, which begins when it was signed: signers date the
    beginning back. ``issued_at`` and ``now`` are of one clock, the certificate's times of the
    signer's, and either may be wrong. What was issued or begins later than ``now`` is due, but
    nothing within a twentieth of its life: no clock makes a signer work all the time.

    Source: docs/parity.md F-25, W-1.
    """
    started, expires = pki.started(certificate), pki.expiry(certificate)
    issued_at = issued_at or started
    if issued_at > now:
        return now
    is_credible = started <= issued_at < expires
    due = _two_thirds(issued_at if is_credible else started, expires)
    return max(now if started > now else due, issued_at + (expires - started) / 20)


def due(certificate: bytes) -> dt.datetime:
    """Return the same of a ``certificate`` of ours, whose life begins when it was made."""
    return _two_thirds(made(certificate), pki.expiry(certificate))


def made(certificate: bytes) -> dt.datetime:
    """Return when ``certificate`` was made, which is later than the time from which it holds."""
    return pki.started(certificate) + pki.BACKDATED


def is_settled(certificate: bytes, now: dt.datetime, settled: dt.timedelta) -> bool:
    """Whether ``certificate`` was made so long ago that everybody has it."""
    return now - made(certificate) >= settled


def is_served(held: Held, now: dt.datetime, settled: dt.timedelta) -> bool:
    """Whether all webhooks serve ``held`` by now: what it is held against has signed it."""
    if held.pair is None:
        return False
    try:
        is_signed = _not_trusted(held, held.pair, now) is None
        return is_signed and is_settled(held.pair.certificate, now, settled)
    except ValueError:
        return False


def signer(authorities: Sequence[Keypair], now: dt.datetime, settled: dt.timedelta) -> Keypair:
    """Return who signs now: the newest whose certificate all clients have had time to learn.

    Shape: ``authorities`` newest first, at least one. Where none is that old, the oldest signs.
    """
    known = (pair for pair in authorities if is_settled(pair.certificate, now, settled))
    return next(known, authorities[-1])


def _two_thirds(start: dt.datetime, end: dt.datetime) -> dt.datetime:
    return start + (end - start) * 2 / 3


def _first(checks: Sequence[Check], held: Held, now: dt.datetime) -> str | None:
    if held.pair is None:
        return "there is none"
    try:
        found = (check(held, held.pair, now) for check in checks)
        return next((reason for reason in found if reason), None)
    except ValueError:
        return "it cannot be read"


def _key_mismatch(_held: Held, pair: Keypair, _now: dt.datetime) -> str | None:
    fits = pki.fits_key(pair.certificate, pair.key)
    return None if fits else "its key is another one's"


def _not_yet_valid(_held: Held, pair: Keypair, now: dt.datetime) -> str | None:
    return "it begins later" if pki.started(pair.certificate) > now else None


def _expires_soon(_held: Held, pair: Keypair, now: dt.datetime) -> str | None:
    return "two thirds of its life are over" if due(pair.certificate) <= now else None


def _names_differ(held: Held, pair: Keypair, _now: dt.datetime) -> str | None:
    same = set(pki.subject(pair.certificate).dns) == set(held.dns)
    return None if same else "it is for other names"


def _not_trusted(held: Held, pair: Keypair, _now: dt.datetime) -> str | None:
    signed = (
        pki.is_signed_by(pair.certificate, ca) for ca in authentication.certificates(held.trusted)
    )
    return None if any(signed) else "no authority that clients trust has signed it"


_AUTHORITY: Final[tuple[Check, ...]] = (_key_mismatch, _not_yet_valid, _expires_soon)
_LEAF: Final[tuple[Check, ...]] = (*_AUTHORITY, _names_differ, _not_trusted)
