"""A real Prometheus scrapes the consumer as the monitors say, and each graph has data."""

import asyncio
import base64
import contextlib
import itertools
import json
import math
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Key, Object
from tests import browser, prometheus
from tests.journeys import vk, world
from tests.journeys.kubectl import Kubectl
from tests.monitoring import MONITORING, boards, console, monitors
from tests.prometheus import Server

pytestmark = [pytest.mark.journey, prometheus.NEEDS]

BOARDS: Final = boards()
FOLDER: Final = os.environ.get("PYLIQO_PICTURES", "")
DRAWN: Final = "[...document.querySelectorAll('section')].every(one => one.querySelector('path'))"
"""Whether each graph shows lines."""
DRAWN_S: Final = 300 if FOLDER else 60
"""The seconds that are drawn."""


@pytest.fixture
async def jobs(
    both: world.Pair, kubeconfigs: Mapping[str, Path], tmp_path: Path
) -> AsyncIterator[list[dict[str, Any]]]:
    """Admit Prometheus to the metrics of rome; return what the operator makes of the monitors."""
    kubectl = Kubectl(kubeconfigs["rome"], keys.LIQO_NAMESPACE)
    reader = str(MONITORING / "reader.yaml")
    await kubectl.out("apply", "-f", reader)
    await vk.serve_metrics(both, kubeconfigs["rome"], is_enabled=True)
    try:
        scraper = Key(keys.LIQO_NAMESPACE, "pyliqo-scraper")
        account = await world.until_one(
            both.rome, keys.SECRET, scraper, lambda found: "data" in found
        )
        certificate = Key(keys.LIQO_NAMESPACE, keys.WEBHOOK_CERTS_SECRET)
        served = await world.until_one(both.rome, keys.SECRET, certificate, lambda found: True)
        authority = tmp_path / "ca.crt"
        authority.write_bytes(value(served, "ca.crt"))
        yield [
            job
            for monitor in monitors()
            for job in await of(monitor, kubectl, value(account, "token").decode(), authority)
        ]
    finally:
        await vk.serve_metrics(both, kubeconfigs["rome"], is_enabled=False)
        await kubectl.out("delete", "-f", reader, "--ignore-not-found")


async def of(
    monitor: dict[str, Any], kubectl: Kubectl, token: str, authority: Path
) -> list[dict[str, Any]]:
    spec, name = monitor["spec"], monitor["metadata"]["name"]
    where = (
        "--all-namespaces" if spec.get("namespaceSelector", {}).get("any") else "--ignore-not-found"
    )
    selector = f"--selector={prometheus.labels_of(monitor)}"
    listed = json.loads(await kubectl.out("get", "pods", where, selector, "--output=json"))
    return [
        prometheus.job(endpoint, f"{name}-{number}", token, authority)
        | {"static_configs": prometheus.targets(listed["items"], endpoint["port"])}
        for number, endpoint in enumerate(spec["podMetricsEndpoints"])
    ]


def value(secret: Object, key: str) -> bytes:
    return base64.b64decode(secret["data"][key])


async def test_each_graph_of_the_boards_has_data_of_a_cluster(
    both: world.Pair, namespace: str, jobs: list[dict[str, Any]], tmp_path: Path
) -> None:
    """``PYLIQO_PICTURES=docs`` makes the pictures that the documents have, in five minutes more."""
    (tmp_path / "consoles").mkdir()
    for name, panels in BOARDS.items():
        page = console(name.replace("-", ": "), panels, DRAWN_S)
        (tmp_path / f"consoles/{name}.html").write_text(page, encoding="utf-8")
    await both.offload(namespace)

    scraped = {job["job_name"]: job["static_configs"] for job in jobs}
    assert all(scraped.values()), scraped
    with prometheus.running(tmp_path, jobs, consoles=tmp_path / "consoles") as server:
        await until_all_answer(server, {"min(up) == 1": "processes that answer"})
        await both.rome.create(keys.DEPLOYMENT, world.deployment(namespace, "web", both.image, 1))
        graphs = [panel for panels in BOARDS.values() for panel in panels]
        async with changing(both, Key(namespace, "web")):
            await until_all_answer(server, {panel.expr: panel.title for panel in graphs})
        if FOLDER:
            await work(both, Key(namespace, "web"))
        if browser.CHROMIUM:
            await draw(server, tmp_path)


async def until_all_answer(server: Server, queries: Mapping[str, str]) -> None:
    """Wait until each query yields a number; the values say what it is."""
    loop = asyncio.get_running_loop()
    end = loop.time() + world.PATIENCE_S

    def without_data() -> list[str]:
        return [title for expr, title in queries.items() if not server.values(expr)]

    while empty := await asyncio.to_thread(without_data):
        assert loop.time() < end, f"no data in {empty}"
        await asyncio.sleep(1)  # Prometheus tells nobody


@contextlib.asynccontextmanager
async def changing(both: world.Pair, deployment: Key) -> AsyncIterator[None]:
    """Let a pod come and go meanwhile: of a counter's first value Prometheus knows no rate."""

    async def change() -> None:
        for replicas in itertools.cycle((2, 1)):
            await both.rome.patch(keys.DEPLOYMENT, deployment, {"spec": {"replicas": replicas}})
            await asyncio.sleep(10)

    task = asyncio.create_task(change())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def work(both: world.Pair, deployment: Key) -> None:
    """Let a Deployment grow and shrink, for as long as is drawn."""
    for step in range(DRAWN_S // 15):
        await both.rome.patch(keys.DEPLOYMENT, deployment, {"spec": {"replicas": 1 + step % 3 * 4}})
        await asyncio.sleep(15)


async def draw(server: Server, tmp_path: Path) -> None:
    """Have Prometheus draw the boards in a browser."""
    for name, panels in BOARDS.items():
        url = f"{server.url}/consoles/{name}.html"
        height = 160 + 300 * math.ceil(len(panels) / 2)
        async with browser.opened(url, tmp_path / f"browser-{name}", height) as page:
            await page.until(f"document.querySelectorAll('section').length === {len(panels)}")
            await page.until(DRAWN)
            picture = await page.picture()
        if FOLDER:
            (Path(FOLDER) / f"board-{name.removeprefix('pyliqo-')}.png").write_bytes(picture)
