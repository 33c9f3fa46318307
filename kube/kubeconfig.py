"""The strict reader of kubeconfigs that somebody else wrote: inline data, known keys, no surprises.

A kubeconfig can run programs and read files of the one who loads it. One that comes out of a Secret
was written by the other cluster, so nothing of that is understood here, and refused by name.

Source: docs/parity.md SEC-B5; Kubernetes, "Client Configuration (v1)".
"""

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_BYTES: Final = 64 * 1024
_JSON: Final = re.compile(rb"\{[\t\n\r\x20-\x5b\x5d-\x7e]*")

_TOP: Final = {"apiVersion", "kind", "preferences", "clusters", "users", "contexts"} | {
    "current-context"
}
_CLUSTER: Final = {"server", "certificate-authority-data", "tls-server-name", "proxy-url"}
_USER: Final = {"client-certificate-data", "client-key-data", "token"}
_CONTEXT: Final = {"cluster", "user", "namespace"}
_WHY: Final = {
    "exec": "it would run a program here",
    "auth-provider": "it would run a login here",
    "insecure-skip-tls-verify": "the server is always verified",
    "certificate-authority": "files are not read, give certificate-authority-data",
    "client-certificate": "files are not read, give client-certificate-data",
    "client-key": "files are not read, give client-key-data",
    "tokenFile": "files are not read, give token",
    "username": "passwords are not sent, give a certificate or a token",
    "password": "passwords are not sent, give a certificate or a token",
    "as": "it would act for somebody else",
}


class KubeconfigError(ValueError):
    """The kubeconfig is refused; the sentence names the field. Ask its author for another."""


@dataclass(frozen=True)
class Kubeconfig:
    """One server and one identity. ``ca`` empty means the machine's own authorities."""

    server: str
    ca: bytes = b""
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    namespace: str = ""
    server_name: str = ""
    proxy: str = ""


def parse(text: bytes) -> Kubeconfig:
    """Return what the current context of ``text`` says.

    Raises:
        KubeconfigError: it says anything else than a server and an inline identity.
    Source: docs/parity.md SEC-B5.
    """
    top = _known(_load(text), _TOP, "the kubeconfig")
    if top.get("preferences"):
        raise KubeconfigError("preferences must be empty")
    if (top.get("apiVersion", "v1"), top.get("kind", "Config")) != ("v1", "Config"):
        raise KubeconfigError("apiVersion and kind must be v1 and Config")
    current = _text(top, "current-context", "the kubeconfig", required=True)
    context = _named(top, "contexts", "context", current, _CONTEXT)
    cluster_name = _text(context, "cluster", f"context {current!r}", required=True)
    user_name = _text(context, "user", f"context {current!r}", required=True)
    # Every entry is looked at, not only those in use: anybody who hides one means no good.
    cluster = _named(top, "clusters", "cluster", cluster_name, _CLUSTER)
    user = _named(top, "users", "user", user_name, _USER)
    return _identity(cluster, user, _text(context, "namespace", f"context {current!r}"))


def _identity(cluster: Mapping[str, Any], user: Mapping[str, Any], namespace: str) -> Kubeconfig:
    certificate = _data(user, "client-certificate-data")
    key = _data(user, "client-key-data")
    token = _text(user, "token", "the user")
    if bool(certificate) != bool(key):
        raise KubeconfigError("client-certificate-data and client-key-data go together")
    if not certificate and not token:
        raise KubeconfigError("the user has neither client-certificate-data nor token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise KubeconfigError("token holds characters that no token has")
    return Kubeconfig(
        server=_url(cluster, "server", {"https"}, required=True).rstrip("/"),
        ca=_data(cluster, "certificate-authority-data"),
        certificate=certificate,
        key=key,
        token=token,
        namespace=namespace,
        server_name=_text(cluster, "tls-server-name", "the cluster"),
        proxy=_url(cluster, "proxy-url", {"http", "https"}),
    )


def _load(text: bytes) -> Mapping[str, Any]:
    if len(text) > MAX_BYTES:
        raise KubeconfigError(f"the kubeconfig is larger than {MAX_BYTES} bytes")
    try:
        loaded = _of_json(text)
    except (ValueError, RecursionError):
        loaded = _of_yaml(text)
    if not isinstance(loaded, dict):
        raise KubeconfigError("the kubeconfig is not a mapping")
    return loaded


def _of_json(text: bytes) -> Any:
    """Return JSON of printable ASCII, without escapes, in which nothing is twice: as we write it.

    Raises:
        ValueError, RecursionError: it is something else, on which YAML has the last word.
    """
    if not _JSON.fullmatch(text):
        raise ValueError("not as we write it")
    return json.loads(text, object_pairs_hook=_once, parse_int=str, parse_float=str)


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found = list(pairs)
    if len(dict(found)) < len(found):
        raise ValueError("a key is given twice")
    return dict(found)


def _of_yaml(text: bytes) -> Any:
    from kube import strictyaml  # noqa: PLC0415  # seldom needed, and 0.6 MiB

    try:
        return strictyaml.load(text)
    except strictyaml.StrictYamlError as error:
        raise KubeconfigError(str(error)) from None


def _known(value: Any, keys: Iterable[str], where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise KubeconfigError(f"{where} is not a mapping")
    for key in value:
        if key not in keys:
            why = _WHY.get(key) or ("it would act for somebody else" if key[:3] == "as-" else "")
            raise KubeconfigError(f"{where} has {key}, which is not allowed" + (why and f": {why}"))
    return value


def _named(
    top: Mapping[str, Any], plural: str, singular: str, wanted: str, keys: Iterable[str]
) -> Mapping[str, Any]:
    entries = top.get(plural) or []
    if not isinstance(entries, list):
        raise KubeconfigError(f"{plural} is not a list")
    found: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        named = _known(entry, ("name", singular), f"an entry of {plural}")
        name = _text(named, "name", f"an entry of {plural}", required=True)
        if name in found:
            raise KubeconfigError(f"{plural} has {name!r} twice")
        found[name] = _known(named.get(singular) or {}, keys, f"{singular} {name!r}")
    if wanted not in found:
        raise KubeconfigError(f"{plural} lacks {wanted!r}")
    return found[wanted]


def _text(fields: Mapping[str, Any], name: str, where: str, *, required: bool = False) -> str:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise KubeconfigError(f"{name} of {where} is not a text")
    if required and not value:
        raise KubeconfigError(f"{where} lacks {name}")
    return value or ""


def _data(fields: Mapping[str, Any], name: str) -> bytes:
    try:
        data = base64.b64decode(_text(fields, name, "the kubeconfig"), validate=True)
    except ValueError:  # binascii.Error, and what is not ASCII
        raise KubeconfigError(f"{name} is not base64") from None
    if data and b"-----BEGIN " not in data:
        raise KubeconfigError(f"{name} is not PEM")
    return data


def _url(fields: Mapping[str, Any], name: str, schemes: set[str], *, required: bool = False) -> str:
    text = _text(fields, name, "the cluster", required=required)
    if not text:
        return ""
    try:
        url = urllib.parse.urlsplit(text)
        sound = bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        raise KubeconfigError(f"{name} is not a URL") from None
    if url.scheme not in schemes:
        raise KubeconfigError(f"{name} must be {' or '.join(sorted(schemes))}")
    if not sound or "@" in url.netloc or url.query or url.fragment or not text.isprintable():
        raise KubeconfigError(f"{name} must be a plain URL: scheme, host, port and path")
    return text
