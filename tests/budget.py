"""``python -m tests.budget``: how large packages and tests are, and fail where that is too much.

``tests/budget.toml`` has what is allowed. Who needs more says in the commit what it buys, and what
goes out for it; who needs less lowers the number.
"""

import ast
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
TESTS: Final = ROOT / "tests"
BUDGET: Final = TESTS / "budget.toml"
SMALL: Final = 40
"""Non-blank lines of a file that would rather be a part of another."""
SHARED: Final = 3
"""Files of tests that define a name from which on its helpers count as shared."""


class Size(NamedTuple):
    """Of a package: lines that are not blank; files, and small ones among them, but __init__."""

    lines: int
    files: int
    small: int


def measured_package(package: str) -> Size:
    """Return the size of ``package`` as it is."""
    lengths = {file: _non_blank(file) for file in (ROOT / package).rglob("*.py")}
    files = [length for file, length in lengths.items() if file.name != "__init__.py"]
    return Size(sum(lengths.values()), len(files), sum(length <= SMALL for length in files))


def allowed() -> dict[str, Size]:
    """Return what ``budget.toml`` allows each package."""
    return {package: Size(**size) for package, size in _budget().items() if package != "tests"}


def excess(have: Size, most: Size) -> list[str]:
    """Return of what there is too much, such as "12 lines"."""
    names = ("lines", "files", f"files of at most {SMALL} lines")
    pairs = zip(have, most, names, strict=True)
    return [f"{one - limit} {name}" for one, limit, name in pairs if one > limit]


def measured_tests() -> dict[str, int]:
    """Return the non-blank lines of each folder of ``tests`` (``.`` is itself), and ``helpers``.

    ``helpers`` are functions, fixtures and classes at module level, but tests, whose name at least
    ``SHARED`` files of ``tests`` define.
    """
    found: dict[str, int] = defaultdict(int)
    names: dict[str, int] = defaultdict(int)
    for file in sorted(TESTS.rglob("*.py")):
        folder = "." if file.parent == TESTS else file.relative_to(TESTS).parts[0]
        found[folder] += _non_blank(file)
        for name in _helpers(file):
            names[name] += 1
    return {**found, "helpers": sum(count for count in names.values() if count >= SHARED)}


def _helpers(file: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    defined = {node.name for node in ast.parse(file.read_text()).body if isinstance(node, kinds)}
    return {name for name in defined if not name.startswith(("test_", "Test"))}


def _non_blank(file: Path) -> int:
    return sum(1 for line in file.read_text(encoding="utf-8").splitlines() if line.strip())


def _budget() -> dict[str, Any]:
    return tomllib.loads(BUDGET.read_text(encoding="utf-8"))


def main() -> int:
    """Print a line for each package, and each folder of tests; return 1 if one is too large."""
    is_over = False
    for package, most in allowed().items():
        have = measured_package(package)
        over = excess(have, most)
        is_over |= bool(over)
        said = f": {', '.join(over)} more than {BUDGET.name} allows" if over else ""
        sizes = " ".join(f"{one:>6} of {limit:<6}" for one, limit in zip(have, most, strict=True))
        sys.stdout.write(f"{package:<12} {sizes}{said}\n")
    most_of_tests = _budget()["tests"]
    for name, size in measured_tests().items():
        limit = most_of_tests.get(name, 0)
        is_over |= size > limit
        said = f": {size - limit} more than {BUDGET.name} allows" if size > limit else ""
        title = "helpers that share a name" if name == "helpers" else f"tests/{name}"
        sys.stdout.write(f"{title:<25} {size:>6} of {limit:<6}{said}\n")
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
