"""The chapter of the docs says what the table of the code does."""

from pathlib import Path

from apis import reflection
from reflector.kinds import FORGES
from tests.reflector import chapter

CHAPTER = Path(__file__).parents[2] / "docs" / "what-is-reflected.md"


def test_the_table_of_the_docs_is_the_one_that_is_made() -> None:
    assert chapter.written(CHAPTER.read_text()) == CHAPTER.read_text()


def test_each_kind_of_the_table_has_a_forge() -> None:
    assert list(FORGES) == list(reflection.KINDS)
