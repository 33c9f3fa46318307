"""Which certificate requests are exactly right. Source: docs/parity.md SEC-C3."""

import base64
import datetime as dt
import ipaddress
from collections.abc import Sequence

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import AttributeOID, ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from certs import identity, pki, requests

IP = "10.1.2.3"
KEY = ec.generate_private_key(ec.SECP256R1())
CN, ORG = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME
SUBJECT = ((ORG, "system:nodes"), (CN, "system:node:milan"))
NAMES: tuple[x509.GeneralName, ...] = (x509.IPAddress(ipaddress.ip_address(IP)),)
WEAK = rsa.generate_private_key(65537, 1024)  # noqa: S505  # to be refused
USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
    "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip
Key = (
    ec.EllipticCurvePrivateKey
    | rsa.RSAPrivateKey
    | ed25519.Ed25519PrivateKey
    | ed448.Ed448PrivateKey
)


def forged(
    subject: Sequence[tuple[x509.ObjectIdentifier, str]] = SUBJECT,
    names: Sequence[x509.GeneralName] = NAMES,
    *,
    extensions: Sequence[x509.ExtensionType] = (),
    key: Key = KEY,
    hashed: hashes.SHA224 | hashes.SHA256 = hashes.SHA256(),  # noqa: B008  # never changed
) -> bytes:
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    is_ed = isinstance(key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey)
    algorithm = None if is_ed else hashed
    request = builder.sign(key, algorithm)
    return request.public_bytes(serialization.Encoding.PEM)


def several() -> bytes:
    """Return a request whose CN and O are one part of its subject, in a set."""
    parts = x509.RelativeDistinguishedName([x509.NameAttribute(*each) for each in SUBJECT])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([parts]))
    builder = builder.add_extension(x509.SubjectAlternativeName(NAMES), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def with_password() -> bytes:
    """Return a request that is right but for an attribute beside its extensions."""
    name = x509.Name([x509.NameAttribute(*each) for each in SUBJECT])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    builder = builder.add_extension(x509.SubjectAlternativeName(NAMES), critical=False)
    builder = builder.add_attribute(AttributeOID.CHALLENGE_PASSWORD, b"x")
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def of_another_key() -> bytes:
    """Return a request with the signature that another request of the same owner has."""
    form = serialization.Encoding.DER
    one, other = (x509.load_pem_x509_csr(forged(names=names)) for names in (NAMES, ()))
    ours, theirs = one.public_bytes(form), other.signature
    # The signature is the end of both; those of P-256 may differ in length by a byte or three.
    while len(theirs) != len(one.signature):
        theirs = x509.load_pem_x509_csr(forged(names=())).signature
    text = base64.b64encode(ours[: -len(theirs)] + theirs)
    return (
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + text + b"\n-----END CERTIFICATE REQUEST-----\n"
    )


def problems(pem: bytes, *, dns: Sequence[str] = ()) -> list[str]:
    return requests.problems(
        pem, common_name="system:node:milan", organization="system:nodes", ips=[IP], dns=dns
    )


def test_what_the_virtual_kubelet_sends_is_right() -> None:
    assert problems(requests.serving_request("milan", ips=[IP]).csr) == []
    assert problems(requests.serving_request("milan", ips=[IP], dns=["a"]).csr, dns=["a"]) == []


def test_the_key_is_the_requests_and_is_not_shown() -> None:
    made = requests.serving_request("milan", ips=[IP])
    key = serialization.load_pem_private_key(made.key, None)
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    assert key.public_key().public_bytes(*form) == x509.load_pem_x509_csr(
        made.csr
    ).public_key().public_bytes(*form)
    assert "PRIVATE" not in repr(made)


@pytest.mark.parametrize(
    "pem",
    [
        forged(),
        forged(key=ed25519.Ed25519PrivateKey.generate()),
        forged(key=rsa.generate_private_key(65537, 2048)),
        b"\n" + forged() + b"\n\n",
    ],
)
def test_what_is_right_passes(pem: bytes) -> None:
    assert problems(pem) == []


RIGHT = forged()
BROKEN = bytearray(RIGHT)
BROKEN[-60] = ord("A") if BROKEN[-60] != ord("A") else ord("B")
WRONG = [
    pytest.param(b"", "cannot be read", id="nothing"),
    pytest.param(b"x" * 20_000, "too many", id="huge"),
    pytest.param(RIGHT[:200], "one PEM block", id="cut"),
    pytest.param(RIGHT + RIGHT, "one PEM block", id="two"),
    pytest.param(b"x\n" + RIGHT, "one PEM block", id="text before"),
    pytest.param(RIGHT + b"x", "one PEM block", id="text after"),
    pytest.param(RIGHT.replace(b"M", b"!", 1), "cannot be read", id="no base64"),
    pytest.param(bytes(BROKEN), "", id="tampered"),
    pytest.param(
        RIGHT.replace(b"CERTIFICATE REQUEST", b"CERTIFICATE"), "one PEM", id="certificate"
    ),
    pytest.param(forged(((ORG, "system:nodes"), (CN, "system:node:turin"))), "CN is", id="CN"),
    pytest.param(forged(((ORG, "system:nodes"), (CN, "system:node:milan "))), "CN is", id="blank"),
    pytest.param(forged(((ORG, "system:nodes"), (CN, "system:node:Milan"))), "CN is", id="case"),
    pytest.param(forged(((ORG, "system:nodes"),)), "CN is", id="no CN"),
    pytest.param(forged((*SUBJECT, (CN, "system:node:milan"))), "CN is", id="two CNs"),
    pytest.param(forged(((ORG, "system:masters"), SUBJECT[1])), "O is", id="O"),
    pytest.param(forged((*SUBJECT, (ORG, "system:masters"))), "O is", id="two Os"),
    pytest.param(forged(SUBJECT[1:]), "O is", id="no O"),
    pytest.param(
        forged((*SUBJECT, (NameOID.ORGANIZATIONAL_UNIT_NAME, "x"))), "more than CN and O", id="OU"
    ),
    pytest.param(
        forged((*SUBJECT, (NameOID.EMAIL_ADDRESS, "a@b.c"))), "more than CN and O", id="email"
    ),
    pytest.param(forged(names=()), "its names are none", id="no names"),
    pytest.param(
        forged(names=(x509.IPAddress(ipaddress.ip_address("10.1.2.4")),)), "10.1.2.4", id="IP"
    ),
    pytest.param(
        forged(names=(*NAMES, x509.IPAddress(ipaddress.ip_address("10.1.2.4")))),
        "its names",
        id="two IPs",
    ),
    pytest.param(forged(names=(*NAMES, *NAMES)), "its names", id="the IP twice"),
    pytest.param(
        forged(names=(*NAMES, x509.DNSName("kubernetes.default.svc"))), "its names", id="DNS"
    ),
    pytest.param(forged(names=(x509.DNSName(IP),)), "its names", id="IP as DNS"),
    pytest.param(
        forged(names=(*NAMES, x509.UniformResourceIdentifier("spiffe://x"))), "its names", id="URI"
    ),
    pytest.param(forged(names=(*NAMES, x509.RFC822Name("a@b.c"))), "its names", id="mail"),
    pytest.param(
        forged(extensions=[x509.BasicConstraints(ca=True, path_length=None)]),
        "extension 2.5.29.19",
        id="wants to be an authority",
    ),
    pytest.param(
        forged(extensions=[x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])]),
        "extension 2.5.29.37",
        id="client auth",
    ),
    pytest.param(forged(key=WEAK), "weak", id="RSA 1024"),
    pytest.param(forged(key=ed448.Ed448PrivateKey.generate()), "of a kind", id="Ed448"),
    pytest.param(forged(hashed=hashes.SHA224()), "its signature's hash", id="SHA-224"),
    *(
        pytest.param(forged(key=ec.generate_private_key(curve)), "weak", id=curve.name)
        for curve in (ec.SECP192R1(), ec.SECP224R1(), ec.SECP256K1(), ec.SECP521R1())
    ),
    pytest.param(b"x" * 5_000_000, "too many", id="5 MB"),
    pytest.param(RIGHT + forged(key=ec.generate_private_key(ec.SECP256R1())), "one PEM", id="more"),
    *(
        pytest.param(forged((*SUBJECT, (oid, "DE"))), "more than CN and O", id=oid.dotted_string)
        for oid in (
            NameOID.LOCALITY_NAME,
            NameOID.SERIAL_NUMBER,
            NameOID.COUNTRY_NAME,
            NameOID.DOMAIN_COMPONENT,
            NameOID.USER_ID,
        )
    ),
    *(
        pytest.param(forged((SUBJECT[0], (CN, name))), "CN is", id=ascii(name))
        for name in (
            "system:node:milan\0",
            "\0system:node:milan",
            "\u202esystem:node:milan",
            "system:node:mil\u0430n",
            "system:node:milan\u200b",
            "SYSTEM:NODE:MILAN",
        )
    ),
    pytest.param(forged(((ORG, "system:nodes\0"), SUBJECT[1])), "O is", id="O with NUL"),
    pytest.param(forged(((ORG, "System:Nodes"), SUBJECT[1])), "O is", id="case of O"),
    pytest.param(
        forged(((ORG, "system:nodes"), (ORG, "system:nodes"), SUBJECT[1])), "O is", id="O twice"
    ),
    pytest.param(forged(()), "CN is", id="no subject"),
    pytest.param(several(), "several values", id="CN and O in one part"),
    pytest.param(with_password(), "attribute 1.2.840.113549.1.9.7", id="challenge password"),
    pytest.param(
        forged(extensions=[x509.KeyUsage(**{name: name == "key_cert_sign" for name in USAGES})]),
        "extension 2.5.29.15",
        id="signs certificates",
    ),
    pytest.param(
        forged(extensions=[x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"x")]),
        "extension 1.2.3.4",
        id="an extension nobody knows",
    ),
    pytest.param(
        forged(names=(*NAMES, x509.RegisteredID(x509.ObjectIdentifier("1.2.3.4")))),
        "its names",
        id="a registered ID",
    ),
    pytest.param(
        forged(names=(*NAMES, x509.DirectoryName(x509.Name([x509.NameAttribute(CN, "admin")])))),
        "its names",
        id="a directory name",
    ),
    pytest.param(
        forged(names=(x509.IPAddress(ipaddress.ip_address("::ffff:10.1.2.3")),)),
        "its names",
        id="the IP as IPv6",
    ),
    pytest.param(
        RIGHT.replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST"), "one PEM", id="new"
    ),
    pytest.param(of_another_key(), "not signed by the key", id="signed by another"),
]


@pytest.mark.parametrize(("pem", "problem"), WRONG)
def test_what_is_wrong_is_said(pem: bytes, problem: str) -> None:
    found = problems(pem)

    assert found
    assert any(problem in one for one in found)


@pytest.mark.parametrize(
    ("bits", "is_taken"),
    [
        *((bits, False) for bits in (512, 1024, 2047, 4097, 8192, 16384)),
        *((bits, True) for bits in (2048, 3072, 4096)),
    ],
)
def test_rsa_keys_have_2048_to_4096_bits(bits: int, *, is_taken: bool) -> None:
    key = rsa.RSAPublicNumbers(65537, 2 ** (bits - 1) + 1).public_key()

    assert requests.is_strong(key) is is_taken


DER = x509.load_pem_x509_csr(RIGHT).public_bytes(serialization.Encoding.DER)
SIGNED = x509.load_pem_x509_csr(RIGHT).tbs_certrequest_bytes


@pytest.mark.filterwarnings("ignore:Attribute's length")
@settings(deadline=None)
@given(st.integers(0, len(DER) - 1), st.integers(1, 255), st.integers(0, 3))
def test_no_change_of_a_byte_is_taken_for_right(at: int, flip: int, cut: int) -> None:
    """Whatever is broken is denied with a reason, and nothing is raised.

    What is not signed may be written in two ways (unused bits of the signature that are 0).
    Source: docs/parity.md SEC-A8.
    """
    changed = bytearray(DER)
    changed[at] ^= flip
    broken = base64.b64encode(bytes(changed[: len(changed) - cut]))
    pem = (
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + broken + b"\n-----END CERTIFICATE REQUEST-----\n"
    )

    assert problems(pem) or x509.load_pem_x509_csr(pem).tbs_certrequest_bytes == SIGNED


# A cluster proves who it is: by keys of the three kinds that peers use.


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
