"""What a provider makes without end costs a bounded number of requests at home. Source: B7."""

import asyncio
import secrets
import time
from collections.abc import Iterator
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Object, named
from kube import client
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.ratelimit import BURST, PER_SECOND
from reflector.kinds import configuration, events
from reflector.namespaces import KindController, ReflectedNamespaces, Rules
from sandbox import audit
from sandbox.controlplane import Plane
from tests import factories
from tests.conftest import size_of
from tests.reflector.mapped import offloaded_pairs

pytestmark = pytest.mark.cluster

EVENTS: Final = size_of("PYLIQO_TEST_EVENTS", 300, 5000)
ORDINARY: Final = min(EVENTS // 30, 1000)
AT_ONCE: Final = 20
WITHIN_S: Final = 300
HOME: Final = "pyliqo-flooded-home"


def event_about(namespace: str, about: str, name: str) -> Object:
    involved = {"apiVersion": "v1", "kind": "ConfigMap", "name": about, "namespace": namespace}
    body = {"involvedObject": involved, "type": "Warning", "reason": "Flood", "message": "x" * 900}
    return named(keys.EVENT, Key(namespace, name), **body)


def flood(namespace: str) -> Iterator[Object]:
    for number in range(EVENTS):
        yield event_about(namespace, "loud", f"loud.{number}")


async def ordinary(server: ClusterClient, stem: str, run: str, count: int) -> list[float]:
    """Create ConfigMaps one after the other; return the seconds until each is on the provider."""
    took = list[float]()
    for name in (f"{run}-{number}" for number in range(count)):
        fields = f"metadata.name={name}"
        of = Selection(keys.CONFIG_MAP, Object, f"{stem}-remote", fields=fields)
        listing, began = await server.list(of), time.monotonic()
        await server.create(keys.CONFIG_MAP, factories.config_map(stem, name))
        async with asyncio.timeout(WITHIN_S):
            async for change in server.watch(of, listing.version):
                if change.key.name == name:
                    break
        took.append(time.monotonic() - began)
    return sorted(took)


def quantiles(took: list[float]) -> str:
    p50, p99 = (took[min(len(took) - 1, len(took) * part // 100)] * 1000 for part in (50, 99))
    return f"P50 {p50:.0f} ms, P99 {p99:.0f} ms of {len(took)}"


async def test_a_flood_of_events_costs_home_its_share_and_drowns_no_other(
    plane: Plane, crds: None
) -> None:
    stem = f"test-{secrets.token_hex(4)}"
    remote = f"{stem}-remote"
    async with (
        client.connect(plane.kubeconfig, user_agent="tests") as server,
        client.connect(plane.kubeconfig, user_agent=HOME) as home,
        client.connect(plane.kubeconfig, user_agent="pyliqo-flooded-provider") as foreign,
    ):
        identity = await offloaded_pairs(server, stem, "loud", "quiet")
        forges = (events.EVENT_REFLECTION, configuration.CONFIG_MAP_REFLECTION)
        loops = [KindController(forge, Rules(), lambda *_: None, 3) for forge in forges]
        reflecting = ReflectedNamespaces(identity, loops, home, foreign)
        running = asyncio.create_task(reflecting.run())
        log, began = audit.Log(plane.audit_log), time.monotonic()
        try:
            calm = await ordinary(server, stem, "calm", ORDINARY)
            waiting = asyncio.Semaphore(AT_ONCE)

            async def make(one: Object) -> None:
                async with waiting:
                    await server.create(keys.EVENT, one)

            beside, _ = await asyncio.gather(
                ordinary(server, stem, "beside", ORDINARY),
                asyncio.gather(*map(make, flood(remote))),
            )
            await server.create(keys.EVENT, event_about(remote, "quiet", "quiet.0"))
            await _comes(server, stem, "quiet")
            lasted_s = time.monotonic() - began
        finally:
            running.cancel()
            await asyncio.wait([running])
        calls = [
            call
            for call in log.settled(plane.api)
            if call.agent == HOME
            and call.resource == "events"
            and call.verb not in {"list", "watch"}
        ]
        found = (await server.list(Selection(keys.EVENT, Object, stem))).items.values()

    allowed = BURST + lasted_s * PER_SECOND
    about = [one["involvedObject"]["name"] for one in found]
    print(f"{EVENTS} Events in {lasted_s:.1f} s: {len(found)} came, {len(calls)} requests at home")  # noqa: T201
    print(f"ConfigMaps: calm {quantiles(calm)}; beside the flood {quantiles(beside)}")  # noqa: T201
    assert about.count("quiet") == 1
    assert 0 < about.count("loud") <= allowed
    assert len(calls) <= 2 * (allowed + 1), "a look and a write each"


async def _comes(server: ClusterClient, namespace: str, about: str) -> None:
    """Wait until an Event about ``about`` is there, by a watch."""
    of = Selection(keys.EVENT, Object, namespace)
    async with asyncio.timeout(WITHIN_S):
        listing = await server.list(of)
        if any(one["involvedObject"]["name"] == about for one in listing.items.values()):
            return
        async for change in server.watch(of, listing.version):
            if change.object and change.object["involvedObject"]["name"] == about:
                return
