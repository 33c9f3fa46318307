"""Each reason of an Event that the code names is explained in the docs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs/events.md"
TELLS: Final = frozenset({"event", "_tell", "TerminalError"})
"""What writes an Event, or raises what is told by one."""
TYPES: Final = frozenset({"Normal", "Warning"})
REASON: Final = re.compile(r"[A-Z][A-Za-z]+")


def reasons() -> Iterator[str]:
    """Yield the reasons that stand as literals where something is told."""
    for package in ("certs", "controllers", "kubelet", "reflector"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and _name(node.func) in TELLS:
                    yield from _literals(node)


def _name(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]


def _literals(call: ast.Call) -> Iterator[str]:
    values = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    texts = [value for value in values if isinstance(value, str)]
    yield from (text for text in texts if REASON.fullmatch(text) and text not in TYPES)


def test_every_reason_that_the_code_names_is_in_the_page() -> None:
    found = set(reasons())
    told = set(re.findall(r"`([A-Za-z]+)`", PAGE.read_text(encoding="utf-8")))
    assert len(found) > 35
    assert found <= told
