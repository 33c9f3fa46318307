"""The client against a server that misbehaves: bounded in bytes, time and retries."""

import asyncio
import contextlib
import dataclasses
import gc
import gzip
import os
import resource
import tracemalloc
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import msgspec
import pytest
import yarl
from aiohttp import web

from apis import keys
from apis.objects import Key, Kind, Object
from kube import client, credentials, errors, metrics, transport, wire
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.connection import Connection, CurrentConnection
from kube.credentials import Access
from kube.slim import Partial
from tests.conftest import size_of
from tests.factories import config_map
from tests.kube.http2front import fronted
from tests.kube.running import Answer, Gate, serving, turns, until

WEB = Key("ns", "web")
LISTED: Final = size_of("PYLIQO_LISTED", 10_000, 50_000)
PAGES_AT_ONCE: Final = 10
"""What a page takes as text, as bytes and decoded, here and in the server, which runs here."""


class Stub:
    """A server that answers what a test says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.answers: list[web.StreamResponse | Answer] = []
        self.server = ""
        self.probes = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/livez":  # whether there is an answer at all, after one that broke
            self.probes += 1
            return web.Response()
        self.asked.append(request)
        self.bodies.append(await request.read())
        answer = self.answers.pop(0) if self.answers else web.json_response({})
        return answer if isinstance(answer, web.StreamResponse) else await answer(request)


@pytest.fixture
async def gate(stub: Stub) -> AsyncIterator[Gate]:
    async with Gate(yarl.URL(stub.server).port or 0) as gate:
        yield gate


def plain_access(port: int) -> Access:
    """Return nobody's access to a port of this machine."""
    return Access(f"http://127.0.0.1:{port}", tls=None)


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    stub = Stub()
    async with serving(stub.answer) as stub.server:
        yield stub


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
async def cluster(stub: Stub, request: pytest.FixtureRequest) -> AsyncIterator[ClusterClient]:
    async with contextlib.AsyncExitStack() as stack:
        access = credentials.plain(stub.server)
        if request.param == "HTTP/2":
            access, _ = await stack.enter_async_context(fronted(stub.server))
        yield await stack.enter_async_context(client.connect(access, user_agent="pyliqo-test/1"))


def status(code: int, reason: str = "", **headers: str) -> web.Response:
    body = {"kind": "Status", "reason": reason, "message": "so it is", "code": code}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.json_response(body, status=code, headers=named)


def stream(*chunks: bytes) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        return response

    return answer


def line(type_: str, name: str = "a", version: str = "7", **rest: Any) -> bytes:
    obj = {"metadata": {"namespace": "ns", "name": name, "resourceVersion": version}, **rest}
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


async def watched(cluster: ClusterClient) -> list[tuple[str, str, str]]:
    events = cluster.watch(Selection(keys.CONFIG_MAP, Object, "ns"), "5")
    async with contextlib.aclosing(events):
        return [(event.type, event.key.name, event.version) async for event in events]


async def test_requests_are_what_kubernetes_expects(stub: Stub, cluster: ClusterClient) -> None:
    obj = config_map("ns", "web")
    await cluster.apply(keys.CONFIG_MAP, obj, manager="liqo-x")
    await cluster.patch(keys.CONFIG_MAP, WEB, {"data": None})
    await cluster.patch_status(keys.SHADOW_POD, WEB, {"phase": "Running"})
    await cluster.delete(keys.POD, WEB, uid="u-1", grace_s=0)
    await cluster.post(keys.SERVICE_ACCOUNT, WEB, "token", {})
    await cluster.create(keys.NAMESPACE, {"metadata": {"name": "ns"}})
    await cluster.patch(keys.CERTIFICATE_SIGNING_REQUEST, Key("", "c"), {}, subresource="approval")

    root = "/api/v1/namespaces/ns"
    assert [(one.method, one.path_qs, one.content_type) for one in stub.asked] == [
        (
            "PATCH",
            f"{root}/configmaps/web?fieldManager=liqo-x&force=true",
            "application/apply-patch+yaml",
        ),
        ("PATCH", f"{root}/configmaps/web", "application/merge-patch+json"),
        (
            "PATCH",
            "/apis/offloading.liqo.io/v1beta1/namespaces/ns/shadowpods/web/status",
            "application/merge-patch+json",
        ),
        ("DELETE", f"{root}/pods/web", "application/json"),
        ("POST", f"{root}/serviceaccounts/web/token", "application/json"),
        ("POST", "/api/v1/namespaces", "application/json"),
        (
            "PATCH",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests/c/approval",
            "application/merge-patch+json",
        ),
    ]
    assert {one.headers["User-Agent"] for one in stub.asked} == {"pyliqo-test/1"}
    assert {one.headers["Accept-Encoding"] for one in stub.asked} == {"identity"}
    assert b'"preconditions":{"uid":"u-1"}' in stub.bodies[3]
    assert b'"gracePeriodSeconds":0' in stub.bodies[3]


@pytest.mark.parametrize("name", ["", "..", "../../nodes?x#y", "a/b", "A", "a" * 254])
async def test_what_no_object_is_called_is_asked_of_nobody(
    stub: Stub, cluster: ClusterClient, name: str
) -> None:
    assert await cluster.get(keys.CONFIG_MAP, Key("ns", name)) is None
    for key in (Key("ns", name), Key("", "web")):
        with pytest.raises(errors.InvalidError, match="not the name of an object"):
            await cluster.delete(keys.CONFIG_MAP, key, uid="u")

    assert not stub.asked


def test_names_of_rights_may_have_colons() -> None:
    path = wire.path(keys.ROLE_BINDING, Key("ns", "system:a"))
    assert path == "/apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings/system%3Aa"


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", errors.InvalidError),
        (401, "Unauthorized", errors.UnauthorizedError),
        (403, "Forbidden", errors.ForbiddenError),
        (404, "NotFound", errors.NotFoundError),
        (405, "MethodNotAllowed", errors.ForbiddenError),
        (409, "Conflict", errors.ConflictError),
        (409, "AlreadyExists", errors.AlreadyExistsError),
        (410, "Expired", errors.ExpiredError),
        (413, "RequestEntityTooLarge", errors.InvalidError),
        (422, "Invalid", errors.InvalidError),
        (500, "InternalError", errors.BusyError),
        (503, "ServiceUnavailable", errors.BusyError),
        (504, "Timeout", errors.BusyError),
    ],
)
async def test_each_refusal_is_its_own_error(
    stub: Stub, cluster: ClusterClient, code: int, reason: str, error: type[errors.KubeError]
) -> None:
    stub.answers = [status(code, reason)]

    with pytest.raises(error, match="so it is") as caught:
        await cluster.create(keys.CONFIG_MAP, config_map())
    assert caught.value.status == code


async def test_a_redirect_is_not_followed(stub: Stub, cluster: ClusterClient) -> None:
    stub.answers = [web.Response(status=302, headers={"Location": f"{stub.server}/elsewhere"})]

    with pytest.raises(errors.KubeError):
        await cluster.get(keys.CONFIG_MAP, WEB)
    assert len(stub.asked) == 1


async def test_warnings_of_the_server_are_handed_on(stub: Stub, cluster: ClusterClient) -> None:
    found = web.json_response({})
    found.headers.add("Warning", '299 - "say \\"when\\""')
    found.headers.add("Warning", '299 - "one", 299 - "two"')
    found.headers.add("Warning", '110 proxy "stale"')
    stub.answers = [found]
    warnings: list[str] = []
    cluster.on_warning(warnings.append)

    await cluster.get(keys.CONFIG_MAP, WEB)

    assert warnings == ['say "when"', "one", "two"]


async def test_too_many_is_tried_again_a_few_times(stub: Stub, cluster: ClusterClient) -> None:
    stub.answers = [status(429, Retry_After="0"), status(429, Retry_After="0")]
    await cluster.create(keys.CONFIG_MAP, config_map())
    assert len(stub.asked) == 3

    stub.answers = [status(429, Retry_After="0") for _ in range(99)]
    with pytest.raises(errors.BusyError):
        await cluster.create(keys.CONFIG_MAP, config_map())
    assert len(stub.asked) == 7


async def test_an_unavailable_server_is_read_again_but_not_written(
    stub: Stub, cluster: ClusterClient
) -> None:
    stub.answers = [status(503, Retry_After="0")]
    await cluster.get(keys.CONFIG_MAP, WEB)
    assert len(stub.asked) == 2

    stub.answers = [status(503, Retry_After="0")]
    with pytest.raises(errors.BusyError):
        await cluster.create(keys.CONFIG_MAP, config_map())
    assert len(stub.asked) == 3


@pytest.mark.parametrize(("header", "expected"), [("20", 20), ("9" * 30, 30), ("soon", 1)])
async def test_how_long_to_wait_is_handed_on_and_capped(
    stub: Stub, cluster: ClusterClient, header: str, expected: float
) -> None:
    stub.answers = [status(500, Retry_After=header)]

    with pytest.raises(errors.BusyError) as caught:
        await cluster.get(keys.CONFIG_MAP, WEB)
    assert caught.value.retry_after_s == expected


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        pytest.param(b"{" * 10, {}, id="cut"),
        pytest.param(b"[]", {}, id="list"),
        pytest.param(b'{"a":' * 100_000, {}, id="deep"),
        pytest.param(b"\xff\xfe", {}, id="no text"),
        pytest.param(gzip.compress(b"{}"), {"Content-Encoding": "gzip"}, id="compressed"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_none(
    stub: Stub, cluster: ClusterClient, body: bytes, headers: dict[str, str]
) -> None:
    stub.answers = [web.Response(body=body, headers=headers)]

    with pytest.raises(errors.NotReachableError) as caught:
        await cluster.get(keys.CONFIG_MAP, WEB)
    assert not isinstance(caught.value, errors.UnansweredError)


async def test_an_answer_has_an_end(stub: Stub, cluster: ClusterClient) -> None:
    stub.answers = [stream(*[b" " * 2**20] * (wire.MAX_ANSWER // 2**20 + 1))]

    with pytest.raises(errors.NotReachableError, match="larger"):
        await cluster.get(keys.CONFIG_MAP, WEB)


async def test_pages_are_read_to_the_last_and_from_the_start_when_one_expires(
    stub: Stub, cluster: ClusterClient
) -> None:
    def page(name: str, token: str = "") -> web.Response:
        item = {"metadata": {"namespace": "ns", "name": name, "managedFields": [1]}}
        return web.json_response(
            {"metadata": {"resourceVersion": "9", "continue": token}, "items": [item]}
        )

    stub.answers = [page("a", "t1"), status(410, "Expired"), page("a", "t2"), page("b")]

    listing = await cluster.list(Selection(keys.CONFIG_MAP, Object, "ns", "x=y", "a.b=c"))

    assert {key.name for key in listing.items} == {"a", "b"}
    assert listing.version == "9"
    assert listing.items[Key("ns", "a")] == {
        "metadata": {"namespace": "ns", "name": "a"},
        "apiVersion": "v1",
        "kind": "ConfigMap",
    }
    assert [one.query.get("continue") for one in stub.asked] == [None, "t1", None, "t2"]
    assert dict(stub.asked[0].query) == {
        "limit": "500",
        "labelSelector": "x=y",
        "fieldSelector": "a.b=c",
    }


async def test_a_long_list_takes_no_more_memory_than_what_is_kept_and_a_page(
    stub: Stub, cluster: ClusterClient
) -> None:
    """Of 1 KiB each are kept the names and versions; ``PYLIQO_LISTED=50000`` for the full size."""

    def page(number: int) -> Answer:
        async def answer(request: web.Request) -> web.StreamResponse:
            items = [
                {
                    "metadata": {"namespace": "ns", "name": f"{number}-{each}", "uid": str(each)},
                    "data": {"a": "x" * 1024},
                }
                for each in range(client.PAGE)
            ]
            token = str(number) if number * client.PAGE < LISTED else ""
            head = {"resourceVersion": "9", "continue": token}
            return web.json_response({"metadata": head, "items": items})

        return answer

    stub.answers = [page(1 + number) for number in range(LISTED // client.PAGE)]
    tracemalloc.start()
    try:
        listing = await cluster.list(Selection(keys.CONFIG_MAP, Partial))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(listing.items) == LISTED
    assert peak - kept < PAGES_AT_ONCE * client.PAGE * 1024
    assert kept < LISTED * 1024


async def test_a_page_that_is_too_slow_is_asked_for_in_smaller_ones(
    stub: Stub, cluster: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a narrow link; what was learnt holds for the next list, and the server is not away."""
    monkeypatch.setattr(transport, "CALL_S", 0.3)

    async def answer(request: web.Request) -> web.StreamResponse:
        limit = int(request.query["limit"])
        response = web.StreamResponse()
        await response.prepare(request)
        items = [{"metadata": {"namespace": "ns", "name": f"a{n}"}} for n in range(limit)]
        text = msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": items})
        await response.write(text[:100])
        if limit > 10:  # more is too slow
            await asyncio.sleep(3600)
        await response.write(text[100:])
        return response

    stub.answers = [answer] * 4
    following = Selection(keys.CONFIG_MAP, Object, "ns")

    assert len((await cluster.list(following)).items) == 7  # 500 / 8 / 8
    assert len((await cluster.list(following)).items) == 7  # at once
    assert [int(one.query["limit"]) for one in stub.asked] == [500, 62, 7, 7]
    assert not cluster.reach.is_lost


async def test_pages_become_larger_again_as_long_as_they_are_fast(
    stub: Stub, cluster: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CALL_S", 0.3)

    async def answer(request: web.Request) -> web.StreamResponse:
        number = len(stub.asked)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"metadata": {"resourceVersion": "9", "continue": ')
        if number == 1:
            await asyncio.sleep(3600)
        monkeypatch.setattr(transport, "CALL_S", 3600.0)  # any page is fast
        token = f"to-{number}" if number < 7 else ""
        await response.write(f'"{token}"}}, "items": []}}'.encode())
        return response

    stub.answers = [answer] * 8
    following = Selection(keys.CONFIG_MAP, Object, "ns")

    await cluster.list(following)
    await cluster.list(following)
    limits = [int(one.query["limit"]) for one in stub.asked]
    assert limits == [500, 62, 124, 248, 496, 500, 500, 500], "never more than a page"


async def test_a_page_that_is_not_answered_at_all_is_asked_for_in_smaller_ones(
    stub: Stub, cluster: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server may take so long to make up a list, of which no byte comes then."""
    monkeypatch.setattr(transport, "CALL_S", 0.3)

    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        raise AssertionError

    async def prepared(request: web.Request) -> web.StreamResponse:
        await web.StreamResponse().prepare(request)
        return await silent(request)

    stub.answers = [silent, prepared, web.json_response({"metadata": {}, "items": []})]
    following = Selection(keys.CONFIG_MAP, Object, "ns")
    for _ in range(2):
        with pytest.raises(errors.UnansweredError):
            await cluster.list(following)
    await cluster.list(following)

    assert [int(one.query["limit"]) for one in stub.asked] == [500, 62, 7]
    assert not cluster.reach.is_lost


async def test_a_list_without_end_is_given_up(stub: Stub, cluster: ClusterClient) -> None:
    same = {"metadata": {"resourceVersion": "9", "continue": "same"}, "items": None}
    stub.answers = [web.json_response(same) for _ in range(9)]

    with pytest.raises(errors.NotReachableError, match="no end"):
        await cluster.list(Selection(keys.CONFIG_MAP, Object))
    assert len(stub.asked) == 2


async def test_lines_may_be_cut_anywhere_and_be_large(stub: Stub, cluster: ClusterClient) -> None:
    lines = (
        line("ADDED", "e", more="é")
        + b"\n"
        + line("MODIFIED", big="x" * 3_000_000)
        + line("BOOKMARK")
    )
    for size in (1, 7, 1000, 2**20):
        some = lines if size > 500 else lines[:300]
        whole = await _read_in(stub, cluster, some, size)
        assert whole[0] == ("ADDED", "e", "7")
    assert whole[1:] == [("MODIFIED", "a", "7"), ("BOOKMARK", "a", "7")]


async def _read_in(
    stub: Stub, cluster: ClusterClient, data: bytes, size: int
) -> list[tuple[str, str, str]]:
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    stub.answers = [stream(*chunks)]
    return await watched(cluster)


async def test_a_watch_asks_for_bookmarks_and_an_end(stub: Stub, cluster: ClusterClient) -> None:
    seconds = set()
    for _ in range(20):
        stub.answers = [stream()]
        await watched(cluster)
        query = dict(stub.asked[-1].query)
        seconds.add(int(query.pop("timeoutSeconds")))
        assert query == {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": "5"}

    assert len(seconds) > 1
    assert min(seconds) >= 300
    assert max(seconds) < 600


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (b'{"type": "ADDED"}\n', errors.ExpiredError),
        (b"{broken\n", errors.ExpiredError),
        (b'{"type":"ADDED","object":{"metadata":5}}\n', errors.ExpiredError),
        (b'{"type":"ERROR","object":{"code":410,"reason":"Expired"}}\n', errors.ExpiredError),
        (b'{"type":"ERROR","object":{"code":429}}\n', errors.BusyError),
        (b'{"type":"ERROR","object":{"code":504}}\n', errors.BusyError),
        (b"x" * (wire.MAX_EVENT + 2**20), errors.ExpiredError),
    ],
    ids=["half", "broken", "no object", "expired", "busy", "ahead", "without end"],
)
async def test_a_bad_event_is_an_error_and_never_skipped(
    stub: Stub, cluster: ClusterClient, bad: bytes, error: type[errors.KubeError]
) -> None:
    stub.answers = [stream(line("ADDED"), bad)]

    with pytest.raises(error):
        await watched(cluster)


async def test_a_connection_that_breaks_in_an_event_is_no_bad_event(
    stub: Stub, cluster: ClusterClient
) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = await stream(line("ADDED")[:20])(request)
        assert request.transport
        request.transport.abort()
        return response

    stub.answers = [broken]

    with pytest.raises(errors.NotReachableError):
        await watched(cluster)


async def test_no_server_is_not_reachable(stub: Stub) -> None:
    async with client.connect(credentials.plain("http://127.0.0.1:9")) as nobody:
        with pytest.raises(errors.NotReachableError):
            await nobody.get(keys.CONFIG_MAP, WEB)


async def test_while_a_server_is_away_nobody_waits_and_its_return_is_found(
    stub: Stub, gate: Gate
) -> None:
    returned: list[float] = []
    async with client.connect(plain_access(gate.port)) as cluster:
        cluster.reach.subscribe(lambda: returned.append(cluster.reach.lost_s()))
        await cluster.get(keys.SECRET, WEB)
        await gate.shut()
        with pytest.raises(errors.NotReachableError):
            await cluster.get(keys.SECRET, WEB)
        await until(lambda: cluster.reach.is_lost)

        with pytest.raises(errors.NotReachableError, match="is silent for"):
            await cluster.get(keys.SECRET, WEB)
        listing = asyncio.ensure_future(cluster.list(Selection(keys.SECRET, Object)))
        assert len(stub.asked) == 1
        stub.answers = [web.json_response({"metadata": {}, "items": []})]
        await gate.open()
        assert (await listing).items == {}  # it waited for the return
        await cluster.get(keys.SECRET, WEB)

    assert returned == [0.0]
    assert len(stub.asked) == 3


async def test_an_outage_ends_watches_whose_bytes_would_come_late(stub: Stub, gate: Gate) -> None:
    """After packets were lost TCP tries again in minutes: nobody waits for it."""

    async def watched(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async with client.connect(plain_access(gate.port)) as cluster:
        stub.answers = [watched]
        events = cluster.watch(Selection(keys.SECRET, Object), "1")
        following = asyncio.ensure_future(anext(events))
        await until(lambda: stub.asked)
        gate.hold()
        cluster.reach.doubt()
        await until(lambda: cluster.reach.is_lost, within_s=300)
        assert not following.done()
        gate.let_go()
        with pytest.raises(errors.NotReachableError):
            await following


async def test_whoever_did_not_see_an_outage_asks_a_restored_server_for_its_version(
    stub: Stub, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its watch ended when its time was over; another request met the outage."""
    monkeypatch.setattr(client, "WATCH_S", 1)
    following = Selection(keys.CONFIG_MAP, Object, "ns")
    stub.answers = [empty_list("10"), stream()]
    async with client.connect(plain_access(gate.port), user_agent="pyliqo-test/1") as cluster:
        await cluster.list(following)
        async with contextlib.aclosing(cluster.watch(following, "10")) as events:
            assert [event async for event in events] == []
        await gate.shut()
        with pytest.raises(errors.NotReachableError):
            await cluster.get(keys.CONFIG_MAP, WEB)
        await until(lambda: cluster.reach.is_lost)
        await gate.open()
        await until(lambda: not cluster.reach.is_lost)
        stub.answers = [empty_list("5")]

        with pytest.raises(errors.KubeError, match="the server is at version 5, behind 10"):
            await anext(cluster.watch(following, "10"))


async def test_a_watch_that_was_silent_is_opened_again_with_a_question(
    stub: Stub, cluster: ClusterClient
) -> None:
    opened = asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        opened.set()
        await asyncio.sleep(3600)
        return response

    following = Selection(keys.CONFIG_MAP, Object, "ns")
    stub.answers = [silent, empty_list("5")]
    watching = asyncio.ensure_future(anext(cluster.watch(following, "10")))
    await opened.wait()
    watching.cancel()
    await asyncio.wait([watching])

    with pytest.raises(errors.KubeError, match="the server is at version 5, behind 10"):
        await anext(cluster.watch(following, "10"))


async def test_a_watch_that_ends_before_its_time_is_opened_again_with_a_question(
    stub: Stub, cluster: ClusterClient
) -> None:
    """Servers end them so when they lose their etcd; a liar does after a version of its own."""
    following = Selection(keys.CONFIG_MAP, Object, "ns")
    stub.answers = [stream(line("ADDED", version="10")), empty_list("5")]
    async with contextlib.aclosing(cluster.watch(following, "4")) as events:
        assert [event.version async for event in events] == ["10"]

    with pytest.raises(errors.KubeError, match="the server is at version 5, behind 10"):
        await anext(cluster.watch(following, "10"))


def empty_list(version: str) -> web.Response:
    return web.json_response({"metadata": {"resourceVersion": version}, "items": []})


async def test_one_request_that_breaks_is_no_outage(stub: Stub, cluster: ClusterClient) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        assert request.transport
        request.transport.abort()
        return web.Response()

    stub.answers = [broken]
    with pytest.raises(errors.NotReachableError):
        await cluster.create(keys.SECRET, config_map("ns", "x"))
    await until(lambda: stub.probes)
    assert not cluster.reach.is_lost
    assert await cluster.get(keys.SECRET, WEB) == {}


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open nothing more."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)  # the least that is free
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


async def test_want_of_file_descriptors_is_told_as_itself_and_is_no_outage(
    stub: Stub, cluster: ClusterClient
) -> None:
    with no_descriptors():
        with pytest.raises(errors.ExhaustedError, match="no file descriptor left"):
            await cluster.get(keys.SECRET, WEB)
        with pytest.raises(errors.ExhaustedError, match="no file descriptor left"):
            await anext(cluster.watch(Selection(keys.SECRET, Object), "5"))
        cluster.reach.doubt()  # as another does who had no answer
        await turns()
    assert not cluster.reach.is_lost

    assert await cluster.get(keys.SECRET, WEB) == {}


async def test_a_way_that_lets_no_websocket_through_is_no_outage(
    stub: Stub, cluster: ClusterClient
) -> None:
    cluster.replace(dataclasses.replace(cluster.access, authorization="Bearer one"))
    with pytest.raises(errors.KubeError) as raised:
        async with cluster.pulse(Selection(keys.SECRET, Object, "ns")):
            pass
    assert not errors.is_away(raised.value)
    assert stub.probes == 0


async def test_a_pulse_is_a_watch_that_ends_when_another_identity_takes_over(
    stub: Stub, cluster: ClusterClient
) -> None:
    async def watched(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for _ in socket:
            pass
        return socket

    stub.answers = [watched]
    cluster.replace(dataclasses.replace(cluster.access, authorization="Bearer one"))
    async with (
        asyncio.timeout(300),
        cluster.pulse(Selection(keys.SECRET, Object, "ns", fields="metadata.name=x")) as pulse,
    ):
        cluster.replace(dataclasses.replace(cluster.access, authorization="Bearer another"))
        assert not await pulse.follow(stub.asked.clear, turn_s=0.01)
        assert not pulse.is_current()
    (asked,) = stub.asked
    assert asked.path == "/api/v1/namespaces/ns/secrets"
    assert (asked.query["watch"], asked.query["fieldSelector"]) == ("1", "metadata.name=x")
    assert int(asked.query["timeoutSeconds"]) >= 300
    assert asked.headers["Origin"] == cluster.access.server


async def test_a_namesake_is_not_deleted_and_a_change_meanwhile_is_a_conflict(
    stub: Stub, cluster: ClusterClient
) -> None:
    stub.answers = [status(404)]
    await cluster.delete(keys.POD, WEB, uid="u-1")
    stub.answers = [status(409), web.json_response({"metadata": {"uid": "u-2"}})]
    await cluster.delete(keys.POD, WEB, uid="u-1")
    stub.answers = [status(409), web.json_response({"metadata": {"uid": "u-1"}})]
    with pytest.raises(errors.ConflictError):
        await cluster.delete(keys.POD, WEB, uid="u-1")


def renewing(server: str, *tokens: str) -> Access:
    rest = list(tokens)

    async def renew() -> Access:
        token = rest.pop(0) if len(rest) > 1 else rest[0]
        return dataclasses.replace(first, authorization=f"Bearer {token}", renew=renew)

    first = dataclasses.replace(credentials.plain(server, f"Bearer {rest.pop(0)}"), renew=renew)
    return first


async def test_credentials_are_read_again_when_they_are_refused(stub: Stub) -> None:
    async with client.connect(renewing(stub.server, "old", "new")) as cluster:
        stub.answers = [status(401)]
        await cluster.create(keys.CONFIG_MAP, config_map())

        stub.answers = [status(401), status(401)]
        with pytest.raises(errors.UnauthorizedError):
            await cluster.create(keys.CONFIG_MAP, config_map())

    sent = [one.headers["Authorization"] for one in stub.asked]
    assert sent == ["Bearer old", "Bearer new", "Bearer new"]


async def test_many_refused_together_read_credentials_once(stub: Stub) -> None:
    async with client.connect(renewing(stub.server, "old", "new", "newer")) as cluster:
        stub.answers = [status(401) for _ in range(5)]
        await asyncio.gather(*(cluster.get(keys.CONFIG_MAP, WEB) for _ in range(5)))
        assert cluster.access.authorization == "Bearer new"


async def test_whoever_waits_for_a_server_is_told_that_we_are_somebody_else_for_it(
    stub: Stub,
) -> None:
    told: list[str] = []
    async with client.connect(renewing(stub.server, "old", "new", "new")) as cluster:
        cluster.reach.subscribe(lambda: told.append(cluster.access.authorization))
        stub.answers = [status(401)]
        await cluster.create(keys.CONFIG_MAP, config_map())
        assert told == ["Bearer new"]

        stub.answers = [status(401), status(401)]
        with pytest.raises(errors.UnauthorizedError):  # there are no other credentials
            await cluster.create(keys.CONFIG_MAP, config_map())
        assert told == ["Bearer new"]

        other = dataclasses.replace(credentials.plain(stub.server, "Bearer other"), digest="other")
        cluster.replace(other)
        cluster.replace(other)
        await turns()  # whom it replaced ends
        assert told == ["Bearer new", "Bearer other"]


async def test_another_identity_ends_watches_and_lets_calls_finish(stub: Stub) -> None:
    held, release = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        held.set()
        await release.wait()
        return web.json_response({"metadata": {"name": "answered"}})

    async def endless(request: web.Request) -> web.StreamResponse:
        response = await stream(line("ADDED"))(request)
        await asyncio.Event().wait()
        return response

    async with client.connect(credentials.plain(stub.server, "Bearer old")) as cluster:
        stub.answers = [endless, slow]
        events = cluster.watch(Selection(keys.CONFIG_MAP, Object), "5")
        await anext(events)
        call = asyncio.ensure_future(cluster.get(keys.CONFIG_MAP, WEB))
        await held.wait()

        other = dataclasses.replace(credentials.plain(stub.server, "Bearer new"), digest="other")
        cluster.replace(other)

        with pytest.raises(StopAsyncIteration):  # an end, and no failure that costs a pause
            await anext(events)
        release.set()
        assert await call == {"metadata": {"name": "answered"}}
        await cluster.get(keys.CONFIG_MAP, WEB)

    assert stub.asked[-1].headers["Authorization"] == "Bearer new"
    assert stub.asked[-2].headers["Authorization"] == "Bearer old"


async def get(connection: Connection, server: str) -> None:
    async with connection.request("GET", yarl.URL(server)):
        pass


@pytest.mark.parametrize("how_far", range(1, 6))
async def test_wherever_closing_is_interrupted_no_session_stays_open(
    stub: Stub, how_far: int
) -> None:
    held = asyncio.Event()

    async def slow(_: web.Request) -> web.StreamResponse:
        held.set()
        await asyncio.Event().wait()
        return web.Response()

    stub.answers = [slow]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        identity = CurrentConnection(credentials.plain(stub.server), "x")
        call = asyncio.ensure_future(get(identity.connection, stub.server))
        await held.wait()
        identity.connection.start_anew()
        identity.replace(identity.access)
        closing = asyncio.ensure_future(identity.close())
        await turns(how_far)
        for task in (closing, call):
            task.cancel()
            await asyncio.wait([task])
        del identity, call, closing, task
        gc.collect()

    assert [str(each.message) for each in caught] == []


async def test_leases_and_nodes_do_not_wait_behind_the_rest(
    stub: Stub, cluster: ClusterClient
) -> None:
    release = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.json_response({})

    stub.answers = [slow] * transport.BULK_AT_ONCE
    bulk = [
        asyncio.ensure_future(cluster.get(keys.CONFIG_MAP, WEB))
        for _ in range(2 * transport.BULK_AT_ONCE)
    ]
    await until(lambda: len(stub.asked) == transport.BULK_AT_ONCE)
    await cluster.get(keys.LEASE, WEB)
    await cluster.get(keys.NODE, Key("", "node"))
    assert len(stub.asked) == transport.BULK_AT_ONCE + 2
    release.set()
    await asyncio.gather(*bulk)


@pytest.mark.parametrize("cluster", ["HTTP/1.1"], indirect=True)
async def test_after_a_lease_that_was_not_renewed_in_time_connections_are_new(
    stub: Stub, cluster: ClusterClient
) -> None:
    """What was sent on those of before may have led nowhere; no watch ends for that."""
    both, go = asyncio.Barrier(2), asyncio.Event()

    async def together(_: web.Request) -> web.StreamResponse:
        await both.wait()
        return web.json_response({})

    async def endless(request: web.Request) -> web.StreamResponse:
        response = await stream(line("ADDED"))(request)
        await go.wait()
        await response.write(line("ADDED", "b"))
        return response

    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    def connections() -> list[object]:
        return [one.transport and one.transport.get_extra_info("peername") for one in stub.asked]

    stub.answers = [endless, together, together]
    events = cluster.watch(Selection(keys.CONFIG_MAP, Object), "5")
    await anext(events)
    await asyncio.gather(*(cluster.get(keys.CONFIG_MAP, WEB) for _ in range(2)))
    before = set(connections())
    stub.answers = [silent]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await cluster.get(keys.LEASE, WEB)

    await cluster.get(keys.LEASE, WEB)

    assert len(before) == 3
    assert connections()[-1] not in before
    go.set()
    assert (await anext(events)).key.name == "b"
    await events.aclose()


async def test_logs_are_streamed_and_refusals_raised(stub: Stub, cluster: ClusterClient) -> None:
    stub.answers = [stream(b"one\n", b"two\n"), status(403, "Forbidden")]

    async with cluster.stream("GET", "/api/v1/x/log", {"follow": "true"}) as answer:
        assert b"".join([each async for each in answer.content.iter_any()]) == b"one\ntwo\n"
    with pytest.raises(errors.ForbiddenError):
        async with cluster.stream("GET", "/api/v1/x/log"):
            pass


async def test_requests_are_counted(
    stub: Stub, cluster: ClusterClient, request: pytest.FixtureRequest
) -> None:
    counted = f"counteds{len(request.node.name)}"
    kind = Kind("", "v1", "Counted", counted)
    stub.answers = [web.json_response({}), status(403)]
    await cluster.get(kind, WEB)
    with pytest.raises(errors.ForbiddenError):
        await cluster.get(kind, WEB)

    for code in ("200", "403"):
        labels = {"verb": "get", "resource": counted, "code": code}
        assert metrics.REGISTRY.get_sample_value("pyliqo_requests_total", labels) == 1
