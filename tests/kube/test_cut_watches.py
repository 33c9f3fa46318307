"""A watch that ends after any byte of what it tells: nothing is lost, and nothing told twice.

Source: docs/parity.md F-10.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec
import pytest
from aiohttp import web

from apis import keys
from apis.objects import Key, Object
from kube import client, credentials
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.informer import Change, Informer
from tests.kube.running import Time, running, serving, until
from tests.kube.test_client import Stub


def entry(name: str, version: str, **data: str) -> Object:
    metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": version}
    return {"metadata": metadata, "data": data}


LISTED: Final = [entry("a", "5"), entry("b", "4")]
EVENTS: Final = [
    ("ADDED", entry("c", "6", it="é€😀")),
    ("MODIFIED", entry("a", "7")),
    ("BOOKMARK", {"metadata": {"resourceVersion": "8"}}),
    ("DELETED", entry("b", "9")),
    ("ADDED", entry("b", "10") | {"metadata": {**entry("b", "10")["metadata"], "uid": "b2"}}),
]
TOLD: Final = [("a", "5"), ("b", "4"), ("c", "6"), ("a", "7"), ("b", ""), ("b", "10")]
LEFT: Final = [EVENTS[1][1], EVENTS[4][1], EVENTS[0][1]]


def event_lines(since: str) -> bytes:
    """Return the events after that version, an empty line after each."""
    after = [event for event in EVENTS if int(_version(event[1])) > int(since)]
    bare = (msgspec.json.encode({"type": type_, "object": obj}) for type_, obj in after)
    return b"".join(line + b"\n\n" for line in bare)


def _version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


class Cut:
    """A selection whose first watch ends after ``at`` bytes; others go on until told to end."""

    def __init__(self, at: int, *, is_broken: bool) -> None:
        self.at, self.is_broken = at, is_broken
        self.of: Final = Selection(keys.CONFIG_MAP, Object, "ns", labels=f"cut={at}")
        self.watches = self.lists = 0
        self.over = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request)
        if request.query["limit"] == "1":  # which version is there now
            return web.json_response({"metadata": {"resourceVersion": "10"}, "items": []})
        self.lists += 1
        items, version = (LISTED, "5") if self.lists == 1 else (LEFT, "10")
        return web.json_response({"metadata": {"resourceVersion": version}, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches += 1
        is_cut = self.watches == 1
        response = web.StreamResponse()
        await response.prepare(request)
        told = event_lines(request.query["resourceVersion"])
        await response.write(told[: self.at] if is_cut else told)
        if not is_cut:
            await self.over.wait()
        elif self.is_broken:
            assert request.transport
            request.transport.close()  # once what was written is out
        return response


class Cutting(Stub):
    """Each cut is of a label of its own, so what is asked late concerns no other."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts: dict[str, Cut] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/livez":
            return web.Response()
        return await self.cuts[request.query["labelSelector"]].answer(request)


@pytest.fixture
async def cutting_server() -> AsyncIterator[Cutting]:
    server = Cutting()
    async with serving(server.answer) as server.server:
        yield server


async def changes_of_watch(cut: Cut, cluster: ClusterClient) -> list[tuple[str, str]]:
    """Return each change that is told until all is as it is on the server."""
    told: list[Change[Object]] = []
    informer = Informer(cut.of, sleep=Time().sleep)
    wanted = {Key("ns", each["metadata"]["name"]): _version(each) for each in LEFT}

    def has_all() -> bool:
        return {key: _version(each) for key, each in informer.items().items()} == wanted

    informer.subscribe(told.append)
    async with running(informer.run(cluster)):
        await until(has_all)
    cut.over.set()
    return [(each.key.name, _version(each.new) if each.new else "") for each in told]


@pytest.mark.parametrize(("is_broken", "every"), [(True, 1), (False, 3)], ids=["broken", "closed"])
async def test_wherever_a_watch_is_cut_all_is_told_once(
    cutting_server: Cutting, *, is_broken: bool, every: int
) -> None:
    async with client.connect(credentials.plain(cutting_server.server)) as cluster:
        for at in range(0, len(event_lines("5")) + 1, every):
            cut = Cut(at, is_broken=is_broken)
            cutting_server.cuts[cut.of.labels] = cut

            told = await changes_of_watch(cut, cluster)

            assert sorted(told) == sorted(TOLD), f"cut after {at} bytes"
            assert cut.lists == 1 or not is_broken, "it goes on from where it was"
