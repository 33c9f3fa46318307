"""A cluster proves who it is: by keys of the three kinds that peers use."""

import datetime as dt

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from certs import identity, pki

RSA = pki.private_pem(rsa.generate_private_key(65537, 2048))
ALL = [
    pytest.param(identity.new_key(), id="ed25519"),
    pytest.param(pki.new_key(), id="p-256"),
    pytest.param(RSA, id="rsa"),
]


@pytest.mark.parametrize("key", ALL)
def test_a_signature_is_by_its_key_and_of_its_text(key: bytes) -> None:
    public = pki.public_key(key)
    signature = identity.sign(key, b"nonce")

    assert identity.is_signed(public, b"nonce", signature)
    assert not identity.is_signed(public, b"nonce2", signature)
    assert not identity.is_signed(pki.public_key(pki.new_key()), b"nonce", signature)
    assert not identity.is_signed(public, b"nonce", signature[:-1])
    assert not identity.is_signed(public, b"nonce", b"")


@pytest.mark.parametrize("key", ALL)
def test_a_request_is_of_the_key_that_made_it(key: bytes) -> None:
    request = pki.new_csr(key, common_name="rome", organizations=["liqo.io"])

    assert identity.is_key_of(request, pki.public_key(key))
    assert not identity.is_key_of(request, pki.public_key(identity.new_key()))


def test_a_bare_ed25519_key_is_understood() -> None:
    key = identity.new_key()
    loaded = serialization.load_pem_public_key(pki.public_key(key))
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw

    bare = loaded.public_bytes(*raw)

    assert identity.is_signed(bare, b"nonce", identity.sign(key, b"nonce"))


def test_a_tenant_carries_an_ed25519_key_as_liqo_reads_it() -> None:
    """Liqo's provider takes ``spec.publicKey`` for the 32 bytes, less a zero at their end."""
    made = [identity.public_key(identity.new_key()) for _ in range(600)]

    assert {len(public) for public in made} == {32}
    assert not [public for public in made if public.endswith(b"\0")]
    assert identity.public_key(RSA) == pki.public_key(RSA)


@pytest.mark.parametrize("key", ALL)
def test_a_public_key_is_known_in_either_form(key: bytes) -> None:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    ca = pki.new_ca("ca", now=now, lifetime=dt.timedelta(days=1))
    csr = pki.new_csr(key, common_name="rome")
    certificate = pki.sign(ca, csr, client=True, now=now, lifetime=dt.timedelta(hours=1))

    for public in (pki.public_key(key), identity.public_key(key)):
        assert identity.is_public_key_of(public, key)
        assert identity.is_certified(certificate, public)
        assert not identity.is_public_key_of(public, identity.new_key())
    assert not identity.is_certified(certificate, identity.public_key(identity.new_key()))
    assert not identity.is_certified(b"none", identity.public_key(key))
    assert not identity.is_public_key_of(b"", key)


@pytest.mark.parametrize(
    "public",
    [
        b"",
        b"x" * 31,
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        b"x" * 1_000_000,
        pki.public_pem(rsa.generate_private_key(65537, 1024).public_key()),  # noqa: S505
        pki.public_pem(ec.generate_private_key(ec.SECP224R1()).public_key()),
    ],
)
def test_what_is_no_key_or_a_weak_one_verifies_nothing(public: bytes) -> None:
    assert not identity.is_signed(public, b"nonce", b"x" * 64)
    assert not identity.is_key_of(pki.new_csr(pki.new_key(), common_name="rome"), public)
