"""Logins by a program that the administrator's kubeconfig names: its user's ``exec``.

Source: Kubernetes, "Authenticating", client-go credential plugins; client-go,
plugin/pkg/client/auth/exec.
"""

import asyncio
import base64
import datetime as dt
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kube.clientconfig import ClientConfigError, Entry

_GROUP: Final = "client.authentication.k8s.io"
_VERSIONS: Final = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_OF_CLUSTER: Final = (
    "server",
    "tls-server-name",
    "proxy-url",
    "disable-compression",
)


@dataclass(frozen=True)
class Credentials:
    """What a plugin answered: a token, a certificate with its key, or all of them."""

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    until: float = float("inf")
    """In seconds since 1970; then the plugin is run again."""


async def run(user: Entry, cluster: Entry) -> Credentials:
    """Run the plugin of ``user`` and return its answer; what it says on stderr is shown.

    Raises:
        ClientConfigError: it gave no credentials; the sentence names it, with its hint.
    """
    said = Entry(f"exec of {user.what}", user.fields.get("exec") or {}, user.folder)
    command, version = said.text("command"), said.text("apiVersion")
    interactive = _check(said, command, version)
    spec: dict[str, Any] = {"interactive": interactive}
    if said.fields.get("provideClusterInfo"):
        spec["cluster"] = _told(cluster)
    asked = {"kind": "ExecCredential", "apiVersion": version, "spec": spec}
    environment = {**os.environ, **_environment(said), "KUBERNETES_EXEC_INFO": json.dumps(asked)}
    # As client-go: only a command with a path in it is looked for beside the kubeconfig.
    program = str(said.folder / command) if os.sep in command else command
    try:
        started = await asyncio.create_subprocess_exec(
            program,
            *map(str, said.fields.get("args") or []),
            env=environment,
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        hint = _visible(said.text("installHint"))
        why = f"{said.what}: cannot run {command!r}: {error.strerror}"
        raise ClientConfigError(f"{why}\n\n{hint}" if hint else why) from error
    answer, _ = await started.communicate()
    if started.returncode:
        hint = _visible(said.text("installHint"))
        why = f"{said.what}: {command!r} ended with code {started.returncode}; log in again"
        raise ClientConfigError(f"{why}\n\n{hint}" if hint else why)
    try:
        return credentials(json.loads(answer), version)
    except ValueError as error:  # as of json, whose text has nothing of the answer
        raise ClientConfigError(f"{said.what}: the answer of {command!r}: {error}") from None


def credentials(answer: Any, version: str) -> Credentials:
    """Return what an ``answer`` of a plugin holds.

    Raises:
        ValueError: nothing that could be used; the sentence quotes none of it.
    """
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict):
        raise ValueError("it has no status")  # noqa: TRY004  # as json raises
    if (answer.get("kind"), answer.get("apiVersion")) != ("ExecCredential", version):
        raise ValueError(f"it is no ExecCredential of {version}")
    names = ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")
    given = [status.get(name) or "" for name in names]
    if not all(isinstance(each, str) for each in given):
        raise ValueError(f"one of {', '.join(names)} is not a text")
    token, certificate, key, until = given
    if bool(certificate) != bool(key):
        raise ValueError("it has a certificate or a key, not both")
    if not token and not key:
        raise ValueError("it has neither a token nor a certificate")
    ends = dt.datetime.fromisoformat(until).timestamp() if until else float("inf")
    return Credentials(token, certificate.encode(), key.encode(), ends)


def _check(said: Entry, command: str, version: str) -> bool:
    """Return whether the plugin may ask at the terminal."""
    if not command:
        raise ClientConfigError(f"{said.what} has no command")
    if version not in _VERSIONS:
        known = " or ".join(_VERSIONS)
        raise ClientConfigError(f"{said.what} ({command!r}): apiVersion must be {known}")
    by_default = "" if version == _VERSIONS[0] else "IfAvailable"
    mode = said.text("interactiveMode") or by_default
    if mode not in {"Never", "IfAvailable", "Always"}:
        rule = "interactiveMode must be Never, IfAvailable or Always"
        raise ClientConfigError(f"{said.what} ({command!r}): {rule}")
    is_terminal = bool(sys.stdin) and sys.stdin.isatty()
    if mode == "Always" and not is_terminal:
        rule = "it asks at a terminal (interactiveMode: Always), and there is none"
        raise ClientConfigError(f"{said.what} ({command!r}): {rule}")
    return mode != "Never" and is_terminal


def _environment(said: Entry) -> dict[str, str]:
    listed = [Entry(f"env of {said.what}", each) for each in said.fields.get("env") or []]
    if any(not each.text("name") for each in listed):
        raise ClientConfigError(f"env of {said.what} has an entry without a name")
    return {each.text("name"): each.text("value") for each in listed}


def _told(cluster: Entry) -> Mapping[str, Any]:
    told = {name: cluster.fields[name] for name in _OF_CLUSTER if cluster.fields.get(name)}
    if ca := cluster.content("certificate-authority"):
        told["certificate-authority-data"] = base64.b64encode(ca).decode("ascii")
    for each in cluster.fields.get("extensions") or []:
        if each.get("name") == f"{_GROUP}/exec":
            told["config"] = each.get("extension")
    return told


def _visible(hint: str) -> str:
    return "".join(each for each in hint if each.isprintable() or each in "\n\t").strip()
