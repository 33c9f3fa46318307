"""Each key of ours that stands on an object has a row in the docs."""

from pathlib import Path
from typing import Final

from tests import keytable

PAGE: Final = Path(__file__).parent.parent / "docs/labels.md"


def test_every_key_is_in_the_docs_once_with_its_meaning() -> None:
    found = [row.key for row in keytable.rows()]
    assert len(found) == len(set(found)) > 90
    page = PAGE.read_text(encoding="utf-8")
    assert keytable.written_keys(page) == page


def test_every_section_has_keys() -> None:
    assert {row.section for row in keytable.rows()} == keytable.SECTIONS.keys()
