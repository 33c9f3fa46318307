"""What a webhook adds to the creation of a pod: alone, under load, and by CPU of its own."""

import asyncio
import contextlib
import re
import secrets
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from time import monotonic
from typing import Final

import aiohttp
import msgspec

from apis import keys
from apis.objects import Key, Object
from bench import arms, children, figures, liqo, load, slow
from bench.settings import LIQO, Settings
from bench.stage import CONSUMER, Stage
from kube import wire
from kube.client import ClusterClient
from kube.cluster import Selection

SUITE: Final = "admission"
LOAD: Final = "admission-load"
REVIEWS: Final = "reviews"
SLOW: Final = "admission-slow"
QUIET: Final = "quiet"
ATTACKED: Final = "attacked"
PLAIN: Final = "plain"
"""A namespace that nobody offloads, where pyliqo is installed."""
ARMS: Final = ("bare", *arms.CONST, PLAIN, "ours", *LIQO)
WEBHOOKS: Final = ("const", "ours", *LIQO)
SYSTEMS: Final = ("ours", *LIQO)
"""Never two of them are there, so each is paired with the others by itself."""
PAIRED: Final = "paired"
CLIENTS: Final = 32
CONNECTIONS: Final = 25
"""As many as an API server keeps open to a webhook."""
REVIEW_BYTES: Final = (5_000, 50_000)
_PAIRS: Final = 100
_HISTOGRAM: Final = re.compile(
    r"^apiserver_admission_webhook_admission_duration_seconds_(sum|count)\{(.*)\} (\S+)$",
    re.MULTILINE,
)
_CALLS: Final = re.compile(
    r'^apiserver_admission_webhook_request_total\{.*name="[^"]+\.liqo\.io".*\} (\S+)$', re.MULTILINE
)
_NAME: Final = re.compile(r'name="([^"]+)"')
_WEBHOOK_OF: Final = {
    **{arm: f"{arm}.bench.pyliqo.io" for arm in arms.CONST},
    **dict.fromkeys(SYSTEMS, "pod.mutate.liqo.io"),
}
_GATE: Final = [{"name": "bench.pyliqo.io/never"}]
"""Pods that no scheduler looks at: admission is all that happens to them."""


async def run(stage: Stage, settings: Settings) -> None:
    """Measure the three sides of admission."""
    chosen = [arm for arm in ARMS if settings.has(arm)]
    others = [arm for arm in chosen if arm not in SYSTEMS]
    for repetition, order in stage.plan.rounds(SUITE, chosen, settings.repetitions):
        if others == chosen:
            await _paired(stage, "ours", others, repetition)
        for arm in order:
            await stage.enter(arm)
            if arm in SYSTEMS:
                beside = [one for one in others if one != PLAIN or arm == "ours"]
                await _paired(stage, arm, [*beside, arm], repetition)
            await _loaded(stage, arm, repetition, settings.load_s)
            for size in REVIEW_BYTES if arm in WEBHOOKS else ():
                await _replayed(stage, arm, repetition, size, settings.load_s / 3)
            if arm == "ours":
                await _beside_slow_clients(stage, repetition)


def paired(system: str) -> str:
    """Return what a block is called in which ``system`` and other arms take turns."""
    return PAIRED if system not in LIQO else f"{PAIRED}-{system}"


async def _paired(stage: Stage, system: str, chosen: list[str], repetition: int) -> None:
    """Create the same pod by turns in the namespace of each arm, forwards and backwards."""
    mark = secrets.token_hex(2)
    before = durations(await stage.rome.get_text("/metrics"))
    async with stage.block(SUITE, paired(system), repetition, _PAIRS) as draft:
        for number, arm in figures.zigzag(chosen, _PAIRS):
            pod = gated(arms.local_namespace(arm), f"pair-{mark}-{number}")
            began = monotonic()
            await stage.rome.create(keys.POD, pod)
            draft.times.setdefault(arm, []).append(monotonic() - began)
        after = durations(await stage.rome.get_text("/metrics"))
        for arm in chosen:
            if (name := _WEBHOOK_OF.get(arm)) in after:
                draft.figures[f"histogram_ms_{arm}"] = _mean_ms(before, after, name)
    for arm in chosen:
        await clear(stage.rome, arms.local_namespace(arm))


async def _loaded(stage: Stage, arm: str, repetition: int, seconds: float) -> None:
    """Create pods from many clients at once for a while."""
    namespace, mark = arms.local_namespace(arm), secrets.token_hex(2)
    times: list[float] = []

    async def create(client: int, until: float) -> None:
        while (began := monotonic()) < until:
            await stage.rome.create(keys.POD, gated(namespace, f"l-{mark}-{client}-{len(times)}"))
            times.append(monotonic() - began)

    try:
        before = calls(await stage.rome.get_text("/metrics"))
        async with stage.block(LOAD, arm, repetition, CLIENTS) as draft:
            began = monotonic()
            await asyncio.gather(*(create(client, began + seconds) for client in range(CLIENTS)))
            draft.times["create"] = times
            draft.figures["creates"] = len(times)
            draft.figures["creates_per_s"] = len(times) / (monotonic() - began)
            draft.figures["webhook_calls"] = calls(await stage.rome.get_text("/metrics")) - before
    finally:
        await clear(stage.rome, namespace)


async def _beside_slow_clients(stage: Stage, repetition: int) -> None:
    """Create pods one after another, with and without clients that never finish a request."""
    namespace, mark = arms.local_namespace("ours"), secrets.token_hex(2)
    addresses = await _addresses(stage)
    for arm in figures.order((QUIET, ATTACKED), repetition):
        async with (
            _slow_clients(addresses) if arm == ATTACKED else contextlib.nullcontext(0) as held,
            stage.block(SLOW, arm, repetition, _PAIRS) as draft,
        ):
            for number in range(_PAIRS):
                pod = gated(namespace, f"slow-{mark}-{arm}-{number}")
                began = monotonic()
                await stage.rome.create(keys.POD, pod)
                draft.times.setdefault("create", []).append(monotonic() - began)
            draft.figures["slow_clients"] = held
    await clear(stage.rome, namespace)


@contextlib.asynccontextmanager
async def _slow_clients(addresses: Sequence[str]) -> AsyncIterator[int]:
    """Have the clients of ``bench.slow`` at the addresses; return how many there are."""
    async with children.running(sys.executable, "-m", "bench.slow", *addresses) as process:
        yield int(await children.line(process))


async def _replayed(stage: Stage, arm: str, repetition: int, size: int, seconds: float) -> None:
    """Send the same review again and again over connections that stay open."""
    url = await _url(stage, arm)
    body = msgspec.json.encode(load.review(arms.local_namespace(arm), size))
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=slow.trusting())
    headers = {"Content-Type": "application/json"}
    times: list[float] = []
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def send(until: float) -> None:
            while (began := monotonic()) < until:
                async with session.post(url, data=body, timeout=_TIMEOUT) as answer:
                    check(await answer.read())
                times.append(monotonic() - began)

        async with stage.block(REVIEWS, arm, repetition, size) as draft:
            began = monotonic()
            await asyncio.gather(*(send(began + seconds) for _ in range(CONNECTIONS)))
            draft.times["review"] = times
            draft.figures["reviews"] = len(times)
            draft.figures["reviews_per_s"] = len(times) / (monotonic() - began)


_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)


def check(answer: bytes) -> None:
    """Stop when a webhook did not allow what it was asked.

    Raises:
        RuntimeError: it did not.
    """
    if not msgspec.json.decode(answer)["response"]["allowed"]:
        raise RuntimeError(f"a webhook refused: {answer[:300]!r}")


def gated(namespace: str, name: str) -> Object:
    """Return a pod of 4 kB that stays where it was created."""
    pod = load.pod(namespace, name, size=load.POD_BYTES, schedulingGates=_GATE)
    pod["metadata"]["labels"] = {"app": "admission"}  # not observed
    return pod


def durations(text: str) -> dict[str, tuple[float, float]]:
    """Return (seconds, calls) of each webhook out of the metrics of an API server."""
    found: dict[str, dict[str, float]] = {}
    for part, labels, value in _HISTOGRAM.findall(text):
        name = _NAME.search(labels)
        if name and 'type="admit"' in labels:
            of_one = found.setdefault(name[1], {"sum": 0.0, "count": 0.0})
            of_one[part] += float(value)
    return {name: (parts["sum"], parts["count"]) for name, parts in found.items()}


def calls(text: str) -> float:
    """Return how often webhooks of ours were called, out of the metrics of an API server."""
    return sum(map(float, _CALLS.findall(text)))


def _mean_ms(
    before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]], name: str
) -> float:
    (seconds, calls), (seconds_before, calls_before) = after[name], before.get(name, (0.0, 0.0))
    return (seconds - seconds_before) / max(calls - calls_before, 1.0) * 1000


async def clear(cluster: ClusterClient, namespace: str) -> None:
    """Delete all pods of a namespace in one request."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    async with cluster.stream("DELETE", path, {"gracePeriodSeconds": "0"}, idle_s=300) as answer:
        await wire.whole(answer, most=wire.MAX_ANSWER)


async def _url(stage: Stage, arm: str) -> str:
    if arm == "const":
        found = await stage.rome.get_live(keys.MUTATING_WEBHOOKS, Key("", "bench-const"))
        return str(found["webhooks"][0]["clientConfig"]["url"]) if found else ""
    if arm in LIQO:
        return liqo.url(stage.sites[CONSUMER].slot.address, "/mutate/pod?timeout=3s")
    address, *_ = await _addresses(stage)
    return f"https://{address}:{keys.WEBHOOK_PORT}/mutate/pod?timeout=3s"


async def _addresses(stage: Stage) -> list[str]:
    """Return where our webhook answers, one address a pod."""
    of = Selection(keys.POD, dict, keys.LIQO_NAMESPACE, fields="status.phase=Running")
    pods = (await stage.rome.list(of)).items
    return [
        pod["status"]["podIP"]
        for key, pod in sorted(pods.items())
        if key.name.startswith(keys.WEBHOOK_SERVICE)
    ]
