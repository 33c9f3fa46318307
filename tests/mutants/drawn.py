"""Small changes of the product, drawn by a seed over all its lines.

Whatever survives the tests of its package is a line that no test needs, or one that means the same.
"""

import ast
import copy
import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests import budget
from tests.mutants import ROOT

_OPPOSITE: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
_SILENT: Final = "logger."
"""What only writes a log, which no test has to hold."""
_FORM: Final = ("frozen", "slots", "kw_only", "gc")
"""What is said of a class for its readers, mypy and the collector of garbage."""


@dataclass(frozen=True)
class Drawn:
    """One change of a file, which begins at a line of it."""

    path: Path
    line: int
    lines: range
    """Those of its statement up to its end: where none of them is executed, no test notices it."""
    before: str
    after: str
    text: str
    """The whole file with the change."""

    @property
    def name(self) -> str:
        """Where it is, and what is changed."""
        return f"{self.path}:{self.line}: {self.before} -> {self.after}"

    @property
    def package(self) -> str:
        """Return the package of the file, which is also the folder of its tests."""
        return self.path.parts[0]

    def apply(self, top: Path) -> str:
        """Write it to the tree ``top``; return "", as nothing can be against it."""
        (top / self.path).write_text(self.text, encoding="utf-8")
        return ""


def draw(number: int, seed: int, packages: tuple[str, ...] = ()) -> Iterator[Drawn]:
    """Yield as many changes of ``packages``, by default of all: the same for one seed and tree."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    names = packages or tuple(budget.allowed())
    paths = [path for name in names for path in sorted((ROOT / name).rglob("*.py"))]
    lines = [(path, index) for path in paths for index in _code(path)]
    drawn = 0
    for path, line in chance.sample(lines, len(lines)):
        if found := _changes(path, line):
            yield chance.choice(found)
            drawn += 1
        if drawn == number:
            return


def _code(path: Path) -> list[int]:
    text = path.read_text(encoding="utf-8").splitlines()
    return [index for index, line in enumerate(text, 1) if line.strip()]


def _changes(path: Path, line: int) -> list[Drawn]:
    """Return all changes of what begins at ``line``; annotations and docstrings have none."""
    text, begins, tests, statements = _parsed(path)
    first = max((one.start for one in statements if line in one), default=line)
    found = []
    for node in begins.get(line, []):
        before = ast.get_source_segment(text, node) or ""
        for after in _changed(node, before, is_test=node in tests):
            whole = _replaced(text, node, after)
            lines = range(first, getattr(node, "end_lineno", line) + 1)
            place = path.relative_to(ROOT)
            found.append(Drawn(place, line, lines, _short(before), _short(after), whole))
    return found


@functools.cache
def _parsed(path: Path) -> tuple[str, dict[int, list[ast.AST]], set[ast.AST], list[range]]:
    """Return a file's text, what begins at each line, what if and while ask, and statements."""
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(_without_types(ast.parse(text))))
    tests: set[ast.AST] = {
        node.test for node in nodes if isinstance(node, ast.If | ast.While | ast.IfExp)
    }
    # Before Python 3.12 what is inside of an f-string says a wrong place.
    strings = (node for node in nodes if isinstance(node, ast.JoinedStr))
    inside = {inner for string in strings for inner in ast.walk(string)}
    begins: dict[int, list[ast.AST]] = {}
    for node in nodes:
        if node not in inside:
            begins.setdefault(getattr(node, "lineno", 0), []).append(node)
    whole = (node for node in nodes if isinstance(node, ast.stmt))
    return text, begins, tests, [range(s.lineno, (s.end_lineno or 0) + 1) for s in whole]


def _without_types(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        for name in ("annotation", "returns", "type_params"):
            if hasattr(node, name):
                setattr(node, name, [] if name == "type_params" else None)
        if isinstance(node, ast.Call | ast.ClassDef):
            node.keywords = [one for one in node.keywords if one.arg not in _FORM]
    return tree


def _changed(node: ast.AST, before: str, *, is_test: bool) -> Iterator[str]:
    """Yield what may stand in the place of ``node``."""
    if isinstance(node, ast.stmt):
        if (after := _statement(node, before)) and after != before:
            yield after
        return
    match node:
        case ast.Compare(ops=[op]) if type(op) in _OPPOSITE:
            yield _with(node, ops=[_OPPOSITE[type(op)]()])
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in _OPPOSITE:
            yield _with(node, op=_OPPOSITE[type(op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() | int() as value):
            yield str(not value if isinstance(value, bool) else value + 1)
        case ast.Name() | ast.Attribute() | ast.Call() if is_test:
            yield f"(not {before})"


def _statement(node: ast.stmt, before: str) -> str:
    match node:
        case ast.Return(value=ast.AST() as value) if not isinstance(value, ast.Constant):
            return "return None"
        case ast.Expr(value=ast.Call() | ast.Await()) if not before.startswith(_SILENT):
            return "pass"
        case ast.AugAssign():
            return "pass"
    return ""


def _with(node: Any, **fields: Any) -> str:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return f"({ast.unparse(made)})"


def _replaced(text: str, node: Any, after: str) -> str:
    """Return ``text`` with ``after`` in the place of ``node``; columns of ast count bytes."""
    lines = text.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno - 1
    head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    return b"".join([*lines[:first], head, after.encode(), tail, *lines[last + 1 :]]).decode()


def _short(code: str) -> str:
    flat = " ".join(code.split())
    return flat if len(flat) <= 60 else f"{flat[:57]}..."
