"""What a kind of write costs is measured by writes that an API server takes."""

import pytest

from bench import writes
from bench.writes import Cost
from sandbox.controlplane import Plane

AT = ("metadata", "annotations", "a.b/c~d")


def test_all_kinds_of_patch_say_the_same() -> None:
    assert writes.nested(AT, "1") == {"metadata": {"annotations": {"a.b/c~d": "1"}}}
    assert writes.json_patch(AT, "1") == [
        {"op": "add", "path": "/metadata/annotations/a.b~1c~0d", "value": "1"}
    ]
    was = {"metadata": {"name": "x", "annotations": {"kept": "1"}}, "data": {}}
    assert writes.merged(was, writes.nested(AT, "1")) == {
        "metadata": {"name": "x", "annotations": {"kept": "1", "a.b/c~d": "1"}},
        "data": {},
    }
    assert was["metadata"]["annotations"] == {"kept": "1"}


def test_costs_are_of_one_write() -> None:
    cost = Cost()
    cost.add([0.001, 0.003], {"kube-apiserver": 0.004, "etcd": 0.001})
    cost.add([0.002, 0.002], {"kube-apiserver": 0.002, "etcd": 0.001})

    assert list(cost.cells()) == ["2.00", "2.97", "1.50", "0.50"]


@pytest.mark.cluster
async def test_an_api_server_takes_each_kind_of_write(own_plane: Plane) -> None:
    """It makes a kind of the same name as one of ours, in another group."""
    costs = await writes.measure(own_plane, count=2, rounds=1)

    counted = {(of.name, how.name): len(cost.seconds) for (of, how), cost in costs.items()}
    assert set(counted.values()) == {2}
    assert {name for name, _ in counted} == {subject.name for subject in writes.SUBJECTS}
    assert {name for _, name in counted} == {how.name for how in writes.WRITES}
    assert ("ShadowPod", "strategic merge patch") not in counted
    assert ("status of a Pod", writes.CREATE) not in counted
