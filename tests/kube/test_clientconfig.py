"""A table of kubeconfigs, and whom a server meets by each: the client and kubectl the same."""

import asyncio
import base64
import contextlib
import datetime as dt
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from aiohttp import web

from certs import listener, pki
from kube import client, clock, credentials, errors, plugin
from sandbox import binaries
from tests.kube.running import serving

DAY: Final = dt.timedelta(days=1)
NOW: Final = clock.now()
CA: Final = pki.new_ca("rome", now=NOW, lifetime=30 * DAY)
OTHER: Final = pki.new_ca("rome", now=NOW, lifetime=30 * DAY)
SERVER: Final = pki.issue(
    CA, common_name="rome", dns=["rome.example"], ips=["127.0.0.1"], server=True, now=NOW,
    lifetime=DAY,
)  # fmt: skip
ADMIN: Final = pki.issue(CA, common_name="admin", client=True, now=NOW, lifetime=DAY)
NOBODY: Final = "http://127.0.0.1:9"
EXEC: Final = "client.authentication.k8s.io/v1"
ENDED: Final = "e30.eyJleHAiOiAxfQ.c2ln"
JWT: Final = "e30.eyJleHAiOiA0MTAyNDQ0ODAwfQ.c2ln"
"""It ends in 2100."""
OIDC: Final = {
    "auth-provider": {
        "name": "oidc",
        "config": {"client-id": "us", "idp-issuer-url": NOBODY, "id-token": JWT},
    }
}


def base64_of(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


CERTIFICATE: Final = {
    "client-certificate-data": base64_of(ADMIN.certificate),
    "client-key-data": base64_of(ADMIN.key),
}
TRUST: Final = {"certificate-authority-data": base64_of(CA.certificate)}


def config(  # noqa: PLR0913  # each a part of the file
    name: str = "rome",
    user: Any = None,
    *,
    cluster: Mapping[str, Any] | None = None,
    current: str | None = "=",
    clusters: bool = True,
    users: bool = True,
    **rest: Any,
) -> dict[str, Any]:
    """Return a kubeconfig whose cluster, user and context all are called ``name``.

    The path of its server is that name, too, and so is the token.
    """
    whole = {"server": f"{{tls}}/{name}", **TRUST, **(cluster or {})}
    shown = {key: value for key, value in whole.items() if value is not None}
    said: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": shown}] if clusters else [],
        "users": [{"name": name, "user": user or {"token": name}}] if users else [],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name if current == "=" else current,
        **rest,
    }
    if current is None:
        del said["current-context"]
    return said


def login(script: str, **fields: Any) -> dict[str, Any]:
    """Return a user of whom a shell script is the plugin."""
    said = {"apiVersion": EXEC, "command": "sh", "args": ["-c", script], "interactiveMode": "Never"}
    return {"exec": {key: value for key, value in {**said, **fields}.items() if value is not None}}


def plugin_script(got: str = "got", version: str = EXEC, **rest: str) -> str:
    """Return a script that answers with the token ``got``."""
    status = {"token": got, **rest}
    said = f'{{"kind": "ExecCredential", "apiVersion": "{version}", "status": {{%s}}}}'
    return "echo '" + said % ", ".join(f'"{k}": "{v}"' for k, v in status.items()) + "'"


@dataclass(frozen=True)
class Row:
    """Kubeconfigs, and what a server meets of who goes by them, or ``!`` and the refusal."""

    said: str
    files: Mapping[str, Any]
    """By name; a text is written as it is, and {tls} and {plain} are the servers' URLs."""
    kubectl: str = ""
    """Where kubectl does something else on purpose: what."""
    order: str = ""
    """The names in KUBECONFIG; else all files, joined by colons."""
    flags: Mapping[str, str] = field(default_factory=dict)


A: Final = config("rome")
B: Final = config("milan")
_AUTHORITY: Final = "certificate-authority-data"
_FILES: Final = {_AUTHORITY: None, "certificate-authority": "pki/ca.crt"}
_WITH: Final = {"pki/ca.crt": CA.certificate.decode()}
_PAIR: Final = {
    "pki/admin.crt": ADMIN.certificate.decode(), "pki/admin.key": ADMIN.key.decode(),
}  # fmt: skip
_NAMED: Final = {"client-certificate": "admin.crt", "client-key": "admin.key"}

ROWS: Final = {
    # Several files.
    "the first current context": Row("/rome Bearer rome", {"a": A, "b": B}),
    "in their order": Row("/milan Bearer milan", {"a": A, "b": B}, order="b:a"),
    "empty in the second": Row(
        "/rome Bearer rome", {"a": A, "b": config("milan", current="")}
    ),
    "empty in the first": Row("/milan Bearer milan", {"a": config(current=""), "b": B}),
    "absent in the first": Row("/milan Bearer milan", {"a": config(current=None), "b": B}),
    "null in the first": Row(
        "/milan Bearer milan", {"a": {**A, "current-context": None}, "b": B}
    ),
    "the first entry of a name": Row(
        "/rome Bearer rome", {"a": A, "b": config("rome", {"token": "other"})}
    ),
    "an entry is not merged with another": Row(
        "/rome Bearer rome", {"a": A, "b": config("rome", {"as": "nobody", "token": "other"})}
    ),
    "the parts in files of their own": Row(
        "/rome Bearer rome",
        {
            "a": config(clusters=False, users=False),
            "b": config(users=False, current=None, contexts=[]),
            "c": config(clusters=False, current=None, contexts=[]),
        },
    ),
    "a file that is not there": Row("/rome Bearer rome", {"a": A}, order="none:a:none"),
    "an empty name": Row("/rome Bearer rome", {"a": A}, order=":a:"),
    "an empty file": Row("/rome Bearer rome", {"a": A, "b": ""}, order="b:a"),
    "the same file twice": Row("/rome Bearer rome", {"a": A}, order="a:a"),
    "another file is broken": Row("!/b: needs YAML", {"a": A, "b": "{"}),
    "no file is there": Row("!no such file", {"a": A}, order="none"),
    # Names.
    "a context by its flag": Row(
        "/milan Bearer milan", {"a": A, "b": B}, flags={"context": "milan"}
    ),
    "a context that is not there": Row("!no context 'no'", {"a": A}, flags={"context": "no"}),
    "a current context that is not there": Row("!no context 'no'", {"a": config(current="no")}),
    "no current context": Row("!no current context", {"a": config(current="")}),
    "a cluster and a user suffice": Row(
        "/rome Bearer rome", {"a": config(current="")}, flags={"cluster": "rome", "user": "rome"}
    ),
    "a user by its flag": Row("/rome Bearer milan", {"a": A, "b": B}, flags={"user": "milan"}),
    "a cluster by its flag": Row(
        "/milan Bearer rome", {"a": A, "b": B}, flags={"cluster": "milan"}
    ),
    "a user that is not there": Row("!no user 'no'", {"a": A}, flags={"user": "no"}),
    "a cluster that is not there": Row("!no cluster 'rome'", {"a": config(clusters=False)}),
    "a name twice": Row("!users has 'rome' twice", {"a": {**A, "users": [*A["users"] * 2]}}),
    # Files beside the one that names them.
    "an authority beside its file": Row("/rome Bearer rome", {"a": config(cluster=_FILES)} | _WITH),
    "a certificate beside its own file": Row(
        "/rome CN=admin",
        {
            "a": config(cluster=_FILES, users=False),
            "pki/b": config("rome", _NAMED, clusters=False, contexts=[], current=None),
        } | _WITH | _PAIR,
    ),
    "an authority that is not there": Row("!certificate-authority", {"a": config(cluster=_FILES)}),
    "an authority twice": Row(
        "!certificate-authority and certificate-authority-data",
        {"a": config(cluster={"certificate-authority": "pki/ca.crt"})} | _WITH,
    ),
    "another authority": Row(
        "!not trusted",
        {"a": config(cluster={"certificate-authority-data": base64_of(OTHER.certificate)})},
    ),
    "no base64": Row("!base64", {"a": config(cluster={"certificate-authority-data": "?"})}),
    "base64 in lines": Row(
        "/rome Bearer rome",
        {"a": config(cluster={_AUTHORITY: base64.encodebytes(CA.certificate).decode()})},
    ),
    # Who we are.
    "a certificate": Row("/rome CN=admin", {"a": config("rome", CERTIFICATE)}),
    "a certificate and a token": Row(
        "/rome Bearer t CN=admin", {"a": config("rome", {**CERTIFICATE, "token": "t"})}
    ),
    "a certificate twice": Row(
        "!client-certificate and client-certificate-data",
        {"a": config("rome", {**CERTIFICATE, "client-certificate": "pki/admin.crt"})} | _PAIR,
    ),
    "a certificate without its key": Row(
        "!no client-key", {"a": config("rome", {**CERTIFICATE, "client-key-data": ""})}
    ),
    "a token in a file": Row(
        "/rome Bearer filed", {"a": config("rome", {"tokenFile": "t"}), "t": "filed\n"}
    ),
    "a token in a file before one beside it": Row(
        "/rome Bearer filed",
        {"a": config("rome", {"tokenFile": "t", "token": "said"}), "t": "filed"},
    ),
    "a token for a file that is not there": Row(
        "/rome Bearer said", {"a": config("rome", {"tokenFile": "t", "token": "said"})}
    ),
    "a token for an empty file": Row(
        "/rome Bearer said", {"a": config("rome", {"tokenFile": "t", "token": "said"}), "t": ""}
    ),
    "no token at all": Row("!tokenFile", {"a": config("rome", {"tokenFile": "t"})}),
    "a password": Row(
        "/rome Basic dXM6Og==", {"a": config("rome", {"username": "us", "password": ":"})}
    ),
    "a password and a token": Row(
        "!token and a password",
        {"a": config("rome", {"username": "us", "password": "p", "token": "t"})},
    ),
    "a token that is a number": Row("!quote it", {"a": config("rome", {"token": 12})}),
    "nobody": Row("!has neither", {"a": config("rome", {"username": ""})}),
    "a login that is no more": Row(
        "!gke-gcloud-auth-plugin", {"a": config("rome", {"auth-provider": {"name": "gcp"}})}
    ),
    # As whom.
    "as somebody else": Row(
        "/rome Bearer t Group=viewers Group=us User=nobody",
        {"a": config("rome", {"token": "t", "as": "nobody", "as-groups": ["viewers", "us"]})},
    ),
    "as somebody with more": Row(
        "/rome CN=admin Extra-acme.com%2fteam=red Extra-acme.com%2fteam=blue Uid=1 User=nobody",
        {"a": config("rome", {
            **CERTIFICATE, "as": "nobody", "as-uid": "1",
            "as-user-extra": {"acme.com/team": ["red", "blue"]},
        })},
    ),
    "as a group and no user": Row(
        "!without as", {"a": config("rome", {"token": "t", "as-groups": ["viewers"]})}
    ),
    # The server.
    "by another name": Row(
        "/rome Bearer rome", {"a": config(cluster={"tls-server-name": "rome.example"})}
    ),
    "by a wrong name": Row("!not trusted", {"a": config(cluster={"tls-server-name": "milan"})}),
    "unverified": Row(
        "!always verified",
        {"a": config(cluster={"insecure-skip-tls-verify": True, _AUTHORITY: None})},
        kubectl="/rome Bearer rome",
    ),
    "verified": Row(
        "/rome Bearer rome", {"a": config(cluster={"insecure-skip-tls-verify": False})}
    ),
    "no server": Row("!has no server", {"a": config(cluster={"server": ""})}),
    "a proxy": Row("!connect", {"a": config(cluster={"proxy-url": NOBODY})}),
    "no URL of a proxy": Row("!proxy-url", {"a": config(cluster={"proxy-url": "ftp://proxy"})}),
    "no TLS, no credentials": Row("/rome", {"a": config(cluster={"server": "{plain}/rome"})}),
    "no TLS, as somebody else": Row(
        "/rome User=nobody",
        {"a": config("rome", {"token": "t", "as": "nobody"}, cluster={"server": "{plain}/rome"})},
    ),
    # Logins.
    "a plugin": Row("/rome Bearer got", {"a": config("rome", login(plugin_script()))}),
    "a plugin's certificate": Row(
        "/rome CN=admin",
        {"a": config("rome", login(
            plugin_script(
                "",
                clientCertificateData=ADMIN.certificate.decode().replace("\n", "\\n"),
                clientKeyData=ADMIN.key.decode().replace("\n", "\\n"),
            ).replace("echo", "printf %s"),
        ))},
    ),
    "a plugin beside its file": Row(
        "/rome Bearer got",
        {
            "a": config("rome", login("", command="pki/plugin", args=None)),
            "pki/plugin": f"#!/bin/sh\n{plugin_script()}",
        },
    ),
    "a plugin's variables": Row(
        "/rome Bearer set",
        {"a": config("rome", login(
            plugin_script("'$X'"), env=[{"name": "X", "value": "set"}], provideClusterInfo=True,
        ))},
    ),
    "a token before a plugin": Row(
        "/rome Bearer t", {"a": config("rome", {"token": "t", **login("exit 1")})}
    ),
    "a plugin that fails": Row(
        "!'sh' ended with code 3; log in again\n\nType this.",
        {"a": config("rome", login("exit 3", installHint="Type this."))},
    ),
    "a plugin that is not there": Row(
        "!cannot run 'no-such-plugin': No such file or directory\n\nInstall it.",
        {"a": config("rome", login("", command="no-such-plugin", installHint="Install it."))},
    ),
    "a plugin that says nothing": Row("!the answer of 'sh'", {"a": config("rome", login("true"))}),
    "a plugin without credentials": Row(
        "!neither a token nor a certificate", {"a": config("rome", login(plugin_script("")))}
    ),
    "a plugin of another version": Row(
        "!is no ExecCredential of",
        {"a": config("rome", login(plugin_script(version=f"{EXEC}beta1")))},
    ),
    "a plugin of no version": Row(
        "!apiVersion must be", {"a": config("rome", login("exit 1", apiVersion=None))}
    ),
    "a plugin that may ask or not": Row(
        "!interactiveMode must be",
        {"a": config("rome", login(plugin_script(), interactiveMode=None))},
    ),
    "a plugin of before": Row(
        "/rome Bearer got",
        {"a": config("rome", login(
            plugin_script(version=f"{EXEC}beta1"), apiVersion=f"{EXEC}beta1", interactiveMode=None,
        ))},
    ),
    "a plugin that must ask": Row(
        "!there is none", {"a": config("rome", login("exit 1", interactiveMode="Always"))}
    ),
    "a login by OIDC": Row(f"/rome Bearer {JWT}", {"a": config("rome", OIDC)}),
    "a login by OIDC without a token": Row(
        "!cannot refresh without refresh-token; log in again",
        {"a": config("rome", {"auth-provider": {"name": "oidc", "config": {
            "client-id": "us", "idp-issuer-url": NOBODY,
        }}})},
    ),
    "a login by OIDC that has ended": Row(
        "!cannot refresh without refresh-token; log in again",
        {"a": config("rome", {"auth-provider": {"name": "oidc", "config": {
            "client-id": "us", "idp-issuer-url": NOBODY, "id-token": ENDED,
        }}})},
    ),
    "a plugin and another login": Row(
        "!leave one out",
        {"a": config("rome", {**login(plugin_script()), "auth-provider": {"name": "oidc"}})},
    ),
}  # fmt: skip


class Servers:
    """Two servers that say of each request which one came, and by whom."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.urls: dict[str, str] = {}

    async def answer(self, request: web.Request) -> web.Response:
        words = [request.path.removesuffix("/livez")]
        words += request.headers.getall("Authorization", [])
        if request.transport and (certificate := request.transport.get_extra_info("peercert")):
            names = dict(field for part in certificate["subject"] for field in part)
            words.append(f"CN={names['commonName']}")
        found = [(name.lower(), value) for name, value in request.headers.items()]
        of_it = [one for one in found if one[0].startswith("impersonate-")]
        for name, value in sorted(of_it, key=lambda one: one[0]):
            words.append(f"{name.removeprefix('impersonate-').capitalize()}={value}")
        self.seen.append(" ".join(words))
        return web.Response(text="ok")


@contextlib.asynccontextmanager
async def access_of() -> AsyncIterator[Servers]:
    servers = Servers()
    tls = listener.tls(SERVER, CA.certificate.decode())
    async with serving(servers.answer, tls) as secure, serving(servers.answer) as plain:
        servers.urls = {"{tls}": secure, "{plain}": plain}
        yield servers


def written_kubeconfigs(row: Row, folder: Path, servers: Servers) -> str:
    """Write the files of ``row`` and return what KUBECONFIG is."""
    for name, said in row.files.items():
        content = said if isinstance(said, str) else yaml.safe_dump(said)
        for mark, url in servers.urls.items():
            content = content.replace(mark, url)
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        path.chmod(0o700)
    names = row.order or ":".join(n for n, said in row.files.items() if not _is_named(n, said))
    return ":".join(name and str(folder / name) for name in names.split(":"))


def _is_named(name: str, said: Any) -> bool:
    return isinstance(said, str) and said not in ("", "{")


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("name", ROWS)
async def test_a_server_meets_who_the_kubeconfig_says_or_nobody(name: str, tmp_path: Path) -> None:
    row = ROWS[name]
    async with access_of() as servers:
        path = written_kubeconfigs(row, tmp_path, servers)
        said = ""
        try:
            who = await credentials.from_file(Path(path), **row.flags)
            async with client.connect(who, user_agent="t") as cluster:
                await cluster.get_text("/livez")
        except (errors.UnauthorizedError, errors.NotReachableError) as error:
            said = str(error)

    if row.said.startswith("!"):
        assert servers.seen == []
        assert row.said[1:] in said
        assert "{" not in said
    else:
        assert (servers.seen, said) == ([row.said], "")


@pytest.mark.cluster
async def test_kubectl_does_the_same(tmp_path: Path) -> None:
    """All rows by the real kubectl; its refusals have other words, and reach no server either."""
    found = {}
    async with access_of() as servers:
        for number, (name, row) in enumerate(ROWS.items()):
            folder = tmp_path / str(number)
            folder.mkdir()
            path = written_kubeconfigs(row, folder, servers)
            flags = [f"--{flag}={value}" for flag, value in row.flags.items()]
            servers.seen.clear()
            ran = await asyncio.create_subprocess_exec(
                binaries.kubectl(), "get", "--raw", "/livez", *flags,
                env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": path},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            _, complaint = await ran.communicate()
            found[name] = (
                " ".join(servers.seen) if ran.returncode == 0 else f"!{complaint.decode()}"
            )
            assert servers.seen == [] or ran.returncode == 0, name
    wanted = {name: row.kubectl or row.said for name, row in ROWS.items()}
    assert {name: each if each[0] != "!" else "!" for name, each in found.items()} == {
        name: each if each[0] != "!" else "!" for name, each in wanted.items()
    }, found


def alone(user: Mapping[str, Any], **cluster: Any) -> str:
    """Return a kubeconfig of a server to which nobody connects."""
    said = config("rome", user, cluster={"server": "https://rome", **cluster})
    return str(yaml.safe_dump(said))


async def test_a_token_file_and_a_login_that_ends_are_read_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    soon = (NOW + dt.timedelta(days=1)).isoformat().replace("+00:00", "Z")
    script = f"echo once >>{runs}; {plugin_script(expirationTimestamp='UNTIL')}"
    path, token = tmp_path / "config", tmp_path / "token"

    path.write_text(alone(login(script.replace("UNTIL", soon))))
    assert not (await credentials.from_file(path)).is_outdated()
    path.write_text(alone(login(script.replace("UNTIL", "2020-01-01T00:00:00Z"))))
    ended = await credentials.from_file(path)
    assert ended.is_outdated()
    assert ended.renew
    assert (await ended.renew()).authorization == "Bearer got"
    assert runs.read_text().split() == ["once"] * 3

    path.write_text(alone({"tokenFile": "token"}))
    token.write_text("one")
    filed = await credentials.from_file(path)
    assert not filed.is_outdated()
    (tmp_path / "new").write_text("two")
    (tmp_path / "new").replace(token)
    assert filed.is_outdated()
    assert filed.renew
    assert (await filed.renew()).authorization == "Bearer two"


async def test_a_plugin_is_told_the_cluster_if_it_asks(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f'printf %s "$KUBERNETES_EXEC_INFO" >{told}; {plugin_script()}'
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "us"}}
    cluster = {"extensions": [extension], "tls-server-name": "rome.example"}
    (tmp_path / "config").write_text(alone(login(script, provideClusterInfo=True), **cluster))

    await credentials.from_file(tmp_path / "config")

    asked = yaml.safe_load(told.read_text())
    assert (asked["kind"], asked["apiVersion"]) == ("ExecCredential", EXEC)
    assert asked["spec"]["interactive"] is False
    assert asked["spec"]["cluster"] == {
        "server": "https://rome", **TRUST, "tls-server-name": "rome.example",
        "config": {"audience": "us"},
    }  # fmt: skip


def test_another_to_act_as_is_another_identity(tmp_path: Path) -> None:
    def digest(**user: Any) -> str:
        (tmp_path / "config").write_text(alone({"token": "t", **user}))
        return asyncio.run(credentials.from_file(tmp_path / "config")).digest

    found = [digest(), digest(**{"as": "a"}), digest(**{"as": "b"})]
    assert len(set(found)) == 3


@pytest.mark.parametrize("said", [[], {"status": 1}, {"kind": "ExecCredential", "status": {}}])
def test_an_answer_of_a_plugin_without_credentials_is_none(said: Any) -> None:
    with pytest.raises(ValueError, match="it"):
        plugin.credentials(said, EXEC)


def test_a_hint_writes_nothing_to_the_terminal_but_text(tmp_path: Path) -> None:
    user = login("exit 1", installHint="Type \x1b[1mthis\x07.")
    (tmp_path / "config").write_text(alone(user))

    with pytest.raises(errors.UnauthorizedError) as refused:
        asyncio.run(credentials.from_file(tmp_path / "config"))

    assert str(refused.value).endswith("\n\nType [1mthis.")
