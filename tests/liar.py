"""A provider that lies: a real API server, behind a way that rewrites what it says.

An attack is a function of a few lines: it gets each request, and answers it or leaves it to the
server. Source: docs/parity.md SEC-B8.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from aiohttp import web

from apis.objects import Object
from kube.credentials import Access
from sandbox.controlplane import Plane
from tests.kubelet import toll
from tests.kubelet.toll import Call, Toll

Attack = Callable[["Liar", web.Request, Call], Awaitable[web.StreamResponse | None]]
Spoil = Callable[[bytes], bytes]
PIECE: Final = b" " * 2**16


class Liar(Toll):
    """It stands before ``plane``; while there is an ``attack`` that answers what it likes."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane, lambda: None, is_whole=False)
        self.versions = 1  # the first question of the version is answered, too
        self.attack: Attack | None = None
        self.spoil: Spoil | None = None
        """What is made of each answer of the server, and of each line of a watch."""
        self.lies = 0
        """Objects, or pieces of an answer without an end, that were said and are not so."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._open: set[asyncio.Transport] = set()

    def cut(self) -> None:
        """Break all connections, so that those who follow ask once more; from any thread."""
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for transport in self._open:
            transport.abort()
        self._open.clear()

    async def _pass(
        self, request: web.Request, session: aiohttp.ClientSession, who: Access
    ) -> web.StreamResponse:
        self.loop = asyncio.get_running_loop()
        if isinstance(request.transport, asyncio.Transport):
            self._open.add(request.transport)
        if self.attack is not None:
            with contextlib.suppress(ConnectionError):
                found = await self.attack(self, request, toll.call_of(request))
                if found is not None:
                    return found
        try:
            return await super()._pass(request, session, who)
        except aiohttp.ClientError as error:
            raise web.HTTPBadGateway from error  # the server is stopped before the liar

    async def _give(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        if self.spoil is None or answer.status == HTTPStatus.SWITCHING_PROTOCOLS:
            return await super()._give(request, answer)
        if "watch" not in request.query:
            body = self._spoiled(await answer.read())
            return web.Response(body=body, status=answer.status, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            while line := await answer.content.readline():
                await response.write(self._spoiled(line.rstrip(b"\n")) + b"\n")
        return response

    def _spoiled(self, said: bytes) -> bytes:
        if self.spoil is None:
            return said
        made = self.spoil(said)
        self.lies += made != said
        return made

    async def endless(
        self, request: web.Request, pieces: Callable[[int], bytes]
    ) -> web.StreamResponse:
        """Answer with ``pieces`` for as long as somebody reads, or the attack goes on."""
        attack, response = self.attack, web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        for number in itertools.count():
            if self.attack is not attack or _is_gone(request):
                break
            await response.write(pieces(number))
            self.lies += 1
        return response


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


@contextlib.contextmanager
def liar_before(plane: Plane) -> Iterator[Liar]:
    """Let a liar stand before ``plane``, in a thread of its own."""
    liar, started, over = Liar(plane), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def stand() -> None:
        async with liar.open():
            started.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(stand(),), daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield liar
    finally:
        liar.attack = None
        liar.cut()
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        loop.close()


# Attacks ------------------------------------------------------------------------------------------


def invented(call: Call, number: int, size: int, **rest: Any) -> Object:
    """Return an object that nobody made, of about ``size`` bytes."""
    noise = os.urandom(size // 2).hex()
    return {
        "metadata": {
            "name": f"invented-{number}",
            "namespace": call.namespace or "default",
            "uid": f"uid-{number}",
            "resourceVersion": str(10**6 + number),
            "annotations": {"noise": noise},
        },
        **rest,
    }


def _watched(obj: Object, type_: str = "MODIFIED") -> bytes:
    return json.dumps({"type": type_, "object": obj}).encode() + b"\n"


def endless_objects(size: int) -> Attack:
    """Lists with ever another page, watches with ever another object."""

    async def attack(liar: Liar, request: web.Request, call: Call) -> web.StreamResponse | None:
        if call.verb == "WATCH":
            return await liar.endless(
                request, lambda number: _watched(invented(call, number, size), "ADDED")
            )
        if call.verb != "LIST":
            return None
        begun = int(request.query.get("continue") or 0)
        count = max(1, min(500, 2**22 // (size + 300)))
        items = [invented(call, begun + number, size) for number in range(count)]
        liar.lies += count
        metadata = {"resourceVersion": "7", "continue": str(begun + count)}
        return web.json_response({"metadata": metadata, "items": items})

    return attack


def changing_objects(*stems: str) -> Attack:
    """Return what has 20 objects, each of a mebibyte, and each another one each time."""
    names = [f"{stem}-{number}" for stem in stems for number in range(20 // len(stems))]

    async def attack(liar: Liar, request: web.Request, call: Call) -> web.StreamResponse | None:
        if call.verb not in {"LIST", "WATCH"}:
            return None

        def known(number: int) -> Object:
            made = invented(call, number, 2**20)
            made["metadata"] |= {"name": names[number % len(names)], "uid": "known"}
            return made

        if call.verb == "WATCH":
            return await liar.endless(request, lambda number: _watched(known(number)))
        liar.lies += 4
        begun = int(request.query.get("continue") or 0)
        metadata = {"resourceVersion": "7", "continue": str(begun + 4)}
        items = [known(begun + number) for number in range(4)]
        return web.json_response({"metadata": metadata, "items": items})

    return attack


async def endless_answers(
    liar: Liar, request: web.Request, _call: Call
) -> web.StreamResponse | None:
    """Whatever is asked has an answer without an end."""
    await request.read()
    return await liar.endless(request, lambda _: PIECE)


async def many_parts(liar: Liar, request: web.Request, call: Call) -> web.StreamResponse | None:
    """Objects of a million parts, in lists and watches and answers to reads."""
    parts = b"[%s]" % b",".join([b"{}"] * 10**6)
    about = json.dumps(invented(call, 1, 2)["metadata"]).encode()
    said = b'{"metadata":%s,"status":{"conditions":%s}}' % (about, parts)
    if call.verb == "WATCH":
        line = b'{"type":"ADDED","object":%s}\n' % said
        return await liar.endless(request, lambda _: line)
    if call.verb not in {"LIST", "GET"} or request.path == "/livez":
        return None
    liar.lies += 1
    listed = b'{"metadata":{"resourceVersion":"7"},"items":[%s]}' % said
    return web.Response(
        body=listed if call.verb == "LIST" else said, content_type="application/json"
    )


async def restless_statuses(
    liar: Liar, request: web.Request, call: Call
) -> web.StreamResponse | None:
    """The Pods that are there change all the time, each time by a text of a mebibyte."""
    if call.verb != "WATCH" or call.resource != "pods":
        return None
    names = [f"web-{number}" for number in range(10)]

    def changed(number: int) -> bytes:
        status = {"phase": "Running", "message": os.urandom(2**19).hex()}
        pod = invented(call, number, 2, status=status)
        pod["metadata"]["name"] = names[number % len(names)]
        return _watched(pod)

    return await liar.endless(request, changed)


ATTACKS: Final[dict[str, Attack]] = {
    "large objects without end": endless_objects(20_000),
    "small objects without end": endless_objects(2),
    "known objects that change all the time": changing_objects("web", "settings"),
    "unknown objects that change all the time": changing_objects("other"),
    "answers without end": endless_answers,
    "objects of a million parts": many_parts,
    "statuses that change all the time": restless_statuses,
}


# Shapes -------------------------------------------------------------------------------------------

JUNK: Final[tuple[Any, ...]] = (
    None, True, -1, 2**70, 1e308, "", "\x1b[31m\r\u202e", "x" * 5_000, "9" * 5_000, "10.96.0.1",
    "9999-12-31T00:00:00Z", [], [None, [{}]], {}, {"": {}}, {"metadata": 5}, "Running", "True",
)  # fmt: skip
_KEPT: Final = 0.4
"""How often an answer stays as it is."""


def shapes(seed: int) -> Spoil:
    """Return what puts junk in random places of most answers, and breaks the JSON of some."""
    dice = random.Random(seed)  # noqa: S311  # the same lies in each run

    def spoil(said: bytes) -> bytes:
        if dice.random() < _KEPT:
            return said
        if dice.random() < 0.1:
            return dice.choice((said[: len(said) // 2], b"", b"<html>", b"\xff\xfe" + said))
        try:
            whole = json.loads(said)
        except ValueError:
            return said
        for _ in range(dice.randint(1, 4)):
            _spoil(whole, dice)
        return json.dumps(whole).encode()

    return spoil


def _spoil(value: Any, dice: random.Random) -> None:
    """Put junk in the place of a part of ``value``, at any depth."""
    while isinstance(value, dict | list) and value:
        place = dice.choice([*value] if isinstance(value, dict) else range(len(value)))
        if dice.random() < 0.3 or not isinstance(value[place], dict | list):
            value[place] = dice.choice(JUNK)
            return
        value = value[place]
