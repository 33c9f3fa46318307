"""The table in the docs is what the rules do, and both are what is written here by hand.

Source: the sentences of S4-17 and S4-22 in docs/parity.md, and the cluster selector, which holds
for every pod that may leave.
"""

from pathlib import Path

import pytest

from tests import made
from tests.webhook import truthtable

CHAPTER = Path(__file__).parents[2] / "docs" / "how-pods-are-judged.md"
PLAIN, TERMS, FORCED = "none", "A or B", "A, RuntimeClass `liqo`"
NO, TWO = "none", "S1 or S2"
TABLE = {
    # Local: local nodes only; what the RuntimeClass forces out obeys the selector.
    ("Local", NO, PLAIN): ("none", "none", "unchanged: Local"),
    ("Local", NO, TERMS): ("A or B", "none", "unchanged: Local"),
    ("Local", NO, FORCED): ("A", "none", "unchanged: Local"),
    ("Local", TWO, PLAIN): ("none", "none", "unchanged: Local"),
    ("Local", TWO, TERMS): ("A or B", "none", "unchanged: Local"),
    ("Local", TWO, FORCED): ("A∧S1 or A∧S2", "none", "offloaded: Local"),
    # Remote: virtual nodes only, of those that the selector allows.
    ("Remote", NO, PLAIN): ("vn", "added", "offloaded: Remote"),
    ("Remote", NO, TERMS): ("A∧vn or B∧vn", "added", "offloaded: Remote"),
    ("Remote", NO, FORCED): ("A", "none", "unchanged: Remote"),
    ("Remote", TWO, PLAIN): ("S1∧vn or S2∧vn", "added", "offloaded: Remote"),
    ("Remote", TWO, TERMS): (
        "A∧S1∧vn or A∧S2∧vn or B∧S1∧vn or B∧S2∧vn", "added", "offloaded: Remote"
    ),
    ("Remote", TWO, FORCED): ("A∧S1 or A∧S2", "none", "offloaded: Remote"),
    # LocalAndRemote: every local node, and of the virtual ones those that the selector allows.
    ("LocalAndRemote", NO, PLAIN): ("none", "added", "offloaded: LocalAndRemote"),
    ("LocalAndRemote", NO, TERMS): ("A or B", "added", "offloaded: LocalAndRemote"),
    ("LocalAndRemote", NO, FORCED): ("A", "none", "unchanged: LocalAndRemote"),
    ("LocalAndRemote", TWO, PLAIN): ("S1 or S2 or !vn", "added", "offloaded: LocalAndRemote"),
    ("LocalAndRemote", TWO, TERMS): (
        "A∧S1 or A∧S2 or A∧!vn or B∧S1 or B∧S2 or B∧!vn", "added", "offloaded: LocalAndRemote"
    ),
    ("LocalAndRemote", TWO, FORCED): ("A∧S1 or A∧S2", "none", "offloaded: LocalAndRemote"),
    # An empty term matches nothing, so that nothing is added to it.
    ("Remote", "S1", "A or an empty term"): ("A∧S1∧vn or (empty)", "added", "offloaded: Remote"),
    ("Remote", "S1", "tolerates virtual nodes"): ("S1∧vn", "none", "offloaded: Remote"),
    # Those that are placed otherwise stay where they are.
    ("Remote", "S1", "of a DaemonSet, on its node"): (
        "node", "none", "unchanged: is pinned by its DaemonSet"
    ),
    ("Remote", "S1", "the same, tolerates virtual nodes"): (
        "node∧S1 or node∧!vn", "none", "kept here: Remote"
    ),
    ("Remote", "S1", "names a node"): ("none", "none", "unchanged: names a node"),
}  # fmt: skip


def cells(markdown: str) -> list[tuple[str, ...]]:
    """Return the rows of a table, without its head."""
    lines = [line for line in markdown.splitlines() if line.startswith("| ")]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines[2:]]


@pytest.mark.parametrize("whose", ["rules", "docs"])
def test_strategies_selectors_and_pods_end_as_written_here(whose: str) -> None:
    text = CHAPTER.read_text(encoding="utf-8")
    inside = text.partition(truthtable.BEGIN)[2].partition(truthtable.END)[0]

    found = cells(truthtable.table() if whose == "rules" else inside)

    assert found == [(*asked, *ends) for asked, ends in TABLE.items()]


def test_the_docs_are_brought_up_to_date_by_a_command(tmp_path: Path) -> None:
    copy = tmp_path / "chapter.md"
    text = CHAPTER.read_text(encoding="utf-8")
    copy.write_text(text.replace("| Remote | S1 | names a node |", "| who |"), encoding="utf-8")

    made.main(truthtable.written, [str(copy)])

    assert copy.read_text(encoding="utf-8") == text
