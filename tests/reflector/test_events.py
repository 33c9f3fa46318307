"""Which Events come home, how, and how many."""

from typing import Any

import pytest

from apis import keys
from apis.objects import Key, Object, named
from apis.pairs import Pair
from kube.cache import CachedCluster
from reflector.forge import event
from reflector.forge.contract import Scene
from reflector.pace import Pace
from reflector.reflection import Ends, Reflection
from tests import factories
from tests.fakes import FakeCluster
from tests.reflector.looks import Seen, placed

PAIR = Pair("rome", "milan", "foo", "foo-rome")
POD = placed({"metadata": {"name": "web", "namespace": "foo", "uid": "at-home"}, "spec": {}})


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


def scene() -> Scene:
    root = factories.config_map("foo", keys.ROOT_CA_CONFIG_MAP)
    config = factories.config_map("foo", "settings")
    root["metadata"]["uid"] = config["metadata"]["uid"] = "1"
    return Scene(PAIR, look=Seen(pods=[POD], configmaps=[root, config]))


@pytest.mark.parametrize(
    ("remote", "comes"),
    [
        (told(), True),
        (told("ShadowPod"), True),
        (told(type="Normal"), False),
        (told("ConfigMap", "settings", type="Normal"), True),
        (told("ConfigMap", "kube-root-ca.crt.rome"), True),
        (told(name="other"), False),
        (told("Node"), False),
        (told(involvedObject={"kind": "Pod", "name": "web", "namespace": "kube-system"}), False),
        (told(metadata={"annotations": {keys.SKIP_REFLECTION: "true"}}), False),
        (told(involvedObject={}), False),
    ],
)
def test_only_what_concerns_an_object_of_home_comes(*, remote: Object, comes: bool) -> None:
    remote["metadata"].setdefault("name", "web.1")

    assert (event.stays(remote, scene()) is None) is comes


def test_the_copy_is_on_the_object_at_home() -> None:
    twin = event.twin(told(), scene())

    assert twin["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "foo",
        "name": "web",
        "uid": "at-home",
        "fieldPath": "spec.containers{main}",
    }
    assert twin["source"] == {"component": "kubelet (remote)"}
    assert twin["metadata"]["namespace"] == "foo"
    assert twin["metadata"]["name"] != "web.1"
    assert twin["metadata"]["labels"] == PAIR.labels()
    assert (twin["count"], twin["lastTimestamp"]) == (3, "2025-01-31T12:01:00Z")


async def test_what_happens_again_is_one_event_at_home_and_one_write_more() -> None:
    home, foreign = FakeCluster(), FakeCluster()
    ends = Ends(CachedCluster(foreign), CachedCluster(home), lambda *_: None)
    reflection = Reflection(event.FORGE, scene(), ends)
    there = Key("foo-rome", "web.1")
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

    twin = event.twin(remote, scene())

    assert (twin["count"], twin["firstTimestamp"]) == (4, "2025-01-31T12:00:00Z")
    assert twin["lastTimestamp"] == "2025-01-31T12:02:00Z"
    assert twin["source"] == {"component": "default-scheduler (remote)"}


def test_texts_of_the_provider_are_clamped() -> None:
    twin = event.twin(told(message="x" * 100_000, reason="y" * 1000, type="Fatal"), scene())

    assert (len(twin["message"]), len(twin["reason"])) == (1024, 128)
    assert twin["type"] == "Normal"


def test_a_flood_about_one_object_does_not_drown_the_others() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])

    flood = sum(pace.allows("Pod/web") for _ in range(100_000))
    others = pace.allows("Pod/api")
    now[0] = 10.0
    later = sum(pace.allows("Pod/web") for _ in range(1_000))

    assert (flood, others, later) == (25, True, 10)
