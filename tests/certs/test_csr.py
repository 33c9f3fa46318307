"""Which certificate requests are exactly right. Source: security.md C3."""

import base64
import ipaddress
from collections.abc import Sequence

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from certs import csr, serving

IP = "10.1.2.3"
KEY = ec.generate_private_key(ec.SECP256R1())
CN, ORG = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME
SUBJECT = ((ORG, "system:nodes"), (CN, "system:node:milan"))
NAMES: tuple[x509.GeneralName, ...] = (x509.IPAddress(ipaddress.ip_address(IP)),)
WEAK = rsa.generate_private_key(65537, 1024)  # noqa: S505  # to be refused
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def forged(
    subject: Sequence[tuple[x509.ObjectIdentifier, str]] = SUBJECT,
    names: Sequence[x509.GeneralName] = NAMES,
    *,
    extensions: Sequence[x509.ExtensionType] = (),
    key: Key = KEY,
) -> bytes:
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    request = builder.sign(key, algorithm)
    return request.public_bytes(serialization.Encoding.PEM)


def problems(pem: bytes, *, dns: Sequence[str] = ()) -> list[str]:
    return csr.problems(
        pem, common_name="system:node:milan", organization="system:nodes", ips=[IP], dns=dns
    )


def test_what_the_virtual_kubelet_sends_is_right() -> None:
    assert problems(serving.request("milan", ips=[IP]).csr) == []
    assert problems(serving.request("milan", ips=[IP], dns=["a"]).csr, dns=["a"]) == []


def test_the_key_is_the_requests_and_is_not_shown() -> None:
    made = serving.request("milan", ips=[IP])
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
    pytest.param(forged(key=ec.generate_private_key(ec.SECP192R1())), "", id="P-192"),
]


@pytest.mark.parametrize(("pem", "problem"), WRONG)
def test_what_is_wrong_is_said(pem: bytes, problem: str) -> None:
    found = problems(pem)

    assert found
    assert any(problem in one for one in found)


DER = x509.load_pem_x509_csr(RIGHT).public_bytes(serialization.Encoding.DER)
SIGNED = x509.load_pem_x509_csr(RIGHT).tbs_certrequest_bytes


@pytest.mark.filterwarnings("ignore:Attribute's length")
@settings(deadline=None)
@given(st.integers(0, len(DER) - 1), st.integers(1, 255), st.integers(0, 3))
def test_no_change_of_a_byte_is_taken_for_right(at: int, flip: int, cut: int) -> None:
    """Whatever is broken is denied with a reason, and nothing is raised. Source: security.md A8.

    What is not signed may be written in two ways (unused bits of the signature that are 0).
    """
    changed = bytearray(DER)
    changed[at] ^= flip
    broken = base64.b64encode(bytes(changed[: len(changed) - cut]))
    pem = (
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + broken + b"\n-----END CERTIFICATE REQUEST-----\n"
    )

    assert problems(pem) or x509.load_pem_x509_csr(pem).tbs_certrequest_bytes == SIGNED
