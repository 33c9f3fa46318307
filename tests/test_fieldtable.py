"""Each field of our kinds has a row in the docs, with its meaning."""

from pathlib import Path
from typing import Final

from tests import fieldtable
from tests.manifests import documents

PAGE: Final = Path(__file__).parent.parent / "docs/fields.md"


def test_every_field_is_in_the_docs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert fieldtable.written_fields(page) == page


def test_every_field_says_what_it_means() -> None:
    untold = [
        f"{crd['spec']['names']['kind']}: {row.path}"
        for crd in documents.of_kind("CustomResourceDefinition")
        for version in crd["spec"]["versions"]
        for row in fieldtable.field_rows(version["schema"]["openAPIV3Schema"])
        if not row.meaning
    ]
    assert untold == []
