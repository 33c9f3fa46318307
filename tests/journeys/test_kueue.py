"""The guide for Kueue holds, with the real Kueue in the consumer."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from apis.objects import Kind, Object
from kube.cluster import Selection
from tests import pages
from tests.helm import helm
from tests.journeys import programs, world

GUIDE: Final = Path(__file__).parents[2] / "docs/guides/kueue.md"
KUEUE: Final = os.environ.get("PYLIQO_TEST_KUEUE", "")
JOB: Final = Kind("batch", "v1", "Job", "jobs")
NAME: Final = "localhost/kueue:test"

pytestmark = [
    pytest.mark.journey,
    pytest.mark.skipif(
        not KUEUE,
        reason="set PYLIQO_TEST_KUEUE to a copy of the module sigs.k8s.io/kueue@v0.17.0 in which "
        "`CGO_ENABLED=0 go build -o kueue ./cmd/kueue` was run (15 minutes on two busy cores)",
    ),
]


@pytest.fixture
def kueue(both: world.Pair, kubeconfigs: Mapping[str, Path], tmp_path: Path) -> Iterator[None]:
    """Install its chart in the consumer, with an image of that binary."""
    binary = {"/manager": Path(KUEUE) / "kueue"}
    programs.load(NAME, binary, tmp_path, entrypoint="/manager")
    env = {"KUBECONFIG": str(kubeconfigs["rome"])}
    manager = "controllerManager.manager"
    helm(
        "install", "kueue", Path(KUEUE) / "charts/kueue", "--namespace=kueue-system",
        "--create-namespace", "--wait", "--timeout=5m",
        f"--set={manager}.image.repository=localhost/kueue,{manager}.image.tag=test",
        f"--set={manager}.image.pullPolicy=Never,{manager}.resources.requests.cpu=100m",
        env=env,
    )  # fmt: skip
    yield
    helm("uninstall", "kueue", "--namespace=kueue-system", "--wait", env=env)


@pytest.mark.usefixtures("kueue")
async def test_jobs_wait_for_the_quota_and_run_at_the_provider(
    both: world.Pair, kubeconfigs: Mapping[str, Path], tmp_path: Path
) -> None:
    *blocks, leave = pages.blocks(GUIDE)
    said = [await typed(block, both, kubeconfigs["rome"], tmp_path) for block in blocks]
    jobs = (await both.rome.list(Selection(JOB, Object, "batch"))).items.values()
    await typed(leave, both, kubeconfigs["rome"], tmp_path)

    submitted, ended = said[-2:]
    queued = [line.split() for line in submitted.splitlines() if line.startswith("job-job-")]
    assert len(queued) == 3
    assert sum("True" in words for words in queued) <= 1, "the quota is that of one Job"
    times = sorted((job["status"]["startTime"], job["status"]["completionTime"]) for job in jobs)
    assert len(times) == 3
    assert all(later[0] >= earlier[1] for earlier, later in pairwise(times)), times
    pods = [line.split() for line in ended.splitlines() if " Completed " in line]
    assert len(pods) == 6
    assert all(both.node in pod for pod in pods)
    assert ended.splitlines()[-1] == "done"


async def typed(block: str, both: world.Pair, rome: Path, folder: Path) -> str:
    block = block.replace("busybox:1.36", both.image)
    return await asyncio.to_thread(pages.shell, block, folder, KUBECONFIG=rome)
