"""The administrator's own kubeconfigs, read as client-go reads them: which server, and who we are.

The first file that has a current context, or an entry of a name, is the one that counts; relative
paths begin at the file that has them. It may name files: what somebody else wrote is read by
``kube.kubeconfig``.

Source: Kubernetes, "Organizing Cluster Access Using kubeconfig Files"; client-go, tools/clientcmd.
"""

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import yaml

_NEEDED: Final = "needs YAML with clusters, users, contexts and current-context"
_REMOVED: Final = {"gcp": "gke-gcloud-auth-plugin", "azure": "kubelogin"}
"""Logins that kubectl once had, with the ``exec`` plugin that took the place of each."""
_OF_HEADERS: Final = re.compile(r"[^!#$&'*+.^_`|~0-9A-Za-z-]")
"""Source: RFC 7230, 3.2.6 (token); a percent sign is what the others are escaped by."""


_SKEW_S: Final = 10.0
"""So long before its end a token is renewed. Source: client-go, plugin/pkg/client/auth/oidc."""


class ClientConfigError(ValueError):
    """The kubeconfig leads to no server, or to nobody; the sentence names the entry and field."""


@dataclass(frozen=True)
class Entry:
    """A cluster, user or context of a kubeconfig."""

    what: str
    """In words, with its name: ``user 'us'``."""
    fields: Mapping[str, Any] = field(repr=False)
    folder: Path = Path()
    """Of the file that has it, where relative paths begin."""

    def __bool__(self) -> bool:
        return bool(self.fields)

    def text(self, name: str) -> str:
        """Return a text; empty where there is none.

        Raises:
            ClientConfigError: it is something else.
        """
        value = self.fields.get(name)
        if value is not None and not isinstance(value, str):
            raise ClientConfigError(f"{name} of {self.what} is not a text: quote it")
        return value or ""

    def path(self, name: str) -> Path | None:
        """Return the path of the file that the field ``name`` names."""
        said = self.text(name)
        return self.folder / said if said else None

    def content(self, name: str) -> bytes:
        """Return what the field ``NAME-data`` holds, or else the file that the field names.

        Raises:
            ClientConfigError: it cannot be read, or both are given.
        """
        data, file = self.text(f"{name}-data"), self.path(name)
        if data and file:
            raise ClientConfigError(f"{self.what} has {name} and {name}-data: leave one out")
        try:
            if file:
                return file.read_bytes()
            return base64.b64decode(re.sub(r"[\r\n]", "", data), validate=True)
        except OSError as error:
            raise ClientConfigError(f"{name} of {self.what}: {error}") from error
        except ValueError:
            raise ClientConfigError(f"{name}-data of {self.what} is not base64") from None


@dataclass(frozen=True)
class Merged:
    """What one kubeconfig says, or several together."""

    clusters: Mapping[str, Entry] = field(default_factory=dict)
    users: Mapping[str, Entry] = field(default_factory=dict)
    contexts: Mapping[str, Entry] = field(default_factory=dict)
    current: str = ""


@dataclass(frozen=True)
class CurrentContext:
    """The cluster to speak to, as which user."""

    cluster: Entry
    user: Entry
    namespace: str

    @property
    def server(self) -> str:
        """Return the URL of the API server; without a scheme it is HTTP, as for kubectl."""
        said = self.cluster.text("server")
        url = urlsplit(said if "://" in said else f"http://{said}")
        return urlunsplit(url._replace(query="", fragment="")).rstrip("/")

    @property
    def is_secure(self) -> bool:
        """Whether the server is reached by TLS: to another no credentials are sent."""
        return self.server.startswith("https:")

    @property
    def files(self) -> Iterable[Path]:
        """Yield the files that are named, which may change."""
        if path := self.cluster.path("certificate-authority"):
            yield path
        for name in ("client-certificate", "client-key", "tokenFile"):
            if path := self.user.path(name):
                yield path


def load(paths: Sequence[Path]) -> Merged:
    """Return what the files at ``paths`` say together; those that are not there are left out.

    Raises:
        ClientConfigError, OSError: one cannot be read, or none is there.
    """
    found = []
    for path in dict.fromkeys(paths):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            continue
        try:
            found.append(parse(content, path))
        except ClientConfigError as error:
            where = f"file {path}: " if len(paths) > 1 else ""
            raise ClientConfigError(f"{where}{error}") from error
    if not found:
        raise ClientConfigError("there is no such file")
    return merged(found)


def parse(content: bytes, path: Path) -> Merged:
    """Return what the one file at ``path`` says.

    Raises:
        ClientConfigError: it is no kubeconfig.
    """
    try:
        said = yaml.load(content, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise ClientConfigError(_NEEDED) from error
    said = {} if said is None else said
    if not isinstance(said, dict) or said.get("kind", "Config") not in ("Config", None, ""):
        raise ClientConfigError(_NEEDED)
    if said.get("apiVersion", "v1") not in ("v1", None, ""):
        raise ClientConfigError("apiVersion must be v1")
    folder = path.absolute().parent
    return Merged(
        _entries(said, "clusters", folder),
        _entries(said, "users", folder),
        _entries(said, "contexts", folder),
        Entry("the kubeconfig", said).text("current-context"),
    )


def _entries(said: Mapping[str, Any], plural: str, folder: Path) -> dict[str, Entry]:
    kind = plural.removesuffix("s")
    listed = said.get(plural) or []
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise ClientConfigError(_NEEDED)
    found: dict[str, Entry] = {}
    for each in listed:
        name, fields = Entry(f"an entry of {plural}", each).text("name"), each.get(kind) or {}
        if not isinstance(fields, dict):
            raise ClientConfigError(f"{kind} {name!r} is not a mapping")
        if name in found:
            raise ClientConfigError(f"{plural} has {name!r} twice")
        found[name] = Entry(f"{kind} {name!r}", fields, folder)
    return found


def merged(files: Sequence[Merged]) -> Merged:
    """Return what ``files`` say together: of each name, and of the current context, the first."""
    clusters: dict[str, Entry] = {}
    users: dict[str, Entry] = {}
    contexts: dict[str, Entry] = {}
    for each in reversed(files):
        clusters |= each.clusters
        users |= each.users
        contexts |= each.contexts
    return Merged(
        clusters, users, contexts, next((one.current for one in files if one.current), "")
    )


def chosen(
    every: Merged, context: str | None, *, cluster: str = "", user: str = ""
) -> CurrentContext:
    """Return what ``context``, or else the current one, leads to; ``cluster``, ``user`` as named.

    Raises:
        ClientConfigError: that is not there, or cannot be used.
    """
    name = context or every.current
    if name and name not in every.contexts:
        raise ClientConfigError(f"it has no context {name!r}")
    if not name and not cluster:
        raise ClientConfigError(f"it has no current context ({_NEEDED}): give --context")
    used = every.contexts.get(name) or Entry("the context", {})
    found = CurrentContext(
        _named(every.clusters, cluster or used.text("cluster"), "cluster", used),
        _named(every.users, user or used.text("user"), "user", used),
        used.text("namespace"),
    )
    _check_cluster(found.cluster)
    _check_user(found.user)
    if found.is_secure and not found.user:
        raise ClientConfigError(f"{found.user.what} has neither a certificate, a token nor a login")
    return found


def _named(entries: Mapping[str, Entry], name: str, kind: str, used: Entry) -> Entry:
    if name:
        if name not in entries:
            raise ClientConfigError(f"it has no {kind} {name!r}")
        return entries[name]
    return Entry(f"the {kind} of {used.what}, which names none,", {})


def _check_cluster(cluster: Entry) -> None:
    if not cluster.text("server"):
        raise ClientConfigError(f"{cluster.what} has no server")
    is_unverified = cluster.fields.get("insecure-skip-tls-verify") or False
    if not isinstance(is_unverified, bool):
        raise ClientConfigError(
            f"insecure-skip-tls-verify of {cluster.what} is neither true nor false"
        )
    if is_unverified:
        raise ClientConfigError("insecure-skip-tls-verify: the server is always verified")
    proxy = cluster.text("proxy-url")
    if proxy and not (proxy.startswith(("http://", "https://")) and urlsplit(proxy).hostname):
        # Not with its value, which may hold a password.
        raise ClientConfigError(f"proxy-url of {cluster.what} must be a URL of http or https")


def _check_user(user: Entry) -> None:
    if user.text("token") and (user.text("username") or user.text("password")):
        raise ClientConfigError(f"{user.what} has a token and a password: leave one out")
    has_certificate = user.text("client-certificate") or user.text("client-certificate-data")
    if has_certificate and not (user.text("client-key") or user.text("client-key-data")):
        raise ClientConfigError(f"{user.what} has a client certificate and no client-key")
    if user.fields.get("exec") and user.fields.get("auth-provider"):
        raise ClientConfigError(f"{user.what} has exec and auth-provider: leave one out")
    others = ("as-uid", "as-groups", "as-user-extra")
    if not user.text("as") and any(user.fields.get(name) for name in others):
        raise ClientConfigError(f"{user.what} has {', '.join(others)} or one of them without as")


def authorization(user: Entry) -> str:
    """Return the header of that name that ``user`` has by itself, without a login; may be empty.

    A token out of a file counts before the one beside it, which is for when that has none.

    Raises:
        ClientConfigError: the only token is in a file that cannot be read.
    """
    token, file = user.text("token"), user.path("tokenFile")
    if file:
        try:
            token = file.read_text(encoding="ascii").strip() or token
        except (OSError, ValueError) as error:
            if not token:
                raise ClientConfigError(f"tokenFile of {user.what}: {error}") from error
        if not token:
            raise ClientConfigError(f"tokenFile of {user.what} is empty: {file}")
    if token:
        return f"Bearer {token}"
    if user.text("username") or user.text("password"):
        said = f"{user.text('username')}:{user.text('password')}"
        return "Basic " + base64.b64encode(said.encode()).decode("ascii")
    return ""


def impersonation(user: Entry) -> tuple[tuple[str, str], ...]:
    """Return the headers by which ``user`` acts as somebody else, with that one's rights alone.

    Raises:
        ClientConfigError: they make no sense.
    Source: Kubernetes, "User impersonation".
    """
    if not user.text("as"):
        return ()
    headers = [("Impersonate-User", user.text("as"))]
    if user.text("as-uid"):
        headers.append(("Impersonate-Uid", user.text("as-uid")))
    headers += [("Impersonate-Group", each) for each in _texts(user, "as-groups", user.fields)]
    extra = user.fields.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise ClientConfigError(f"as-user-extra of {user.what} is not a mapping")
    for name in extra:
        header = f"Impersonate-Extra-{_OF_HEADERS.sub(_escaped, str(name))}"
        headers += [(header, each) for each in _texts(user, name, extra)]
    if any(not value.isprintable() for _, value in headers):
        raise ClientConfigError(f"as of {user.what} holds characters that no header has")
    return tuple(headers)


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def _texts(user: Entry, name: Any, fields: Mapping[str, Any]) -> list[str]:
    listed = fields.get(name) or []
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise ClientConfigError(f"{name} of {user.what} is not a list of texts")
    return listed


def login(user: Entry) -> str:
    """Return the name of the ``auth-provider`` of ``user``; empty if there is none.

    Raises:
        ClientConfigError: it is one that kubectl no longer has.
    """
    said = user.fields.get("auth-provider") or {}
    name = str(said.get("name") or "") if isinstance(said, dict) else "?"
    if name and name != "oidc":
        instead = _REMOVED.get(name, "an exec plugin")
        raise ClientConfigError(f"auth-provider {name!r} of {user.what}: use {instead} instead")
    return name


def id_token(user: Entry, now: float) -> str:
    """Return the token in the OIDC login of ``user``; empty where it has ended, or is none.

    Units: ``now`` is in seconds since 1970.
    """
    found = user.fields["auth-provider"].get("config") or {}
    token = str(found.get("id-token") or "")
    try:
        _, claims, _ = token.split(".")
        said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        return token if said["exp"] - _SKEW_S > now else ""
    except (ValueError, KeyError, TypeError):
        return ""


def paths(said: str) -> list[Path]:
    """Return the files that ``said`` names, joined by colons as in ``$KUBECONFIG``."""
    return [Path(each) for each in said.split(os.pathsep) if each]
