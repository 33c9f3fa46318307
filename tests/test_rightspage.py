"""Each right of a role stands in the docs, with its reason."""

from pathlib import Path
from typing import Final

from tests import rightspage
from tests.manifests import documents

PAGE: Final = Path(__file__).parent.parent / "docs/rights.md"


def test_every_right_is_in_the_docs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rightspage.written_rights(page) == page


def test_every_right_says_why() -> None:
    unsaid = [
        f"{part.role['metadata']['name']}: {rule['resources']}"
        for part in rightspage.parts()
        for rule, reason in zip(part.role["rules"], part.reasons, strict=True)
        if not reason
    ]
    assert unsaid == []


def test_guards_are_policies_and_roles_that_there_are() -> None:
    policies = {one["metadata"]["name"] for one in documents.of_kind("ValidatingAdmissionPolicy")}
    roles = {one["metadata"]["name"] for one in documents.of_kind("Role", "ClusterRole")}

    assert rightspage.GUARDS.keys() | rightspage.BOUND_LATER.keys() <= roles
    assert {one for said in rightspage.GUARDS.values() for one in said.split(", ")} <= policies
