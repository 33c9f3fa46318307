"""Rules of the product, each taken out by a patch, and the test that fails without it.

A test that passes shows that an attack fails today; that the rule is why it fails is shown by the
patch beside this file. ``python3 -m tests.mutants`` applies one after another and runs the test.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[1]
KILLED_BY: Final = "Killed by: "
_ROW: Final = re.compile(r"(?:SEC-)?[A-Z]\d+(?=-)")


@dataclass(frozen=True)
class Mutant:
    """One patch: ``name`` begins with the row of docs/parity.md whose rule it takes out."""

    name: str
    path: Path
    killed_by: str

    @property
    def row(self) -> str:
        """The row, "" if the name has none."""
        found = _ROW.match(self.name)
        return found[0] if found else ""

    def apply(self, top: Path, *options: str) -> str:
        """Apply it to the tree ``top``; return what git says against that, "" if nothing."""
        command = ("git", "apply", *options, str(self.path))
        done = subprocess.run(command, cwd=top, capture_output=True, text=True, check=False)
        return done.stderr.strip() if done.returncode else ""


def every() -> list[Mutant]:
    """Return all mutants by name.

    Raises:
        ValueError: a patch does not begin with the line that names its test.
    """
    return [_read(path) for path in sorted(FOLDER.glob("*.patch"))]


def _read(path: Path) -> Mutant:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    if not first.startswith(KILLED_BY):
        raise ValueError(f"{path.name} has to begin with {KILLED_BY!r} and a test")
    return Mutant(path.stem, path, first.removeprefix(KILLED_BY))
