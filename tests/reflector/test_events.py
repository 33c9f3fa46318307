"""Which Events come home, how, and how many."""

from typing import Any

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from apis.offloading import ReflectionPolicy as Policy
from kube.cluster import Selection
from reflector.kinds import events
from reflector.kinds.contract import ReflectionContext
from reflector.kinds.events import Lived
from reflector.patience import Patience, RateLimitedReader
from tests import factories
from tests.fakes import FakeCluster
from tests.reflector.looks import Seen, lived
from tests.reflector.pairs import PAIR, World

META = {"name": "web", "namespace": "foo", "uid": "at-home"}
POD = lived({"metadata": META, "spec": {}})
ELSEWHERE = {"kind": "Pod", "namespace": "kube-system"}


def told(kind: str = "Pod", name: str = "web", **rest: Any) -> Object:
    involved = {"kind": kind, "name": name, "namespace": "foo-rome", "uid": "over-there"}
    body: Object = {
        "involvedObject": {**involved, "fieldPath": "spec.containers{main}"},
        "type": "Warning",
        "reason": "BackOff",
        "message": "back-off restarting",
        "count": 3,
        "firstTimestamp": "2025-01-31T12:00:00Z",
        "lastTimestamp": "2025-01-31T12:01:00Z",
        "source": {"component": "kubelet", "host": "milan-1"},
    }
    return named(keys.EVENT, Key("foo-rome", "web.1"), **{**body, **rest})


def events_context(policy: Policy = Policy.RELEVANT, pod: Lived = POD) -> ReflectionContext:
    root = factories.config_map("foo", keys.ROOT_CA_CONFIG_MAP)
    config = factories.config_map("foo", "settings")
    root["metadata"]["uid"] = config["metadata"]["uid"] = "1"
    return ReflectionContext(PAIR, policy, lister=Seen(pods=[pod], configmaps=[root, config]))


@pytest.mark.parametrize(
    ("remote", "comes", "asked"),
    [
        (told(), True, "web"),
        (told("ShadowPod"), True, "web"),
        (told("ConfigMap", "settings", type="Normal"), True, ""),
        (told("ConfigMap", "kube-root-ca.crt.rome"), True, ""),
        (told(name="other"), False, "other"),
        (told("Node"), False, ""),
        (told(involvedObject={**ELSEWHERE, "name": "web"}), False, ""),
        (told(metadata={"annotations": {keys.SKIP_REFLECTION: "true"}}), False, ""),
        (told(involvedObject={}), False, ""),
    ],
)
def test_only_what_concerns_an_object_of_home_comes_and_pods_alone_are_asked_for(
    *, remote: Object, comes: bool, asked: str
) -> None:
    remote["metadata"].setdefault("name", "web.1")
    read = events.EVENT_REFLECTION.rate_limited_read

    assert (events.event_stays(remote, events_context()) is None) is comes
    assert read
    assert read.about(remote, events_context()) == (Key("foo", asked) if asked else None)


def lived_pod(ready: str = "", phase: str = "Running", of: str = "over-there") -> Lived:
    """Return the pod at home, which began at 12:00:00 and is Ready since then."""
    noted = {"annotations": {keys.REMOTE_POD: f"{of} 0"}} if of else {}
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    since = {"lastTransitionTime": f"2025-01-31T{ready}Z"} if ready else {}
    status = {"phase": phase, "conditions": [{**condition, **since}]}
    began = {} if phase == "Pending" else {"startTime": "2025-01-31T12:00:00Z"}
    return lived({"metadata": {**META, **noted}, "status": {**began, **status}})


def normal(at: str, reason: str = "Pulled", **rest: Any) -> Object:
    return told(type="Normal", reason=reason, lastTimestamp=f"2025-01-31T{at}Z", **rest)


@pytest.mark.parametrize(
    ("remote", "local", "comes"),
    [
        (normal("12:00:05"), lived_pod("12:00:09"), False),
        (normal("12:00:05"), lived_pod("12:00:11"), True),
        (normal("12:00:05"), lived_pod(), True),
        (normal("12:00:05"), lived_pod(phase="Pending"), True),
        (normal("12:00:05"), lived_pod("12:00:09", of=""), False),
        (normal("12:00:40", "Killing"), lived_pod("12:00:09"), True),
        (normal("12:00:40", "Created"), lived_pod("12:00:09"), True),
        (normal("12:00:05"), lived_pod("12:00:09", phase="Succeeded"), True),
        (normal("12:00:40", "Killing"), lived_pod("12:00:09", of="another"), False),
        (normal("then"), lived_pod("12:00:09"), False),
        (told(type="Normal", lastTimestamp=7, reason=None), lived_pod("12:00:09"), False),
    ],
)
def test_of_a_pod_that_was_ready_soon_the_start_stays_there_and_nothing_else(
    *, remote: Object, local: Lived, comes: bool
) -> None:
    assert (events.event_stays(remote, events_context(pod=local)) is None) is comes
    assert events.event_stays(remote, events_context(Policy.DENY_LIST, local)) is None
    assert events.event_stays(remote, events_context(Policy.ALLOW_LIST, local))


async def test_events_wait_for_their_pod_and_only_what_is_asked_is_read() -> None:
    world = Watched()
    await world.happens("Scheduled", "Pulling")
    assert world.reads() == {"get": 0, "list": 0}
    assert world.again_s == [10.0, 10.0]

    world.now = 9.0
    await world.happens("Pulled")
    world.now = 10.0
    await world.look()
    assert world.events() == ["Pulled", "Pulling", "Scheduled"], "it is not Ready, and that is news"
    assert world.reads() == {"get": 1, "list": 0}

    await world.happens("Started")
    assert "Started" in world.events(), "no more of it waits"


async def test_a_pod_that_is_ready_soon_costs_no_write_and_one_read() -> None:
    world = Watched()
    await world.happens("Scheduled", "Pulled", "Created", "Started")
    world.now = 3.0
    await world.home.patch_status(keys.POD, Key("foo", "web"), READY)
    world.now = 20.0
    await world.look()
    assert world.events() == []
    assert world.reads() == {"get": 1, "list": 0}

    await world.happens("Killing")
    assert world.events() == []
    world.now = 25.0
    await world.look()
    assert world.events() == ["Killing"]
    assert world.reads() == {"get": 0, "list": 0}, "of this pod enough is known"


async def test_many_pods_are_asked_for_together() -> None:
    world = Watched()
    names = [f"web-{number}" for number in range(200)]
    for name in names:
        await world.home.create(keys.POD, factories.pod("foo", name))
        await world.happens("Scheduled", name=name)
    world.now = 10.0
    await world.look()

    assert len(world.events()) == len(names)
    assert world.reads() == {"get": 25, "list": 1}


async def test_a_namespace_is_listed_every_five_seconds_at_most() -> None:
    server, now = FakeCluster(), [0.0]
    reader = RateLimitedReader(server, Selection(keys.POD, Lived, "foo"), lambda: now[0])

    async def ask(number: int) -> list[float]:
        """Return in how many seconds to try again, for so many pods."""
        return [await reader.ask(Key("foo", f"web-{one}"), now[0]) for one in range(number)]

    assert set(await ask(100)) == {0.0}
    now[0] = 1.0
    assert max(await ask(100)) == 4.0
    assert server.requests["list", "pods"] == 1
    now[0] = 5.0
    assert set(await ask(100)) == {0.0}
    assert server.requests["list", "pods"] == 2


READY: Object = {
    "phase": "Running",
    "startTime": "2025-01-31T12:00:00Z",
    "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-31T12:00:03Z"}
    ],
}


class Watched(World):
    """A pod at home, the Events about it on the provider, and who looks at them as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.again_s: list[float | None] = []
        self._due: dict[Key, float] = {}
        clock = lambda: self.now  # noqa: E731  # a clock
        read = events.EVENT_REFLECTION.rate_limited_read
        assert read
        reader = RateLimitedReader(self.home, Selection(keys.POD, Lived, "foo"), clock)
        look = Seen()
        look.recent = reader.get  # type: ignore[method-assign]  # what was asked for
        context = ReflectionContext(PAIR, Policy.RELEVANT, lister=look)
        self._reflection = self.reflected(events.EVENT_REFLECTION, context)
        self._reflection.patience = Patience(read, context, reader, clock)

    async def happens(self, *reasons: str, name: str = "web") -> None:
        """Let the provider tell so, a second apart, and somebody look at it."""
        where = Key("foo", name)
        if await self.home.get(keys.POD, where) is None:
            noted = {"annotations": {keys.REMOTE_POD: "over-there 0"}}
            await self.home.create(keys.POD, factories.pod(*where, metadata=noted))
        self.home.requests.clear()
        for reason in reasons:
            at = f"12:00:{int(self.now):02}"
            made = normal(at, reason, name=name, count=1)
            made["metadata"]["name"] = f"{name}.{reason.lower()}"
            await self.foreign.create(keys.EVENT, made)
            self._due[objects.key_of(made)] = self.now
        await self.look()

    async def look(self) -> None:
        for key, due in list(self._due.items()):
            if due <= self.now:
                del self._due[key]
                again_s = await self._reflection.reconcile(key)
                self.again_s.append(again_s)
                if again_s is not None:
                    self._due[key] = self.now + again_s

    def events(self) -> list[str]:
        """Return the reasons of what came home."""
        found = (one for (kind, _), one in self.home.everything().items() if kind == keys.EVENT)
        return sorted(str(one["reason"]) for one in found)

    def reads(self) -> dict[str, int]:
        return {verb: self.home.requests[verb, "pods"] for verb in ("get", "list")}


def test_the_copy_is_on_the_object_at_home() -> None:
    twin = events.local_event(told(), events_context())

    assert twin["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "foo",
        "name": "web",
        "uid": "at-home",
        "fieldPath": "spec.containers{main}",
    }
    assert twin["source"] == {"component": "kubelet", "host": "milan (remote)"}
    assert twin["metadata"]["namespace"] == "foo"
    assert twin["metadata"]["name"] != "web.1"
    assert twin["metadata"]["labels"] == PAIR.labels()
    assert (twin["count"], twin["lastTimestamp"]) == (3, "2025-01-31T12:01:00Z")


async def test_what_happens_again_is_one_event_at_home_and_one_write_more() -> None:
    world, there = World(), Key("foo-rome", "web.1")
    home, foreign = world.home, world.foreign
    reflection = world.reflected(events.EVENT_REFLECTION, events_context())
    await foreign.create(keys.EVENT, told())
    await reflection.reconcile(there)
    [(_, copy)] = home.everything()
    seen = []

    for changes in ({"count": 4, "lastTimestamp": "2025-01-31T12:02:00Z"}, {}):
        await foreign.patch(keys.EVENT, there, changes)
        await reflection.reconcile(there)
        seen.append({verb: home.requests[verb, "events"] for verb in ("create", "apply", "patch")})

    assert seen == [{"create": 0, "apply": 2, "patch": 0}] * 2
    [(where, made)] = home.everything().items()
    assert where == (keys.EVENT, copy)
    assert (made["count"], made["lastTimestamp"]) == (4, "2025-01-31T12:02:00Z")


def test_newer_events_say_the_same_in_other_fields() -> None:
    remote = told(
        count=None,
        firstTimestamp=None,
        lastTimestamp=None,
        eventTime="2025-01-31T12:00:00.123456Z",
        series={"count": 4, "lastObservedTime": "2025-01-31T12:02:00.5Z"},
        source={},
        reportingComponent="default-scheduler",
    )

    twin = events.local_event(remote, events_context())

    assert (twin["count"], twin["firstTimestamp"]) == (4, "2025-01-31T12:00:00Z")
    assert twin["lastTimestamp"] == "2025-01-31T12:02:00Z"
    assert twin["source"] == {"component": "default-scheduler", "host": "milan (remote)"}


def test_texts_of_the_provider_are_clamped() -> None:
    twin = events.local_event(
        told(message="x" * 100_000, reason="y" * 1000, type="Fatal"), events_context()
    )

    assert (len(twin["message"]), len(twin["reason"])) == (1024, 128)
    assert twin["type"] == "Normal"


def test_texts_of_the_provider_are_escaped_and_its_numbers_have_a_range() -> None:
    """Anybody who reads Events in a terminal sees what is there."""
    odd, path = "a\x1b[2Jb\u202ec", "p" * 1_000_000
    remote = told(
        reason=odd, message=odd, action=odd, count=2**40, firstTimestamp="soon", lastTimestamp=7,
        source={"component": odd},
    )  # fmt: skip
    remote["involvedObject"]["fieldPath"] = path + odd
    shown = "a\\u001b[2Jb\\u202ec"

    twin = events.local_event(remote, events_context())

    assert {twin[name] for name in ("reason", "message", "action")} == {shown}
    assert twin["source"]["component"] == shown
    assert twin["involvedObject"]["fieldPath"] == path[:256]
    assert twin["count"] == 1
    assert "firstTimestamp" not in twin
    assert "lastTimestamp" not in twin


def test_what_is_no_text_is_left_out() -> None:
    remote = told(reason=["a"], message={"b": 1}, source={"component": 7})
    remote["involvedObject"]["fieldPath"] = 7

    twin = events.local_event(remote, events_context())

    assert {"reason", "message"}.isdisjoint(twin)
    assert twin["source"]["component"] == "milan"
    assert "fieldPath" not in twin["involvedObject"]
