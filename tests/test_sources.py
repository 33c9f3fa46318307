"""What a comment names as its source is in this repository."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PARITY: Final = (ROOT / "docs/parity.md").read_text(encoding="utf-8")
ROWS: Final = frozenset(re.findall(r"^\| ([A-Z]+-?[A-Z]?\d+) \|", PARITY, re.MULTILINE))
CITED: Final = re.compile(
    r"docs/parity\.md\s+([A-Z]+-?[A-Z]?\d+(?:(?:, | to |; )[A-Z]+-?[A-Z]?\d+)*)"
)
DECISION: Final = re.compile(r"docs/decisions/0013 \((\d+)\)")
ELSEWHERE: Final = re.compile(
    r"(?<![\w/-])(?:behaviour|controllers|admission|security|faults|hostile|findings|rulings)\.md"
)


def texts() -> Iterator[tuple[str, str]]:
    """Yield each file that may cite, with its text."""
    listed = ("git", "ls-files", "*.py", "*.yaml", "*.md")
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).split():
        if name not in {"docs/parity.md", "tests/test_sources.py"} and (ROOT / name).exists():
            yield name, (ROOT / name).read_text(encoding="utf-8")


def test_rows_and_decisions_that_are_cited_exist() -> None:
    decision = (ROOT / "docs/decisions/0013-where-sources-disagree.md").read_text(encoding="utf-8")
    numbers = set(re.findall(r"^\| (\d+) \|", decision, re.MULTILINE))
    cited = set()
    for name, text in texts():
        rows = {row for found in CITED.findall(text) for row in re.split(r", | to |; ", found)}
        assert rows <= ROWS, name
        assert set(DECISION.findall(text)) <= numbers, name
        cited |= rows
    assert len(cited) > 100


def test_no_document_is_cited_that_is_not_here() -> None:
    assert [name for name, text in texts() if ELSEWHERE.search(text)] == []
