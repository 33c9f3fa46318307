"""The guides hold, command by command."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Object
from kube.cluster import Selection
from sandbox import images, install, pair
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


@pytest.fixture
async def unpeered(three: Three) -> AsyncIterator[Three]:
    """Take the peering of rome with the third cluster away, for one that is typed."""
    remote = f"--remote-kubeconfig={three.kubeconfigs[THIRD]}"
    leave = ("unpeer", remote, "--skip-confirm")
    await asyncio.to_thread(install.run, three.kubeconfigs["rome"], *leave)
    yield three
    given = {"spec": {"sharing": None, "resourceSliceClasses": None}}
    await three[THIRD].patch(keys.PROVIDER_POLICY, Key("", "default"), given)
    await asyncio.to_thread(pair.peer, "rome", THIRD, three.kubeconfigs)


async def typed(three: Three, page: str, folder: Path, **env: Path | str) -> list[str]:
    """Type a guide of rome and milan with the third cluster as milan; return what is printed."""
    where = {"CONSUMER": three.kubeconfigs["rome"], "PROVIDER": three.kubeconfigs[THIRD], **env}
    blocks = [block.replace("milan", THIRD) for block in pages.blocks(DOCS / "guides" / page)]
    return [
        await asyncio.to_thread(pages.shell, block, folder, answer="", **where) for block in blocks
    ]


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
    said = await typed(unpeered, page, tmp_path, PROVIDER_URL=url, PYLIQO_IMAGE=image)

    assert "Healthy" in said[3], said[3]
    assert await quotas(unpeered) == []
    await unpeered[THIRD].patch(keys.NODE, node, {"metadata": {"labels": {CONTROL_PLANE: ""}}})


async def test_two_clusters_are_peered_and_offload_from_git(
    unpeered: Three, tmp_path: Path
) -> None:
    await typed(unpeered, "gitops.md", tmp_path)

    assert await quotas(unpeered) == []


async def quotas(three: Three) -> list[Key]:
    """Return the Quotas of the third cluster: each is a slice that somebody consumes."""
    return list((await three[THIRD].list(Selection(keys.QUOTA, Object))).items)
