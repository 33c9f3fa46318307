"""CONTRIBUTING.md names files that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")


def test_every_file_and_folder_that_a_recipe_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipes = text.partition("## Adding things")[2].partition("- **A top-level package**")[0]

    named = NAMED.findall(recipes)

    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists()]
