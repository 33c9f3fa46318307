"""A webhook as a process in front of a real API server, which asks it for some namespaces."""

import asyncio
import base64
import contextlib
import json
import os
import secrets
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apis import keys
from apis.objects import Key, Object, named
from kube.client import ClusterClient
from kube.errors import KubeError
from sandbox import binaries, controlplane
from tests.factories import pod
from tests.webhook.reviews import labelled_namespace, offloading
from tests.webhook.served import CA, leaf, store

RULE = {"apiVersions": ["*"], "scope": "Namespaced"}
PODS = {**RULE, "apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
OFFLOADINGS = {
    **RULE,
    "apiGroups": ["offloading.liqo.io"],
    "resources": ["namespaceoffloadings"],
    "operations": ["CREATE", "UPDATE"],
}
LABEL = "liqo.io/scheduling-enabled"


@dataclass
class Hooked:
    """A running webhook that judges the namespaces with the label ``judged: <run>``."""

    process: subprocess.Popen[bytes]
    port: int
    run: str
    log: Path

    def hook(self, name: str, path: str, rule: Object, operator: str, policy: str) -> Object:
        wanted = [{"key": "judged", "operator": "In", "values": [self.run]}]
        if operator:
            wanted.append({"key": LABEL, "operator": operator, "values": ["true"]})
        return {
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": policy,
            "timeoutSeconds": 30,
            "clientConfig": {
                "url": f"https://127.0.0.1:{self.port}{path}",
                "caBundle": base64.b64encode(CA.certificate).decode(),
            },
            "namespaceSelector": {"matchExpressions": wanted},
            "rules": [rule],
        }

    def is_ready(self) -> bool:
        assert self.process.poll() is None
        try:
            return bool(self.get("/readyz"))
        except (urllib.error.URLError, OSError):
            return False

    def get(self, path: str, token: str = "") -> str:
        """Return what the webhook itself says at ``path`` to the bearer of ``token``."""
        url = f"https://127.0.0.1:{self.port}{path}"
        context = ssl.create_default_context(cadata=CA.certificate.decode())
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, context=context) as answer:  # noqa: S310  # our own
            return str(answer.read().decode())

    async def install(self, cluster: ClusterClient) -> None:
        mutating = [
            {
                **self.hook("pod.mutate.liqo.io", "/mutate/pod", PODS, "In", "Fail"),
                "reinvocationPolicy": "IfNeeded",
            }
        ]
        path = "/validate/namespace-offloading"
        validating = [self.hook("nsoff.validate.liqo.io", path, OFFLOADINGS, "", "Fail")]
        for kind, hooks in (
            (keys.MUTATING_WEBHOOKS, mutating),
            (keys.VALIDATING_WEBHOOKS, validating),
        ):
            await cluster.create(kind, named(kind, Key("", self.run), webhooks=hooks))
        await self.wait_until_called(cluster)

    async def wait_until_called(self, cluster: ClusterClient) -> None:
        """The API server learns of each configuration a moment after it was written."""
        space = await self.space(cluster)
        term = {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}
        wrong: Object = {"clusterSelector": {"nodeSelectorTerms": [term]}}

        async def pod_() -> Object:
            return await cluster.create(keys.POD, pod(space, secrets.token_hex(4)))

        async def offloading_() -> Object:
            other = await self.space(cluster)
            return await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(other, **wrong))

        for attempt in (pod_, offloading_):
            await until_attempt_refused(attempt)

    async def space(self, cluster: ClusterClient, *, is_labelled: bool = True) -> str:
        name = f"live-{secrets.token_hex(4)}"
        made = labelled_namespace(name, is_labelled=is_labelled)
        made["metadata"]["labels"]["judged"] = self.run
        await cluster.create(keys.NAMESPACE, made)
        return name


async def until_attempt_refused(attempt: Callable[[], Awaitable[Object]]) -> None:
    """Wait until the API server takes something no more: it learns of rules by itself."""
    async with asyncio.timeout(300):
        with contextlib.suppress(KubeError):
            while await attempt():  # noqa: ASYNC110  # nobody is told
                await asyncio.sleep(0.05)


LAG: Final = Path(__file__).parent / "lag"
LAGGING: Final = {"PYTHONPATH": str(LAG), "PYLIQO_TEST_LAG_S": "2"}
"""The environment of a process whose caches are two seconds behind."""


def start(
    kubeconfig: Path,
    directory: Path,
    *flags: str,
    module: Sequence[str] = (sys.executable, "-m", "webhook"),
    env: Mapping[str, str] | None = None,
) -> Hooked:
    store(directory / "tls", leaf())
    (port,) = controlplane.free_ports(1)
    command = [
        *(*module, "--host", "127.0.0.1", "--port", str(port)),
        *("--tls-dir", str(directory / "tls" / "current"), "--kubeconfig", str(kubeconfig)),
        *flags,
    ]
    log = directory / "log"
    with log.open("wb") as lines:
        process = subprocess.Popen(
            command, stderr=lines, stdout=lines, env={**os.environ, **(env or {})}
        )
    return Hooked(process, port, f"run-{secrets.token_hex(4)}", log)


def tolerates(made: Object) -> bool:
    found = made["spec"].get("tolerations") or []
    return any(one.get("key") == "virtual-node.liqo.io/not-allowed" for one in found)


async def run_kubectl(plane: controlplane.Plane, obj: Object, verb: str, *flags: str) -> None:
    command = (str(binaries.kubectl()), f"--kubeconfig={plane.kubeconfig}", verb, *flags, "-f", "-")
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    out, err = await started.communicate(json.dumps(obj).encode())
    assert started.returncode == 0, (out + err).decode()
