"""Who we are is read from where it is, again when it changes, and leaves no key behind."""

import base64
import datetime as dt
import ssl
import tempfile
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kube import credentials, errors
from tests import factories


def self_signed_pair(name: str) -> tuple[bytes, bytes]:
    """Return a certificate that signed itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=36500))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def text(name: str = "us", *, server: str = "https://far:6443", **user: str) -> bytes:
    certificate, key = self_signed_pair(name)
    encoded = base64.b64encode(certificate).decode()
    identity = user or {
        "client-certificate-data": encoded,
        "client-key-data": base64.b64encode(key).decode(),
    }
    cluster = {"server": server, "certificate-authority-data": encoded}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "far", "cluster": cluster}],
            "users": [{"name": "us", "user": identity}],
            "contexts": [{"name": "now", "context": {"cluster": "far", "user": "us"}}],
            "current-context": "now",
        }
    ).encode()


def is_in_a_file(kubeconfig: bytes) -> bool:
    """Whether the key in ``kubeconfig`` lies where a loader would put it."""
    user = yaml.safe_load(kubeconfig)["users"][0]["user"]
    key = base64.b64decode(user["client-key-data"])
    folders = (Path("/dev/shm"), Path(tempfile.gettempdir()))  # noqa: S108  # looked into only
    files = [path for folder in folders for path in folder.glob("tmp*") if path.is_file()]
    files += [path for folder in folders for path in folder.glob("tmp*/*") if path.is_file()]
    return any(key in _content(path) for path in files)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # somebody else's, and gone
        return b""


def test_a_kubeconfig_in_a_secret_is_read_in_memory() -> None:
    kubeconfig = text()

    who = credentials.from_kubeconfig(kubeconfig)

    assert who.server == "https://far:6443"
    assert who.authorization == ""
    assert who.tls
    assert who.tls.verify_mode == ssl.CERT_REQUIRED
    assert who.tls.check_hostname
    assert who.tls.minimum_version == ssl.TLSVersion.TLSv1_2
    assert len(who.tls.get_ca_certs()) == 1
    assert not is_in_a_file(kubeconfig)


def test_a_token_is_never_shown() -> None:
    who = credentials.from_kubeconfig(text(token="hidden"))  # noqa: S106  # no secret

    assert who.authorization == "Bearer hidden"
    assert "hidden" not in repr(who)


def test_another_certificate_key_server_or_authority_is_another_digest() -> None:
    one = text()

    assert credentials.from_kubeconfig(one).digest == credentials.from_kubeconfig(one).digest
    assert credentials.from_kubeconfig(one).digest != credentials.from_kubeconfig(text()).digest
    moved = one.replace(b"far:6443", b"far:6444")
    assert credentials.from_kubeconfig(one).digest != credentials.from_kubeconfig(moved).digest


async def test_a_file_is_read_and_read_again_and_no_key_stays(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(first := text())

    who = await credentials.from_file(path)

    assert not who.is_outdated()
    assert who.renew
    assert (await who.renew()).digest == who.digest
    path.write_bytes(second := text("another"))
    assert who.is_outdated()
    assert (await who.renew()).digest != who.digest
    assert not is_in_a_file(first)
    assert not is_in_a_file(second)


async def test_files_that_a_kubeconfig_names_are_followed(tmp_path: Path) -> None:
    doc = yaml.safe_load(text())
    for name, content in zip(("tls.crt", "tls.key"), self_signed_pair("us"), strict=True):
        (tmp_path / name).write_bytes(content)
    files = {"client-certificate": "tls.crt", "client-key": str(tmp_path / "tls.key")}
    doc["users"][0]["user"] = files
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(doc))

    who = await credentials.from_file(path)
    assert not who.is_outdated()
    for name, content in zip(("tls.crt", "tls.key"), self_signed_pair("us"), strict=True):
        (tmp_path / f"new-{name}").write_bytes(content)
        (tmp_path / f"new-{name}").replace(tmp_path / name)

    assert who.is_outdated()
    assert who.renew
    assert (await who.renew()).digest != who.digest


async def test_a_context_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(text())

    assert (await credentials.from_file(path, "now")).server == "https://far:6443"
    with pytest.raises(errors.UnauthorizedError):
        await credentials.from_file(path, "no such")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"text"])
async def test_a_file_that_is_no_kubeconfig_is_told_what_one_is(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)

    message = "needs YAML with clusters, users, contexts and current-context"
    with pytest.raises(errors.UnauthorizedError, match=rf"kubeconfig: (.*\()?{message}"):
        await credentials.from_file(path)


@pytest.mark.parametrize("content", [b"", b"a: b", b"[]", b"clusters: 1"])
async def test_a_file_that_makes_no_sense_is_one_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)

    with pytest.raises(errors.UnauthorizedError, match="kubeconfig"):
        await credentials.from_file(path)
    with pytest.raises(errors.UnauthorizedError):
        await credentials.from_file(tmp_path / "not there")


async def test_the_server_is_always_verified(tmp_path: Path) -> None:
    doc = yaml.safe_load(text())
    doc["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(doc))

    with pytest.raises(errors.UnauthorizedError, match="always verified"):
        await credentials.from_file(path)


@pytest.mark.skipif(
    credentials.SERVICE_ACCOUNT.exists(),
    reason="needs a machine without the service-account token that a pod has",
)
async def test_outside_a_pod_there_is_no_identity_of_one() -> None:
    with pytest.raises(errors.UnauthorizedError, match="identity of a pod"):
        await credentials.discover(None)


async def test_the_identity_of_a_pod_follows_its_token_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("one\n")
    ca.write_bytes(self_signed_pair("ca")[0])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    who = await credentials.of_pod(token, ca)
    assert (who.server, who.authorization) == ("https://10.0.0.1:443", "Bearer one")
    (tmp_path / "new").write_text("two")
    (tmp_path / "new").replace(token)

    assert who.is_outdated()
    assert who.renew
    again = await who.renew()
    assert again.authorization == "Bearer two"
    assert again.digest == who.digest


async def test_the_address_of_a_server_may_be_one_of_ipv6(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("one")
    ca.write_bytes(self_signed_pair("ca")[0])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    assert (await credentials.of_pod(token, ca)).server == "https://[fd00::1]:443"


@pytest.mark.parametrize("empty", ["token", "ca.crt", "host"])
async def test_half_an_identity_of_a_pod_is_none(
    empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("one")
    ca.write_bytes(self_signed_pair("ca")[0])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "" if empty == "host" else "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    if empty != "host":
        (tmp_path / empty).write_text("")

    with pytest.raises(errors.UnauthorizedError, match="identity of a pod"):
        await credentials.of_pod(token, ca)


def test_only_loopback_is_spoken_to_without_tls() -> None:
    assert credentials.plain("http://127.0.0.1:1").tls is None
    with pytest.raises(ValueError, match="must be https"):
        credentials.plain("http://far.example:80")


@factories.cases("context, names, server, token")
async def test_a_cluster_and_a_user_may_be_named_in_place_of_the_contexts(
    tmp_path: Path, context: str | None, names: dict[str, str], server: str, token: str
) -> None:
    """As kubectl's ``--cluster`` and ``--user``; what is not named is as the context says."""
    said = yaml.safe_load(text(username="us"))
    said["users"] = [
        {"name": name, "user": {"token": f"token-of-{name}"}} for name in ("us", "them")
    ]
    near = {**said["clusters"][0]["cluster"], "server": "https://near:6443"}
    said["clusters"].append({"name": "near", "cluster": near})
    other = {"cluster": "near", "user": "them", "namespace": "shop"}
    said["contexts"].append({"name": "other", "context": other})
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(said))

    who = await credentials.from_file(path, context, **names)

    assert (who.server, who.authorization) == (server, f"Bearer {token}")
    assert who.namespace == ("shop" if context else "")
    assert path.read_text() == yaml.safe_dump(said)


@pytest.mark.parametrize(
    ("context", "names"), [(None, {"cluster": "nowhere"}), ("no", {"user": "us"})]
)
async def test_a_name_that_the_kubeconfig_lacks_is_said(
    tmp_path: Path, context: str | None, names: dict[str, str]
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(text())

    with pytest.raises(errors.UnauthorizedError, match=names.get("cluster") or context):
        await credentials.from_file(path, context, **names)


# Which proxy the environment names for an API server ----------------------------------------------

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("server", "direct", "expected"),
    [
        ("https://milan.example:6443", "", PROXY),
        ("https://milan.example:6443", "milan.example", ""),
        ("https://milan.example:6443", ".example", ""),
        ("https://milan.example:6443", "*.example, other", ""),
        ("https://milan.example:6443", "lan.example", PROXY),
        ("https://10.1.2.3:6443", "10.0.0.0/8", ""),
        ("https://10.1.2.3:6443", "10.1.2.3", ""),
        ("https://192.0.2.1", "10.0.0.0/8,milan.example", PROXY),
        ("https://[fd00::1]:6443", "fd00::/8", ""),
        ("https://milan.example:6443", "milan.example:6443", ""),
        ("https://milan.example:6443", "milan.example:443", PROXY),
        ("https://milan.example", ".example:443", ""),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", ""),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", ""),
        ("https://[fd00::1]:6443", "fd00::1", ""),
        ("https://milan.example", "*", ""),
        ("https://127.0.0.1:6443", "", ""),
        ("https://localhost:6443", "", ""),
    ],
)
def test_a_server_is_reached_by_the_proxy_but_for_what_is_named(
    server: str, direct: str, expected: str
) -> None:
    variables = {"HTTPS_PROXY": PROXY, "NO_PROXY": direct}

    assert credentials.proxy_for(server, variables) == expected
    lower = {name.lower(): value for name, value in variables.items()}
    assert credentials.proxy_for(server, lower) == expected


def test_it_may_be_named_without_a_scheme_and_by_none() -> None:
    assert credentials.proxy_for("https://a.example", {"HTTPS_PROXY": "p:1"}) == "http://p:1"
    assert credentials.proxy_for("https://a.example", {"HTTP_PROXY": PROXY}) == ""
    assert credentials.proxy_for("https://a.example", {}) == ""
