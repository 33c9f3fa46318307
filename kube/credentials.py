"""Who we are, to which API server, by which proxy: the only module that imports ``kubernetes``.

The administrator's kubeconfig is read by ``kube.clientconfig``, a kubeconfig out of a Secret by
``kube.kubeconfig``. In a pod two files and two variables say it all. ``kubernetes`` is loaded for
an OIDC login that has ended (18 MiB, 0.2 s), and nothing generated of it; no key stays in a file.
"""

import contextlib
import copy
import hashlib
import ipaddress
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from kube import kubeconfig
from kube.errors import UnauthorizedError
from kube.kubeconfig import Kubeconfig

if TYPE_CHECKING:
    from kube.clientconfig import CurrentContext

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts the identity of a pod."""


@dataclass(frozen=True)
class Access:
    """One API server and one identity, as read once; ``renew`` reads them again."""

    server: str
    tls: ssl.SSLContext | None = field(repr=False)
    authorization: str = field(default="", repr=False)
    """The header of that name; empty when the certificate says it all."""
    impersonation: tuple[tuple[str, str], ...] = ()
    """The headers by which it acts as somebody else: with the rights of that one, and no others."""
    server_name: str = ""
    proxy: str = ""
    namespace: str = ""
    ca: bytes = field(default=b"", repr=False)
    """PEM of the authorities that the server is verified by; empty for those of the machine."""
    digest: str = field(default="", repr=False)
    """Of server, CA, certificate, key and as whom: another digest needs other connections."""
    stamp: object = None
    """Of what it was read from: another stamp is a reason to read that again."""
    renew: "Source | None" = field(default=None, repr=False)
    current_stamp: Callable[[], object] | None = field(default=None, repr=False)
    tls_http2: ssl.SSLContext | None = field(default=None, repr=False)
    """``tls`` again, which offers HTTP/2, too; None where it is not to be spoken."""

    def is_outdated(self) -> bool:
        """Whether the files that it was read from have changed, or what a login gave has ended."""
        return self.current_stamp is not None and self.current_stamp() != self.stamp


Source: TypeAlias = Callable[[], Awaitable[Access]]


async def in_cluster() -> Access:
    """Return the identity of this pod's service account; its token file is read again.

    Raises:
        UnauthorizedError: this process runs in no pod, or its files are not there.
    """
    return await of_pod(SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt")


async def of_pod(token: Path, ca: Path) -> Access:
    """Return the identity in the files ``token`` and ``ca``, at the API server of this pod.

    Raises:
        UnauthorizedError: as in_cluster.
    """

    async def again() -> Access:
        return await of_pod(token, ca)

    stamp = _stamp([token, ca])
    try:
        said = _of_pod(os.environ, token, ca)
        return _access(said, renew=again, stamp=stamp, files=[token, ca])
    except (OSError, ValueError) as error:
        raise UnauthorizedError(f"no identity of a pod: {error}") from error


async def from_file(
    path: Path, context: str | None = None, *, cluster: str = "", user: str = ""
) -> Access:
    """Return the identity that the administrator's kubeconfig at ``path`` gives.

    ``path`` may be several, joined by colons as in ``$KUBECONFIG``. They may name files and run
    ``exec`` plugins: they are the administrator's own. ``cluster`` and ``user`` are names in them,
    which take the place of those of the context.

    Raises:
        UnauthorizedError: it is not there, or makes no sense, or its login fails.
    """

    async def again() -> Access:
        return await from_file(path, context, cluster=cluster, user=user)

    # Here and not above: only administrators' commands need it.
    from kube import clientconfig  # noqa: PLC0415

    files = clientconfig.paths(str(path))
    try:
        before = _stamp(files)
        found = clientconfig.chosen(clientconfig.load(files), context, cluster=cluster, user=user)
        named = list(found.files)
        stamp = before + _stamp(named)
        return await _of_administrator(found, again, stamp, [*files, *named])
    except (TypeError, AttributeError) as error:
        raise UnauthorizedError(f"kubeconfig {path}: an entry has another shape") from error
    except (OSError, ValueError) as error:
        raise UnauthorizedError(f"kubeconfig {path}: {error}") from error


async def _of_administrator(
    found: "CurrentContext", renew: "Source", stamp: object, files: list[Path]
) -> Access:
    from kube import clientconfig, plugin  # noqa: PLC0415  # as in from_file

    cluster, user = found.cluster, found.user
    authorization, until = "", float("inf")
    ca = certificate = key = b""
    if found.is_secure:
        ca = cluster.content("certificate-authority")
        certificate, key = user.content("client-certificate"), user.content("client-key")
        authorization = clientconfig.authorization(user)
    if found.is_secure and not authorization and not certificate:
        if user.fields.get("exec"):
            got = await plugin.run(user, cluster)
            certificate, key, until = got.certificate, got.key, got.until
            authorization = f"Bearer {got.token}" if got.token else ""
        else:
            authorization = await _of_login(found)
    by = time.monotonic() + until - time.time()  # as long as it lives, though a clock is set
    impersonation = clientconfig.impersonation(user)
    made = _access(
        Kubeconfig(
            found.server,
            ca,
            certificate,
            key,
            namespace=found.namespace,
            server_name=cluster.text("tls-server-name"),
            proxy=cluster.text("proxy-url") or proxy_for(found.server),
        ),
        renew=renew,
        stamp=(stamp, False),
        files=files,
    )
    return replace(
        made,
        authorization=authorization,
        impersonation=impersonation,
        digest=_digest(made.digest, *(part for each in impersonation for part in each)),
        current_stamp=lambda: (_stamp(files), time.time() > until or time.monotonic() > by),
    )


async def _of_login(found: "CurrentContext") -> str:
    """Return the header of an ``auth-provider``: its token, or a new one where that has ended."""
    from kube import clientconfig  # noqa: PLC0415  # as in from_file

    name = clientconfig.login(found.user)
    if not name:
        what = f"{found.user.what} has neither a certificate, a token nor a login"
        raise clientconfig.ClientConfigError(what)
    if token := clientconfig.id_token(found.user, time.time()):
        return f"Bearer {token}"
    from kubernetes.aio import config  # noqa: PLC0415
    from kubernetes.aio.client import Configuration  # noqa: PLC0415

    settings = Configuration()
    user = {"auth-provider": copy.deepcopy(found.user.fields["auth-provider"])}
    (user["auth-provider"].get("config") or {}).pop("id-token", None)
    try:
        await config.load_kube_config_from_dict(
            {
                "current-context": "it",
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                "clusters": [{"name": "it", "cluster": {"server": found.server}}],
                "users": [{"name": "it", "user": user}],
            },
            client_configuration=settings,
        )
    except (config.ConfigException, KeyError, OSError) as error:
        why = f"auth-provider {name!r} of {found.user.what}: {error}; log in again"
        raise clientconfig.ClientConfigError(why) from error
    return str(settings.api_key["BearerToken"])


def from_kubeconfig(text: bytes) -> Access:
    """Return the identity in a kubeconfig that somebody else wrote: inline data only.

    Raises:
        kubeconfig.KubeconfigError: it says more than it may.
    """
    said = kubeconfig.parse(text)
    try:
        tls = contexts(said.ca, said.certificate, said.key)
    except (ssl.SSLError, ValueError):
        raise kubeconfig.KubeconfigError("its certificates or key cannot be read") from None
    return Access(
        server=said.server,
        **tls,
        authorization=f"Bearer {said.token}" if said.token else "",
        server_name=said.server_name,
        proxy=said.proxy or proxy_for(said.server),
        namespace=said.namespace,
        ca=said.ca,
        digest=_digest(said.server, said.ca, said.certificate, said.key, said.server_name),
    )


async def discover(path: Path | None) -> Access:
    """Return the identity of the kubeconfig at ``path``, or without one that of this pod."""
    return await (from_file(path) if path else in_cluster())


def plain(server: str, authorization: str = "") -> Access:
    """Return access to a server without TLS, for a stub on this machine.

    Raises:
        ValueError: ``server`` is not on the loopback interface.
    """
    if not server.startswith(("http://127.0.0.1:", "http://localhost:", "http://[::1]:")):
        raise ValueError(f"{server} must be https")
    return Access(server, None, authorization, digest=_digest(server))


def _of_pod(variables: Mapping[str, str], token_file: Path, ca_file: Path) -> Kubeconfig:
    token, ca = token_file.read_text(encoding="ascii").strip(), ca_file.read_bytes()
    host = variables.get("KUBERNETES_SERVICE_HOST", "")
    port = variables.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ValueError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT name no server")
    if not token or not ca:
        raise ValueError("the files of its token and of its authority must not be empty")
    where = f"[{host}]" if ":" in host else host
    return Kubeconfig(f"https://{where}:{port}", ca, token=token)


def _access(said: Kubeconfig, *, renew: Source, stamp: object, files: list[Path]) -> Access:
    secure = said.server.startswith("https:")
    return Access(
        server=said.server.rstrip("/"),
        **(contexts(said.ca, said.certificate, said.key) if secure else {"tls": None}),
        authorization=f"Bearer {said.token}" if said.token else "",
        server_name=said.server_name,
        proxy=said.proxy,
        namespace=said.namespace,
        ca=said.ca,
        digest=_digest(said.server, said.ca, said.certificate, said.key, said.server_name),
        stamp=stamp,
        renew=renew,
        current_stamp=lambda: _stamp(files),
    )


def trusting(ca: bytes = b"") -> ssl.SSLContext:
    """Return how a server is verified: by the authorities in ``ca``, or else the machine's."""
    context = ssl.create_default_context(cadata=ca.decode("ascii", "ignore") if ca else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return verifying(context)


def verifying(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return ``context``, which verifies chain, dates and names as Go does, on every Python.

    From 3.13 on Python asks for key identifiers, too, which the certificates of EKS and of old GKE
    clusters lack. An authority need not have signed itself: what is trusted is trusted.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def contexts(ca: bytes, certificate: bytes = b"", key: bytes = b"") -> dict[str, Any]:
    """Return an ``Access``'s two contexts; with ``certificate`` it says by it who it is."""
    made = {"tls": trusting(ca), "tls_http2": trusting(ca)}
    made["tls_http2"].set_alpn_protocols(["h2", "http/1.1"])
    if certificate:
        for context in made.values():
            with _as_file(certificate + b"\n" + key) as path:
                context.load_cert_chain(path)
    return made


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    # ssl reads keys from files only: this one exists in memory and has no name.
    descriptor = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _stamp(files: list[Path]) -> tuple[object, ...]:
    return tuple(_stamp_of(path) for path in files)


def _stamp_of(path: Path) -> object:
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_ino, stat.st_mtime_ns, stat.st_size)


def _digest(*parts: str | bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()


# The proxy that the environment names -------------------------------------------------------------


def proxy_for(server: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the proxy for the API server ``server``, empty if it is reached directly.

    Loopback addresses are always reached directly.
    """
    said = urlsplit(server)
    name = "HTTPS_PROXY" if said.scheme == "https" else "HTTP_PROXY"
    found = environment.get(name) or environment.get(name.lower()) or ""
    direct = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    host = (said.hostname or "").rstrip(".")
    port = said.port or (443 if said.scheme == "https" else 80)
    patterns = [one for one in map(str.strip, direct.lower().split(",")) if one]
    if not found or host == "localhost" or _is_direct(host, port, patterns):
        return ""
    return found if "://" in found else f"http://{found}"


def _is_direct(host: str, port: int, patterns: list[str]) -> bool:
    hosts = [host_ for host_, port_ in map(_parted, patterns) if port_ in {"", str(port)}]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return any(_is_named(host, one) for one in hosts)
    return address.is_loopback or any(_holds(one, address) for one in hosts)


def _parted(pattern: str) -> tuple[str, str]:
    """Return host and port of ``pattern``; the port is empty where it names none."""
    if pattern.startswith("["):
        host, _, port = pattern[1:].partition("]")
        return host, port.removeprefix(":")
    host, _, port = pattern.partition(":")
    return (host, port) if port.isdecimal() else (pattern, "")


def _is_named(host: str, pattern: str) -> bool:
    domain = pattern.removeprefix("*").removeprefix(".")
    return pattern == "*" or (bool(domain) and (host == domain or host.endswith(f".{domain}")))


def _holds(pattern: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if pattern == "*":
        return True
    try:
        return address in ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        return False
