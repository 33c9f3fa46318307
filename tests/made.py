"""Parts of the docs that a command makes: they stand behind a mark that names the command."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

END: Final = "<!-- end of what is made -->"


def mark(module: str, page: str) -> str:
    """Return the line behind which ``python3 -m module page`` writes."""
    return f"<!-- made by: python3 -m {module} {page} -->"


def between(text: str, begin: str, made: str) -> str:
    """Return ``text`` with ``made`` behind ``begin``: up to the next ``END``, else to its end."""
    before, _, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n\n{made}\n{end}{after}"


def main(written: Callable[[str], str], argv: Sequence[str] | None = None) -> int:
    """Bring the one page that the command line names up to date."""
    (name,) = sys.argv[1:] if argv is None else argv
    path = Path(name)
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0
