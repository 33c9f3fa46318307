"""The guides hold, command by command."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from apis import keys
from apis.objects import Key
from sandbox import images, install, pair
from sandbox.cluster import CONTROL_PLANE
from sandbox.clusters import Sandbox
from tests import pages
from tests.journeys import world
from tests.journeys.test_three_tiers import offer_storage
from tests.journeys.three import THIRD, Three

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
    three: Three, tmp_path: Path
) -> None:
    site = Sandbox().site(THIRD)
    consumer, provider = (three.kubeconfigs[name] for name in ("rome", THIRD))
    remote = f"--remote-kubeconfig={provider}"
    await asyncio.to_thread(install.run, consumer, "unpeer", remote, "--skip-confirm")
    node, label = Key("", site.slot.node), {"metadata": {"labels": {CONTROL_PLANE: None}}}
    await three[THIRD].patch(keys.NODE, node, label)
    refused = await world.liqoctl(consumer, "peer", remote, "--timeout=1m")
    assert refused.code
    assert "--api-server-url" in refused.err, refused.err

    env: dict[str, Path | str] = {
        "PROVIDER": provider, "CONSUMER": consumer,
        "PROVIDER_URL": site.listening.server, "PYLIQO_IMAGE": images.product_name(),
    }  # fmt: skip
    said = [
        pages.shell(block.replace("milan", THIRD), tmp_path, answer="", **env)
        for block in pages.blocks(DOCS / "guides/managed-provider.md")
    ]

    assert "Healthy" in said[3], said[3]
    quotas = await three[THIRD].get_text("/apis/offloading.liqo.io/v1beta1/quotas")
    assert '"items":[]' in quotas
    open_again = {"spec": {"sharing": None, "resourceSliceClasses": None}}
    await three[THIRD].patch(keys.PROVIDER_POLICY, Key("", "default"), open_again)
    await three[THIRD].patch(keys.NODE, node, {"metadata": {"labels": {CONTROL_PLANE: ""}}})
    await asyncio.to_thread(pair.peer, "rome", THIRD, three.kubeconfigs)
