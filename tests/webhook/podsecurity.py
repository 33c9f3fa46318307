"""Pods of Kubernetes's own tests of Pod Security, and what a level says of them."""

from pathlib import Path
from typing import Final

from apis import podsecurity
from apis.objects import Object
from tests import gomodules

MODULE: Final = "k8s.io/pod-security-admission@v0.35.4"
VERSION: Final = "v1.35"
FIXTURES: Final = 148


def fixtures() -> list[tuple[str, bool, Path]]:
    """Return level, whether it passes, and file of each fixture of the version."""
    found = gomodules.fetched(MODULE) / "test" / "testdata"
    return [
        (level, verdict == "pass", path)
        for level in ("baseline", "restricted")
        for verdict in ("pass", "fail")
        for path in sorted((found / level / VERSION / verdict).glob("*.yaml"))
    ]


def complaints(pod: Object, level: str) -> list[str]:
    annotations = pod["metadata"].get("annotations") or {}
    found = podsecurity.app_armor(annotations)
    return [*found, *podsecurity.violations(pod["spec"], level)]
