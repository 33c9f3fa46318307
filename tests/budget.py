"""``python -m tests.budget``: how large each package is, and fail where one is larger than allowed.

``tests/budget.toml`` has what is allowed. Who needs more says in the commit what it buys, and what
goes out for it; who needs less lowers the number.
"""

import sys
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
BUDGET: Final = ROOT / "tests" / "budget.toml"
SMALL: Final = 40
"""Non-blank lines of a file that would rather be a part of another."""


class Size(NamedTuple):
    """Of a package: lines that are not blank; files, and small ones among them, but __init__."""

    lines: int
    files: int
    small: int


def measured(package: str) -> Size:
    """Return the size of ``package`` as it is."""
    lengths = {
        file: sum(1 for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
        for file in (ROOT / package).rglob("*.py")
    }
    files = [length for file, length in lengths.items() if file.name != "__init__.py"]
    return Size(sum(lengths.values()), len(files), sum(length <= SMALL for length in files))


def allowed() -> dict[str, Size]:
    """Return what ``budget.toml`` allows each package."""
    found = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    return {package: Size(**size) for package, size in found.items()}


def excess(have: Size, most: Size) -> list[str]:
    """Return of what there is too much, such as "12 lines"."""
    names = ("lines", "files", f"files of at most {SMALL} lines")
    pairs = zip(have, most, names, strict=True)
    return [f"{one - limit} {name}" for one, limit, name in pairs if one > limit]


def main() -> int:
    """Print a line for each package; return 1 if one is too large."""
    is_over = False
    for package, most in allowed().items():
        have = measured(package)
        over = excess(have, most)
        is_over |= bool(over)
        said = f": {', '.join(over)} more than {BUDGET.name} allows" if over else ""
        sizes = " ".join(f"{one:>6} of {limit:<6}" for one, limit in zip(have, most, strict=True))
        sys.stdout.write(f"{package:<12} {sizes}{said}\n")
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
