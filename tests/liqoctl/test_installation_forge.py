"""What ``liqoctl install`` makes of manifests and flags, without a cluster."""

from typing import Any

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, key_of, named
from liqoctl import install
from liqoctl.forge import manifests
from tests import factories
from tests.manifests import documents


def kustomization(*resources: str, **more: str) -> list[Object]:
    return [{"kind": "Kustomization", "resources": list(resources), **more}]


def test_a_kustomization_is_followed_in_its_order() -> None:
    files: dict[str, list[Object]] = {
        "kustomization.yaml": kustomization("b.yaml", "more"),
        "b.yaml": [{"kind": "B"}, {"kind": "C"}],
        "more/kustomization.yaml": kustomization("a.yaml", "../d.yaml"),
        "more/a.yaml": [{"kind": "A"}],
        "d.yaml": [{"kind": "D"}],
        "unused.yaml": [{"kind": "X"}],
    }

    assert [obj["kind"] for obj in manifests.everything(files)] == ["B", "C", "A", "D"]


def test_what_a_kustomization_says_and_nobody_reads_is_refused() -> None:
    files = {"kustomization.yaml": kustomization(namePrefix="x-")}

    with pytest.raises(ValueError, match=r"kustomization of manifests: .'namePrefix'. is not read"):
        manifests.everything(files)


def test_all_files_come_with_the_program() -> None:
    assert install.manifests() == documents.everything()


def test_without_flags_nothing_is_changed() -> None:
    assert (
        manifests.customised(documents.everything(), manifests.InstallOptions())
        == documents.everything()
    )


def test_flags_add_image_name_policy_and_labels() -> None:
    wanted = manifests.InstallOptions(
        cluster_id="rome",
        image="registry.example/pyliqo:1",
        cluster_labels={"region": "europe"},
        sharing_percentage=70,
        metadata={"labels": {"team": "a"}},
    )

    made = manifests.customised(documents.everything(), wanted)

    deployments = [obj for obj in made if obj["kind"] == "Deployment"]
    assert {manifests.image_of(obj) for obj in deployments} == {"registry.example/pyliqo:1"}
    assert len(deployments) == len(documents.of_kind("Deployment"))
    assert {obj["metadata"]["labels"]["team"] for obj in made} == {"a"}
    first = made.index(deployments[0])
    config, policy = made[first - 2 : first]  # controllers that start without a name make one
    assert key_of(config) == Key("liqo", "clusterid-configmap")
    assert config["data"] == {"CLUSTER_ID": "rome"}
    assert manifests.kind_of(policy) == keys.PROVIDER_POLICY
    assert policy["spec"] == {
        "sharing": {"percentage": 70},
        "resourceSliceClasses": {"default": "shared"},
        "nodeLabels": {"region": "europe"},
    }
    assert "image: pyliqo" in str(documents.everything()).replace("'", ""), (
        "it was changed in place"
    )


def test_enforcement_is_switched_off_where_processes_have_it_and_kept_so() -> None:
    as_they_are = documents.everything()

    made = manifests.customised(
        as_they_are, manifests.InstallOptions(enable_resource_enforcement=False)
    )

    differ = [obj for obj, was in zip(made, as_they_are, strict=True) if obj != was]
    assert [key_of(obj).name for obj in differ] == ["liqo-webhook", "liqo-controller-manager"]
    assert [manifests.is_enforced(obj) for obj in differ] == [False, False]
    assert all(map(manifests.is_enforced, documents.of_kind("Deployment")))
    assert (
        manifests.customised(
            as_they_are, manifests.InstallOptions(enable_resource_enforcement=True)
        )
        == as_they_are
    )


INSTALLABLE = [
    kind
    for kind in vars(keys).values()
    if isinstance(kind, Kind) and not kind.group.startswith("metrics.")
]
"""Metrics are only read, and called like what they are about."""


@pytest.mark.parametrize("kind", INSTALLABLE, ids=str)
def test_the_plural_follows_from_the_name(kind: Kind) -> None:
    obj = named(kind, Key("n" if kind.namespaced else "", "x"))

    assert manifests.kind_of(obj) == kind


@pytest.mark.parametrize("name", ["Rome", "rome.it", "-rome", "r" * 64])
def test_what_cannot_name_a_cluster(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a cluster ID: use 1 to 63 lower-case letters"):
        manifests.check_cluster_id(name)


def installed_deployment(generation: int = 2, **status: int) -> Object:
    made = named(keys.DEPLOYMENT, Key("liqo", "x"), metadata={"generation": generation})
    return {**made, "spec": {"replicas": 2}, "status": {"observedGeneration": 2, **status}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, False),
        (installed_deployment(), False),
        (installed_deployment(replicas=2, updatedReplicas=2, availableReplicas=2), True),
        (installed_deployment(3, replicas=2, updatedReplicas=2, availableReplicas=2), False),
        (installed_deployment(replicas=3, updatedReplicas=2, availableReplicas=3), False),
        (installed_deployment(replicas=2, updatedReplicas=2, availableReplicas=1), False),
    ],
    ids=["absent", "no pods", "done", "not seen yet", "an old pod is there", "one is not ready"],
)
def test_rolled_out(found: Object | None, *, expected: bool) -> None:
    assert manifests.is_rolled_out(found) is expected


def installed_pod(**status: Any) -> Object:
    return factories.pod("liqo", "p", status=status)


def test_obstacles_are_told_once() -> None:
    pull = {"waiting": {"reason": "ErrImagePull", "message": "no such image x"}}
    starting = {"waiting": {"reason": "ContainerCreating"}}
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}
    pods = [
        installed_pod(containerStatuses=[{"name": "a", "state": pull}]),
        installed_pod(containerStatuses=[{"name": "a", "state": pull}]),
        installed_pod(containerStatuses=[{"name": "a", "state": starting}, {"name": "b"}]),
        installed_pod(conditions=[unscheduled]),
        factories.pod("liqo", "new"),
    ]

    failed = {"type": "ReplicaFailure", "status": "True", "message": "insufficient quota"}
    deployments = [
        factories.deployment("liqo", "fine"),
        {**factories.deployment("liqo", "liqo-webhook"), "status": {"conditions": [failed]}},
    ]

    expected = [
        "deployment liqo-webhook gets no pods: insufficient quota",
        "ErrImagePull: no such image x",
        "not scheduled: 0/1 nodes",
    ]
    assert manifests.obstacles(pods, deployments) == expected


@factories.cases("version, expected")
def test_supported_versions(version: Object, *, expected: bool) -> None:
    assert manifests.is_supported(version) is expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ({"major": "1", "minor": "35+"}, ("",)),
        ({"major": "1", "minor": "36"}, ("", "mutating")),
        ({}, ("",)),
        (None, ("", "mutating")),
    ],
)
def test_mutating_policies_are_installed_where_they_are_served(
    version: Object | None, expected: tuple[str, ...]
) -> None:
    assert manifests.folders(version) == expected


def test_peers_are_told_by_name_with_what_is_there() -> None:
    node = named(keys.VIRTUAL_NODE, Key("t", "m"), spec={"clusterID": "milan"})
    labels = {"labels": {keys.REMOTE_CLUSTER_ID: "turin"}}
    quotas = [named(keys.QUOTA, Key("t", name), metadata=labels) for name in "ab"]
    by_hand = named(keys.QUOTA, Key("of-rome", "c"))
    stray = named(keys.QUOTA, Key("default", "c"))
    label = {"labels": {keys.REMOTE_CLUSTER_ID: "rome"}}
    tenant = named(keys.NAMESPACE, Key("", "of-rome"), metadata=label)

    found = manifests.peers(
        {keys.VIRTUAL_NODE: [node], keys.QUOTA: [*quotas, by_hand, stray]}, [tenant]
    )

    assert found == {
        "milan": ["1 virtualnode"],
        "rome": ["1 quota"],
        "turin": ["2 quota"],
        "the one whom default/c is for": ["1 quota"],
    }
