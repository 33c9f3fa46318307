"""Modules and classes of the product have Kubernetes' words. Source: docs/words.md."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests import budget

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = (
    "apis", "certs", "controllers", "kube", "kubelet", "liqoctl", "reflector", "webhook",
)  # fmt: skip
PROPER: Final = ("ForeignCluster", "NodeSelectorTerm", "NotFound")
"""Names of Liqo and of Kubernetes that have such a word."""


def private_words() -> frozenset[str]:
    rows = [line for line in (ROOT / "docs/words.md").read_text().splitlines() if line[:3] == "| `"]
    return frozenset(word for row in rows for word in re.findall(r"`(\w+)`", row.split("|")[1]))


def names() -> Iterator[tuple[str, str]]:
    """Yield each name of a module, folder or class, and where it is."""
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            where = file.relative_to(ROOT).with_suffix("")
            yield from ((part, str(where)) for part in where.parts[1:])
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    yield node.name, f"{where}.{node.name}"


def words(name: str) -> list[str]:
    """Return the words of ``SlimPod``, ``slim_pod`` or ``HTTPServer``, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def test_no_module_or_class_has_a_private_word() -> None:
    private = private_words()

    def plain(name: str) -> str:
        return re.sub("|".join(PROPER), "", name)

    found = {where for name, where in names() if private.intersection(words(plain(name)))}

    assert found == set(), "docs/words.md has what to say instead"


def test_no_two_public_classes_have_the_same_name() -> None:
    found = Counter(name for name, where in names() if "." in where and not name.startswith("_"))

    assert found.total() > 400
    assert [name for name, count in found.items() if count > 1] == [], "say of what it is"


def test_the_page_has_each_word_once() -> None:
    rows = [line for line in (ROOT / "docs/words.md").read_text().splitlines() if line[:3] == "| `"]
    listed = [word for row in rows for word in re.findall(r"`(\w+)`", row.split("|")[1])]

    assert len(listed) == len(set(listed)) > 80
    assert words("QuickEnds") == ["quick", "ends"]
    assert words("CSRApproval") == ["csr", "approval"]


def test_a_package_that_is_larger_than_allowed_is_named_with_what_is_too_much() -> None:
    most = budget.Size(100, 5, 2)

    assert budget.excess(most, most) == []
    assert budget.excess(budget.Size(112, 5, 3), most) == [
        "12 lines", "1 files of at most 40 lines",
    ]  # fmt: skip
    assert budget.allowed().keys() == set(PACKAGES)
