"""A kubeconfig that somebody else wrote says a server and an identity, or is refused by name."""

import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube import credentials, kubeconfig
from kube.kubeconfig import MAX_BYTES, KubeconfigError

PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n").decode()
Change = Callable[[dict[str, Any]], object]


def document() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [
            {
                "name": "far",
                "cluster": {
                    "server": "https://far.example:6443/base/",
                    "certificate-authority-data": PEM,
                },
            }
        ],
        "users": [{"name": "us", "user": {"client-certificate-data": PEM, "client-key-data": PEM}}],
        "contexts": [
            {"name": "now", "context": {"cluster": "far", "user": "us", "namespace": "tenant"}}
        ],
        "current-context": "now",
    }


def entry(doc: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = doc["clusters"][0]["cluster"]
    return found


def user(doc: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = doc["users"][0]["user"]
    return found


def test_what_it_says_is_read() -> None:
    doc = document()
    user(doc).update({"token": "abc.def"})

    said = kubeconfig.parse(yaml.safe_dump(doc).encode())

    assert said.server == "https://far.example:6443/base"
    assert said.namespace == "tenant"
    assert said.ca == said.certificate == said.key == base64.b64decode(PEM)
    assert (said.token, said.proxy) == ("abc.def", "")
    assert "abc.def" not in repr(said)
    assert "key=" not in repr(said)


def test_json_and_a_token_alone_and_a_proxy_and_a_name_will_do() -> None:
    doc = document()
    doc["users"][0]["user"] = {"token": "abc"}
    entry(doc).update({"proxy-url": "http://proxy:3128", "tls-server-name": "inner"})
    del entry(doc)["certificate-authority-data"]

    said = kubeconfig.parse(json.dumps(doc).encode())

    assert (said.token, said.proxy, said.server_name) == ("abc", "http://proxy:3128", "inner")
    assert said.ca == said.certificate == b""


REFUSED: list[tuple[str, Change, str]] = [
    ("exec", lambda d: user(d).update(exec={"command": "touch", "args": ["canary"]}), "exec"),
    ("auth-provider", lambda d: user(d).update({"auth-provider": {"name": "oidc"}}), "auth-prov"),
    ("token file", lambda d: user(d).update(tokenFile="/etc/passwd"), "tokenFile"),
    ("key file", lambda d: user(d).update({"client-key": "/etc/key"}), "client-key"),
    ("cert file", lambda d: user(d).update({"client-certificate": "/c"}), "client-certificate"),
    ("CA file", lambda d: entry(d).update({"certificate-authority": "/c"}), "certificate-auth"),
    (
        "no verification",
        lambda d: entry(d).update({"insecure-skip-tls-verify": True}),
        "insecure-skip-tls-verify",
    ),
    ("password", lambda d: user(d).update({"username": "u", "password": "p"}), "password"),
    ("impersonation", lambda d: user(d).update({"as": "admin"}), "has as,"),
    ("impersonated groups", lambda d: user(d).update({"as-groups": ["x"]}), "as-groups"),
    ("unknown key", lambda d: entry(d).update(fromTheFuture=1), "fromTheFuture"),
    ("unknown top key", lambda d: d.update(extensions=[]), "extensions"),
    ("plain http", lambda d: entry(d).update(server="http://far"), "server must be https"),
    ("user in URL", lambda d: entry(d).update(server="https://a:b@far"), "server must be"),
    ("query in URL", lambda d: entry(d).update(server="https://far/?a=b"), "server must be"),
    ("bad port", lambda d: entry(d).update(server="https://far:0x1"), "server is not a URL"),
    ("no server", lambda d: entry(d).pop("server"), "lacks server"),
    ("socks proxy", lambda d: entry(d).update({"proxy-url": "socks5://p"}), "proxy-url"),
    ("no identity", lambda d: user(d).clear(), "neither"),
    ("key without certificate", lambda d: user(d).pop("client-certificate-data"), "go together"),
    ("not base64", lambda d: user(d).update({"client-key-data": "%%%"}), "client-key-data"),
    ("not PEM", lambda d: user(d).update({"client-key-data": "AAAA"}), "client-key-data"),
    ("broken token", lambda d: user(d).update({"token": "a\r\nHost: b"}), "token"),
    ("no such context", lambda d: d.update({"current-context": "x"}), "contexts lacks 'x'"),
    ("no current context", lambda d: d.pop("current-context"), "lacks current-context"),
    ("user twice", lambda d: d["users"].append(d["users"][0]), "twice"),
    ("clusters not a list", lambda d: d.update(clusters={}), ""),
    ("clusters a text", lambda d: d.update(clusters="x"), "clusters is not a list"),
    ("list for text", lambda d: entry(d).update(server=["https://a"]), "not a text"),
    (
        "exec in an entry not in use",
        lambda d: d["users"].append({"name": "x", "user": {"exec": {}}}),
        "exec",
    ),
    ("another kind", lambda d: d.update(kind="Secret"), "kind"),
    ("preferences", lambda d: d.update(preferences={"colors": True}), "preferences"),
    ("entry that is no mapping", lambda d: d["users"].append("x"), "not a mapping"),
]


@pytest.mark.parametrize(
    ("change", "sentence"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_whatever_else_it_says_is_refused_by_name(
    change: Change, sentence: str, tmp_path: Path
) -> None:
    doc = copy.deepcopy(document())
    change(doc)

    class NoAliases(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    for text in (yaml.dump(doc, Dumper=NoAliases), json.dumps(doc)):
        with pytest.raises(KubeconfigError) as caught:
            kubeconfig.parse(text.encode())
        assert sentence in str(caught.value)
        with pytest.raises(KubeconfigError):
            credentials.from_kubeconfig(text.encode())
        assert PEM not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"a: &x [1]\nb: *x", "anchors"),
        (b"a: &a [x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]", "anchors"),
        (b"a: !!python/object/apply:os.system [true]", "tags"),
        (b"#" + b"x" * MAX_BYTES, "larger than 65536"),
        (b"[" * 60_000, "nested"),
        (b"{a: " * 10_000, "nested"),
        (b"[" + b"1," * 30_000 + b"]", "nested"),
        (b"---\na: 1\n---\nb: 2", "nested"),
        (b"current-context: a\ncurrent-context: b", "given twice"),
        (b'{"current-context": "a", "current-context": "b"}', "given twice"),
        (b'{"clusters": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", "nested"),
        (b'{"token": "a\x7f"}', "not YAML"),
        (b'{"token": NaN}', "token"),
        (b"? [a]\n: b", "not a word"),
        (b"\xff\xfe\x00", "not YAML"),
        (b"a: b: c", "not YAML"),
        (b"\x00", "not YAML"),
        (b"", "not a mapping"),
        (b"just text", "not a mapping"),
        (b"- 1", "not a mapping"),
    ],
)
def test_yaml_that_is_more_than_a_kubeconfig_is_refused(text: bytes, sentence: str) -> None:
    with pytest.raises(KubeconfigError, match=sentence):
        kubeconfig.parse(text)


def test_no_program_is_run_and_no_file_made(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    doc = document()
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch"}
    user(doc)["exec"] = {**run, "args": [str(canary)], "interactiveMode": "Never"}

    with pytest.raises(KubeconfigError):
        credentials.from_kubeconfig(yaml.safe_dump(doc).encode())

    assert not canary.exists()


def test_certificates_that_cannot_be_read_are_refused_without_being_quoted() -> None:
    with pytest.raises(KubeconfigError, match="cannot be read") as caught:
        credentials.from_kubeconfig(yaml.safe_dump(document()).encode())

    assert caught.value.__cause__ is None
