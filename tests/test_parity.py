"""docs/parity.md is whole, names only tests that exist, and says where they run."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import mutants, parity, shown
from tests.manifests import documents
from tests.mutants import drawn

ROWS = {row.name: row for row in parity.rows()}
AS_BEFORE = "S2-1…n"


def fields_of_policies() -> Iterator[str]:
    """Yield the fields of a ProviderPolicy's spec, and of the objects in it, by its schema."""
    crd = documents.named("CustomResourceDefinition", "providerpolicies.pyliqo.io")
    (version,) = crd["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for name, field in spec["properties"].items():
        yield from (f"{name}.{inner}" for inner in field.get("properties", ()))
        if "properties" not in field:
            yield name


PROMISES = [
    *(f"S0-{number}" for number in range(1, 45)),
    *(f"S1-{number}" for number in range(1, 11)),
    "S2-1…n",
    *(f"S3-{number}" for number in range(1, 34)),
    *(f"S4-{number}" for number in range(1, 34)),
    *(f"PP-{field}" for field in fields_of_policies()),
    *(f"C-{number}" for number in range(1, 39)),
    *(f"A-{number}" for number in range(1, 39)),
    *(f"SEC-A{number}" for number in range(1, 24)),
    *(f"SEC-B{number}" for number in range(1, 13)),
    *(f"SEC-C{number}" for number in range(1, 6)),
    *(f"SEC-D{number}" for number in range(1, 11)),
    "SEC-E3",
    "SEC-I7",
    *(f"F-{number}" for number in (*range(1, 32), *range(33, 41))),
    *(f"W-{number}" for number in range(1, 6)),
    "L-1",
    "L-2",
]


@cache
def functions_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


def test_every_promise_has_one_row() -> None:
    assert [row.name for row in parity.rows()] == PROMISES


def test_every_row_is_open_or_names_a_test() -> None:
    vague = [row.name for row in ROWS.values() if not row.tests and row.shown_by != "open"]
    assert vague == [AS_BEFORE]


def test_every_row_says_what_it_leaves_out_or_that_it_leaves_out_nothing() -> None:
    assert [row.name for row in ROWS.values() if not row.exceptions] == []


def test_what_an_older_page_promises_too_is_shown() -> None:
    """The page of a version before says the same, without the part on assigned resources."""
    same = [f"S0-{number}" for number in (*range(1, 4), *range(13, 42), 43, 44)]

    assert [name for name in same if ROWS[name].shown_by == "open"] == []


def test_every_attack_has_one_row_with_a_test_or_a_reason() -> None:
    attacks = list(parity.attacks())
    consumers = [f"M{number}" for number in range(1, 34)]
    others = [f"H{number}" for number in range(1, 27)]

    second = [f"X{number}" for number in range(1, 16)]

    assert [one.name for one in attacks] == [*consumers, *others, *second]
    assert [one.name for one in attacks if not one.tests and len(one.shown_by) < 20] == []


@pytest.mark.parametrize("name", sorted(parity.named_tests()))
def test_a_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")

    assert function in functions_in(parity.ROOT / path)


def test_changes_are_drawn_alike_for_a_seed_and_each_is_a_program() -> None:
    once, again = ([*drawn.draw(12, 7, ("apis",))] for _ in range(2))

    assert once == again
    assert {one.name for one in once} != {one.name for one in drawn.draw(12, 8, ("apis",))}
    for one in once:
        before = (mutants.ROOT / one.path).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(one.text)) != ast.dump(ast.parse(before))


@pytest.mark.parametrize("mutant", mutants.every(), ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_its_row_names_the_test_that_kills_it(mutant: mutants.Mutant) -> None:
    """`python3 -m tests.mutants` shows that it does."""
    rows, attacks = parity.rows(), parity.attacks()
    shown_by = {row.name: row.tests for row in rows} | {one.name: one.tests for one in attacks}

    assert mutant.apply(parity.ROOT, "--check") == ""
    assert mutant.killed_by in shown_by[mutant.row]


def test_forty_tests_are_shown_failing() -> None:
    assert len({mutant.killed_by for mutant in mutants.every()}) >= 40


def test_the_tests_of_a_row_run_where_it_says(pytestconfig: pytest.Config) -> None:
    """Of all rows, where all tests were collected, as `make check` does; else of some."""
    found = pytestconfig.stash[shown.PLACES]
    args = [str(arg).rstrip("/") for arg in pytestconfig.args]
    is_whole = args == ["tests"] and not pytestconfig.option.ignore

    wrong = {}
    for row in ROWS.values():
        lost = sorted(set(row.tests) - found.keys())
        if lost and is_whole:
            wrong[row.name] = f"not collected: {', '.join(lost)}"
        elif row.tests and not lost:
            place = parity.together({found[test] for test in row.tests})
            if place != row.where:
                wrong[row.name] = f"says {row.where!r}, is {place!r}"
    assert wrong == {}


@pytest.mark.parametrize(
    ("fixtures", "place"),
    [((), "in memory"), (("plane",), "API servers"), (("plane", "kubeconfigs"), "two clusters")],
)
def test_a_marker_alone_is_no_server(
    request: pytest.FixtureRequest, fixtures: tuple[str, ...], place: str
) -> None:
    item = pytest.Function.from_parent(request.node.parent, name="marked", callobj=lambda: None)
    item.add_marker("cluster")
    item.fixturenames = list(fixtures)

    assert parity.place_of(item) == place


def test_a_row_without_a_test_runs_nowhere() -> None:
    assert {row.where for row in ROWS.values() if row.shown_by == "open"} <= {"-"}


def test_nothing_is_shown_in_memory_only() -> None:
    """What a fake says of a server is a guess: each row names a test on a real one, too."""
    assert [row.name for row in ROWS.values() if row.where == parity.PLACES[-1]] == []
