"""An answer of a server is read in one place, which says how many bytes it takes.

A rule over the source: it looks for the methods by which aiohttp reads a body without a bound.
Source: docs/parity.md H15.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = (
    "apis", "certs", "controllers", "kube", "kubelet", "liqoctl", "reflector", "webhook",
)  # fmt: skip
UNBOUNDED: Final = frozenset({"read", "json", "text"})
STREAMED: Final = frozenset({"iter_any", "iter_chunked", "iter_chunks", "readany", "readline"})
EXCEPTIONS: Final = {
    ("kube/wire.py", "iter_any"): "it is the place: ``whole`` and ``lines`` count what they take",
    ("certs/childprocess.py", "readline"): "the pipe of a process of ours",
    ("kube/slim.py", "json"): "Packed.json, of an object that is there",
    ("kubelet/api/server.py", "json"): "Packed.json, of an object that is there",
    ("kubelet/api/tunnel.py", "read"): "http.client over bytes that ``TunnelEnd`` counted",
    ("kubelet/api/server.py", "iter_any"): "a log: passed on no faster than it is read, not kept",
    ("liqoctl/move.py", "text"): "Command.text, which has a bound of its own",
    ("webhook/worker.py", "read"): "a request to us, whose size aiohttp bounds (client_max_size)",
}


def reads(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each call that may read a body: whole, which takes no argument, or as a stream."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        is_whole = node.func.attr in UNBOUNDED and not node.args
        if is_whole or node.func.attr in STREAMED:
            yield node.func.attr, node.lineno


def reads_by_file() -> dict[tuple[str, str], list[int]]:
    there: dict[tuple[str, str], list[int]] = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            where = file.relative_to(ROOT).as_posix()
            for name, line in reads(ast.parse(file.read_text())):
                there.setdefault((where, name), []).append(line)
    return there


def test_no_answer_is_read_without_a_bound() -> None:
    others = {where: lines for where, lines in reads_by_file().items() if where not in EXCEPTIONS}
    assert not others, f"read them by wire.whole(answer, most=...): {others}"


def test_each_exception_is_still_needed() -> None:
    assert set(EXCEPTIONS) <= set(reads_by_file())


@pytest.mark.parametrize(
    "source", ["await answer.read()", "await one.json()", "x.content.iter_any()"]
)
def test_the_rule_finds_what_it_looks_for(source: str) -> None:
    assert list(reads(ast.parse(f"async def f():\n    {source}")))
