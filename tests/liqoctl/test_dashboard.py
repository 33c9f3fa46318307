"""``liqoctl dashboard``: what its tables say, who gets an answer, how it follows the cluster."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
import pytest
from flask.testing import FlaskClient

from apis import keys
from apis.objects import Key, Kind, Object, named
from kube import client, errors
from kube.cluster import Cluster
from liqoctl import dashboard, dashboardserver
from liqoctl.dashboard import Board
from liqoctl.dashboardserver import PanelUpdates, Site
from liqoctl.forge import dashboard as forge
from liqoctl.forge.dashboard import BoardState, Certificate
from sandbox.controlplane import Plane
from tests import browser, factories
from tests.browser import CHROMIUM
from tests.fakes import FakeCluster
from tests.liqoctl import demo

NOW: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
EVIL: Final = "<img src=x onerror=alert(1)>\x1b[2J"
TOKEN, PORT = "secret", 8001


def pod_on(name: str, phase: str = "Running", node: str = "milan") -> Object:
    spec = {**factories.pod_spec(), "nodeName": node}
    return factories.pod("shop", name, spec=spec, status={"phase": phase})


def board_of(**found: list[Object]) -> BoardState:
    kinds = {"pods": keys.POD, "peers": keys.FOREIGN_CLUSTER, "tenants": keys.TENANT}
    return BoardState(NOW, {kinds[name]: objects for name, objects in found.items()})


def test_of_many_pods_a_page_is_shown_those_first_that_do_not_run() -> None:
    pods = [pod_on(f"web-{number:04}") for number in range(5_000)]
    told = forge.page("pods", board_of(pods=[*pods, pod_on("late", "Pending")]))

    assert (told["total"], len(told["rows"])) == (5_001, forge.MOST)
    assert told["rows"][0]["cells"][1] == "late"
    last = forge.page("pods", board_of(pods=pods), start=10**9)
    assert [row["cells"][1] for row in last["rows"]] == ["web-4999"]


def test_what_runs_is_marked_as_good_and_what_waits_is_not() -> None:
    rows = forge.page("pods", board_of(pods=[pod_on("a"), pod_on("b", "Pending")]))["rows"]
    assert {row["cells"][1]: row["tone"] for row in rows} == {"a": "good", "b": ""}


def test_a_filter_leaves_what_has_the_text_in_any_cell() -> None:
    told = forge.page("pods", board_of(pods=[pod_on("web"), pod_on("db", node="turin")]), "TURIN")
    assert [row["cells"][1] for row in told["rows"]] == ["db"]


def test_a_pod_says_why_it_is_where_it_is() -> None:
    refused = {
        "type": keys.OFFLOADED_CONDITION, "status": "False",
        "reason": keys.FAILED_REFLECTION, "message": "quota exceeded",
    }  # fmt: skip
    waits = pod_on("web", "Pending")
    waits["status"]["conditions"] = [refused]
    [row] = forge.page("pods", board_of(pods=[waits]))["rows"]
    assert "quota exceeded" in row["cells"][-1]


def test_a_kind_that_may_not_be_read_is_named_and_costs_no_other() -> None:
    told = forge.page("quotas", BoardState(NOW, denied=frozenset({keys.QUOTA})))
    assert "you may not list quotas.offloading.liqo.io" in told["note"]
    assert not forge.page("pods", BoardState(NOW, denied=frozenset({keys.QUOTA})))["note"]


@pytest.mark.parametrize(
    ("left", "state", "tone"),
    [(timedelta(0), "Ended", "bad"), (timedelta(hours=1), "Ends soon", "bad"),
     (timedelta(hours=20, minutes=5), "Valid", "good")],
)  # fmt: skip
def test_a_certificate_says_when_it_ends(left: timedelta, state: str, tone: str) -> None:
    one = Certificate("milan", "x", NOW + left)
    told = forge.page("certificates", BoardState(NOW, certificates=[one]))
    [row] = told["rows"]
    assert (row["cells"][-1], row["tone"]) == (state, tone)


def test_what_others_wrote_is_one_short_line() -> None:
    peer = named(keys.FOREIGN_CLUSTER, Key("", "milan"), spec={"clusterID": "milan"})
    silent = {"type": "APIServerStatus", "status": "Error", "message": EVIL * 1000}
    peer["status"] = {"conditions": [silent]}
    [row] = forge.page("peers", board_of(peers=[peer]))["rows"]
    assert len(row["cells"][-1]) == forge.MOST_CELL
    assert "\x1b" not in row["cells"][-1]


# Who gets an answer -------------------------------------------------------------------------------


@pytest.fixture
async def site() -> FlaskClient:
    news = PanelUpdates()
    board, loop = Board(FakeCluster(), news.tell), asyncio.get_running_loop()
    news.end()
    return dashboardserver.application(Site(board, loop, news), TOKEN, PORT).test_client()


async def page_of(site: FlaskClient, path: str, host: str = "", method: str = "GET") -> Any:
    """Ask in a thread, as the server does: the loop answers."""
    headers = {"Host": host or f"127.0.0.1:{PORT}"}
    answer = await asyncio.to_thread(site.open, path, method=method, headers=headers)
    answer.close()
    return answer


@factories.cases("path, host, method, status")
async def test_who_has_the_url_reads_and_nobody_else(
    site: FlaskClient, path: str, host: str, method: str, status: int
) -> None:
    answer = await page_of(site, path, host, method)
    assert answer.status_code == status
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_the_page_needs_nothing_from_elsewhere() -> None:
    folder = Path(dashboard.__file__).parent / "page"
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(texts) == {"index.html", "page.css", "page.js"}
    for text in texts.values():
        assert "//" not in text.replace("// ", "")
        assert "innerHTML" not in text
    assert "style=" not in texts["index.html"]


# It follows the cluster ---------------------------------------------------------------------------


async def streamed_pods(cluster: Cluster, act: Any) -> tuple[Object, Object]:
    """Return the pods before and after ``act``, of which the stream of events tells."""
    async with (
        dashboardserver.serving(cluster) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}events") as events,
        asyncio.timeout(60),
    ):

        async def page() -> Object:
            async with session.get(f"{url}panels/pods") as answer:
                found: Object = await answer.json()
                return found

        async def settled(total: int) -> Object:
            while (found := await page())["total"] != total:
                await events.content.readuntil(b"\n\n")
            return found

        before = await settled(0)
        await act(cluster)
        return before, await settled(1)


async def make_board(cluster: Cluster) -> None:
    await ensure(cluster, keys.NAMESPACE, named(keys.NAMESPACE, Key("", "shop")))
    where = Key("shop", keys.OFFLOADING_NAME)
    offloading = named(keys.NAMESPACE_OFFLOADING, where, spec={})
    await ensure(cluster, keys.NAMESPACE_OFFLOADING, offloading)
    await ensure(cluster, keys.POD, factories.pod("shop", "web", spec=factories.pod_spec()))


async def ensure(cluster: Cluster, kind: Kind, obj: Object) -> None:
    try:
        await cluster.create(kind, obj)
    except errors.AlreadyExistsError:
        return


async def test_a_namespace_that_is_offloaded_brings_its_pods() -> None:
    before, after = await streamed_pods(FakeCluster(), make_board)
    assert before["rows"] == []
    assert after["rows"][0]["cells"][:2] == ["shop", "web"]


async def test_what_has_not_changed_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "_AGAIN_S", 0)
    told: list[object] = []
    cluster = FakeCluster()
    await make_board(cluster)
    running = asyncio.create_task(Board(cluster, told.append).run())
    for _ in range(1000):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert len(told) in {1, 2}, "an offloading, and a pod"


@pytest.mark.cluster
async def test_it_follows_an_api_server(own_plane: Plane, crds: None) -> None:
    async with client.connect(own_plane.kubeconfig, user_agent="tests") as server:
        _, after = await streamed_pods(server, make_board)
    assert after["rows"][0]["cells"][:2] == ["shop", "web"]


BROWSER: Final = """\
#!/bin/sh
echo "$@" > {folder}/args
stat -c %a "${{1#file://}}" > {folder}/mode
cat "${{1#file://}}" > {folder}/page
touch {folder}/done
"""


@pytest.mark.cluster
async def test_no_process_has_the_token_among_its_arguments(
    own_plane: Plane, crds: None, tmp_path: Path
) -> None:
    script = tmp_path / "browser"
    script.write_text(BROWSER.format(folder=tmp_path))
    script.chmod(0o700)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "liqoctl", "dashboard", "--kubeconfig", own_plane.kubeconfig,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "BROWSER": f"{script} %s", "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout
    try:
        async with asyncio.timeout(120):
            url = (await process.stdout.readline()).decode().strip()
            while not (tmp_path / "done").exists():  # noqa: ASYNC110  # the script tells nobody
                await asyncio.sleep(0.05)
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()

    args = (tmp_path / "args").read_text().strip()
    assert args.startswith("file://")
    assert url.rsplit("/", 2)[1] not in args
    assert (tmp_path / "mode").read_text().strip() == "600"
    assert f'content="0; url={url}"' in (tmp_path / "page").read_text()
    assert not (tmp_path / Path(args).name).exists()


async def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(click.ClickException) as refused:
            async with dashboardserver.serving(FakeCluster(), port):
                pass

    cure = "choose another with --port, or leave it out"
    assert refused.value.message == f"port {port} of 127.0.0.1: address already in use: {cure}"


async def test_the_end_is_an_end_for_all_who_read() -> None:
    async with aiohttp.ClientSession() as session:
        async with dashboardserver.serving(FakeCluster()) as url:
            events = await session.get(f"{url}events")
            await events.content.readuntil(b"\n\n")
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(url)


@pytest.mark.skipif(not CHROMIUM, reason="Debian's package chromium is not on this machine")
async def test_a_browser_shows_it(tmp_path: Path) -> None:
    """``PYLIQO_PICTURES=docs`` makes the picture that the documents have, without the evil."""
    folder = os.environ.get("PYLIQO_PICTURES", "")
    evil = "" if folder else EVIL
    cluster = FakeCluster()
    await demo.fill_board(cluster, evil)
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(dashboardserver.serving(cluster))
        start = stack.enter_context(dashboardserver.redirecting(url))
        page = await stack.enter_async_context(browser.opened(start, tmp_path))
        await page.until("document.querySelectorAll('#panel-pods tbody tr').length === 3")
        await page.until("document.getElementById('link-certificates').textContent.includes('(1)')")
        assert await page.evaluate("document.querySelectorAll('img').length") == 0
        assert evil[:10] in await page.evaluate("document.body.innerText")
        picture = await page.picture()
        await cluster.create(keys.POD, factories.pod("shop", "new", spec=factories.pod_spec()))
        await page.until("document.querySelectorAll('#panel-pods tbody tr').length === 4")
        await page.evaluate("document.querySelector('#panel-pods button.link').click()")
        await page.until("document.getElementById('why-lines').textContent.includes('pod shop/')")
    assert len(picture) > 10_000
    if folder:
        (Path(folder) / "dashboard.png").write_bytes(picture)
