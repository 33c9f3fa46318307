"""What clients trust: the certificates of all authorities that may still have signed. Pure."""

import datetime as dt

from apis.authentication import certificates
from certs import pki


def merge(*bundles: bytes, now: dt.datetime) -> bytes:
    """Return the certificates of all ``bundles`` as PEM, each once, in order, without ended ones.

    What cannot be read is left out too: API servers refuse a bundle with one bad certificate.
    """
    found = dict.fromkeys(one for bundle in bundles for one in certificates(bundle))
    return b"".join(one for one in found if not _has_ended(one, now))


def _has_ended(certificate: bytes, now: dt.datetime) -> bool:
    try:
        return pki.expiry(certificate) <= now
    except ValueError:
        return True
