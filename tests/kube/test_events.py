"""Events tell a user what happened, seldom enough not to be a burden."""

import asyncio
from typing import Any

from apis import keys
from apis.objects import Kind, Object
from kube import errors
from kube.cluster import Cluster, Selection
from kube.events import EVERY_S, MAX_REMEMBERED, EventRecorder
from kube.ratelimit import Buckets
from tests.factories import node, pod
from tests.fakes import FakeCluster
from tests.kube.running import Time, running, turns, until


async def events(cluster: Cluster, namespace: str) -> list[Object]:
    return list((await cluster.list(Selection(keys.EVENT, Object, namespace))).items.values())


def wrote(cluster: FakeCluster) -> int:
    return sum(
        count for (verb, _), count in cluster.requests.items() if verb in {"create", "patch"}
    )


async def test_an_event_says_what_happened_to_what(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(keys.POD, pod(namespace))
    recorder = EventRecorder(cluster, "pyliqo-test", "pod-0", labels={"team": "a"})
    recorder.event(keys.POD, made, "Normal", "CreatedPod", "made it")
    written: list[Object] = []
    async with running(recorder.run()):
        while not written:
            written = await events(cluster, namespace)

    [event] = written
    assert event["involvedObject"]["kind"] == "Pod"
    assert event["involvedObject"]["uid"] == made["metadata"]["uid"]
    assert (event["type"], event["reason"], event["message"]) == ("Normal", "CreatedPod", "made it")
    assert event["source"] == {"component": "pyliqo-test"}
    assert event["reportingComponent"] == "pyliqo-test"
    assert event["metadata"]["labels"] == {"team": "a"}
    assert event["count"] == 1
    assert event["firstTimestamp"] == event["lastTimestamp"]


async def test_the_same_again_is_counted_and_written_once_in_ten_seconds() -> None:
    cluster, time = FakeCluster(), Time()
    made = pod("ns", metadata={"uid": "u"})
    recorder = EventRecorder(cluster, "test", "0", clock=time)

    def say(message: str) -> None:
        recorder.event(keys.POD, made, "Warning", "FailedReflection", message)

    async with running(recorder.run()):
        say("first")
        await until(lambda: wrote(cluster) == 1)
        for number in range(99):
            say(f"again {number}")
            await turns(2)
        assert wrote(cluster) == 1
        time.now += EVERY_S
        say("last")
        await until(lambda: wrote(cluster) == 2)
        await turns()

    [event] = await events(cluster, "ns")
    assert (event["count"], event["message"]) == (101, "last")


async def test_other_reasons_and_objects_are_events_of_their_own() -> None:
    cluster = FakeCluster()
    recorder = EventRecorder(cluster, "test", "0")
    one, two = pod("ns", metadata={"uid": "u1"}), pod("ns", metadata={"uid": "u2"})
    recorder.event(keys.POD, one, "Normal", "A", "")
    recorder.event(keys.POD, one, "Normal", "B", "")
    recorder.event(keys.POD, two, "Normal", "A", "")
    recorder.event(keys.NODE, node(), "Normal", "A", "")
    async with running(recorder.run()):
        await until(lambda: wrote(cluster) == 4)

    assert len(await events(cluster, "ns")) == 3
    assert len(await events(cluster, "default")) == 1


async def test_an_event_that_the_server_forgot_is_made_anew() -> None:
    cluster, time = FakeCluster(), Time()
    made = pod("ns", metadata={"uid": "u"})
    recorder = EventRecorder(cluster, "test", "0", clock=time)
    async with running(recorder.run()):
        recorder.event(keys.POD, made, "Normal", "A", "m")
        await until(lambda: wrote(cluster) == 1)
        [event] = await events(cluster, "ns")
        key = next(key for kind, key in cluster.everything() if kind == keys.EVENT)
        await cluster.delete(keys.EVENT, key, uid=event["metadata"]["uid"])
        time.now += EVERY_S
        recorder.event(keys.POD, made, "Normal", "A", "m")
        await until(lambda: cluster.requests["create", "events"] == 2)

    [event] = await events(cluster, "ns")
    assert event["count"] == 2


async def test_events_that_cannot_be_written_stop_nobody() -> None:
    cluster: Any = FakeCluster()
    cluster.fail("create", errors.NotReachableError("cut"))
    recorder = EventRecorder(cluster, "test", "0")
    async with running(recorder.run()):
        recorder.event(keys.POD, pod("ns", metadata={"uid": "u1"}), "Normal", "A", "m")
        await until(lambda: wrote(cluster) == 1)
        recorder.event(keys.POD, pod("ns", metadata={"uid": "u2"}), "Normal", "A", "m" * 9999)
        await until(lambda: wrote(cluster) == 2)
        await turns()

    [event] = await events(cluster, "ns")
    assert len(event["message"]) == 1024


class SlowCreates(FakeCluster):
    """A server that answers a create when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def create(self, kind: Kind, obj: Object) -> Object:
        self.asked.set()
        await self.let.wait()
        return await super().create(kind, obj)


async def test_a_flood_while_events_are_written_ends_nobody() -> None:
    cluster = SlowCreates()
    recorder = EventRecorder(cluster, "test", "0")

    def say(number: int) -> None:
        made = pod("ns", metadata={"uid": str(number)})
        recorder.event(keys.POD, made, "Warning", "QuotaExceeded", "wait")

    for number in range(10):
        say(number)
    async with running(recorder.run()):
        await cluster.asked.wait()
        for number in range(10, MAX_REMEMBERED + 20):
            say(number)
        cluster.let.set()
        await until(lambda: wrote(cluster) == MAX_REMEMBERED + 1)
        await turns()

    assert recorder.waiting == 0
    assert wrote(cluster) == MAX_REMEMBERED + 1


def test_a_flood_is_forgotten_from_its_beginning() -> None:
    recorder = EventRecorder(FakeCluster(), "test", "0")
    for number in range(MAX_REMEMBERED + 500):
        obj = pod("ns", metadata={"uid": str(number)})
        recorder.event(keys.POD, obj, "Normal", "A", "m")

    assert recorder.waiting == MAX_REMEMBERED


async def test_with_a_pace_a_flood_waits() -> None:
    cluster, time = FakeCluster(), Time()
    paced = Buckets(time, per_second=50, burst=100)
    recorder = EventRecorder(cluster, "test", "0", clock=time, pace=paced)
    for number in range(500):
        made = pod("ns", f"p{number}", metadata={"uid": f"u{number}"})
        recorder.event(keys.POD, made, "Warning", "RemoteTrouble", "x")
    async with running(recorder.run()):
        await until(lambda: wrote(cluster) == 100)
        await turns()
        assert wrote(cluster) == 100
        assert recorder.waiting == 400
