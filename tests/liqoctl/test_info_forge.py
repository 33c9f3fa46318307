"""What ``liqoctl info`` tells, as data and as lines, without a cluster."""

import json
import shlex
from typing import Any

import pytest

from apis import keys, placement
from apis.objects import Key, Object, named
from liqoctl.forge import info as forge
from tests import factories


def condition(type_: str, status: str, message: str = "m") -> Object:
    return {"type": type_, "status": status, "reason": "r", "message": message}


def foreign_cluster(name: str, **status: Any) -> Object:
    modules = {
        "networking": {"enabled": False},
        "authentication": {
            "enabled": True,
            "conditions": [condition("AuthIdentityControlPlaneStatus", "Ready")],
        },
        "offloading": {
            "enabled": True,
            "conditions": [
                condition("OffloadingVirtualNodeStatus", "Ready"),
                condition("OffloadingNodeStatus", "SomeNotReady", "1 of 2 nodes are not ready: x"),
            ],
        },
    }
    made = named(keys.FOREIGN_CLUSTER, Key("", name), spec={"clusterID": name})
    return {**made, "status": {"role": "Provider", "modules": modules, **status}}


def component_pod(name: str, *ready: int, reason: str = "", **metadata: Any) -> Object:
    containers = [{"name": str(number)} for number, _ in enumerate(ready)]
    state = {"waiting": {"reason": reason}} if reason else {"running": {"startedAt": "x"}}
    statuses = [{"ready": bool(one), "restartCount": 2, "state": state} for one in ready]
    made = factories.pod("liqo", name, metadata=metadata, spec={"containers": containers})
    return {**made, "status": {"phase": "Running", "containerStatuses": statuses}}


def info_of(*pods: Object, **more: Any) -> Object:
    found = forge.Installation("rome", "0.1.0", "https://rome:6443", pods=pods, **more)
    return forge.installation(found)


def test_daemon_sets_of_before_are_named_with_the_patch_that_keeps_them_off() -> None:
    spec = {"tolerations": [{"operator": "Exists"}]}
    logs, kept, chosen, local = (
        named(keys.DAEMON_SET, Key("kube-system", name), spec={"template": {"spec": wanted}})
        for name, wanted in (("logs", spec), ("kept", spec), ("chosen", spec), ("local", {}))
    )
    chosen["metadata"]["labels"] = {keys.ON_VIRTUAL_NODES: "true"}
    terms = placement.daemons_on_virtual_nodes(kept)
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    kept["spec"]["template"]["spec"] = {**spec, "affinity": {"nodeAffinity": required}}

    told = info_of(daemon_sets=[logs, kept, chosen, local])

    (one,) = told["daemonSetsOnVirtualNodes"]
    assert one["name"] == "kube-system/logs"
    *command, patch = shlex.split(one["patch"])
    assert " ".join(command) == "kubectl patch daemonset logs --namespace kube-system --patch"
    assert json.loads(patch)["spec"]["template"]["spec"] == {
        "affinity": kept["spec"]["template"]["spec"]["affinity"]
    }


def test_what_is_installed() -> None:
    policy = named(
        keys.PROVIDER_POLICY, Key("", "default"), spec={"nodeLabels": {"region": "europe"}}
    )
    unknown = foreign_cluster("turin", role="Unknown")

    told = info_of(
        component_pod("a", 1),
        component_pod("going", 0, deletionTimestamp="x"),
        foreign_clusters=[foreign_cluster("milan"), unknown],
        policy=policy,
    )

    assert told == {
        "health": {"healthy": True, "unhealthyPods": {}},
        "local": {
            "clusterID": "rome",
            "version": "0.1.0",
            "labels": {"region": "europe"},
            "APIServerAddr": "https://rome:6443",
        },
        "network": {"podCIDRs": [], "serviceCIDR": "", "externalCIDR": "", "internalCIDR": ""},
        "daemonSetsOnVirtualNodes": [],
        "peerings": {
            "peers": [
                {
                    "clusterID": "milan",
                    "role": "Provider",
                    "networkingStatus": "Disabled",
                    "authenticationStatus": "Healthy",
                    "offloadingStatus": "Unhealthy",
                }
            ]
        },
    }
    assert forge.lines_of_installation(told) == [
        "Installation health",
        "  Healthy: yes",
        "Local installation info",
        "  Cluster ID: rome",
        "  Version: 0.1.0",
        "  Cluster labels",
        "    region: europe",
        "  API server: https://rome:6443",
        "Active peerings",
        "  milan",
        "    Role: Provider",
        "    Networking: Disabled",
        "    Authentication: Healthy",
        "    Offloading: Unhealthy",
    ]


def test_a_pod_that_does_not_work() -> None:
    told = info_of(component_pod("a", 1, 0, reason="CrashLoopBackOff"))

    counts = {"readyContainers": 1, "totalContainers": 2, "restarts": 4}
    trouble = {"status": "CrashLoopBackOff", **counts}
    assert told["health"] == {"healthy": False, "unhealthyPods": {"a": trouble}}
    assert forge.lines_of_installation(told)[:4] == [
        "Installation health",
        "  Healthy: no, a is CrashLoopBackOff",
        "  Unhealthy pods",
        "    a",
    ]
    assert forge.lines_of_installation(told)[-1] == "Active peerings: none"
    assert info_of()["health"]["healthy"] is False, "nothing runs"


def resource_slice(
    name: str, *conditions: Object, replicated: bool = False, **status: Any
) -> Object:
    labels = {keys.REPLICATED: "true"} if replicated else {}
    spec = {"consumerClusterID": "rome", "providerClusterID": "milan"}
    where = Key("tenant", name)
    made = named(keys.RESOURCE_SLICE, where, metadata={"labels": labels}, spec=spec)
    return {**made, "status": {"conditions": list(conditions), **status}}


ACCEPTED = (condition("Authentication", "Accepted"), condition("Resources", "Accepted"))
DENIED = (condition("Authentication", "Accepted"), condition("Resources", "Denied", "no class x"))


def test_a_provider() -> None:
    slices = [
        resource_slice("milan", *ACCEPTED, resources={"cpu": "4"}),
        resource_slice("bad", *DENIED),
        resource_slice("new"),
    ]
    spec = {
        "clusterID": "milan",
        "kubeconfigSecretRef": {"name": "s"},
        "resourceQuota": {"hard": {"cpu": "4"}},
    }
    labels = {"labels": {keys.RESOURCE_SLICE_NAME: "milan"}}
    node = named(keys.VIRTUAL_NODE, Key("tenant", "milan"), metadata=labels, spec=spec)
    node["status"] = {"conditions": [condition("VirtualKubelet", "Running")]}
    other = named(keys.VIRTUAL_NODE, Key("t", "turin"), spec={"clusterID": "turin"})
    silent = condition("APIServerStatus", "Error", "no answer within 5 s")
    versions = {"version": "0.2.0", "versionSkew": "Minor", "kubernetesVersion": "v1.35.4"}
    fc = foreign_cluster(
        "milan", conditions=[silent], apiServerUrl="https://milan:6443", **versions
    )

    told = forge.peer(fc, forge.Around(slices, [node, other]))

    assert told["info"] == {
        "clusterID": "milan",
        "role": "Provider",
        "version": "0.2.0",
        "versionSkew": "Minor",
        "kubernetesVersion": "v1.35.4",
        "clockSkewSeconds": 0,
    }
    assert told["network"]["status"] == "Disabled"
    assert told["authentication"]["status"] == "Unhealthy"
    assert told["authentication"]["alerts"] == ["no answer within 5 s"]
    assert told["authentication"]["APIServerAddr"] == "https://milan:6443"
    told_of = {one["name"]: one for one in told["authentication"]["resourceSlices"]}
    assert told_of["milan"] == {
        "name": "milan",
        "action": "Consuming",
        "accepted": True,
        "alerts": [],
        "resources": {"cpu": "4"},
    }
    assert told_of["bad"]["alerts"] == ["no class x"]
    assert told_of["new"]["accepted"] is False
    assert told_of["new"]["alerts"] == ["the provider has not answered yet"]
    assert told["offloading"]["status"] == "Unhealthy"
    assert told["offloading"]["virtualNodes"] == [
        {
            "name": "milan",
            "status": "Healthy",
            "secret": "s",
            "resourceSlice": "milan",
            "resources": {"cpu": "4"},
        }
    ]


def test_a_consumer_and_what_it_uses() -> None:
    here = resource_slice("pool", *ACCEPTED, replicated=True, resources={"cpu": "4"})
    quota = named(keys.QUOTA, Key("tenant", "pool-a8a4c692b93b"))
    quota["status"] = {"used": {"cpu": "1"}}
    around = forge.Around([here], (), {Key("tenant", "pool-a8a4c692b93b"): quota})

    told = forge.peer(foreign_cluster("rome", role="Consumer"), around)

    [slice_] = told["authentication"]["resourceSlices"]
    assert slice_["action"] == "Providing"
    assert slice_["used"] == {"cpu": "1"}
    assert "      Used" in forge.lines(told)


TOLD = {"local": {"clusterID": "rome", "labels": {}}, "health": {"healthy": True}}


@factories.cases("path, expected")
def test_one_field(path: str, expected: object) -> None:
    assert forge.pick(TOLD, path) == expected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("local.name", "--get local.name: no field 'name': there are clusterID, labels"),
        ("health.healthy.x", "--get health.healthy.x: no field 'x': it has no fields"),
    ],
)
def test_a_field_that_is_not_there(path: str, message: str) -> None:
    with pytest.raises(ValueError, match="no field") as refused:
        forge.pick(TOLD, path)
    assert str(refused.value) == message


def test_the_only_peer_need_not_be_named() -> None:
    milan = {"info": {"role": "Provider"}}

    assert forge.pick_of_peers({"milan": milan}, "info.role") == "Provider"
    assert forge.pick_of_peers({"milan": milan}, "milan.info.role") == "Provider"
    with pytest.raises(ValueError, match="no field 'info': there are milan, turin"):
        forge.pick_of_peers({"milan": milan, "turin": milan}, "info.role")


def test_what_others_wrote_cannot_steer_a_terminal() -> None:
    assert forge.lines({"alerts": ["\x1b[31mred"]}) == ["Alerts", "   [31mred"]
