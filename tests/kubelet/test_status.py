"""What the provider says about a pod passes a filter (docs/parity.md SEC-B1, SEC-B2)."""

import copy
import datetime as dt
import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apis import keys, networks
from apis.networks import PodNetworks
from apis.objects import Key, Kind, Object
from apis.offloading import OffloadingPatch
from kube import client, errors
from kube.cluster import Cluster
from kube.untrusted import decode
from kubelet.pods import apiserver, shadowpod, significance, status
from kubelet.pods import decide as decisions
from kubelet.pods.decide import PodSnapshot, decide
from kubelet.pods.sanitize import LocalContext
from sandbox.controlplane import Plane
from tests import factories
from tests.conftest import size_of
from tests.kubelet import worlds
from tests.kubelet.lies import RANK, metadata, statuses, twins
from tests.kubelet.worlds import NOW, container, pod_condition, running

NAMED = PodNetworks(
    networks=tuple(networks.parse_networks(["10.0.0.0/8", "fd00::/8", "2001:db8::/32"]))
)
HOME = LocalContext("10.0.0.9", NOW, addresses=NAMED)
EXAMPLES = size_of("PYLIQO_TEST_STATUSES", 1000, 50_000)
NO_PATCH = OffloadingPatch()


def local(status_: Object | None = None, **spec: Any) -> Object:
    return factories.pod(spec={**factories.pod_spec(), **spec}, status=status_ or {})


def remote(status_: Any) -> Object:
    return {"metadata": {"name": "web"}, "spec": {}, "status": status_}


def test_addresses_are_those_by_which_pods_are_reached_from_here() -> None:
    known = networks.remap_of_networks(["10.1.0.0/16"], ["10.71.0.0/16"])

    through_fabric = LocalContext("10.0.0.9", NOW, addresses=PodNetworks(known))
    hidden = LocalContext("10.0.0.9", NOW, addresses=None)

    made = status.mirrored(local(), remote(running()), through_fabric)
    assert (made["podIP"], made["podIPs"]) == ("10.71.0.7", [{"ip": "10.71.0.7"}])
    assert made["hostIP"] == "10.0.0.9"
    was = status.mirrored(local(), remote(running()), HOME)
    assert was["podIP"] == "10.1.0.7"
    assert "podIP" not in status.mirrored(local(was), remote(running()), hidden)


# Every value of every field may be anything ------------------------------------------------------


@settings(max_examples=EXAMPLES, deadline=None)
@given(before=st.sampled_from(sorted(RANK)), offered=statuses, about=metadata)
def test_whatever_the_provider_says_is_made_harmless(before: str, offered: Any, about: Any) -> None:
    pod = local({"phase": before, "qosClass": "BestEffort"})
    pod["metadata"]["generation"] = 3
    snapshot = copy.deepcopy(pod)
    theirs = decoded({**remote(offered), "metadata": about})

    made = status.mirrored(pod, theirs, HOME)

    assert pod == snapshot
    assert RANK[made["phase"]] >= RANK[before]
    assert made["qosClass"] == "BestEffort"
    assert [item["name"] for item in made.get("containerStatuses", [])] in ([], ["main"])
    assert "initContainerStatuses" not in made
    text = json.dumps(made, ensure_ascii=False)
    assert len(text) < 2**16
    assert not re.search(r"(?<!\\)\\(u001b|r)|\u202e", text)
    types = [item["type"] for item in made.get("conditions", [])]
    assert len(types) == len(set(types))
    assert made["phase"] != "Running" or "Ready" in types
    again = status.mirrored({**pod, "status": made}, theirs, HOME)
    assert again == made


def decoded(twin: Object, kind: Kind = keys.POD) -> Object:
    """Return what comes in of a twin."""
    return decode.fitted(kind, twin)


@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(shadow=twins, theirs=twins)
def test_whatever_the_provider_sends_for_a_pod_it_is_looked_at(shadow: Any, theirs: Any) -> None:
    shadow, theirs = decoded(shadow, keys.SHADOW_POD), decoded(theirs)
    pod = local({"phase": "Running"})

    decide(PodSnapshot(pod, shadow, theirs, worlds.PAIR, worlds.NODE))
    for said in (decisions.remote_refusal(shadow), decisions.remote_deferral(shadow)):
        assert isinstance(said, str)
    for there in (theirs, None):
        decisions.remote_state(pod, shadow, there, apiserver.NO_API_SERVER, HOME)
    assert status.restarts(pod, theirs) in (0, 1)
    assert all(isinstance(text, str) for text in status.note(pod, theirs).values())
    json.dumps(shadowpod.changes(shadow, pod, worlds.PAIR, shadowpod.Options("n", NO_PATCH)))


RICH: dict[str, Object] = {
    "requests": {"cpu": "9e30", "memory": "900Ti", "nvidia.com/gpu": "64", "bad name!": "1"},
    "limits": {"cpu": "9e30", "ephemeral-storage": "1Pi"},
}


@factories.cases("asked, had, said, told")
def test_an_amount_of_a_container_is_at_most_what_it_asks_for_or_had(
    asked: Object, had: Object, said: object, told: str | None
) -> None:
    for field in ("requests", "limits"):
        main = {**factories.pod_spec()["containers"][0], "resources": {field: asked}}
        before = container({}) | {"resources": {field: had}}
        theirs = container({"running": {}}) | {"resources": {**RICH, field: {"cpu": said}}}
        pod = local(running(containerStatuses=[before]), containers=[main])

        made = status.mirrored(pod, remote(running(containerStatuses=[theirs])), HOME)

        expected = {field: {"cpu": told}} if told else {}
        assert made["containerStatuses"][0]["resources"] == expected


def test_what_is_allocated_is_at_most_what_is_asked_for() -> None:
    main = {**factories.pod_spec()["containers"][0], "resources": {"requests": {"cpu": "1"}}}
    for said, told in (("1", {"cpu": "1"}), ("100000", None)):
        theirs = container({"running": {}}) | {"allocatedResources": {"cpu": said, "x/y": "1"}}
        made = status.mirrored(
            local(containers=[main]), remote(running(containerStatuses=[theirs])), HOME
        )
        assert made["containerStatuses"][0].get("allocatedResources") == told


def termination_message(message: object, count: int = 1) -> str:
    """Return what is told of a termination message in a pod of so many containers."""
    names = [f"c{number}" for number in range(count)]
    state = {"terminated": {"exitCode": 0, "message": message}}
    said = [{**container(state), "name": name} for name in names]
    pod = local(containers=[{"name": name, "image": "nginx"} for name in names])
    made = status.mirrored(pod, remote(running(containerStatuses=said)), HOME)
    found = [one["state"]["terminated"].get("message", "") for one in made["containerStatuses"]]
    assert sum(len(one.encode()) for one in found) <= 12 * 1024
    assert len(set(found)) == 1
    return str(found[0])


def test_a_termination_message_is_data_that_programs_read() -> None:
    result = json.dumps([{"key": f"k{n}", "value": "ä\t"} for n in range(200)], indent=1)
    message = result.replace("\n", "\r\n")[:3600]
    assert termination_message(message) == message
    assert len(termination_message("x" * 2**20).encode()) == 4096
    assert len(termination_message("ä" * 2**20).encode()) == 4096
    assert len(termination_message("x" * 2**20, count=3).encode()) == 4096
    assert len(termination_message("x" * 2**20, count=12).encode()) == 1024
    assert termination_message("a\tb\nc\rd") == "a\tb\nc\rd"
    assert termination_message("\x1b[2J\x00\u202e") == "\\u001b[2J\\u0000\\u202e"
    assert termination_message(["x"]) == termination_message(7) == ""


SHAPES: dict[str, Object] = {
    "status of a condition": {
        "status": running(conditions=[{"type": "Ready", "status": ["True"]}])
    },
    "name of a mount": {
        "status": running(
            containerStatuses=[
                {**container({"running": {}}), "volumeMounts": [{"name": [], "mountPath": {}}]}
            ],
            conditions=[],
        )
    },
    "annotations": {
        "metadata": {"annotations": ["x"], "generation": 1},
        "status": running(observedGeneration=1, conditions=[]),
    },
    "generation": {
        "metadata": {"annotations": {keys.LOCAL_POD_GENERATION: "9" * 5000}, "generation": 1},
        "status": running(observedGeneration=1, conditions=[]),
    },
    "conditions": {"status": running(conditions=7)},
    "items of conditions": {"status": running(conditions=["Ready", 7, [], None])},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_does_not_fit_its_place_is_absent(shape: str) -> None:
    had = {"phase": "Running", "conditions": [pod_condition("Ready")]}
    pod = local(had)
    pod["metadata"]["generation"] = 1
    offered = {"metadata": {}, **SHAPES[shape]}

    made = status.mirrored(pod, decoded(offered), HOME)

    assert worlds.named_condition(made, "Ready").get("status") != "True"
    assert decisions.remote_refusal(offered) == decisions.remote_deferral(offered) == ""
    assert made["podIP"] == "10.1.0.7"


def test_only_the_first_kibibyte_of_a_message_comes() -> None:
    made = status.mirrored(local(), remote(running(message="x" * 2**20)), HOME)
    assert len(made["message"]) == 1024


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "::1", "::ffff:10.0.0.1", "fe80::1%e",  # noqa: S104  # an address that is refused
     "010.1.1.1", "10.1.0.7/24", "", None, 7],
)  # fmt: skip
def test_an_address_no_pod_has_is_not_published(address: object) -> None:
    made = status.mirrored(local(), remote(running(podIP=address)), HOME)
    assert "podIP" not in made
    assert "podIPs" not in made


@pytest.mark.parametrize(
    "address",
    ["10.2.0.7", "10.0.0.9", "10.96.0.1", "192.168.0.1", "172.17.0.2", "8.8.8.8", "127.0.0.1",
     "169.254.169.254", "224.0.0.1", "0.0.0.0", "255.255.255.255", "10.0.255.255", "10.3.0.0",  # noqa: S104  # an address that is refused
     "::1", "fd00::7", "2001:db8::1", "::ffff:10.1.0.7", "::10.1.0.7", "fe80::1%eth0", "ff02::1",
     "010.1.0.7", "10.1.0.7/32", "10.1.0.7 ", "0x0a010007", "localhost"],
)  # fmt: skip
def test_in_a_fabric_an_address_outside_of_what_was_agreed_is_not_published(address: str) -> None:
    known = networks.remap_of_networks(
        ["10.1.0.0/16", "10.0.8.0/24"], ["10.71.0.0/16", "10.72.8.0/24"]
    )
    fabric = LocalContext("10.0.0.9", NOW, addresses=PodNetworks(known))

    made = status.mirrored(local(), remote(running(podIP=address)), fabric)
    again = status.mirrored(local(made), remote(running(podIP=address)), fabric)
    mended = status.mirrored(local(made), remote(running(podIP="10.0.8.7")), fabric)

    assert "podIP" not in made
    assert "podIPs" not in made
    (said,) = [one for one in made["conditions"] if one["type"] == "pyliqo.io/AddressPublished"]
    assert (said["status"], said["reason"]) == ("False", "ForeignAddress")
    assert address in said["message"]
    assert again == made
    assert mended["podIP"] == "10.72.8.7"
    assert "pyliqo.io/AddressPublished" not in {one["type"] for one in mended["conditions"]}


OWN = networks.cluster_addresses(
    [msgspec.convert(
        {"metadata": {}, "spec": {"podCIDRs": ["10.244.0.0/24"]},
         "status": {"addresses": [{"address": "10.0.0.9"}, {"address": "rome-1"}]}},
        networks.NodeAddresses,
    )],
    [{"endpoints": [{"addresses": ["10.5.0.1"]}]}],
    ["10.96.0.0/12"],
)  # fmt: skip


@pytest.mark.parametrize(
    "address",
    ["10.96.0.1", "10.0.0.9", "10.244.0.7", "10.5.0.1", "192.168.1.10", "0.0.0.1", "240.0.0.1",
     "255.255.255.255", "64:ff9b::a60:1", "100.100.100.200", "2002:a60:1::",
     "2001:0:a60:1:8000:63bf:3fff:fdd2"],
)  # fmt: skip
def test_without_a_fabric_an_address_is_in_a_named_network_and_none_of_ours(address: str) -> None:
    special = ["0.0.0.0/8", "240.0.0.0/4", "64:ff9b::/96", "2001::/32", "2002::/16"]
    wide = networks.parse_networks(["10.0.0.0/8", "100.64.0.0/10", *special])
    home = LocalContext("10.0.0.9", NOW, addresses=PodNetworks(networks=tuple(wide), own=OWN))

    made = status.mirrored(local(), remote(running(podIP=address)), home)
    mended = status.mirrored(local(made), remote(running(podIP="10.1.0.7")), home)

    assert "podIP" not in made
    (said,) = [one for one in made["conditions"] if one["type"] == "pyliqo.io/AddressPublished"]
    assert (said["status"], said["reason"]) == ("False", "ForeignAddress")
    assert mended["podIP"] == "10.1.0.7"


def test_where_nobody_named_networks_a_pod_is_ready_and_says_what_to_type() -> None:
    home = LocalContext("10.0.0.9", NOW)
    ready = running(conditions=[{"type": "Ready", "status": "True"}])
    made = status.mirrored(local(), remote(ready), home)
    assert "podIP" not in made
    found = {one["type"]: one for one in made["conditions"]}
    assert found["Ready"]["status"] == "True"
    assert found["pyliqo.io/AddressPublished"]["reason"] == "NoNetworks"
    assert "--provider-pod-cidr" in found["pyliqo.io/AddressPublished"]["message"]


def test_a_phase_that_is_none_is_before_all_others() -> None:
    made = status.mirrored(local({"phase": "Nonsense"}), remote(running("Pending")), HOME)
    assert made["phase"] == "Pending"


@pytest.mark.parametrize("phase", ["Pending", "Running", "Failed", "Nonsense", None])
def test_a_final_phase_is_final(phase: object) -> None:
    made = status.mirrored(local({"phase": "Succeeded"}), remote(running(phase)), HOME)  # type: ignore[arg-type]  # also nonsense
    assert made["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("policy", "exit_code", "may_leave"),
    [("Always", 0, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_a_container_leaves_its_end_only_where_the_server_lets_it(
    policy: str, exit_code: int, *, may_leave: bool
) -> None:
    before = running()
    before["containerStatuses"] = [container({"terminated": {"exitCode": exit_code}})]
    pod = local(before, restartPolicy=policy)

    made = status.mirrored(pod, remote(running()), HOME)

    assert ("running" in made["containerStatuses"][0]["state"]) is may_leave


def test_a_time_of_tomorrow_or_of_long_ago_is_dropped() -> None:
    late = [pod_condition("Ready") | {"lastTransitionTime": "2027-01-01T00:00:00Z"}]
    early = [pod_condition("Ready") | {"lastTransitionTime": "1970-01-01T00:00:00Z"}]
    for conditions_ in (late, early):
        made = status.mirrored(local(), remote(running(conditions=conditions_)), HOME)
        assert made["conditions"] == [{"type": "Ready", "status": "True"}]


def test_unknown_conditions_of_the_provider_stay_there_and_ours_stay_here() -> None:
    pod = local({"phase": "Running", "conditions": [pod_condition("example.org/Mine")]})
    offered = running(conditions=[pod_condition("Ready"), pod_condition("example.org/Theirs")])

    made = status.mirrored(pod, remote(offered), HOME)

    assert [item["type"] for item in made["conditions"]] == ["Ready", "example.org/Mine"]


@factories.cases("theirs, sent, wants, had, expected")
def test_a_condition_says_which_generation_of_the_local_pod_it_is_about(
    theirs: object, sent: str, wants: int | None, had: Object, expected: int | None
) -> None:
    """The provider has generation 2 of its pod, made of generation ``sent`` of ours."""
    pod = local({"phase": "Running", "conditions": [{**pod_condition("Ready"), **had}]})
    pod["metadata"] |= {} if wants is None else {"generation": wants}
    offered = remote(running(conditions=[pod_condition("Ready") | {"observedGeneration": theirs}]))
    annotations = {keys.LOCAL_POD_GENERATION: sent}
    offered["metadata"] |= {"generation": 2, "annotations": annotations}

    made = status.mirrored(pod, offered, HOME)
    again = status.mirrored({**pod, "status": made}, offered, HOME)

    (ready,) = made["conditions"]
    assert ready.get("observedGeneration") == expected
    assert again == made


@pytest.mark.parametrize("said", ["Disabled", "IfPossible", "Enabled", "Maybe", "", 1, {}])
def test_of_a_mount_only_what_a_kubelet_says_is_told(said: object) -> None:
    mount = {"name": "data", "mountPath": "/data", "readOnly": True}
    main = {**factories.pod_spec()["containers"][0], "volumeMounts": [mount]}
    told = container({"running": {}}) | {"volumeMounts": [{**mount, "recursiveReadOnly": said}]}

    made = status.mirrored(
        local(containers=[main]), remote(running(containerStatuses=[told])), HOME
    )

    known = {"recursiveReadOnly": said} if said in ("Disabled", "IfPossible", "Enabled") else {}
    (found,) = made["containerStatuses"]
    assert found.get("volumeMounts", []) in ([mount | known], [])
    assert bool(known) <= ("volumeMounts" in found)


def test_restarts_of_the_provider_are_added() -> None:
    home = LocalContext("10.0.0.9", NOW, 3, NAMED)
    made = status.mirrored(local(), remote(running(restarts=2)), home)
    assert made["containerStatuses"][0]["restartCount"] == 5


@pytest.mark.parametrize(
    ("after", "is_significant"),
    [
        (worlds.waiting("ContainerCreating"), False),
        (worlds.waiting("PodInitializing"), False),
        (worlds.waiting("ImagePullBackOff"), True),
        ({"phase": "Pending", "conditions": [pod_condition("Initialized")]}, False),
        ({"phase": "Pending", "conditions": [pod_condition("PodScheduled", "False")]}, True),
        ({"phase": "Pending", "reason": "OffloadingBackOff"}, True),
        ({"phase": "Pending", "initContainerStatuses": [container({"running": {}})]}, True),
        (running(), True),
    ],
)
def test_what_is_worth_a_write_while_pending(after: Object, *, is_significant: bool) -> None:
    assert significance.is_significant({"phase": "Pending"}, after) is is_significant


def test_an_aborted_pod_keeps_what_had_ended() -> None:
    over = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    both = [container(over), {**container({"running": {}}), "name": "side"}]
    containers_ = [{"name": "main"}, {"name": "side"}]
    pod = local(running(containerStatuses=both), containers=containers_)

    made = status.aborted(pod, NOW + dt.timedelta(seconds=1))

    states_ = [item["state"] for item in made["containerStatuses"]]
    assert states_[0] == over
    assert states_[1]["terminated"]["exitCode"] == 1
    assert (
        status.aborted({**pod, "status": made}, NOW)["containerStatuses"]
        == made["containerStatuses"]
    )


# Every field of a status --------------------------------------------------------------------------

NOT_TAKEN = factories.table("kubelet")["status"]["not_taken"]
"""What is not the provider's to say. Source: Kubernetes API reference, PodStatus."""
SINCE_136 = {"nodeAllocatableResourceClaimStatuses", "volumeHealth", "volumeStatus"}
"""Fields that API servers have since Kubernetes 1.36 or 1.37."""
STATES: dict[str, Object] = {
    "ContainerStateWaiting": {"reason": "Waits", "message": "said"},
    "ContainerStateRunning": {"startedAt": "2026-01-31T11:00:00Z"},
    "ContainerStateTerminated": {
        "exitCode": 3,
        "signal": 9,
        "reason": "Error",
        "message": "said",
        "startedAt": "2026-01-31T11:00:00Z",
        "finishedAt": "2026-01-31T11:00:01Z",
        "containerID": "containerd://1",
    },
}


def full() -> dict[str, Object]:
    """Return by type what has each field that is taken of a provider."""
    amounts = {"cpu": "1"}
    one = {
        **container({"waiting": STATES["ContainerStateWaiting"]}),
        "lastState": {"terminated": STATES["ContainerStateTerminated"]},
        "containerID": "containerd://1",
        "imageID": "sha256:1",
        "started": True,
        "allocatedResources": amounts,
        "resources": {"limits": amounts, "requests": amounts},
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True, **RECURSIVE}],
        "user": {"linux": {"uid": 1, "gid": 1, "supplementalGroups": [*range(64)]}},
    }
    when = {"lastProbeTime": "2026-01-31T11:00:00Z", "lastTransitionTime": "2026-01-31T11:00:00Z"}
    why = {"reason": "Why", "message": "said", "observedGeneration": 1}
    ready = {"type": "Ready", "status": "True", **when, **why}
    whole = running(conditions=[ready], containerStatuses=[one], reason="Why", message="said")
    more = {"startTime": "2026-01-31T11:00:00Z", "observedGeneration": 1}
    host = {"hostIP": "10.0.0.9", "hostIPs": [{"ip": "10.0.0.9"}]}
    address = {"podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}]}
    kinds = ("initContainerStatuses", "ephemeralContainerStatuses")
    return {
        "PodStatus": {**whole, **more, **host, **address, **{kind: [one] for kind in kinds}},
        "PodCondition": ready,
        "ContainerStatus": one,
        "VolumeMountStatus": one["volumeMounts"][0],
        "LinuxContainerUser": one["user"]["linux"],
        **STATES,
    }


RECURSIVE = {"recursiveReadOnly": "Disabled"}


def test_each_field_of_a_full_status_arrives() -> None:
    mount = {"name": "data", "mountPath": "/data"}
    names = ("containers", "initContainers", "ephemeralContainers")
    amounts = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    main: Object = {"name": "main", "volumeMounts": [mount], "resources": amounts}
    pod = factories.pod(spec={name: [main] for name in names}, status={})
    pod["metadata"]["generation"] = 1
    said = full()["PodStatus"]
    offered = remote(copy.deepcopy(said))
    offered["metadata"]["generation"] = 1
    linux = offered["status"]["containerStatuses"][0]["user"]["linux"]
    linux["supplementalGroups"].append(64)

    made = status.mirrored(pod, offered, HOME)

    assert made == said, "of groups the first 64"


@pytest.mark.cluster
async def test_every_field_of_a_status_that_the_api_server_has_was_judged(plane: Plane) -> None:
    async with client.connect(plane.kubeconfig) as real:
        published = json.loads(await real.get_text("/openapi/v3/api/v1"))["components"]["schemas"]

    for type_, taken in full().items():
        fields = set(published[f"io.k8s.api.core.v1.{type_}"]["properties"])
        judged = {*taken, *NOT_TAKEN.get(type_, {})}
        assert fields <= judged, type_
        assert judged - fields <= SINCE_136, type_


# A container that runs again ---------------------------------------------------------------------


def exit_code_rule(operator: str, *codes: int) -> Object:
    return {"action": "Restart", "exitCodes": {"operator": operator, "values": list(codes)}}


AGAIN: list[tuple[str, str, Object, int]] = [
    *(
        ("containers", policy, {}, code)
        for policy in ("Always", "OnFailure", "Never")
        for code in (0, 3)
    ),
    *(
        ("containers", "Never", {"restartPolicy": own}, code)
        for own in ("Always", "OnFailure", "Never")
        for code in (0, 3)
    ),
    ("containers", "Always", {"restartPolicy": "Never"}, 3),
    ("containers", "Always", {"restartPolicy": "OnFailure"}, 0),
    *(
        ("containers", "Never", {"restartPolicy": "Never", "restartPolicyRules": [found]}, code)
        for found in (exit_code_rule("In", 3, 4), exit_code_rule("NotIn", 3, 4))
        for code in (0, 3)
    ),
    ("initContainers", "Never", {"restartPolicy": "Always"}, 0),
    ("initContainers", "OnFailure", {}, 0),
    ("initContainers", "OnFailure", {}, 3),
    ("ephemeralContainers", "Always", {}, 3),
]
"""Which containers, the policy of the pod, what the container says, how it ended."""


@pytest.mark.cluster
@pytest.mark.parametrize("cluster", ["real"], indirect=True)
async def test_a_container_runs_again_where_the_api_server_lets_it(
    cluster: Cluster, namespace: str
) -> None:
    lets = [
        await is_let(cluster, Key(namespace, f"row-{number}"), row)
        for number, row in enumerate(AGAIN)
    ]
    told = [is_told_to_run(row) for row in AGAIN]
    assert list(zip(AGAIN, told, strict=True)) == list(zip(AGAIN, lets, strict=True))
    assert {True, False} == set(lets)


def with_one(row: tuple[str, str, Object, int], name: str, namespace: str = "shop") -> Object:
    """Return the pod of a row; an ephemeral container comes to a pod that is there."""
    which, policy, own, _ = row
    one = {"name": "one", "image": "nginx", **own}
    main = {"name": "main", "image": "nginx"}
    spec: Object = {"restartPolicy": policy, "containers": [main]}
    spec[which] = [main, one] if which == "containers" else [one]
    return factories.pod(namespace, name, spec=spec)


def container_status(row: tuple[str, str, Object, int], state: Object) -> Object:
    """Return the status of a pod whose container is so."""
    field = row[0].removesuffix("s") + "Statuses"
    return {"phase": "Running", field: [{**container(state), "name": "one"}]}


ENDED_AT = {"startedAt": "2026-01-31T11:00:00Z", "finishedAt": "2026-01-31T11:00:01Z"}
RUNS = {"running": {"startedAt": "2026-01-31T11:00:02Z"}}


async def is_let(real: Cluster, key: Key, row: tuple[str, str, Object, int]) -> bool:
    """Whether the API server takes it that a container runs that has ended."""
    pod = with_one(row, key.name, key.namespace)
    later = {"ephemeralContainers": pod["spec"].pop("ephemeralContainers", [])}
    await real.create(keys.POD, pod)
    if later["ephemeralContainers"]:
        await real.patch(keys.POD, key, {"spec": later}, subresource="ephemeralcontainers")
    over = {"terminated": {"exitCode": row[3], **ENDED_AT}}
    await real.patch_status(keys.POD, key, container_status(row, over))
    try:
        await real.patch_status(keys.POD, key, container_status(row, RUNS))
    except errors.InvalidError as error:
        if "non-terminated state" not in str(error):
            raise
        return False
    return True


def is_told_to_run(row: tuple[str, str, Object, int]) -> bool:
    """Whether a local pod is told that a container runs that has ended."""
    over = {"terminated": {"exitCode": row[3], **ENDED_AT}}
    pod = {**with_one(row, "web"), "status": container_status(row, over)}
    made = status.mirrored(pod, remote(container_status(row, RUNS)), HOME)
    (one,) = made[row[0].removesuffix("s") + "Statuses"]
    return "running" in one["state"]
