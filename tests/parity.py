"""The rows of docs/parity.md, and where a test runs."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
TABLE: Final = ROOT / "docs" / "parity.md"
PLACES: Final = ("two clusters", "API servers", "in memory")
"""Where tests run, the most real place first; a third cluster makes the two no less whole."""
SERVERS: Final = frozenset({"plane", "own_plane", "cluster", "tmp_path_factory", "tmp_path"})
"""Fixtures that lead to an API server: ours, or a folder for one that the test starts."""
NAMED: Final = re.compile(r"`(tests/[^`]+::test_[^`]+)`")


@dataclass(frozen=True)
class Promise:
    """A promise, where it is shown, by what, and what that leaves out."""

    name: str
    promise: str
    section: str
    where: str
    shown_by: str
    exceptions: str

    @property
    def tests(self) -> list[str]:
        """The named tests, as ``tests/file.py::test_function``."""
        return NAMED.findall(self.shown_by)


def rows(text: str | None = None) -> Iterator[Promise]:
    """Yield the rows of all tables.

    Raises:
        ValueError: a row has more or fewer cells than a row has.
    """
    for line in (TABLE.read_text(encoding="utf-8") if text is None else text).splitlines():
        if re.match(r"\| (S\d|PP|C|A|SEC|F|W|L)-", line):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            try:
                yield Promise(*cells)
            except TypeError:
                raise ValueError(f"{cells[0]}: {len(cells)} cells instead of 6") from None


@dataclass(frozen=True)
class Attack:
    """A way to attack, and what shows that it fails, or why it does not apply, or what is open."""

    name: str
    attack: str
    shown_by: str

    @property
    def tests(self) -> list[str]:
        """The named tests, as ``tests/file.py::test_function``."""
        return NAMED.findall(self.shown_by)


def attacks() -> Iterator[Attack]:
    """Yield the rows of the closing tables: hostile consumers, providers and users."""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if re.match(r"\| [MHX]\d+ \|", line):
            yield Attack(*(cell.strip() for cell in line.strip().strip("|").split(" | ")))


def named_tests() -> set[str]:
    """Return all tests that some row names."""
    promised = {test for row in rows() for test in row.tests}
    return promised | {test for one in attacks() for test in one.tests}


def function_of(nodeid: str) -> str:
    """Return the test of a case: ``tests/a.py::test_b[1]`` is one of ``tests/a.py::test_b``."""
    return nodeid.partition("[")[0]


def place_of(item: pytest.Item) -> str:
    """Return where a case runs, by what it asks for: a fake asks for no API server.

    The marker ``cluster`` of a whole file says nothing of a test that asks for no server.
    """
    asked = frozenset(getattr(item, "fixturenames", ()))
    if "kubeconfigs" in asked:
        return "two clusters"
    has_server = item.get_closest_marker("cluster") and asked & SERVERS
    return "API servers" if has_server else "in memory"


def together(places: Collection[str]) -> str:
    """Return the cell ``where`` of a row whose tests run in ``places``."""
    return ", ".join(place for place in PLACES if place in places) or "-"


def places_of(items: Iterable[pytest.Item]) -> dict[str, str]:
    """Return where each test runs: the most real place of its cases."""
    found: dict[str, str] = {}
    for item in items:
        test = function_of(item.nodeid)
        found[test] = min(found.get(test, PLACES[-1]), place_of(item), key=PLACES.index)
    return found
