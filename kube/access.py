"""Who we are, and to which API server: the only module that imports ``kubernetes``.

The administrator's kubeconfig is read by ``kubernetes.aio.config``, a kubeconfig out of a Secret by
``kube.kubeconfig``. In a pod two files and two variables say it all, so that no daemon pays for the
package: 18 MiB and a third of its start. Nothing generated is loaded, and no key stays in a file.
"""

import contextlib
import hashlib
import json
import os
import shutil
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from kube import environment, kubeconfig
from kube.errors import UnauthorizedError
from kube.kubeconfig import Kubeconfig

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts the identity of a pod."""
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a private directory is made in it


@dataclass(frozen=True)
class Access:
    """One API server and one identity, as read once; ``renew`` reads them again."""

    server: str
    tls: ssl.SSLContext | None = field(repr=False)
    authorization: str = field(default="", repr=False)
    """The header of that name; empty when the certificate says it all."""
    server_name: str = ""
    proxy: str = ""
    namespace: str = ""
    ca: bytes = field(default=b"", repr=False)
    """PEM of the authorities that the server is verified by; empty for those of the machine."""
    digest: str = field(default="", repr=False)
    """Of server, CA, certificate and key: another digest needs other connections."""
    stamp: object = None
    """Of the files it was read from: another stamp is a reason to read them again."""
    renew: "Source | None" = field(default=None, repr=False)
    current_stamp: Callable[[], object] | None = field(default=None, repr=False)

    def is_outdated(self) -> bool:
        """Whether the files that it was read from have changed."""
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

    It may name files and run ``exec`` plugins: it is the administrator's own. ``cluster`` and
    ``user`` are names in it, which take the place of those of the context.

    Raises:
        UnauthorizedError: it is not there, or makes no sense.
    """

    async def again() -> Access:
        return await from_file(path, context, cluster=cluster, user=user)

    # Here and not above: only administrators' commands need it.
    import yaml  # noqa: PLC0415
    from kubernetes.aio import config  # noqa: PLC0415
    from kubernetes.aio.client import Configuration  # noqa: PLC0415

    before = _stamp([path])
    settings = Configuration()
    with _scratch() as scratch:
        try:
            names = {"cluster": cluster, "user": user}
            loader = await config.load_kube_config(
                **_chosen(str(path), context, names, scratch),
                client_configuration=settings,
                persist_config=False,
                temp_file_path=str(scratch),
            )
            files = [path, *_named_files(settings, scratch)]
            stamp = before + _stamp(files[1:])
            namespace = str(loader.current_context["context"].get("namespace") or "")
            said = replace(_of_administrator(settings), namespace=namespace)
            return _access(said, renew=again, stamp=stamp, files=files)
        except (TypeError, AttributeError, yaml.YAMLError) as error:
            needed = "YAML with clusters, users, contexts and current-context"
            raise UnauthorizedError(f"kubeconfig {path} needs {needed}") from error
        except (config.ConfigException, OSError, ssl.SSLError) as error:
            raise UnauthorizedError(f"kubeconfig {path}: {error}") from error


def _chosen(
    path: str, context: str | None, names: Mapping[str, str], scratch: Path
) -> dict[str, str | None]:
    """Return which files to load, and which context: one of its own where ``names`` say more."""
    given = {what: name for what, name in names.items() if name}
    if not given:
        return {"config_file": path, "context": context}
    from kubernetes.aio import config  # noqa: PLC0415  # as in from_file

    every, current = config.list_kube_config_contexts(config_file=path)
    found = [one for one in every if one["name"] == context] if context else [current]
    if not found:
        raise config.ConfigException(f"it has no context {context!r}")
    called = f"{scratch.name} of {found[0]['name']}"
    made = {"name": called, "context": {**found[0]["context"], **given}}
    further = scratch / "context"
    further.write_text(json.dumps({"contexts": [made]}), encoding="utf-8")
    return {"config_file": os.pathsep.join([path, str(further)]), "context": called}


def from_kubeconfig(text: bytes) -> Access:
    """Return the identity in a kubeconfig that somebody else wrote: inline data only.

    Raises:
        kubeconfig.KubeconfigError: it says more than it may.
    """
    said = kubeconfig.parse(text)
    try:
        tls = _context(said.ca, said.certificate, said.key)
    except (ssl.SSLError, ValueError):
        raise kubeconfig.KubeconfigError("its certificates or key cannot be read") from None
    return Access(
        server=said.server,
        tls=tls,
        authorization=f"Bearer {said.token}" if said.token else "",
        server_name=said.server_name,
        proxy=said.proxy or environment.proxy(said.server),
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


def _of_administrator(settings: "Configuration") -> Kubeconfig:
    if not settings.verify_ssl:
        raise UnauthorizedError("insecure-skip-tls-verify: the server is always verified")
    ca, certificate, key = (
        Path(name).read_bytes() if name else b""
        for name in (settings.ssl_ca_cert, settings.cert_file, settings.key_file)
    )
    scheme, _, token = str(settings.api_key.get("BearerToken") or "").strip().partition(" ")
    return Kubeconfig(
        settings.host,
        ca,
        certificate,
        key,
        token=token.strip() or scheme,
        server_name=settings.tls_server_name or "",
        proxy=settings.proxy or environment.proxy(settings.host),
    )


def _access(said: Kubeconfig, *, renew: Source, stamp: object, files: list[Path]) -> Access:
    secure = said.server.startswith("https:")
    return Access(
        server=said.server.rstrip("/"),
        tls=_context(said.ca, said.certificate, said.key) if secure else None,
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


def _context(ca: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate:
        with _as_file(certificate + b"\n" + key) as path:
            context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    # ssl reads keys from files only: this one exists in memory and has no name.
    descriptor = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _forget() -> None:
    from kubernetes.aio.config import kube_config  # noqa: PLC0415  # as above

    kube_config._cleanup_temp_files()  # noqa: SLF001  # there is no public way to forget them


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    # The loader writes inline keys to files, remembers them, and removes them at exit: here they
    # live in memory, in a directory of mode 0700, for as long as it takes to read them.
    parent = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
    scratch = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield scratch
    finally:
        _forget()
        shutil.rmtree(scratch, ignore_errors=True)


def _named_files(settings: "Configuration", scratch: Path) -> list[Path]:
    names = [settings.ssl_ca_cert, settings.cert_file, settings.key_file]
    return [Path(name) for name in names if name and scratch not in Path(name).parents]


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
