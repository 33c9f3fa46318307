"""Lists and watches of Pods and ShadowPods at a provider that lies: no loop ends, truth is told.

Client, informers and reconciler are the virtual kubelet's; what they read comes over HTTP.
``PYLIQO_TEST_SHAPES=10000`` is the full size. Source: docs/parity.md SEC-B8.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from apis import keys
from apis.objects import Kind, Object
from kube import credentials, errors, peer
from kube.cluster import Selection
from kube.controller import TerminalError
from kube.informer import Informer
from kubelet.namespaces import FOLLOWED
from tests.conftest import size_of
from tests.fakes import FakeCluster
from tests.kube.running import Time, running, serving
from tests.kubelet import lies, worlds
from tests.kubelet.worlds import TWIN, World

SHAPES: Final = size_of("PYLIQO_TEST_SHAPES", 300, 10_000)
OF_ONE: Final = 20
AT_ONCE: Final = 3
"""Lines of one watch: one that cannot be read ends it."""
FINAL: Final = "777777"
"""The version that the last line has, and nothing before it."""
PATIENCE_S: Final = 60.0

Spoil = Callable[[bytes], bytes]
Event = tuple[Any, Object, bool, Spoil]

SPOILS: Final[tuple[Spoil, ...]] = (
    *(lambda line: line for _ in range(6)),
    lambda line: line[: len(line) // 2],
    lambda line: b"\xff\xfe" + line,
    lambda line: line.replace(b'"', b'"\xc3', 3),
    lambda line: line.replace(b"{", b'{"metadata":5,', 2),
    lambda line: b"[" * 10_000 + line,
    lambda line: b'{"type":"MODIFIED","object":' + b'{"metadata":' * 2_000 + line,
    lambda line: (
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%s"}}}' % (b"9" * 5_000)
    ),
    lambda line: b'{"type":"ERROR","object":{"code":%s}}' % (b"9" * 5_000),
    lambda _: b"",
    lambda _: b"<html>",
)
types = st.one_of(
    st.sampled_from(["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "ERROR", "BOOKMARK"]), lies.junk
)
streams = st.lists(
    st.tuples(types, lies.twins, st.booleans(), st.sampled_from(SPOILS)),
    min_size=OF_ONE // 2,
    max_size=OF_ONE // 2,
)


class Liar:
    """Answers lists and watches of one kind: lies first, then that ``truth`` is so for ever."""

    def __init__(self, truth: Object, events: list[Event]) -> None:
        self.truth = truth
        self._versions = itertools.count(100)
        said = [self._said(event) for event in events]
        self._watches: Iterator[list[bytes]] = iter(
            [said[at : at + AT_ONCE] for at in range(0, len(said), AT_ONCE)]
        )
        self._lists = iter([[self._object(event) for event in events[:AT_ONCE]]])

    def _object(self, event: Event) -> Any:
        _, twin, is_ours, _ = event
        about = twin["metadata"]
        if is_ours and isinstance(about, dict):
            whose = {name: self.truth["metadata"][name] for name in ("name", "namespace", "uid")}
            about = {**self._true()["metadata"], **about, **whose}
        return {**self.truth, **twin, "metadata": about}

    def _true(self, version: str = "") -> Object:
        found = {"resourceVersion": version or str(next(self._versions))}
        return {**self.truth, "metadata": {**self.truth["metadata"], **found}}

    def _said(self, event: Event) -> bytes:
        type_, _, _, spoil = event
        return spoil(json.dumps({"type": type_, "object": self._object(event)}).encode())

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            items = next(self._lists, [self._true()])
            return web.json_response({"metadata": {"resourceVersion": "9"}, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        lines = next(self._watches, None)
        with contextlib.suppress(OSError):
            for line in lines or ():
                await response.write(line + b"\n")
            if lines is None:
                said = json.dumps({"type": "MODIFIED", "object": self._true(FINAL)}).encode()
                await response.write(said + b"\n")
                await asyncio.Event().wait()
        return response


async def prepared() -> tuple[World, dict[Kind, Object]]:
    """Return a world in which a pod runs and has another address now, and what its provider has.

    Live reads say the truth all along.
    """
    world = World(FakeCluster(), FakeCluster())
    await world.bound()
    await world.reconcile()
    await world.run_remotely(worlds.running())
    await world.reconcile()
    await world.runs(worlds.running(podIP="10.9.9.9"))
    truths = {kind: await world.remote.get(kind, TWIN) for kind in FOLLOWED}
    return world, {kind: truth for kind, truth in truths.items() if truth}


async def reconcile(world: World) -> None:
    """Look at the pod as the runner does, which tries again after errors of an API server."""
    world.now += timedelta(seconds=1)
    with contextlib.suppress(errors.KubeError, TerminalError):
        await world.reconcile()
    status = await world.status()
    assert len(json.dumps(status)) < 2**16
    ready = [one for one in status["conditions"] if one["type"] == "Ready"]
    assert status["phase"] != "Running" or ready, "it is told whether it is ready"


async def survive(said: dict[Kind, list[Event]]) -> None:
    world, truths = await prepared()
    liars = {kind.plural: Liar(truth, said[kind]) for kind, truth in truths.items()}
    time, changed = Time(), asyncio.Event()
    informers: list[Informer[Any]] = [
        Informer(
            Selection(kind, shape, TWIN.namespace),
            clock=time, dice=lambda: 1.0, sleep=time.sleep,
        )
        for kind, shape in FOLLOWED.items()
    ]  # fmt: skip
    world.follow(informers)
    for informer in informers:
        informer.subscribe(lambda _: changed.set())

    async def answer(request: web.Request) -> web.StreamResponse:
        return await liars[request.path.rpartition("/")[2]].answer(request)

    def is_true() -> bool:
        found = [informer.get(TWIN) for informer in informers]
        return all(one is not None and one.metadata.resource_version == FINAL for one in found)

    async with (
        serving(answer) as url,
        peer.connect(credentials.plain(url), user_agent="tests") as there,
        running(*(informer.run(there) for informer in informers)) as tasks,
        asyncio.timeout(PATIENCE_S),
    ):
        while not is_true():
            changed.clear()
            await reconcile(world)
            assert not any(task.done() for task in tasks)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), 0.01)
        for _ in range(3):
            await reconcile(world)

    status = await world.status()
    if status["phase"] == "Running":
        assert status["podIP"] == "10.9.9.9", "what is true comes, whatever was said before"
    else:
        assert status["phase"] in {"Succeeded", "Failed"}, "what has ended stays so"


@settings(max_examples=max(1, SHAPES // OF_ONE), deadline=None)
@given(pods=streams, shadows=streams)
def test_whatever_a_stream_says_the_truth_is_told_afterwards(
    pods: list[Event], shadows: list[Event]
) -> None:
    asyncio.run(survive({keys.POD: pods, keys.SHADOW_POD: shadows}))
