"""Certificate requests: whether one asks for exactly what it may, and those of servers. Pure.

Source: docs/parity.md § 2.5, "VK serving"; SEC-A8, SEC-C3; Kubernetes, "Certificates and
Certificate Signing Requests", signer ``kubernetes.io/kubelet-serving``.
"""

import datetime as dt
import ipaddress
from collections.abc import Iterator, Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from apis import naming
from certs import pki
from certs.keypair import ORGANIZATION as ORGANIZATION  # noqa: PLC0414  # read with the rest
from certs.keypair import SIGNER as SIGNER  # noqa: PLC0414
from certs.keypair import USAGES as USAGES  # noqa: PLC0414
from certs.keypair import Keypair, ServingRequest

MAX_BYTES: Final = 8 * 1024
RSA_BITS: Final = range(2048, 4097)

_BEGIN: Final = b"-----BEGIN CERTIFICATE REQUEST-----"
_END: Final = b"-----END CERTIFICATE REQUEST-----"
_EXTENSIONS: Final = x509.ObjectIdentifier("1.2.840.113549.1.9.14")
"""The one attribute that a request may have: its extensions (RFC 2985, extensionRequest)."""
_CURVES: Final = (ec.SECP256R1, ec.SECP384R1)
_HASHES: Final = (hashes.SHA256, hashes.SHA384, hashes.SHA512)


def problems(
    pem: bytes,
    *,
    common_name: str,
    organization: str | Sequence[str],
    ips: Sequence[str] = (),
    dns: Sequence[str] = (),
) -> list[str]:
    """Return what is wrong with the request ``pem``; [] when it asks for exactly this.

    ``ips`` and ``dns`` are all the names it has to carry, in any order, and the only ones. The
    usages are not in it: they are a field of the CertificateSigningRequest.
    """
    try:
        found = _read(pem)
        organizations = [organization] if isinstance(organization, str) else list(organization)
        return [
            *_key_problems(found),
            *_subject_problems(found, common_name, organizations),
            *_extension_problems(found, ips, dns),
        ]
    except (ValueError, TypeError, UnsupportedAlgorithm, *pki.ODD) as error:
        return [f"it cannot be read: {error}"]


def _read(pem: bytes) -> x509.CertificateSigningRequest:
    if len(pem) > MAX_BYTES:
        raise ValueError(f"{len(pem)} bytes are too many")
    text = pem.strip()
    if not text.startswith(_BEGIN) or not text.endswith(_END) or text.count(b"-----BEGIN") != 1:
        raise ValueError("it has to be one PEM block CERTIFICATE REQUEST and nothing else")
    return pki.read_request(text)


def _key_problems(found: x509.CertificateSigningRequest) -> Iterator[str]:
    if not found.is_signature_valid:
        yield "it is not signed by the key it carries"
    if not is_strong(found.public_key()):
        yield "its key is weak, or of a kind that is not used here"
    ed = isinstance(found.public_key(), ed25519.Ed25519PublicKey)
    if not ed and not isinstance(found.signature_hash_algorithm, _HASHES):
        yield "its signature's hash is weak"


def is_strong(key: object) -> bool:
    """Whether the public ``key`` is Ed25519, P-256, P-384, or RSA of 2048 to 4096 bits."""
    if isinstance(key, ec.EllipticCurvePublicKey):
        return isinstance(key.curve, _CURVES)
    if isinstance(key, rsa.RSAPublicKey):
        return key.key_size in RSA_BITS
    return isinstance(key, ed25519.Ed25519PublicKey)


def _subject_problems(
    found: x509.CertificateSigningRequest, common_name: str, organizations: Sequence[str]
) -> Iterator[str]:
    allowed = {NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME}
    if any(attribute.oid not in allowed for attribute in found.subject):
        yield "its subject has more than CN and O"
    if any(len(rdn) != 1 for rdn in found.subject.rdns):
        yield "its subject has parts with several values"
    names = _values(found, NameOID.COMMON_NAME)
    if names != [common_name]:
        yield f"its CN is {names!r}, not {common_name!r}"
    groups = _values(found, NameOID.ORGANIZATION_NAME)
    if groups != list(organizations):
        yield f"its O is {groups!r}, not {list(organizations)!r}"


def _values(found: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> list[str | bytes]:
    return [attribute.value for attribute in found.subject.get_attributes_for_oid(oid)]


def _extension_problems(
    found: x509.CertificateSigningRequest, ips: Sequence[str], dns: Sequence[str]
) -> Iterator[str]:
    names: list[x509.GeneralName] = []
    for attribute in found.attributes:
        if attribute.oid != _EXTENSIONS:
            yield f"it carries the attribute {attribute.oid.dotted_string}"
    for extension in found.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            names = list(extension.value)
        else:
            yield f"it asks for the extension {extension.oid.dotted_string}"
    wanted = [x509.DNSName(name) for name in dns]
    addresses = [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips]
    if sorted(map(repr, names)) != sorted(map(repr, [*wanted, *addresses])):
        yield f"its names are {_shown(names)}, not {', '.join([*dns, *ips]) or 'none'}"


def _shown(names: Sequence[x509.GeneralName]) -> str:
    return ", ".join(str(getattr(name, "value", name)) for name in names) or "none"


# Certificates that processes serve with -----------------------------------------------------------

OWN_LIFETIME: Final = dt.timedelta(days=365)


def serving_request(node: str, *, ips: Sequence[str], dns: Sequence[str] = ()) -> ServingRequest:
    """Return a new key and the request for the certificate with which ``node`` serves its API.

    Raises:
        ValueError: one of ``ips`` is no address.
    """
    key = pki.new_key()
    name = naming.serving_name(node)
    csr = pki.new_csr(key, common_name=name, organizations=[ORGANIZATION], dns=dns, ips=ips)
    return ServingRequest(csr, key)


def own_certificate(name: str, *, now: dt.datetime) -> Keypair:
    """Return a certificate for the server ``name``, by an authority whose key is forgotten."""
    return authority(f"{name[:50]}-ca", name, now=now, life=OWN_LIFETIME)[1]


def authority(
    name: str, server: str, *, now: dt.datetime, life: dt.timedelta
) -> tuple[bytes, Keypair]:
    """Return the certificate of a new authority, whose key is forgotten, and of ``server``."""
    ca = pki.new_ca(name, now=now, lifetime=life)
    pair = pki.issue(ca, common_name=server[:64], dns=[server], server=True, now=now, lifetime=life)
    return ca.certificate, pair
