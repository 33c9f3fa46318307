"""Keys, authorities, certificates, requests, bundles and kubeconfigs: bytes in, bytes out. Pure.

Keys made here are on the curve P-256; those of others may be Ed25519 or RSA too. Certificates begin
an hour before ``now``, because the clocks of two clusters differ, and none outlives the authority
that signed it.
"""

import base64
import datetime as dt
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from apis.authentication import certificates
from apis.objects import Object
from certs.keypair import Keypair as Keypair  # noqa: PLC0414  # most who need one make it here

BACKDATED = dt.timedelta(hours=1)

ODD = (x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)
"""What the library raises of a document that is no ValueError to it."""

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
PublicKey: TypeAlias = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey


@dataclass(frozen=True)
class Subject:
    """Whom a certificate or a request names."""

    common_name: str
    organizations: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()


def new_key() -> bytes:
    """Return a new private key, as PEM (PKCS 8, not encrypted)."""
    return private_pem(ec.generate_private_key(ec.SECP256R1()))


def public_key(key: bytes) -> bytes:
    """Return the public half of the private ``key``, as PEM."""
    return public_pem(private_key(key).public_key())


def new_ca(
    name: str, *, now: dt.datetime, lifetime: dt.timedelta, has_identifier: bool = True
) -> Keypair:
    """Return a new self-signed certificate authority that ends ``lifetime`` after ``now``.

    Without an identifier of its key it is as those of EKS are, and so is what it signs.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(Subject(name))
    builder = _builder(subject, subject, key.public_key(), now, now + lifetime)
    if has_identifier:
        builder = builder.add_extension(_identifier(key.public_key()), critical=False)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    ).add_extension(_usage(ca=True), critical=True)
    return Keypair(_certificate_pem(builder.sign(key, hashes.SHA256())), private_pem(key))


def issue(  # noqa: PLR0913  # all by keyword, each a field of the certificate
    ca: Keypair,
    *,
    common_name: str,
    organizations: Sequence[str] = (),
    dns: Sequence[str] = (),
    ips: Sequence[str] = (),
    server: bool = False,
    client: bool = False,
    now: dt.datetime,
    lifetime: dt.timedelta,
) -> Keypair:
    """Return a new key and its certificate, signed by ``ca``, for servers, clients or both."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = Subject(common_name, tuple(organizations), tuple(dns), tuple(ips))
    leaf = _Leaf(subject, key.public_key(), server=server, client=client)
    return Keypair(_signed(ca, leaf, now, lifetime), private_pem(key))


def new_csr(
    key: bytes,
    *,
    common_name: str,
    organizations: Sequence[str] = (),
    dns: Sequence[str] = (),
    ips: Sequence[str] = (),
) -> bytes:
    """Return a certificate signing request made with the private ``key``, as PEM."""
    subject = Subject(common_name, tuple(organizations), tuple(dns), tuple(ips))
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(subject))
    if names := _alternatives(subject):
        builder = builder.add_extension(names, critical=False)
    private = private_key(key)
    request = builder.sign(private, _hash_for(private))
    return request.public_bytes(serialization.Encoding.PEM)


def sign(  # noqa: PLR0913  # all but two by keyword, each a field of the certificate
    ca: Keypair, csr: bytes, *, server: bool = False, client: bool = False,
    now: dt.datetime, lifetime: dt.timedelta,
) -> bytes:  # fmt: skip
    """Return the certificate that ``ca`` gives to the request ``csr``, as PEM.

    Raises:
        ValueError: not a request, or not signed by the key it carries: refuse it.
    """
    request = _request(csr)
    key = request.public_key()
    if not isinstance(key, PublicKey):
        raise ValueError("the request's key is of a kind that is not used here: make it again")  # noqa: TRY004  # the value of the PEM, not its Python type
    return _signed(ca, _Leaf(subject(csr), key, server=server, client=client), now, lifetime)


def subject(pem: bytes) -> Subject:
    """Return whom the certificate or the request ``pem`` names.

    Raises:
        ValueError: neither of both.
    """
    found = _request(pem) if b"REQUEST-----" in pem else _certificate(pem)
    name = found.subject
    common = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    organizations = name.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return Subject(
        str(common[0].value) if common else "",
        tuple(str(one.value) for one in organizations),
        *_alternatives_of(found.extensions),
    )


def started(certificate: bytes) -> dt.datetime:
    """Return the time from which the PEM ``certificate`` holds (aware, UTC)."""
    return _certificate(certificate).not_valid_before_utc


def expiry(certificate: bytes) -> dt.datetime:
    """Return the time at which the PEM ``certificate`` ends (aware, UTC)."""
    return _certificate(certificate).not_valid_after_utc


def fits_key(certificate: bytes, key: bytes) -> bool:
    """Whether the private ``key`` is the one that the PEM ``certificate`` speaks of."""
    return certified_key(certificate) == public_key(key)


def certified_key(certificate: bytes) -> bytes:
    """Return, as PEM, the key that ``certificate`` is for; nothing for a kind not used here."""
    found = _certificate(certificate).public_key()
    return public_pem(found) if isinstance(found, PublicKey) else b""


def is_signed_by(certificate: bytes, ca: bytes) -> bool:
    issuer = _certificate(ca)
    try:
        _certificate(certificate).verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


@dataclass(frozen=True)
class _Leaf:
    subject: Subject
    key: PublicKey
    server: bool
    client: bool


def _signed(ca: Keypair, leaf: _Leaf, now: dt.datetime, lifetime: dt.timedelta) -> bytes:
    issuer = _certificate(ca.certificate)
    end = min(now + lifetime, issuer.not_valid_after_utc)
    builder = (
        _builder(_name(leaf.subject), issuer.subject, leaf.key, now, end)
        .add_extension(_identifier(leaf.key), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
    )
    if authority := _authority(issuer):
        builder = builder.add_extension(authority, critical=False)
    if purposes := _purposes(leaf):
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if names := _alternatives(leaf.subject):
        builder = builder.add_extension(names, critical=False)
    return _certificate_pem(builder.sign(_signing_key(ca.key), hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PublicKey,
    now: dt.datetime, end: dt.datetime,
) -> x509.CertificateBuilder:  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
    )


def _identifier(key: PublicKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key)


def _name(subject: Subject) -> x509.Name:
    organizations = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in subject.organizations
    ]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, subject.common_name)])


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not ca,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _purposes(leaf: _Leaf) -> list[x509.ObjectIdentifier]:
    wanted = {
        ExtendedKeyUsageOID.SERVER_AUTH: leaf.server,
        ExtendedKeyUsageOID.CLIENT_AUTH: leaf.client,
    }
    return [purpose for purpose, is_wanted in wanted.items() if is_wanted]


def _authority(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier | None:
    try:
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        return None
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier.value)


def _alternatives(subject: Subject) -> x509.SubjectAlternativeName | None:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in subject.dns]
    names += [x509.IPAddress(ipaddress.ip_address(ip)) for ip in subject.ips]
    return x509.SubjectAlternativeName(names) if names else None


def _alternatives_of(extensions: x509.Extensions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return (), ()
    dns = tuple(names.get_values_for_type(x509.DNSName))
    return dns, tuple(str(ip) for ip in names.get_values_for_type(x509.IPAddress))


def _certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ODD as error:
        raise ValueError(f"not a certificate: {error}") from error


def read_request(pem: bytes) -> x509.CertificateSigningRequest:
    """Return the request in ``pem``, unjudged.

    Raises:
        ValueError: none.
    """
    try:
        return x509.load_pem_x509_csr(pem)
    except ODD as error:
        raise ValueError(f"not a request: {error}") from error


def _request(csr: bytes) -> x509.CertificateSigningRequest:
    request = read_request(csr)
    if not request.is_signature_valid:
        raise ValueError("the request is not signed by the key it carries: make a new one")
    return request


def private_key(key: bytes) -> PrivateKey:
    """Return the private key in the PEM ``key``.

    Raises:
        ValueError: none, or one of a kind that is not used here.
    """
    loaded = serialization.load_pem_private_key(key, password=None)
    if not isinstance(loaded, PrivateKey):
        raise ValueError("not a key on an elliptic curve, Ed25519 or RSA: make one with new_key()")  # noqa: TRY004  # the value of the PEM, not its Python type
    return loaded


def _signing_key(key: bytes) -> ec.EllipticCurvePrivateKey:
    loaded = private_key(key)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ValueError("not the elliptic-curve key of an authority: make it with new_ca()")  # noqa: TRY004  # the value of the PEM, not its Python type
    return loaded


def _hash_for(key: PrivateKey) -> hashes.SHA256 | None:
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()


def private_pem(key: PrivateKey) -> bytes:
    """Return ``key`` as PEM (PKCS 8, not encrypted)."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def public_pem(key: PublicKey) -> bytes:
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


# What clients trust: certificates of all authorities that may have signed -------------------------


def merged_bundle(*bundles: bytes, now: dt.datetime) -> bytes:
    """Return the certificates of all ``bundles`` as PEM, each once, in order, without ended ones.

    What cannot be read is left out too: API servers refuse a bundle with one bad certificate.
    """
    found = dict.fromkeys(one for bundle in bundles for one in certificates(bundle))
    return b"".join(one for one in found if not _has_ended(one, now))


def _has_ended(certificate: bytes, now: dt.datetime) -> bool:
    try:
        return expiry(certificate) <= now
    except ValueError:
        return True


# Kubeconfigs: one cluster, one user, everything inline. Source: docs/parity.md § 2.5 --------------

KUBECONFIG_CONTEXT: Final = "default-context"


@dataclass(frozen=True)
class KubeconfigIdentity:
    """Who connects to which cluster, and how."""

    name: str
    """Of the user entry: the name of the Identity."""
    cluster_id: str
    server: str
    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    namespace: str = ""
    proxy_url: str = ""


def kubeconfig(identity: KubeconfigIdentity) -> bytes:
    """Return the kubeconfig of ``identity``; JSON, which every reader of YAML reads."""
    cluster: Object = {
        "server": identity.server,
        "certificate-authority-data": _inline(identity.ca),
    }
    if identity.proxy_url:
        cluster["proxy-url"] = identity.proxy_url
    user = {
        "client-certificate-data": _inline(identity.certificate),
        "client-key-data": _inline(identity.key),
    }
    context = {"cluster": identity.cluster_id, "user": identity.name}
    if identity.namespace:
        context["namespace"] = identity.namespace
    config: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": identity.cluster_id, "cluster": cluster}],
        "users": [{"name": identity.name, "user": user}],
        "contexts": [{"name": KUBECONFIG_CONTEXT, "context": context}],
        "current-context": KUBECONFIG_CONTEXT,
    }
    return json.dumps(config, indent=2).encode() + b"\n"


def _inline(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
