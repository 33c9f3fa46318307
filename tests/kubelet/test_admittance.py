"""Pods that nobody scheduled onto a virtual node are rejected as by a kubelet.

Source: docs/parity.md H9.
"""

import datetime as dt
from typing import Any, Final

import pytest

from apis import keys, objects
from apis.objects import Key, Object
from kube.client import ClusterClient
from kubelet.pods import decide
from tests import factories
from tests.journeys import world as journey
from tests.kubelet import worlds
from tests.scheduling import keep

NODE: Final[Object] = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "3"}}}


def born(second: int, cpu: str = "1", **rest: Any) -> Object:
    """Return a pod of that age."""
    created = f"2026-01-31T12:00:{second:02}Z"
    (main,) = factories.pod_spec()["containers"]
    spec = {"containers": [{**main, "resources": {"requests": {"cpu": cpu}}}]}
    metadata = {"uid": f"u{second}", "creationTimestamp": created}
    return factories.pod("shop", f"web-{second}", spec=spec, metadata=metadata, **rest)


def lacks(local: Object, *others: Object, node: Object | None = NODE) -> str:
    claims = filter(None, map(decide.claim, others))
    return decide.lacking(local, node, claims)


@pytest.mark.parametrize(
    ("cpu", "others", "lacking"),
    [
        ("4", [], ""),
        ("4001m", [], "cpu"),
        ("1000000", [], "cpu"),
        ("3", [born(1)], ""),
        ("3", [born(1), born(2)], "cpu"),
        ("4", [born(30)], ""),
        ("4", [born(1, status={"phase": "Failed"})], ""),
        ("0", [born(1), born(2)], ""),
        ("0", [born(1), born(2), born(3)], "pods"),
    ],
)
def test_who_was_first_has_the_room(cpu: str, others: list[Object], lacking: str) -> None:
    assert lacks(born(20, cpu), *others) == lacking


def test_what_the_node_does_not_have_is_lacking() -> None:
    pod = born(20)
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    requests["nvidia.com/gpu"] = "1"
    assert lacks(pod) == "nvidia.com/gpu"


def test_where_nobody_says_what_the_node_has_nobody_is_rejected() -> None:
    assert lacks(born(20, "1000"), node=None) == lacks(born(20, "1000"), node={}) == ""


@pytest.mark.parametrize("seconds", [9, 11])
def test_a_namespace_has_ten_seconds_to_be_offloaded(seconds: int) -> None:
    now = worlds.NOW + dt.timedelta(seconds=seconds)
    found = decide.rejection(born(0), "it is not offloaded", "", now)
    assert (found is not None) is (seconds > 10)


@pytest.mark.cluster
async def test_a_binding_says_that_the_pod_was_scheduled_and_a_node_name_does_not(
    scheduled_cluster: ClusterClient,
) -> None:
    node = objects.named(keys.NODE, Key("", "plain"))
    await keep(scheduled_cluster, node)
    spec = factories.pod_spec()
    made = [
        await scheduled_cluster.create(keys.POD, factories.pod("default", name, spec=one))
        for name, one in (("bound", spec), ("named", {**spec, "nodeName": "plain"}))
    ]
    bound = await journey.until_one(
        scheduled_cluster,
        keys.POD,
        objects.key_of(made[0]),
        lambda pod: bool(pod["spec"].get("nodeName")),
    )
    named = await scheduled_cluster.get_live(keys.POD, objects.key_of(made[1]))
    assert named
    assert objects.is_condition_true(bound["status"]["conditions"], "PodScheduled")
    assert not named["status"].get("conditions")
    assert [decide.came_by_name(one) for one in (bound, named)] == [False, True]
