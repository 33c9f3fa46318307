"""What every Cluster promises; on the fake and on a real API server."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest

from apis import keys
from apis.objects import UNTRACKED, Key, Object, finalizers, is_terminating, labels, named, uid
from kube import cluster, errors
from kube.cluster import NO_VERSION, Cluster, Event, RollbackDetector, Selection
from kube.slim import Packed, PackedState, Slim
from tests.factories import config_map, node, pod
from tests.kube.running import Time
from tests.world import existing


def settings_in(namespace: str, **data: str) -> Object:
    return config_map(namespace, "settings", **data)


def where(namespace: str, name: str = "settings") -> Key:
    return Key(namespace, name)


async def next_of(events: AsyncGenerator[Event[Any], None]) -> Event[Any]:
    async with asyncio.timeout(300):
        while (event := await anext(events)).type == "BOOKMARK":
            pass
        return event


def configs(namespace: str, labels: str = "") -> Selection[Object]:
    return Selection(keys.CONFIG_MAP, Object, namespace, labels=labels)


async def mine(cluster: Cluster, namespace: str, selector: str) -> set[str]:
    listing = await cluster.list(configs(namespace, selector))
    return {key.name for key in listing.items}


async def test_absence_is_none(cluster: Cluster, namespace: str) -> None:
    assert await cluster.get(keys.CONFIG_MAP, where(namespace)) is None
    assert await cluster.get_live(keys.CONFIG_MAP, where(namespace)) is None


async def test_what_is_created_is_there(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(keys.CONFIG_MAP, settings_in(namespace, a="1"))

    found = await existing(cluster, keys.CONFIG_MAP, where(namespace))
    assert found["data"] == {"a": "1"}
    assert uid(found) == uid(made) != ""
    assert found["metadata"]["creationTimestamp"].endswith("Z")


async def test_a_name_is_taken_once(cluster: Cluster, namespace: str) -> None:
    await cluster.create(keys.CONFIG_MAP, settings_in(namespace))

    with pytest.raises(errors.AlreadyExistsError):
        await cluster.create(keys.CONFIG_MAP, settings_in(namespace))


async def test_a_name_can_be_generated(cluster: Cluster, namespace: str) -> None:
    obj = settings_in(namespace)
    del obj["metadata"]["name"]
    obj["metadata"]["generateName"] = "made-"

    one = await cluster.create(keys.CONFIG_MAP, obj)
    two = await cluster.create(keys.CONFIG_MAP, obj)

    assert one["metadata"]["name"].startswith("made-")
    assert one["metadata"]["name"] != two["metadata"]["name"]


async def test_nothing_is_created_in_no_namespace(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(errors.NotFoundError):
        await cluster.create(keys.CONFIG_MAP, settings_in("no-such-namespace"))


async def test_what_a_manager_stops_sending_goes(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(keys.CONFIG_MAP, settings_in(namespace, a="1", b="1"), manager="one")
    await cluster.apply(keys.CONFIG_MAP, settings_in(namespace, b="1", c="1"), manager="two")

    left = await cluster.apply(keys.CONFIG_MAP, settings_in(namespace, a="2"), manager="one")

    assert left["data"] == {"a": "2", "b": "1", "c": "1"}
    left = await cluster.apply(keys.CONFIG_MAP, settings_in(namespace, c="1"), manager="two")
    assert left["data"] == {"a": "2", "c": "1"}


async def test_the_fields_of_another_survive_a_hundred_applies(
    cluster: Cluster, namespace: str
) -> None:
    await cluster.apply(keys.CONFIG_MAP, settings_in(namespace, a="0"), manager="one")
    theirs = {"metadata": {"labels": {"theirs": "yes"}}, "data": {"b": "theirs"}}
    await cluster.patch(keys.CONFIG_MAP, where(namespace), theirs)

    for number in range(100):
        sent = settings_in(namespace, a=str(number))
        left = await cluster.apply(keys.CONFIG_MAP, sent, manager="one")

    assert left["data"] == {"a": "99", "b": "theirs"}
    assert labels(left) == {"theirs": "yes"}


async def test_an_apply_with_the_version_of_nothing_only_creates(
    cluster: Cluster, namespace: str
) -> None:
    sent = settings_in(namespace, a="1")
    sent = {**sent, "metadata": {**sent["metadata"], "resourceVersion": NO_VERSION}}
    made = await cluster.apply(keys.CONFIG_MAP, sent, manager="one")

    with pytest.raises(errors.ConflictError):
        await cluster.apply(keys.CONFIG_MAP, sent, manager="one")
    await cluster.patch(keys.CONFIG_MAP, where(namespace), {"data": {"a": "theirs"}})
    with pytest.raises(errors.ConflictError):
        await cluster.apply(keys.CONFIG_MAP, sent, manager="two")

    assert made["data"] == {"a": "1"}
    left = await existing(cluster, keys.CONFIG_MAP, where(namespace))
    assert left["data"] == {"a": "theirs"}


async def test_an_apply_with_a_uid_is_for_that_object_only(
    cluster: Cluster, namespace: str
) -> None:
    made = await cluster.apply(keys.CONFIG_MAP, settings_in(namespace, a="1"), manager="one")
    await cluster.delete(keys.CONFIG_MAP, where(namespace), uid=uid(made))
    other = await cluster.create(keys.CONFIG_MAP, settings_in(namespace, a="theirs"))
    sent = settings_in(namespace, a="2")
    sent = {**sent, "metadata": {**sent["metadata"], "uid": uid(made)}}

    with pytest.raises(errors.ConflictError):
        await cluster.apply(keys.CONFIG_MAP, sent, manager="one")

    assert await cluster.get_live(keys.CONFIG_MAP, where(namespace)) == other


async def test_a_field_that_another_took_over_stays(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(keys.CONFIG_MAP, settings_in(namespace, a="1", b="1"), manager="one")
    await cluster.patch(keys.CONFIG_MAP, where(namespace), {"data": {"a": "theirs"}})

    left = await cluster.apply(keys.CONFIG_MAP, settings_in(namespace, b="1"), manager="one")

    assert left["data"] == {"a": "theirs", "b": "1"}


async def test_what_was_created_whole_outlives_an_apply(cluster: Cluster, namespace: str) -> None:
    await cluster.create(keys.CONFIG_MAP, settings_in(namespace, a="1", b="1"))
    await cluster.apply(keys.CONFIG_MAP, settings_in(namespace, b="1"), manager="one")

    left = await cluster.apply(keys.CONFIG_MAP, settings_in(namespace, c="1"), manager="one")

    assert left["data"] == {"a": "1", "b": "1", "c": "1"}


async def test_what_the_server_adds_outlives_an_apply(cluster: Cluster, namespace: str) -> None:
    sent = named(keys.NAMESPACE, Key("", f"{namespace}-applied"))
    made = await cluster.apply(keys.NAMESPACE, sent, manager="one")

    left = await cluster.apply(keys.NAMESPACE, sent, manager="one")
    await cluster.delete(keys.NAMESPACE, Key("", f"{namespace}-applied"), uid=uid(made))

    assert left["status"] == made["status"] == {"phase": "Active"}


async def test_finalizers_and_owners_are_shared_item_by_item(
    cluster: Cluster, namespace: str
) -> None:
    def sent(finalizer: str, owner: str) -> Object:
        reference = {"apiVersion": "v1", "kind": "Node", "name": owner, "uid": f"uid-{owner}"}
        return settings_in(namespace) | {
            "metadata": {
                "name": "settings",
                "namespace": namespace,
                "finalizers": [finalizer],
                "ownerReferences": [reference],
            }
        }

    await cluster.apply(keys.CONFIG_MAP, sent("a.io/one", "one"), manager="one")
    both = await cluster.apply(keys.CONFIG_MAP, sent("a.io/two", "two"), manager="two")
    left = await cluster.apply(keys.CONFIG_MAP, settings_in(namespace), manager="one")

    assert sorted(finalizers(both)) == ["a.io/one", "a.io/two"]
    assert finalizers(left) == ["a.io/two"]
    assert [owner["name"] for owner in left["metadata"]["ownerReferences"]] == ["two"]


async def test_the_containers_of_a_pod_are_merged_by_name(cluster: Cluster, namespace: str) -> None:
    await cluster.create(keys.POD, pod(namespace))
    image = {"containers": [{"name": "main", "image": "httpd"}]}

    left = await cluster.apply(keys.POD, pod(namespace, spec=image), manager="one")

    assert [one["image"] for one in left["spec"]["containers"]] == ["httpd"]
    assert left["spec"]["automountServiceAccountToken"] is False


async def test_the_spec_of_a_pod_stays(cluster: Cluster, namespace: str) -> None:
    await cluster.create(keys.POD, pod(namespace))

    with pytest.raises(errors.InvalidError):
        await cluster.patch(keys.POD, where(namespace, "web"), {"spec": {"hostNetwork": True}})


async def test_twice_the_same_is_no_write(cluster: Cluster, namespace: str) -> None:
    once = await cluster.apply(keys.CONFIG_MAP, settings_in(namespace, a="1"), manager="one")
    twice = await cluster.apply(keys.CONFIG_MAP, settings_in(namespace, a="1"), manager="one")
    patched = await cluster.patch(keys.CONFIG_MAP, where(namespace), {"data": {"a": "1"}})

    versions = {obj["metadata"]["resourceVersion"] for obj in (once, twice, patched)}
    assert len(versions) == 1


async def test_a_patch_ends_that_a_server_keeps_who_wrote_what(
    cluster: Cluster, namespace: str
) -> None:
    await cluster.create(keys.CONFIG_MAP, settings_in(namespace))
    changes: Object = {"metadata": UNTRACKED, "data": {"a": "1"}}
    once = await cluster.patch(keys.CONFIG_MAP, where(namespace), changes)
    again = await cluster.patch(keys.CONFIG_MAP, where(namespace), {"data": {"a": "2"}})

    assert (once["data"]["a"], again["data"]["a"]) == ("1", "2")
    assert not once["metadata"].get("managedFields")
    assert not again["metadata"].get("managedFields")


async def test_a_patch_is_compare_and_swap_with_a_version(cluster: Cluster, namespace: str) -> None:
    old = await cluster.create(keys.CONFIG_MAP, settings_in(namespace, a="1"))
    version = old["metadata"]["resourceVersion"]
    swap = {"metadata": {"resourceVersion": version}, "data": {"a": "2"}}

    swapped = await cluster.patch(keys.CONFIG_MAP, where(namespace), swap)

    assert swapped["data"] == {"a": "2"}
    swap["data"] = {"a": "3"}
    with pytest.raises(errors.ConflictError):
        await cluster.patch(keys.CONFIG_MAP, where(namespace), swap)


async def test_a_patch_of_a_namesake_is_a_conflict(cluster: Cluster, namespace: str) -> None:
    await cluster.create(keys.CONFIG_MAP, settings_in(namespace))

    changes = {"metadata": {"uid": "another"}, "data": {"a": "1"}}
    with pytest.raises(errors.ConflictError):
        await cluster.patch(keys.CONFIG_MAP, where(namespace), changes)


async def test_null_removes_and_lists_are_replaced(cluster: Cluster, namespace: str) -> None:
    made = settings_in(namespace, a="1", b="1")
    made["metadata"]["finalizers"] = ["a.io/one", "a.io/two"]
    await cluster.create(keys.CONFIG_MAP, made)

    changes = {"metadata": {"finalizers": ["a.io/three"]}, "data": {"a": None}}
    left = await cluster.patch(keys.CONFIG_MAP, where(namespace), changes)

    assert left["data"] == {"b": "1"}
    assert finalizers(left) == ["a.io/three"]


async def test_a_write_to_what_is_not_there(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(errors.NotFoundError):
        await cluster.patch(keys.CONFIG_MAP, where(namespace), {"data": {"a": "1"}})
    with pytest.raises(errors.NotFoundError):
        await cluster.patch_status(keys.POD, where(namespace), {"phase": "Running"})


async def test_the_status_is_written_apart(cluster: Cluster, namespace: str) -> None:
    sent = pod(namespace, status={"phase": "Running"})
    made = await cluster.create(keys.POD, sent)
    at = where(namespace, "web")
    ignored = await cluster.patch(keys.POD, at, {"status": {"phase": "Running"}})

    status = {"phase": "Running", "message": "hello"}
    written = await cluster.patch_status(keys.POD, at, status)

    assert made["status"]["phase"] == ignored["status"]["phase"] == "Pending"
    assert written["status"]["phase"] == "Running"
    assert written["spec"] == made["spec"]


async def test_the_status_of_a_pod_takes_labels(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(keys.POD, pod(namespace))
    at = where(namespace, "web")
    metadata = {"uid": uid(made), "labels": {"shadow": "true"}}

    written = await cluster.patch_status(keys.POD, at, {"message": "m"}, metadata=metadata)

    assert labels(written) == {"shadow": "true"}
    with pytest.raises(errors.ConflictError):
        await cluster.patch_status(keys.POD, at, {"message": "n"}, metadata={"uid": "another"})


async def test_a_node_is_created_with_its_status(cluster: Cluster, namespace: str) -> None:
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    made = await cluster.create(keys.NODE, node(namespace, status={"capacity": capacity}))
    try:
        assert made["status"]["capacity"] == capacity
    finally:
        await cluster.delete(keys.NODE, Key("", namespace), uid=uid(made))


async def test_only_that_very_object_is_deleted(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(keys.CONFIG_MAP, settings_in(namespace))

    await cluster.delete(keys.CONFIG_MAP, where(namespace), uid="another")
    assert await cluster.get(keys.CONFIG_MAP, where(namespace))
    await cluster.delete(keys.CONFIG_MAP, where(namespace), uid=uid(made))
    assert await cluster.get(keys.CONFIG_MAP, where(namespace)) is None
    await cluster.delete(keys.CONFIG_MAP, where(namespace), uid=uid(made))


async def test_a_finalizer_holds_an_object(cluster: Cluster, namespace: str) -> None:
    obj = settings_in(namespace)
    obj["metadata"]["finalizers"] = ["a.io/hold"]
    made = await cluster.create(keys.CONFIG_MAP, obj)

    await cluster.delete(keys.CONFIG_MAP, where(namespace), uid=uid(made))
    held = await existing(cluster, keys.CONFIG_MAP, where(namespace))
    assert is_terminating(held)

    await cluster.patch(keys.CONFIG_MAP, where(namespace), {"metadata": {"finalizers": None}})
    assert await cluster.get(keys.CONFIG_MAP, where(namespace)) is None


async def test_a_pod_on_a_node_ends_gracefully(cluster: Cluster, namespace: str) -> None:
    spec = pod()["spec"] | {"nodeName": "somewhere"}
    made = await cluster.create(keys.POD, pod(namespace, spec=spec))
    at = where(namespace, "web")

    await cluster.delete(keys.POD, at, uid=uid(made), grace_s=20)
    ending = await existing(cluster, keys.POD, at)
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 20
    assert is_terminating(ending)

    await cluster.delete(keys.POD, at, uid=uid(made), grace_s=0)
    assert await cluster.get(keys.POD, at) is None


async def test_a_pod_on_no_node_is_gone_at_once(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(keys.POD, pod(namespace))

    await cluster.delete(keys.POD, where(namespace, "web"), uid=uid(made))

    assert await cluster.get(keys.POD, where(namespace, "web")) is None


async def test_eviction_deletes(cluster: Cluster, namespace: str) -> None:
    await cluster.create(keys.POD, pod(namespace))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}

    await cluster.post(keys.POD, where(namespace, "web"), "eviction", body)

    assert await cluster.get(keys.POD, where(namespace, "web")) is None


async def test_binding_gives_a_pod_its_node(cluster: Cluster, namespace: str) -> None:
    await cluster.create(keys.POD, pod(namespace))
    at = where(namespace, "web")
    body = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "far"}}

    await cluster.post(keys.POD, at, "binding", {"apiVersion": "v1", "kind": "Binding"} | body)

    bound = await existing(cluster, keys.POD, at)
    assert bound["spec"]["nodeName"] == "far"


async def test_a_token_is_issued(cluster: Cluster, namespace: str) -> None:
    at = where(namespace, "account")
    await cluster.create(keys.SERVICE_ACCOUNT, named(keys.SERVICE_ACCOUNT, at))
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}

    answer = await cluster.post(
        keys.SERVICE_ACCOUNT, at, "token", body | {"spec": {"expirationSeconds": 600}}
    )

    assert answer["status"]["token"]
    assert answer["status"]["expirationTimestamp"].endswith("Z")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", {"one", "two", "three"}),
        ("app=a", {"one"}),
        ("app!=a", {"two", "three"}),
        ("app", {"one", "two"}),
        ("!app", {"three"}),
        ("app in (a, b),tier", {"two"}),
        ("app notin (a)", {"two", "three"}),
    ],
)
async def test_labels_select(
    cluster: Cluster, namespace: str, selector: str, expected: set[str]
) -> None:
    have: dict[str, dict[str, str]] = {
        "one": {"app": "a"},
        "two": {"app": "b", "tier": "x"},
        "three": {"tier": "y"},
    }
    for name, its in have.items():
        obj = config_map(namespace, name)
        obj["metadata"]["labels"] = its
        await cluster.create(keys.CONFIG_MAP, obj)

    assert await mine(cluster, namespace, selector) - {"kube-root-ca.crt"} == expected


async def test_fields_select(cluster: Cluster, namespace: str) -> None:
    for name, where_ in {"here": "far", "there": "near"}.items():
        spec = pod()["spec"] | {"nodeName": where_}
        await cluster.create(keys.POD, pod(namespace, name, spec=spec))

    far = Selection(keys.POD, Object, namespace, fields="spec.nodeName=far")
    other = Selection(keys.POD, Object, namespace, fields="metadata.name!=here")

    assert [key.name for key in (await cluster.list(far)).items] == ["here"]
    assert [key.name for key in (await cluster.list(other)).items] == ["there"]


async def test_a_watch_goes_on_where_the_list_ends(cluster: Cluster, namespace: str) -> None:
    first = await cluster.create(keys.CONFIG_MAP, settings_in(namespace, a="1"))
    listing = await cluster.list(configs(namespace))
    await cluster.patch(keys.CONFIG_MAP, where(namespace), {"data": {"a": "2"}})
    await cluster.delete(keys.CONFIG_MAP, where(namespace), uid=uid(first))
    again = await cluster.create(keys.CONFIG_MAP, settings_in(namespace, a="3"))

    async with contextlib.aclosing(cluster.watch(configs(namespace), listing.version)) as events:
        told = [await next_of(events) for _ in range(3)]

    assert [event.type for event in told] == ["MODIFIED", "DELETED", "ADDED"]
    assert [event.object["data"]["a"] for event in told] == ["2", "2", "3"]
    assert uid(told[2].object) == uid(again) != uid(first)
    assert told[0].key == where(namespace)
    assert len({event.version for event in told} | {listing.version}) == 4
    assert told[0].object["kind"] == listing.items[where(namespace)]["kind"] == "ConfigMap"


async def test_what_leaves_a_selection_is_told_as_deleted(cluster: Cluster, namespace: str) -> None:
    listing = await cluster.list(configs(namespace, "app=a"))
    obj = settings_in(namespace)
    obj["metadata"]["labels"] = {"app": "b"}
    await cluster.create(keys.CONFIG_MAP, obj)
    for value in ("a", "b"):
        changes = {"metadata": {"labels": {"app": value}}}
        await cluster.patch(keys.CONFIG_MAP, where(namespace), changes)

    selection = configs(namespace, "app=a")
    async with contextlib.aclosing(cluster.watch(selection, listing.version)) as events:
        told = [(await next_of(events)).type for _ in range(2)]

    assert told == ["ADDED", "DELETED"]
    assert await cluster.get(keys.CONFIG_MAP, where(namespace))


async def test_a_watch_sees_what_comes(cluster: Cluster, namespace: str) -> None:
    listing = await cluster.list(configs(namespace))

    async with contextlib.aclosing(cluster.watch(configs(namespace), listing.version)) as events:
        waiting = asyncio.ensure_future(next_of(events))
        await cluster.create(keys.CONFIG_MAP, settings_in(namespace, a="1"))
        event = await waiting

    assert (event.type, event.key) == ("ADDED", where(namespace))


async def test_a_struct_keeps_what_it_names(cluster: Cluster, namespace: str) -> None:
    await cluster.create(keys.POD, pod(namespace, metadata={"labels": {"app": "web"}}))

    listing = await cluster.list(Selection(keys.POD, Slim, namespace))

    slim = listing.items[where(namespace, "web")]
    assert slim.metadata.labels == {"app": "web"}
    assert slim.key == where(namespace, "web")
    assert slim.decoded_spec()["containers"][0]["image"] == "nginx"
    assert slim.decoded_status()["phase"] == "Pending"


async def test_a_packed_object_is_the_same_whole(cluster: Cluster, namespace: str) -> None:
    await cluster.create(keys.POD, pod(namespace, "web"))

    whole = (await cluster.list(Selection(keys.POD, Object, namespace))).items
    packed = (await cluster.list(Selection(keys.POD, Packed, namespace))).items

    assert {key: one.whole() for key, one in packed.items()} == whole
    states = (await cluster.list(Selection(keys.POD, PackedState, namespace))).items
    assert {key: one.whole() for key, one in states.items()} == {
        key: {name: value for name, value in pod.items() if name != "spec"}
        for key, pod in whole.items()
    }
    (one,) = packed.values()
    assert one.metadata.uid == uid(one.whole())


async def test_fields_from_the_future_survive(cluster: Cluster, namespace: str) -> None:
    made = settings_in(namespace)
    made["metadata"]["annotations"] = {"from.the/future": "é\u2028"}
    await cluster.create(keys.CONFIG_MAP, made)

    listing = await cluster.list(configs(namespace))

    annotations = listing.items[where(namespace)]["metadata"]["annotations"]
    assert annotations == {"from.the/future": "é\u2028"}
    assert "managedFields" not in listing.items[where(namespace)]["metadata"]


async def test_generation_counts_what_is_desired(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(
        keys.DEPLOYMENT,
        named(
            keys.DEPLOYMENT,
            where(namespace, "web"),
            spec={
                "replicas": 1,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]},
            },
        ),
    )
    at = where(namespace, "web")
    labelled = await cluster.patch(keys.DEPLOYMENT, at, {"metadata": {"labels": {"a": "b"}}})
    scaled = await cluster.patch(keys.DEPLOYMENT, at, {"spec": {"replicas": 2}})
    reported = await cluster.patch_status(keys.DEPLOYMENT, at, {"observedGeneration": 2})

    generations = [obj["metadata"]["generation"] for obj in (made, labelled, scaled, reported)]
    assert generations == [1, 1, 2, 2]


async def test_conditions_of_a_pod_are_merged_by_type(cluster: Cluster, namespace: str) -> None:
    await cluster.create(keys.POD, pod(namespace))
    at = where(namespace, "web")
    mine, theirs = ({"type": name, "status": "True"} for name in ("a/mine", "b/theirs"))
    addresses = {"podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}]}
    await cluster.patch_status(keys.POD, at, {"conditions": [mine, theirs], **addresses})

    changed = {**mine, "status": "False", "reason": "Why"}
    gone = {"type": "b/theirs", "$patch": "delete"}
    moved = {"podIP": "10.1.0.8", "podIPs": [{"$patch": "replace"}, {"ip": "10.1.0.8"}]}
    first = await cluster.patch_status(keys.POD, at, {"conditions": [changed], **moved})
    second = await cluster.patch_status(keys.POD, at, {"conditions": [gone]})

    by_type = {one["type"]: one for one in first["status"]["conditions"]}
    assert (by_type["a/mine"]["status"], by_type["a/mine"]["reason"]) == ("False", "Why")
    assert by_type["b/theirs"]["status"] == "True"
    assert first["status"]["podIPs"] == [{"ip": "10.1.0.8"}]
    assert [one["type"] for one in second["status"]["conditions"]] == ["a/mine"]


# A server whose watch broke is asked for its version once -----------------------------------------


OF: Final = Selection(keys.CONFIG_MAP, Object, "default")


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def doubts(clock: Time) -> RollbackDetector:
    return RollbackDetector(clock)


def test_it_is_in_doubt_from_the_loss_of_its_watch_until_the_server_was_asked(
    doubts: RollbackDetector,
) -> None:
    assert OF not in doubts

    doubts.lost(OF)
    assert OF in doubts
    assert Selection(keys.SECRET, Object, "default") not in doubts

    doubts.asked(OF)
    assert OF not in doubts


def test_an_outage_puts_all_in_doubt_that_were_followed(doubts: RollbackDetector) -> None:
    doubts.asked(OF)

    doubts.all_lost()

    assert OF in doubts


def test_what_waited_before_it_is_followed_again_is_in_doubt(
    doubts: RollbackDetector, clock: Time
) -> None:
    doubts.asked(OF)
    clock.now += cluster.AT_ONCE_S
    assert OF not in doubts

    clock.now += 1

    assert OF in doubts


@pytest.mark.parametrize(
    ("version", "since", "expected"),
    [("9", "10", True), ("10", "10", False), ("11", "10", False), ("", "10", False),
     ("9", "", False), ("zz-9", "10", False), ("9", "1" * 5_000, False), ("\u0663", "10", False)],
)  # fmt: skip
def test_only_versions_that_are_numbers_are_compared(
    version: str, since: str, *, expected: bool
) -> None:
    assert cluster.is_behind(version, since) is expected
