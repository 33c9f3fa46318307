"""kubectl, as the user of the demo would type it."""

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import binaries


class KubectlError(Exception):
    """kubectl exited with an error; the message is the command and what it said."""


@dataclass(frozen=True)
class Kubectl:
    """kubectl towards one cluster."""

    kubeconfig: Path

    def run(self, *args: str, stdin: str | None = None, timeout_s: float = 120) -> str:
        """Return what ``kubectl ARGS`` printed; KubectlError when it failed."""
        command = [str(binaries.kubectl()), f"--kubeconfig={self.kubeconfig}", *args]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if done.returncode:
            raise KubectlError(f"kubectl {shlex.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *args: str) -> Any:
        """Return the JSON of ``kubectl get ARGS``: an object, or a List."""
        return json.loads(self.run("get", "-o", "json", *args))

    def items(self, *args: str) -> list[Any]:
        """Return the items of ``kubectl get ARGS``."""
        return list(self.get(*args)["items"])

    def apply(self, documents: Sequence[Mapping[str, Any]]) -> str:
        """Apply ``documents`` server-side and return what kubectl printed."""
        manifest = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        return self.run("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))

    def wait(self, *args: str, timeout_s: int = 120) -> str:
        """Return what ``kubectl wait ARGS`` printed once the condition holds."""
        return self.run("wait", f"--timeout={timeout_s}s", *args, timeout_s=timeout_s + 10)
