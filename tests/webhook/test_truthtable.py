"""The table in the docs is what the rules do."""

from pathlib import Path

from webhook import truthtable

CHAPTER = Path(__file__).parents[2] / "docs" / "how-pods-are-judged.md"


def test_the_table_of_the_docs_is_the_one_that_is_made(tmp_path: Path) -> None:
    copy = tmp_path / "chapter.md"
    copy.write_text(CHAPTER.read_text(encoding="utf-8"), encoding="utf-8")

    truthtable.main([str(copy)])

    assert copy.read_text(encoding="utf-8") == CHAPTER.read_text(encoding="utf-8")


def test_the_table_has_a_row_for_each_strategy_selector_and_sort_of_pod() -> None:
    rows = truthtable.table().splitlines()

    assert len(rows) == 2 + 3 * 2 * 3 + 5
    assert len(set(rows)) == len(rows)
    assert "| Remote | S1 or S2 | A or B | A∧S1∧vn or A∧S2∧vn or B∧S1∧vn or B∧S2∧vn |" in "".join(
        rows
    )
