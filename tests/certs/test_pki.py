"""Certificates say what they should, hold as long as they should, and are refused otherwise."""

import base64
import datetime as dt
import ipaddress
import json
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed448, x25519

from certs import identity, pki
from certs.pki import Keypair, KubeconfigIdentity, Subject
from kube import kubeconfig as reader

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


@pytest.fixture(scope="module", name="ca")
def make_ca() -> Keypair:
    return pki.new_ca("pyliqo-ca", now=NOW, lifetime=10 * DAY)


def extension(certificate: bytes, kind: type[x509.ExtensionType]) -> x509.ExtensionType:
    loaded = x509.load_pem_x509_certificate(certificate)
    return loaded.extensions.get_extension_for_class(kind).value


def purposes(certificate: bytes) -> set[str]:
    found = extension(certificate, x509.ExtendedKeyUsage)
    assert isinstance(found, x509.ExtendedKeyUsage)
    return {purpose.dotted_string for purpose in found}


def test_an_authority_may_sign_and_nothing_else_may(ca: Keypair) -> None:
    leaf = pki.issue(ca, common_name="leaf", client=True, now=NOW, lifetime=DAY)
    assert extension(ca.certificate, x509.BasicConstraints) == x509.BasicConstraints(
        ca=True, path_length=None
    )
    assert extension(leaf.certificate, x509.BasicConstraints) == x509.BasicConstraints(
        ca=False, path_length=None
    )


def test_a_leaf_names_its_subject(ca: Keypair) -> None:
    pair = pki.issue(
        ca, common_name="webhook", organizations=["one", "two"], dns=["a.svc", "b"],
        ips=["10.0.0.1", "::1"], server=True, now=NOW, lifetime=DAY,
    )  # fmt: skip
    wanted = Subject("webhook", ("one", "two"), ("a.svc", "b"), ("10.0.0.1", "::1"))
    assert pki.subject(pair.certificate) == wanted


@pytest.mark.parametrize(
    ("server", "client", "wanted"),
    [
        (True, False, {"1.3.6.1.5.5.7.3.1"}),
        (False, True, {"1.3.6.1.5.5.7.3.2"}),
        (True, True, {"1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"}),
    ],
)
def test_a_leaf_serves_only_its_purpose(
    ca: Keypair, *, server: bool, client: bool, wanted: set[str]
) -> None:
    pair = pki.issue(ca, common_name="x", server=server, client=client, now=NOW, lifetime=DAY)
    assert purposes(pair.certificate) == wanted


def test_a_leaf_begins_an_hour_early_and_ends_in_time(ca: Keypair) -> None:
    pair = pki.issue(ca, common_name="x", client=True, now=NOW, lifetime=DAY)
    assert pki.started(pair.certificate) == NOW - dt.timedelta(hours=1)
    assert pki.expiry(pair.certificate) == NOW + DAY


def test_a_leaf_never_outlives_its_authority(ca: Keypair) -> None:
    pair = pki.issue(ca, common_name="x", client=True, now=NOW, lifetime=100 * DAY)
    assert pki.expiry(pair.certificate) == pki.expiry(ca.certificate) == NOW + 10 * DAY


def test_key_and_certificate_belong_together(ca: Keypair) -> None:
    one = pki.issue(ca, common_name="x", client=True, now=NOW, lifetime=DAY)
    other = pki.issue(ca, common_name="x", client=True, now=NOW, lifetime=DAY)
    assert pki.fits_key(one.certificate, one.key)
    assert not pki.fits_key(one.certificate, other.key)


def test_only_the_authority_that_signed_is_recognised(ca: Keypair) -> None:
    other = pki.new_ca("pyliqo-ca", now=NOW, lifetime=DAY)  # the same name, another key
    pair = pki.issue(ca, common_name="x", client=True, now=NOW, lifetime=DAY)
    assert pki.is_signed_by(pair.certificate, ca.certificate)
    assert not pki.is_signed_by(pair.certificate, other.certificate)
    assert pki.is_signed_by(ca.certificate, ca.certificate)


def test_a_request_is_signed_as_it_asks(ca: Keypair) -> None:
    key = pki.new_key()
    csr = pki.new_csr(key, common_name="rome", organizations=["liqo.io"], dns=["x"], ips=["::1"])
    certificate = pki.sign(ca, csr, client=True, now=NOW, lifetime=DAY)
    assert pki.subject(csr) == pki.subject(certificate)
    assert pki.subject(certificate) == Subject("rome", ("liqo.io",), ("x",), ("::1",))
    assert pki.fits_key(certificate, key)
    assert pki.is_signed_by(certificate, ca.certificate)


def test_a_request_for_another_key_is_refused(ca: Keypair) -> None:
    csr = pki.new_csr(pki.new_key(), common_name="rome")
    request = x509.load_pem_x509_csr(csr).public_bytes(serialization.Encoding.DER)
    forged = x509.load_der_x509_csr(request.replace(b"rome", b"ropa"))
    with pytest.raises(ValueError, match="not signed by the key"):
        pki.sign(
            ca, forged.public_bytes(serialization.Encoding.PEM), client=True, now=NOW, lifetime=DAY
        )


@pytest.mark.parametrize("nonsense", [b"", b"-----BEGIN CERTIFICATE REQUEST-----\nAA==\n", b"\xff"])
def test_what_is_no_request_is_refused(ca: Keypair, nonsense: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        pki.sign(ca, nonsense, client=True, now=NOW, lifetime=DAY)


def test_a_key_that_signs_nothing_is_refused() -> None:
    key = x25519.X25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ValueError, match="elliptic curve"):
        pki.new_csr(key, common_name="rome")


def test_what_signs_as_no_authority_of_ours_or_for_no_key_that_is_used_is_refused(
    ca: Keypair,
) -> None:
    theirs = identity.new_key()
    right = pki.new_csr(theirs, common_name="rome")
    odd = x509.CertificateSigningRequestBuilder(x509.Name([]))
    unused = odd.sign(ed448.Ed448PrivateKey.generate(), None)
    for signer, csr, problem in (
        (Keypair(ca.certificate, theirs), right, "not the elliptic-curve key of an authority"),
        (ca, unused.public_bytes(serialization.Encoding.PEM), "key is of a kind that is not used"),
    ):
        with pytest.raises(ValueError, match=problem):
            pki.sign(signer, csr, client=True, now=NOW, lifetime=DAY)


def test_a_key_is_never_shown(ca: Keypair) -> None:
    assert "PRIVATE" not in repr(ca)


def test_openssl_agrees(ca: Keypair, tmp_path: Path) -> None:
    pair = pki.issue(
        ca, common_name="x", dns=["liqo-webhook.liqo.svc"], ips=[str(ipaddress.ip_address(1))],
        server=True, now=NOW, lifetime=DAY,
    )  # fmt: skip
    for name, content in (("ca", ca.certificate), ("leaf", pair.certificate)):
        (tmp_path / name).write_bytes(content)
    at = str(int(NOW.timestamp()))
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-attime", at]
    command += ["-verify_hostname", "liqo-webhook.liqo.svc", "-CAfile", "ca", "leaf"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "leaf: OK", done.stderr


# Kubeconfigs that we write can be read by the strict reader ---------------------------------------

CA = pki.new_ca("ca", now=NOW, lifetime=dt.timedelta(days=1))
LEAF = pki.issue(CA, common_name="rome", client=True, now=NOW, lifetime=dt.timedelta(hours=1))


def kubeconfig_identity(**rest: str) -> KubeconfigIdentity:
    return KubeconfigIdentity(
        name="controlplane-milan",
        cluster_id="milan",
        server="https://10.0.0.1:6443",
        ca=CA.certificate,
        certificate=LEAF.certificate,
        key=LEAF.key,
        **rest,
    )


def test_the_layout_is_that_of_the_documents() -> None:
    found = json.loads(pki.kubeconfig(kubeconfig_identity(namespace="liqo-tenant-rome")))

    assert found["current-context"] == "default-context"
    (context,) = found["contexts"]
    assert context == {
        "name": "default-context",
        "context": {
            "cluster": "milan",
            "user": "controlplane-milan",
            "namespace": "liqo-tenant-rome",
        },
    }
    (cluster,) = found["clusters"]
    assert cluster["name"] == "milan"
    assert sorted(cluster["cluster"]) == ["certificate-authority-data", "server"]
    (user,) = found["users"]
    assert base64.b64decode(user["user"]["client-key-data"]) == LEAF.key


@pytest.mark.parametrize("rest", [{}, {"namespace": "x"}, {"proxy_url": "http://10.0.0.9:8080"}])
def test_the_strict_reader_takes_it(rest: dict[str, str]) -> None:
    found = reader.parse(pki.kubeconfig(kubeconfig_identity(**rest)))

    assert found.server == "https://10.0.0.1:6443"
    assert (found.ca, found.certificate, found.key) == (CA.certificate, LEAF.certificate, LEAF.key)
    assert found.namespace == rest.get("namespace", "")


def test_the_key_is_not_shown() -> None:
    assert "PRIVATE" not in repr(kubeconfig_identity())
