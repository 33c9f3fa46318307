"""Claims go to the provider with their first pod, and home knows where the data is."""

from typing import Any

import msgspec
import pytest

from apis import keys, reflectionpolicy
from apis.objects import Key, Object, named
from apis.offloading import MappedNamespace
from reflector.kinds import storage
from reflector.kinds.contract import Labelled, ReflectionContext, RemoteObjectOptions
from tests import factories
from tests.reflector.looks import Seen, listed_node
from tests.reflector.pairs import PAIR

HERE = Key("foo", "data")
OFFERED = RemoteObjectOptions(enable_storage=True, storage_class="disk")
ASKED = {
    "volume.kubernetes.io/storage-provisioner": "liqo.io/storage",
    "volume.kubernetes.io/selected-node": "milan",
    "pv.kubernetes.io/bind-completed": "yes",
    "note": "1",
}


def pvc(annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    metadata = {"uid": "7", "annotations": ASKED if annotations is None else annotations}
    return factories.claim(*HERE, metadata=metadata, **spec)


def context(settings: RemoteObjectOptions = OFFERED, *volumes: Object) -> ReflectionContext:
    nodes = [listed_node("milan", "milan"), listed_node("turin", "turin"), listed_node("rome-1")]
    class_ = named(keys.STORAGE_CLASS, Key("", "liqo"), reclaimPolicy="Retain")
    look = Seen(nodes=nodes, persistentvolumes=volumes, storageclasses=[class_])
    return ReflectionContext(PAIR, settings=settings, lister=look)


@pytest.mark.parametrize(
    ("local", "goes"),
    [
        (pvc(), True),
        (pvc(storageClassName="fast"), False),
        (pvc({}), False),
        (pvc({**ASKED, keys.SELECTED_NODE: "turin"}), False),
        (pvc({**ASKED, keys.SELECTED_NODE: "rome-1"}), False),
        (pvc({**ASKED, keys.SELECTED_NODE: "unknown"}), False),
    ],
    ids=["ours", "another class", "not asked", "another provider", "home", "unknown node"],
)
def test_a_claim_goes_with_its_first_pod(*, local: Object, goes: bool) -> None:
    assert (storage.stays(local, context()) is None) is goes


@pytest.mark.parametrize(("class_", "said"), [("fast", "is fast, not liqo"), ("", "has no class")])
def test_a_claim_of_another_class_is_told_that_it_stays(class_: str, said: str) -> None:
    stay = storage.stays(pvc({}, storageClassName=class_, volumeName="nfs"), context())

    assert stay
    assert stay.is_told
    assert said in stay.reason
    assert "the administrator of milan" in stay.reason


def test_the_claim_there_is_of_a_class_of_theirs_and_bound_by_nobody_yet() -> None:
    twin = storage.remote_claim(pvc(selector={}, dataSource={}, volumeName=""), context())

    assert twin["metadata"]["annotations"] == {"note": "1"}
    assert twin["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "disk",
    }


def test_annotations_choose_class_and_modes() -> None:
    asked = {keys.REMOTE_STORAGE_CLASS: "fast", keys.REMOTE_ACCESS_MODES: "ReadWriteMany"}

    spec = storage.remote_claim(pvc({**ASKED, **asked}), context())["spec"]

    assert (spec["storageClassName"], spec["accessModes"]) == ("fast", ["ReadWriteMany"])


def test_an_unknown_mode_is_told() -> None:
    with pytest.raises(reflectionpolicy.NotYetError, match="ReadMostly"):
        storage.remote_claim(pvc({**ASKED, keys.REMOTE_ACCESS_MODES: "ReadMostly"}), context())


def test_what_cannot_change_any_more_is_not_tried() -> None:
    wanted = storage.remote_claim(
        pvc(), context(RemoteObjectOptions(enable_storage=True, storage_class="new"))
    )
    found = {"spec": {"storageClassName": "disk", "accessModes": ["ReadWriteOnce"]}}

    assert storage.settled(wanted, found)["spec"]["storageClassName"] == "disk"


def test_home_binds_the_claim_to_the_provider_once() -> None:
    (write,) = storage.back(HERE, pvc(), {}, context())

    assert (write.verb, write.key) == ("create", Key("", "pvc-7"))
    spec = write.body["spec"]
    assert spec["claimRef"]["uid"] == "7"
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    assert spec["capacity"] == {"storage": "1Gi"}
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": keys.REMOTE_CLUSTER_ID, "operator": "In", "values": ["milan"]}
    ]
    assert list(storage.back(HERE, pvc(), {}, context(OFFERED, write.body))) == []


@pytest.mark.parametrize("size", ["512Mi", "20Gi"])
@pytest.mark.parametrize("modes", [["ReadWriteMany"], ["ReadWriteOncePod"]])
@pytest.mark.parametrize("mode", ["Block", "Filesystem"])
def test_claim_and_volume_are_of_the_size_and_modes_that_were_asked_for(
    size: str, modes: list[str], mode: str
) -> None:
    asked = pvc(accessModes=modes, volumeMode=mode, resources={"requests": {"storage": size}})

    there = storage.remote_claim(asked, context())["spec"]
    here = storage.volume_of(asked, context())["spec"]

    assert there["resources"] == {"requests": {"storage": size}}
    assert here["capacity"] == {"storage": size}
    assert (there["accessModes"], there["volumeMode"]) == (modes, mode)
    assert (here["accessModes"], here["volumeMode"]) == (modes, mode)


def test_where_there_is_no_storage_the_scheduler_is_asked_again() -> None:
    nothing = context(RemoteObjectOptions())
    stay = storage.stays(pvc(), nothing)
    (write,) = storage.back(HERE, pvc(), None, nothing)

    assert stay
    assert stay.is_told
    assert write.verb == "patch"
    assert write.body["metadata"] == {"uid": "7", "annotations": {keys.SELECTED_NODE: None}}


def offering(name: str, available: str, class_: str = "") -> Labelled:
    labels = {keys.REMOTE_CLUSTER_ID: "milan", keys.STORAGE_AVAILABLE: available}
    annotations = {keys.OFFERED_STORAGE_CLASS: class_} if class_ else {}
    metadata = {"name": name, "labels": labels, "annotations": {**annotations, "big": "x"}}
    return msgspec.convert({"metadata": metadata}, Labelled)


@pytest.mark.parametrize(
    "leader", [RemoteObjectOptions(), OFFERED], ids=["without", "of another class"]
)
def test_the_virtual_node_of_the_first_pod_says_what_is_offered(
    leader: RemoteObjectOptions,
) -> None:
    nodes = [offering("fast", "true", "nvme"), offering("slow", "true", "tape")]
    looks = Seen(nodes=[*nodes, offering("none", "false")], persistentvolumes=[])
    there = ReflectionContext(PAIR, settings=leader, lister=looks)

    for name, class_ in (("fast", "nvme"), ("slow", "tape")):
        asked = pvc({**ASKED, keys.SELECTED_NODE: name})
        assert storage.stays(asked, there) is None
        assert storage.remote_claim(asked, there)["spec"]["storageClassName"] == class_
        assert not list(storage.back(HERE, asked, None, there))
    refused = pvc({**ASKED, keys.SELECTED_NODE: "none"})
    stay = storage.stays(refused, there)
    assert stay
    assert stay.reason == "virtual node none offers no storage"
    assert [write.verb for write in storage.back(HERE, refused, None, there)] == ["patch"]


def test_of_the_annotations_of_nodes_only_that_one_is_kept() -> None:
    assert offering("fast", "true", "nvme").metadata.annotations == {
        keys.OFFERED_STORAGE_CLASS: "nvme"
    }
    assert offering("none", "false").metadata.annotations is None


def test_a_bound_claim_is_where_its_volume_is() -> None:
    volume = storage.volume_of(pvc(), context())
    elsewhere = storage.volume_of(
        pvc(), ReflectionContext(MappedNamespace("rome", "turin", "foo", "foo-rome"))
    )
    bound = pvc({}, volumeName="pvc-7")

    assert storage.stays(bound, context(OFFERED, volume)) is None
    assert storage.stays(bound, context(OFFERED, elsewhere))
    with pytest.raises(reflectionpolicy.NotYetError):  # what is not seen proves nothing
        storage.stays(bound, context())


def test_a_claim_that_names_the_volume_of_another_claim_gets_and_changes_nothing() -> None:
    volume = storage.volume_of(pvc(), context())
    theirs = {**pvc({}, volumeName="pvc-7"), "status": {"capacity": {"storage": "1Gi"}}}
    theirs["metadata"] = {**theirs["metadata"], "uid": "8"}
    grown = {"status": {"capacity": {"storage": "9Ti"}}}

    with pytest.raises(reflectionpolicy.NotYetError, match="is not bound to this claim"):
        storage.stays(theirs, context(OFFERED, volume))
    assert list(storage.back(HERE, theirs, grown, context(OFFERED, volume))) == []
    theirs["spec"]["storageClassName"] = "fast"
    assert storage.stays(theirs, context(OFFERED, volume))


def test_data_stays_when_the_virtual_class_gets_another_name() -> None:
    renamed = RemoteObjectOptions(enable_storage=True, virtual_storage_class="other")
    volume = storage.volume_of(pvc(), context())
    elsewhere = storage.volume_of(
        pvc(), ReflectionContext(MappedNamespace("rome", "turin", "foo", "foo-rome"))
    )
    bound = pvc({}, volumeName="pvc-7")

    assert storage.stays(bound, context(renamed, volume)) is None
    assert storage.stays(bound, context(renamed, elsewhere))
    assert storage.stays(bound, context(renamed)), "a volume of this cluster"
    assert storage.stays(pvc(), context(renamed, volume)), "bound by nobody yet"


def test_what_grew_on_the_provider_is_told_at_home() -> None:
    volume = storage.volume_of(pvc(), context())
    bound = {**pvc({}, volumeName="pvc-7"), "status": {"capacity": {"storage": "1Gi"}}}
    grown = {"status": {"capacity": {"storage": "2Gi"}}}

    of_volume, of_claim = storage.back(HERE, bound, grown, context(OFFERED, volume))

    assert (of_volume.verb, of_volume.key) == ("patch", Key("", "pvc-7"))
    assert of_volume.body["spec"] == {"capacity": {"storage": "2Gi"}}
    assert (of_claim.verb, of_claim.key) == ("status", HERE)
    assert of_claim.body["status"] == {"capacity": {"storage": "2Gi"}}
    unchanged: list[Object] = [{}, {"status": {}}, {"status": bound["status"]}]
    for same in unchanged:
        assert list(storage.back(HERE, bound, same, context(OFFERED, volume))) == []
    elsewhere = storage.volume_of(
        pvc(), ReflectionContext(MappedNamespace("rome", "turin", "foo", "foo-rome"))
    )
    assert list(storage.back(HERE, bound, grown, context(OFFERED, elsewhere))) == []


@pytest.mark.parametrize("amount", ["-1", "NaN", "1e999999999", "9" * 10_240, 7.5, {}])
def test_a_capacity_that_is_no_amount_is_not_brought_home(amount: object) -> None:
    bound = {**pvc({}, volumeName="pvc-7"), "status": {"capacity": {"storage": "1Gi"}}}
    odd = {"status": {"capacity": {"storage": amount}}}
    volume = storage.volume_of(bound, context())

    assert list(storage.back(HERE, bound, odd, context(OFFERED, volume))) == []


def test_the_volume_goes_after_its_claim_unless_it_is_kept() -> None:
    volume = storage.volume_of(pvc(), context())
    kept = {**volume, "status": {"phase": "Released"}}
    released = {**kept, "spec": {**volume["spec"], "persistentVolumeReclaimPolicy": "Delete"}}

    assert list(storage.back(HERE, None, None, context(OFFERED, volume))) == []
    assert list(storage.back(HERE, None, None, context(OFFERED, kept))) == []
    (write,) = storage.back(HERE, None, None, context(OFFERED, released))
    assert (write.verb, write.key) == ("delete", Key("", "pvc-7"))


def test_the_volume_goes_though_a_claim_of_the_same_name_is_there_again() -> None:
    """As where a volume is moved, and where a StatefulSet makes its claims again."""
    spec = {"persistentVolumeReclaimPolicy": "Delete"}
    volume = storage.volume_of(pvc(), context())
    left = {**volume, "status": {"phase": "Released"}, "spec": {**volume["spec"], **spec}}
    again = pvc({})
    again["metadata"]["uid"] = "8"

    (write,) = storage.back(HERE, again, None, context(OFFERED, left))

    assert (write.verb, write.key) == ("delete", Key("", "pvc-7"))
    assert list(storage.back(HERE, pvc(), None, context(OFFERED, left))) == []


def test_of_a_capacity_only_the_storage_is_brought_to_the_consumer() -> None:
    bound = {**pvc({}, volumeName="pvc-7"), "status": {"capacity": {"storage": "1Gi"}}}
    said = {"storage": "2048Mi", "cpu": "1e999999999", "note": "x" * 10_000}
    volume = storage.volume_of(bound, context())

    writes = list(
        storage.back(HERE, bound, {"status": {"capacity": said}}, context(OFFERED, volume))
    )

    told = [write.body.get("spec") or write.body["status"] for write in writes]
    assert told == [{"capacity": {"storage": "2Gi"}}] * 2
