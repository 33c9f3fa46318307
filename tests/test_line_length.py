"""Documents are read in a terminal and in a diff, too: their lines have at most 120 characters."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
DOCUMENTS: Final = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")})
MOST: Final = 120
UNBROKEN: Final = re.compile(r"\s*(\||#|<|!\[)")
"""Rows of tables, headings, marks and pictures cannot go on in another line."""


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that could be broken, with their numbers."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        if not is_code and not UNBROKEN.match(line):
            yield number, line


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_line_of_a_document_is_longer_than_120_characters(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert not [number for number, line in prose(text) if len(line) > MOST]
