"""The guides hold, command by command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from apis import keys
from apis.objects import Key
from sandbox import images
from sandbox.cluster import CONTROL_PLANE
from sandbox.clusters import Sandbox
from tests import pages
from tests.journeys import world
from tests.journeys.three import THIRD, Three
from tests.journeys.tiers import offer_storage

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


async def test_a_provider_that_shows_no_control_plane_is_offered_to_another_team(
    unpeered: Three, tmp_path: Path
) -> None:
    site, provider = Sandbox().site(THIRD), unpeered.kubeconfigs[THIRD]
    node = Key("", site.slot.node)
    unlabelled = {"metadata": {"labels": {CONTROL_PLANE: None}}}
    await unpeered[THIRD].patch(keys.NODE, node, unlabelled)
    remote = f"--remote-kubeconfig={provider}"
    refused = await world.liqoctl(unpeered.kubeconfigs["rome"], "peer", remote, "--timeout=1m")
    assert refused.code
    assert "--api-server-url" in refused.err, refused.err

    url, image = site.listening.server, images.product_name()
    page = "managed-provider.md"
    said = await unpeered.type_guide(page, tmp_path, PROVIDER_URL=url, PYLIQO_IMAGE=image)

    assert "Healthy" in said[3], said[3]
    assert await unpeered.quotas() == []
    await unpeered[THIRD].patch(keys.NODE, node, {"metadata": {"labels": {CONTROL_PLANE: ""}}})


async def test_two_clusters_are_peered_and_offload_from_git(
    unpeered: Three, tmp_path: Path
) -> None:
    await unpeered.type_guide("gitops.md", tmp_path)

    assert await unpeered.quotas() == []
