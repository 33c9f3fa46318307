"""Queues, workers and events between an informer and a real API server.

Source: docs/parity.md C-14 to C-19, C-29, C-34, C-37.
"""

import asyncio
import itertools
import logging
import secrets
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named, uid
from kube import client, errors, metrics, transport
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.controller import Runner, WatchSource
from kube.events import EVERY_S, EventRecorder
from kube.informer import Informer
from kube.queue import Queue
from sandbox.controlplane import Plane
from tests.conftest import size_of
from tests.factories import config_map, secret
from tests.kube.running import Gate, Time, dice, running, some_at_once, turns, until, until_so
from tests.kube.serverside import connected, made
from tests.kubelet.toll import kubeconfig_as

pytestmark = pytest.mark.cluster

NAMES: Final = "abcd"
KINDS: Final = (keys.CONFIG_MAP, keys.SECRET)


def informer_of(kind: Kind, namespace: str) -> Informer[Object]:
    return Informer(Selection(kind, Object, namespace, fields="metadata.name!=kube-root-ca.crt"))


class Copies:
    """What ConfigMap and Secret of a name say in one namespace, a ConfigMap of another becomes."""

    def __init__(self, cluster: ClusterClient, source: str, copy: str) -> None:
        self.cluster, self.source, self.copy = cluster, source, copy
        self.informers = [informer_of(kind, source) for kind in KINDS]
        self.working: Counter[Key] = Counter()
        self.most = 0
        self.runs = 0

    async def reconcile(self, key: Key) -> float | None:
        self.runs += 1
        self.working[key] += 1
        self.most = max(self.most, self.working[key])
        try:
            await self._copy(key)
        finally:
            self.working[key] -= 1
        return None

    async def _copy(self, key: Key) -> None:
        there = [informer.get(key) for informer in self.informers]
        target = Key(self.copy, key.name)
        data = {
            f"{kind.plural}.{name}": str(value)
            for kind, obj in zip(KINDS, there, strict=True)
            for name, value in ((obj or {}).get("data") or {}).items()
        }
        found = await self.cluster.get_live(keys.CONFIG_MAP, target)
        if any(there):
            wanted = config_map(*target, **data)
            if not found or (found.get("data") or {}) != data:
                await self.cluster.apply(keys.CONFIG_MAP, wanted, manager="copies")
        elif found:
            await self.cluster.delete(keys.CONFIG_MAP, target, uid=uid(found))

    def wanted(self) -> dict[str, Object]:
        """Return what has to be there, by what is in the caches."""
        found: dict[str, Object] = {}
        for kind, informer in zip(KINDS, self.informers, strict=True):
            for key, obj in informer.items().items():
                data = found.setdefault(key.name, {})
                data |= {f"{kind.plural}.{name}": v for name, v in (obj.get("data") or {}).items()}
        return found


async def contents(cluster: ClusterClient, kind: Kind, namespace: str) -> dict[Key, Object]:
    return (await cluster.list(informer_of(kind, namespace).selection)).items


async def copied(copies: Copies, direct: ClusterClient) -> bool:
    """Whether caches and copy are as the server has it, and nobody changed what is cached."""
    for kind, informer in zip(KINDS, copies.informers, strict=True):
        if dict(informer.items()) != await contents(direct, kind, copies.source):
            return False
    there = await contents(direct, keys.CONFIG_MAP, copies.copy)
    return {key.name: obj.get("data") or {} for key, obj in there.items()} == copies.wanted()


async def change_at_random(cluster: ClusterClient, namespace: str, seed: int) -> None:
    """Make, change or remove one of a few objects of two kinds."""
    chance = dice(seed)
    kind, key = chance.choice(KINDS), Key(namespace, chance.choice(NAMES))
    there = await cluster.get_live(kind, key)
    if there is None:
        make = config_map if kind == keys.CONFIG_MAP else secret
        await cluster.create(kind, make(*key, x="MA=="))
    elif chance.random() < 0.6:
        value = chance.choice(("MQ==", "Mg==", "Mw=="))
        await cluster.patch(kind, key, {"data": {"x": value}})
    else:
        await cluster.delete(kind, key, uid=uid(there))


@pytest.mark.parametrize("seed", range(3))
async def test_however_changes_of_two_kinds_come_the_end_is_the_same(
    plane: Plane, gate: Gate, seed: int
) -> None:
    """With cuts between, and all of it once more as a resync, which writes nothing."""
    async with connected(plane) as direct, connected(plane, gate) as through:
        copies = Copies(through, await made(direct, plane), await made(direct, plane))
        sources = [WatchSource(informer) for informer in copies.informers]
        runner = Runner("copies", copies, sources, workers=4)
        followed = (informer.run(through) for informer in copies.informers)
        async with running(*followed, runner.run()):
            for number in range(30):
                if number % 10 == 5:
                    await gate.shut()
                await change_at_random(direct, copies.source, 1000 * seed + number)
                if number % 10 == 8:
                    await gate.open()
            await until_so(lambda: copied(copies, direct))
            before = await contents(direct, keys.CONFIG_MAP, copies.copy)
            for informer in copies.informers:
                informer.resync()
            await until(lambda: runner.is_synced() and not any(copies.working.values()))
            await until_so(lambda: copied(copies, direct))
            after = await contents(direct, keys.CONFIG_MAP, copies.copy)

        fresh = Copies(direct, copies.source, await made(direct, plane))
        again = Runner("fresh", fresh, [WatchSource(informer) for informer in fresh.informers])
        async with running(*(one.run(direct) for one in fresh.informers), again.run()):
            await until(lambda: all(one.synced.is_set() for one in fresh.informers))
            await until_so(lambda: copied(fresh, direct))

    assert after == before
    assert copies.most <= 1, "two workers on one key"


async def test_a_key_that_changes_often_is_looked_at_less_often_and_last_at_the_end(
    plane: Plane,
) -> None:
    async with connected(plane) as cluster:
        copies = Copies(cluster, await made(cluster, plane), await made(cluster, plane))
        runner = Runner("often", copies, [WatchSource(one) for one in copies.informers], workers=8)
        keys_ = [Key(copies.source, name) for name in NAMES]
        for key in keys_:
            await cluster.create(keys.CONFIG_MAP, config_map(*key, x="0"))

        async def patch(number: int) -> None:
            key = keys_[number % len(keys_)]
            await cluster.patch(keys.CONFIG_MAP, key, {"data": {"x": str(number)}})

        async with running(*(one.run(cluster) for one in copies.informers), runner.run()):
            await until(lambda: copies.runs >= len(keys_))
            await some_at_once(patch(number) for number in range(200))
            for number in range(200, 204):
                await patch(number)
            await until_so(lambda: copied(copies, cluster))
        there = await contents(cluster, keys.CONFIG_MAP, copies.copy)

    assert sorted(obj["data"]["configmaps.x"] for obj in there.values()) == [
        "200", "201", "202", "203",
    ]  # fmt: skip
    assert copies.most == 1
    assert copies.runs <= 204 + len(keys_)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[::2])
async def test_no_worker_runs_before_all_informers_have_synced(
    plane: Plane, order: tuple[int, ...]
) -> None:
    async with connected(plane) as cluster:
        namespace = await made(cluster, plane)
        copies = Copies(cluster, namespace, await made(cluster, plane))
        needed = informer_of(keys.SERVICE_ACCOUNT, namespace)
        informers = [*copies.informers, needed]
        await cluster.create(keys.CONFIG_MAP, config_map(namespace, "a"))
        sources = [WatchSource(informer) for informer in copies.informers]
        runner = Runner("barrier", copies, sources, wait_for=[needed])
        async with running(runner.run()) as tasks:
            for number in order:
                await turns()
                assert not runner.is_synced()
                assert copies.runs == 0
                tasks.append(asyncio.ensure_future(informers[number].run(cluster)))
                await until(informers[number].synced.is_set)
            await until(lambda: copies.runs)

    assert runner.is_synced()


class Refused:
    """Applies what its test wants, which the server may not take."""

    def __init__(self, cluster: ClusterClient, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.is_wrong = True
        self.done = 0

    async def reconcile(self, key: Key) -> float | None:
        name = "Not_A_Name" if self.is_wrong else "right"
        await self.cluster.apply(keys.CONFIG_MAP, config_map(self.namespace, name), manager="tests")
        self.done += 1
        return None


async def test_what_a_server_refuses_is_tried_ever_later_and_soon_again_once_it_was_done(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    def waits() -> list[float]:
        found = [record for record in caplog.records if record.name == "kube.controller"]
        return [vars(record)["retry_in_s"] for record in found]

    async with connected(plane) as cluster:
        refused = Refused(cluster, await made(cluster, plane))
        queue: Queue[Key] = Queue()
        runner, key = Runner("refused", refused, [], queue=queue), Key("", "any")
        with caplog.at_level(logging.WARNING):
            async with running(runner.run()):
                runner.enqueue(key)
                await until(lambda: len(waits()) >= 6)
                refused.is_wrong = False
                await until(lambda: refused.done)
                await until(lambda: queue.failures(key) == 0)
                first = waits()
                refused.is_wrong = True
                runner.enqueue(key)
                await until(lambda: len(waits()) > len(first))

    assert first == [round(0.005 * 2**number, 3) for number in range(len(first))]
    assert waits()[len(first)] == 0.005
    labels = {"controller": "refused"}
    assert metrics.REGISTRY.get_sample_value("pyliqo_queue_retries_total", labels) == len(waits())


async def test_the_same_again_is_counted_and_written_once_in_ten_seconds(plane: Plane) -> None:
    async with connected(plane) as cluster:
        namespace, time = await made(cluster, plane), Time()
        about = await cluster.create(keys.CONFIG_MAP, config_map(namespace, "about"))
        recorder = EventRecorder(cluster, "test", "0", clock=time)

        async def written() -> list[Object]:
            return list(
                (await cluster.list(Selection(keys.EVENT, Object, namespace))).items.values()
            )

        async def until_counted(count: int) -> Object:
            async with asyncio.timeout(300):
                while True:
                    found = await written()
                    if found and found[0]["count"] == count:
                        return found[0]
                    await asyncio.sleep(0.01)

        async with running(recorder.run()):
            recorder.event(keys.CONFIG_MAP, about, "Warning", "Why", "first")
            first = await until_counted(1)
            for number in range(99):
                recorder.event(keys.CONFIG_MAP, about, "Warning", "Why", f"again {number}")
                await turns()
            (same,) = await written()
            time.now += EVERY_S
            recorder.event(keys.CONFIG_MAP, about, "Warning", "Why", "last")
            last = await until_counted(101)
        found = await written()

    assert same == first
    assert (len(found), last["message"]) == (1, "last")


async def test_leases_and_nodes_do_not_wait_behind_the_rest(plane: Plane, gate: Gate) -> None:
    """Over a link that takes its time: they come with the first of the rest, not after all."""
    async with connected(plane) as direct, connected(plane, gate) as through:
        namespace = await made(direct, plane)
        gate.slow(lambda: 0.2, 10**9)
        bulk = [
            asyncio.ensure_future(through.get_live(keys.CONFIG_MAP, Key(namespace, f"n-{number}")))
            for number in range(3 * transport.BULK_AT_ONCE)
        ]
        await turns()
        await asyncio.gather(
            through.get_live(keys.LEASE, Key(namespace, "lease")),
            through.get_live(keys.NODE, Key("", namespace)),
        )
        done = sum(task.done() for task in bulk)
        await asyncio.gather(*bulk)

    assert done <= transport.BULK_AT_ONCE


async def test_what_is_done_on_a_server_is_measured(plane: Plane) -> None:
    kind = Kind("coordination.k8s.io", "v1", "Lease", "leases")

    def value(name: str, **labels: str) -> float:
        return metrics.REGISTRY.get_sample_value(name, labels) or 0

    async with connected(plane) as cluster:
        namespace = await made(cluster, plane)
        cached = value("pyliqo_informer_objects", resource=kind.resource)
        lists = value("pyliqo_informer_lists_total", resource=kind.resource, cause="start")
        created = value("pyliqo_requests_total", verb="create", resource=kind.plural, code="201")
        informer = Informer(Selection(kind, Object, namespace))
        async with running(informer.run(cluster)):
            for name in NAMES:
                await cluster.create(kind, named(kind, Key(namespace, name), spec={}))
            with pytest.raises(errors.AlreadyExistsError):
                await cluster.create(kind, named(kind, Key(namespace, "a"), spec={}))
            await until(lambda: len(informer.items()) == len(NAMES))

            assert value("pyliqo_informer_objects", resource=kind.resource) - cached == len(NAMES)
            assert value("pyliqo_informer_watches", resource=kind.resource) >= 1
            assert value(
                "pyliqo_informer_last_sign_of_life_timestamp_seconds", resource=kind.resource
            )

    now = value("pyliqo_informer_lists_total", resource=kind.resource, cause="start")
    assert now - lists == 1
    made_ = value("pyliqo_requests_total", verb="create", resource=kind.plural, code="201")
    assert made_ - created == len(NAMES)
    assert value("pyliqo_requests_total", verb="create", resource=kind.plural, code="409") >= 1


# What a real server does not let goes on by itself soon after it does, however much it is.
# ``PYLIQO_TEST_HELD=5000`` is the full size; ``-s`` shows the seconds. Source: docs/parity.md F-34.


HELD: Final = size_of("PYLIQO_TEST_HELD", 100, 5000)
FULL: Final = 5000
WITHIN_S: Final = 30.0
"""Promised for the full size; a smaller one says little of seconds."""
WORKERS: Final = 10


class Writes:
    """Creates a ConfigMap for each key."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.cluster = cluster
        self.done: set[Key] = set()
        self.refused: set[Key] = set()
        self.tries = 0

    async def reconcile(self, key: Key) -> float | None:
        self.tries += 1
        self.refused.add(key)
        await self.cluster.apply(
            keys.CONFIG_MAP, config_map(key.namespace, key.name), manager="tests"
        )
        self.done.add(key)
        return None


async def test_all_that_was_refused_goes_on_once_the_right_is_there(
    plane: Plane, tmp_path: Path
) -> None:
    namespace = f"held-{secrets.token_hex(4)}"
    path = tmp_path / "somebody.kubeconfig"
    path.write_text(kubeconfig_as(plane, "somebody", "nobodies"))
    subject = {"apiGroup": keys.ROLE_BINDING.group, "kind": "User", "name": "somebody"}
    binding = named(
        keys.ROLE_BINDING,
        Key(namespace, "writers"),
        roleRef={
            "apiGroup": keys.ROLE_BINDING.group,
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        subjects=[subject],
    )
    async with (
        client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as admin,
        client.connect(path, user_agent="pyliqo-tests") as cluster,
    ):
        await admin.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", namespace)))
        writes, queue = Writes(cluster), Queue[Key]()
        runner = Runner("held", writes, [], workers=WORKERS, queue=queue)
        async with running(runner.run()):
            for number in range(HELD):
                runner.enqueue(Key(namespace, f"held-{number}"))
            await until(lambda: writes.tries >= 4 * HELD and len(writes.refused) == HELD)
            before = writes.tries
            allowed = time.monotonic()
            await admin.create(keys.ROLE_BINDING, binding)
            await until(lambda: len(writes.done) == HELD)
            after_s = time.monotonic() - allowed
    sys.stderr.write(f"{HELD} went on in {after_s:.1f} s, by {writes.tries - before} tries\n")

    assert writes.tries - before <= 3 * HELD + 100 * WORKERS
    if HELD >= FULL:
        assert after_s <= WITHIN_S * HELD / FULL
