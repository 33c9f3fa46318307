"""docs/parity.md is whole and names only tests that exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.manifests import documents

ROOT = Path(__file__).parents[1]
PARITY = ROOT / "docs" / "parity.md"


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
    *(f"S0-{number}" for number in range(1, 41)),
    *(f"S1-{number}" for number in range(1, 10)),
    "S2-1…n",
    *(f"S3-{number}" for number in range(1, 28)),
    *(f"S4-{number}" for number in range(1, 26)),
    *(f"PP-{field}" for field in fields_of_policies()),
    *(f"C-{number}" for number in range(1, 39)),
    *(f"A-{number}" for number in range(1, 39)),
    *(f"SEC-A{number}" for number in (*range(1, 18), *range(19, 24))),
    *(f"SEC-B{number}" for number in range(1, 13)),
    *(f"SEC-C{number}" for number in range(1, 6)),
    *(f"SEC-D{number}" for number in range(1, 11)),
    *(f"F-{number}" for number in (*range(1, 32), 33, 34, 36)),
]


def rows() -> Iterator[list[str]]:
    for line in PARITY.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if re.match(r"\| (S\d|PP|C|A|SEC|F)-", line):
            yield cells


def named_tests() -> list[str]:
    return sorted({name for row in rows() for name in re.findall(r"`(tests/[^`]+)`", row[-1])})


@cache
def functions_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


def test_every_promise_has_one_row() -> None:
    assert [row[0] for row in rows()] == PROMISES


def test_every_row_is_open_or_names_a_test() -> None:
    vague = [row[0] for row in rows() if not re.search(r"^open|`tests/[^`]+::test_", row[-1])]
    assert vague == []


def test_what_an_older_page_promises_too_is_shown() -> None:
    """The page of a version before says the same, without the part on assigned resources."""
    shown = {row[0] for row in rows() if not row[-1].startswith("open")}
    same = [f"S0-{number}" for number in (*range(1, 4), *range(13, 41))]

    assert [row for row in same if row not in shown] == []


@pytest.mark.parametrize("name", named_tests())
def test_a_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")

    assert function in functions_in(ROOT / path)
