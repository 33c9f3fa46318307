"""A cluster's own key: what it signs to prove who it is, and what it asks peers to certify. Pure.

Source: docs/parity.md § 2.5, 4.8, 4.9 (3).
"""

from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from certs import pki, requests

_BARE_BYTES: Final = 32


def new_key() -> bytes:
    """Return a new Ed25519 private key, as PEM (PKCS 8, not encrypted).

    Its public half does not end in a zero byte: providers that run Liqo cut that off, and then
    compare what is left with the key of the request.
    """
    while True:
        key = ed25519.Ed25519PrivateKey.generate()
        if not key.public_key().public_bytes_raw().endswith(b"\0"):
            return pki.private_pem(key)


def public_key(key: bytes) -> bytes:
    """Return the public half of the private ``key`` (PEM) as a Tenant carries it.

    That of Ed25519 as its 32 bytes, which is the one form that providers that run Liqo read (PEM
    ends their reconciliation by a panic); others, which those do not know, as PEM.
    """
    public = pki.private_key(key).public_key()
    if isinstance(public, ed25519.Ed25519PublicKey):
        return public.public_bytes_raw()
    return pki.public_pem(public)


def sign(key: bytes, text: bytes) -> bytes:
    """Return the signature of ``text`` by the private ``key`` (PEM).

    Ed25519 signs the text itself, RSA by PKCS #1 v1.5 and elliptic curves in ASN.1 over SHA-256.

    Raises:
        ValueError: no such key.
    """
    private = pki.private_key(key)
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return private.sign(text)
    if isinstance(private, rsa.RSAPrivateKey):
        return private.sign(text, padding.PKCS1v15(), hashes.SHA256())
    return private.sign(text, ec.ECDSA(hashes.SHA256()))


def is_signed(public: bytes, text: bytes, signature: bytes) -> bool:
    """Whether ``signature`` of ``text`` is by the owner of ``public``: PEM, or 32 bare bytes."""
    try:
        _verify(_public(public), text, signature)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True


def is_key_of(request: bytes, public: bytes) -> bool:
    """Whether the CSR ``request`` (PEM) was made with the private half of ``public``."""
    try:
        asked = pki.read_request(request).public_key()
        given = _public(public)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return isinstance(asked, pki.PublicKey) and pki.public_pem(asked) == pki.public_pem(given)


def is_public_key_of(public: bytes, key: bytes) -> bool:
    """Whether ``public``, in either form, is the public half of the private ``key`` (PEM)."""
    try:
        return pki.public_pem(_public(public)) == pki.public_key(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def is_certified(certificate: bytes, public: bytes) -> bool:
    """Whether the PEM ``certificate`` is for ``public``: PEM, or 32 bare bytes."""
    try:
        return pki.certified_key(certificate) == pki.public_pem(_public(public))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def _verify(public: pki.PublicKey, text: bytes, signature: bytes) -> None:
    if isinstance(public, ed25519.Ed25519PublicKey):
        public.verify(signature, text)
    elif isinstance(public, rsa.RSAPublicKey):
        public.verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
    else:
        public.verify(signature, text, ec.ECDSA(hashes.SHA256()))


def _public(public: bytes) -> pki.PublicKey:
    if len(public) > requests.MAX_BYTES:
        raise ValueError(
            f"a public key of {len(public)} bytes is too long: {requests.MAX_BYTES} are the most"
        )
    if len(public) == _BARE_BYTES:
        return ed25519.Ed25519PublicKey.from_public_bytes(public)
    loaded = serialization.load_pem_public_key(public)
    if not isinstance(loaded, pki.PublicKey) or not requests.is_strong(loaded):
        raise ValueError("a weak key, or one of a kind that is not used here")
    return loaded
