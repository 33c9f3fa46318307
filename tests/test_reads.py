"""Every read of an answer says how much of it is taken: only ``kube.wire`` reads whole bodies."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("certs", "controllers", "kube", "kubelet", "liqoctl", "reflector", "webhook")
READS = frozenset({"json", "read", "text"})
ALLOWED = {
    "liqoctl/work/moving.py": "a command's output, bounded by kube.remotecommand",
    "kube/tunnel.py": "an http.client answer over bytes that are bounded already",
    "webhook/worker.py": "a request's body, bounded by client_max_size",
}


def reads(path: Path) -> Iterator[int]:
    """Yield the lines where ``await x.read()`` and the like stand, which take whatever comes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Await) or not isinstance(node.value, ast.Call):
            continue
        called = node.value.func
        if isinstance(called, ast.Attribute) and called.attr in READS and not node.value.args:
            yield node.lineno


@pytest.mark.parametrize("package", PACKAGES)
def test_no_answer_is_read_without_a_bound(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in ALLOWED
        for line in reads(path)
    ]

    assert found == []
