"""The guides hold, command by command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests import pages
from tests.journeys import world
from tests.journeys.test_three_tiers import offer_storage

pytestmark = pytest.mark.journey

DOCS: Final = Path(__file__).parents[2] / "docs"
IMAGE: Final = "busybox:1.36"
"""No registry can be reached from the clusters of the tests."""


async def test_an_application_over_two_clusters(
    both: world.Pair, kubeconfigs: Mapping[str, Path], tmp_path: Path
) -> None:
    await offer_storage(both, "guide")
    example = (DOCS / "examples/three-tiers.yaml").read_text(encoding="utf-8")
    (tmp_path / "three-tiers.yaml").write_text(example.replace(IMAGE, both.image))
    said = [
        pages.shell(block, tmp_path, KUBECONFIG=kubeconfigs["rome"])
        for block in pages.blocks(DOCS / "guides/application.md")
    ]
    _, where, answers, reflected, again, _ = said
    pods = [line.split() for line in where.splitlines() if " Running " in line]
    assert sorted(pod[0].split("-")[0] for pod in pods if both.node in pod) == [
        "api", "api", "store",
    ]  # fmt: skip
    assert answers.splitlines()[0] == "hello from the api"
    assert answers.splitlines()[-1] == "web"
    assert "settings" in reflected
    assert again.splitlines()[-1] == "hello again"
