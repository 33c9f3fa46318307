"""What the webhook that is installed makes of any request, while API servers call it.

Source: docs/parity.md A-1, A-10 to A-13; SEC-D8, SEC-D10.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Key, Object, named
from kube import client
from kube.client import ClusterClient
from kube.errors import KubeError
from sandbox.controlplane import Plane
from tests import factories
from tests.factories import pod
from tests.kube.running import Gate
from tests.kube.test_process import NASTY
from tests.kubelet.test_outage import behind
from tests.webhook import reviews
from tests.webhook.hooked import OFFLOADINGS, Hooked, start, until_attempt_refused
from tests.webhook.installed import Answer, Installed
from tests.webhook.reviews import offloading
from tests.webhook.served import ANSWERED, HOSTILE, Served
from webhook.app import MAX_BODY

pytestmark = pytest.mark.cluster

SHORT: Final = tuple(text for text in NASTY if len(text) < 100)
ASKED: Final = "/mutate/pod"


@pytest.fixture
def raw(live: Installed) -> Iterator[Served]:
    """Yield the way to the webhook itself; its worker lives on, and so does the API server's."""
    found = Served(live.hooked.process, live.hooked.port, Path(), live.hooked.log)
    worker, space = found.worker(), live.offloaded(podOffloadingStrategy="Remote")
    yield found
    assert found.worker() == worker
    assert added(live.create(keys.POD, pod(space)))


def added(made: Answer) -> list[Object]:
    """Return the terms of the nodes that a pod must be on; it has our toleration if any."""
    spec = made.body.get("spec") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(required) or {}
    tolerated = [one.get("key") for one in spec.get("tolerations") or []]
    assert tolerated.count(keys.VIRTUAL_NODE_TAINT) == bool(terms)
    return list(terms.get("nodeSelectorTerms") or [])


def sent(live: Installed) -> bytes:
    """Return a review as the API server would send it of a pod in a namespace that is offloaded."""
    return reviews.body(pod(space := live.offloaded()), namespace=space)


def test_json_is_taken_and_nothing_else(live: Installed, raw: Served) -> None:
    review, found = sent(live), dict[str, int]()
    heads: dict[str, dict[str, str]] = {
        "json": {"Content-Type": "application/json"},
        "with a charset": {"Content-Type": "application/json; charset=utf-8"},
        "text": {"Content-Type": "text/plain"},
        "yaml": {"Content-Type": "application/yaml"},
        "none": {},
        "nonsense": {"Content-Type": "x"},
        "packed": {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    }
    for name, head in heads.items():
        with contextlib.closing(raw.connection()) as connection:
            connection.request("POST", ASKED, review, head)
            found[name] = connection.getresponse().status
    others = {method: raw.ask(method, ASKED)[0] for method in ("GET", "PUT", "DELETE", "PATCH")}

    refused = dict.fromkeys(("text", "yaml", "none", "nonsense", "packed"), 415)
    assert found == {"json": 200, "with a charset": 200, **refused}
    assert set(others.values()) == {405}


@factories.cases("path, status")
def test_no_path_is_redirected(live: Installed, raw: Served, path: str, status: int) -> None:
    """An API server would follow; two slashes are read as one by who serves the app."""
    with contextlib.closing(raw.connection()) as connection:
        connection.request("POST", path, sent(live), {"Content-Type": "application/json"})
        answer = connection.getresponse()

        assert answer.status == status
        assert answer.headers["Location"] is None


def test_seven_megabytes_are_read_and_no_more(raw: Served) -> None:
    review = reviews.body(pod("x", metadata={"annotations": {"padding": "PAD"}}))
    fits = review.replace(b"PAD", b"x" * (MAX_BODY - len(review) + 3))
    head = f"POST {ASKED} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

    assert raw.ask("POST", ANSWERED, fits)[0] == 200
    with raw.handshake() as more:
        more.sendall(f"{head}Content-Length: {MAX_BODY + 1}\r\n\r\n".encode())
        assert b" 413 " in more.recv(100)


@pytest.mark.parametrize("path", [ASKED, ANSWERED, "/validate/namespace-offloading"])
def test_a_hostile_body_gets_an_answer_in_json(raw: Served, path: str) -> None:
    found = {name: raw.ask("POST", f"{path}?timeout=10s", sent) for name, sent in HOSTILE.items()}

    harmless = {"a million keys", "5000 digits"}
    for name, (status, answer) in found.items():
        assert status in ({200, 400, 503} if name in harmless else {400}), name
        json.loads(answer)


def test_what_others_write_forges_no_line_of_the_log_and_no_metric(
    live: Installed, raw: Served
) -> None:
    begin = live.hooked.log.stat().st_size
    space = live.space({keys.SCHEDULING_ENABLED: "true"})
    for text in SHORT:
        odd: Object = {**pod(space), "spec": {"containers": text, "tolerations": text}}
        user = {"username": text, "groups": [text]}
        review = reviews.review(odd, namespace=text, name=text, uid=text, userInfo=user)
        for path in (ASKED, "/validate/pod", "/validate/namespace-offloading"):
            raw.ask("POST", f"{path}?timeout=10s", json.dumps(review).encode())
        told = pod(
            space, metadata={"annotations": {"told": text.encode("ascii", "replace").decode()}}
        )
        assert not live.create(keys.POD, told).is_done

    with live.hooked.log.open("rb") as log:
        log.seek(begin)
        lines = log.read().decode().split("\n")
    assert lines.pop() == ""
    assert all(json.loads(line)["logger"] for line in lines)
    assert not any("\x1b" in line for line in lines)
    page = live.hooked.get("/metrics", live.scraper)
    assert not any(mark in page for mark in ("jndi", "<script>", "7*7", "OR 1=1"))


def test_parallel_requests_get_the_verdicts_of_serial_ones(live: Installed) -> None:
    spaces = {
        "remote": live.offloaded(podOffloadingStrategy="Remote"),
        "local": live.offloaded(podOffloadingStrategy="Local"),
        "both": live.offloaded(podOffloadingStrategy="LocalAndRemote"),
        "unknown": live.space({keys.SCHEDULING_ENABLED: "true"}),
        "other": live.space(),
    }

    def verdict(name: str) -> tuple[int, Any]:
        made = live.create(keys.POD, pod(spaces[name]), dryRun="All")
        return made.status, made.message.replace(spaces[name], name) or placement_of(made)

    serial = {name: verdict(name) for name in spaces}
    names = [*spaces] * 60
    with ThreadPoolExecutor(16) as threads:
        parallel = list(threads.map(verdict, names))

    assert parallel == [serial[name] for name in names]
    assert serial["local"] == serial["other"]
    assert len({json.dumps(said) for said in serial.values()}) == len(spaces) - 1


def placement_of(made: Answer) -> Object:
    """Return what of a pod says how it was judged."""
    spec = made.body["spec"]
    return {part: spec.get(part) for part in ("affinity", "tolerations")}


async def test_an_answer_comes_before_the_api_server_gives_up(
    plane: Plane, crds: None, gate: Gate, tmp_path: Path
) -> None:
    """Of a webhook whose own API server is silent: what is said then is its word, in time."""
    hooked = start(behind(plane, gate, tmp_path), tmp_path)
    hook = hooked.hook("nsoff.validate.liqo.io", "/validate/namespace-offloading", OFFLOADINGS, "",
                       "Fail") | {"timeoutSeconds": 20}  # fmt: skip
    configuration = named(keys.VALIDATING_WEBHOOKS, Key("", hooked.run), webhooks=[hook])
    wanted = {"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": hooked.run}
    try:
        await asyncio.to_thread(reviews.wait_until, hooked.is_ready)
        async with client.connect(plane.kubeconfig) as cluster:
            await cluster.create(keys.VALIDATING_WEBHOOKS, configuration)
            await until_called(hooked, cluster)
            space = await hooked.space(cluster)
            gate.hold()
            with pytest.raises(KubeError, match="nsoff") as refused:
                await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space, **wanted))
            gate.let_go()
            await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space, **wanted))
    finally:
        hooked.process.kill()
        hooked.process.wait()

    assert not re.search("(?i)deadline|timeout|context", str(refused.value)), "it was in time"


async def until_called(hooked: Hooked, cluster: ClusterClient) -> None:
    """Wait until the API server knows of the configuration: it refuses what is wrong."""
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}
    wrong: Object = {"clusterSelector": {"nodeSelectorTerms": [term]}}

    async def attempt() -> Object:
        space = await hooked.space(cluster)
        return await cluster.create(keys.NAMESPACE_OFFLOADING, offloading(space, **wrong))

    await until_attempt_refused(attempt)
