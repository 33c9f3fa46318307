"""A consumer attacks a provider that is its consumer, too, and one of a third cluster.

Rome offloads to milan, milan to rome and to turin. Rome uses the identities that milan gave it to
get at what milan asks of rome and of turin. Source: docs/parity.md M4, M5, M6, M8; SEC-A7.
"""

import copy
import functools
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Kind, Object, named
from sandbox import controlplane
from sandbox.kubectl import Kubectl
from tests.peering import world
from tests.peering.world import SPACE, TWIN, Member, World

pytestmark = pytest.mark.cluster

TO_TURIN: Final = naming.tenant_namespace("turin")
FROM_MILAN: Final = naming.tenant_namespace("milan")
WATCHED: Final = (
    "namespacemaps.offloading.liqo.io", "resourceslices.authentication.liqo.io",
    "renews.authentication.liqo.io", "tenants.authentication.liqo.io",
    "identities.authentication.liqo.io", "quotas.offloading.liqo.io",
    "virtualnodes.offloading.liqo.io", "shadowpods.offloading.liqo.io",
    "shadowendpointslices.offloading.liqo.io", "namespaces", "rolebindings", "pods", "services",
    "deployments",
)  # fmt: skip
"""Kinds of which nothing comes, goes or changes its spec by an attack."""


@dataclass(frozen=True)
class Between:
    """All three clusters, and rome's identities at milan."""

    three: World
    control: Kubectl
    kubelet: Kubectl

    @property
    def milan(self) -> Kubectl:
        return self.three["milan"].kubectl


@pytest.fixture(scope="module")
def between(both: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Between]:
    """Peer both ways, and milan with turin; map a namespace each; end what rome runs of ours."""
    directory = tmp_path_factory.mktemp("turin")
    with controlplane.start(directory) as plane:
        plane.start_signer()
        (port,) = controlplane.free_ports(1)
        turin = Member("turin", plane, directory, port)
        turin.prepare()
        turin.start()
        three = World({**both.members, "turin": turin})
        try:
            world.wait(turin.is_ready, "the controllers of turin")
            for consumer, provider in PEERINGS:
                three.peer(consumer, provider)
            both.make_twin(TWIN)
            for provider in ("rome", "turin"):
                map_data(three, provider)
            control = both.identity("rome", "milan")
            slice_ = naming.resourceslice_identity("milan")
            kubelet = both.identity("rome", "milan", slice_)
            both["rome"].kill()
            yield Between(three, control, kubelet)
            both["rome"].start()
            for consumer, provider in PEERINGS:
                three.unpeer(consumer, provider)
        finally:
            turin.stop()


PEERINGS: Final = (("rome", "milan"), ("milan", "rome"), ("milan", "turin"))


def map_data(three: World, provider: str) -> None:
    """Map milan's namespace ``data`` to ``provider``, as its virtual node would have it."""
    key = Key(naming.tenant_namespace(provider), provider)
    labels = {
        keys.REPLICATION: "true", keys.REMOTE_ID: provider, keys.REMOTE_CLUSTER_ID: provider,
    }  # fmt: skip
    spec = {"desiredMapping": {"data": "data-milan"}}
    map_ = named(keys.NAMESPACE_MAP, key, metadata={"labels": labels}, spec=spec)
    three["milan"].kubectl.apply([map_])
    there = three[provider].kubectl
    binding = ("get", "rolebinding", "-n", "data-milan", FROM_MILAN)
    world.wait(lambda: not world.refusal(there, *binding), f"a twin at {provider}")


def state(member: Member) -> dict[str, Object]:
    """Return what there is, by kind and key: uid, marks and spec."""
    found = {}
    for one in member.get(",".join(WATCHED), "-A"):
        metadata = one["metadata"]
        found[called(one)] = {
            "uid": metadata["uid"],
            "labels": metadata.get("labels"),
            "going": "deletionTimestamp" in metadata,
            "spec": one.get("spec") or one.get("subjects"),
        }
    return found


def called(obj: Object) -> str:
    return f"{obj['kind']} {objects.key_of(obj)}"


def unchanged(between: Between, before: dict[str, dict[str, Object]]) -> None:
    """Check that no attack left a trace, once controllers have served what came after it."""
    asks = functools.partial(between.control.run, "patch", "namespacemap", "milan", "-n", SPACE)
    gone = ("get", "namespace", "after-rome")

    def is_there() -> bool:
        return not world.refusal(between.milan, *gone)

    for entry in ("after-rome", None):
        body = json.dumps({"spec": {"desiredMapping": {"after": entry}}})
        asks("--type=merge", "-p", body)
        world.wait(lambda entry=entry: is_there() == bool(entry), "milan to serve rome")
    for name, was in before.items():
        look = functools.partial(state, between.three[name])
        assert world.settled(look, was) == was, name


@pytest.fixture
def before(between: Between) -> dict[str, dict[str, Object]]:
    return {name: state(between.three[name]) for name in between.three.members}


OWN: Final = (
    ("namespacemaps.offloading.liqo.io", "rome", {"desiredMapping": {"data": "stolen"}}),
    ("resourceslices.authentication.liqo.io", "rome", {"resources": {"cpu": "1000"}}),
    ("renews.authentication.liqo.io", "controlplane-rome", {"csr": "AAAA"}),
)
"""What milan itself asks of rome, in the tenant namespace that rome may write in."""
MARKS: Final[dict[str, Object]] = {
    "unmarked": {"labels": {keys.REPLICATION: None}},
    "taken for a replica": {"labels": {keys.REPLICATED: "true", keys.ORIGIN_ID: "rome"}},
    "led elsewhere": {"labels": {keys.REMOTE_ID: "turin"}},
    "held": {"finalizers": ["example.com/held"]},
    "owned": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Namespace", "name": SPACE, "uid": "1"},
    ]},
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name", "spec"), OWN)
def test_what_a_provider_asks_of_its_consumer_is_not_the_consumers_to_write(
    between: Between, before: dict[str, dict[str, Object]], kind: str, name: str, spec: Object
) -> None:
    target = (kind, name, "-n", SPACE)
    assert not world.refusal(between.milan, "get", *target)
    changes: list[Object] = [{"spec": spec}, *({"metadata": each} for each in MARKS.values())]

    said = [
        world.refusal(between.control, "patch", *target, "--type=merge", "-p", json.dumps(change))
        for change in changes
    ]
    said.append(world.refusal(between.control, "delete", *target, "--wait=false"))

    assert [one for one in said if "orbidden" not in one and "denied" not in one] == []
    unchanged(between, before)


def pretending(kind: Kind, labels: Object, spec: Object, **metadata: Any) -> Object:
    return named(kind, Key(SPACE, "forged"), metadata={"labels": labels, **metadata}, spec=spec)


_SLICE: Final = {"resources": {"cpu": "1000000"}, "class": "default"}
_REPLICA: Final = {keys.REPLICATED: "true", keys.ORIGIN_ID: "rome"}
PRETENDING: Final = [
    pretending(kind, labels, spec, **more)
    for kind, spec, more in (
        (keys.NAMESPACE_MAP, {"desiredMapping": {}}, {}),
        (keys.RESOURCE_SLICE, _SLICE, {"annotations": {keys.CREATE_VIRTUAL_NODE: "true"}}),
        (keys.RENEW, {"consumerClusterID": "milan", "identityType": "ControlPlane"}, {}),
    )
    for labels in (
        {},
        *(
            {**marks, keys.REPLICATION: "true", keys.REMOTE_ID: to, keys.REMOTE_CLUSTER_ID: to}
            for marks, to in itertools.product(({}, _REPLICA), ("rome", "turin"))
        ),
    )
]


def test_no_object_of_a_consumer_passes_for_one_of_the_provider(
    between: Between, before: dict[str, dict[str, Object]]
) -> None:
    """M4, M5, M6: neither towards the consumer itself nor towards the third cluster."""
    said = [
        world.refusal(between.control, "create", "-f", "-", stdin=json.dumps(one))
        for one in PRETENDING
    ]

    assert len(said) == 15
    assert [one for one in said if "orbidden" not in one and "denied" not in one] == []
    unchanged(between, before)


def is_replica(obj: Object) -> bool:
    return keys.REPLICATED in objects.labels(obj)


def test_what_was_forged_before_the_policies_moves_nobody(
    between: Between, before: dict[str, dict[str, Object]]
) -> None:
    """With both pairs of marks: an administrator puts it there, as if it had stood there."""
    forged = copy.deepcopy([one for one in PRETENDING if is_replica(one)])
    for number, one in enumerate(forged):
        one["metadata"]["name"] = f"forged-{number}"
    all_of_them = json.dumps({"apiVersion": "v1", "kind": "List", "items": forged})
    between.milan.run("create", "-f", "-", stdin=all_of_them)
    without = {name: was for name, was in before.items() if name != "milan"}
    unchanged(between, without)
    now = state(between.three["milan"])
    assert now.keys() - before["milan"].keys() == {called(one) for one in forged}
    for one in forged:
        assert now[called(one)]["spec"] == (one["spec"] or None)
    between.milan.run("delete", "-f", "-", "--timeout=60s", stdin=all_of_them)
    unchanged(between, before)


def test_twins_of_a_third_cluster_and_what_a_provider_offloads_are_out_of_reach(
    between: Between, before: dict[str, dict[str, Object]]
) -> None:
    """M8, and whatever rome's identities could try in namespaces that are not its own."""
    endpoints = [{"addresses": ["10.9.9.9"]}]
    template = {"endpoints": endpoints, "addressType": "IPv4", "ports": []}
    labels = {keys.ORIGIN: "turin"}
    shadow = named(
        keys.SHADOW_ENDPOINT_SLICE, Key(TWIN, "forged"),
        metadata={"labels": labels}, spec={"template": template},
    )  # fmt: skip
    assert keys.ORIGIN in world.refusal(
        between.kubelet, "create", "-f", "-", stdin=json.dumps(shadow)
    )
    body = json.dumps({"spec": {"desiredMapping": {"x": "y"}}})
    for who, space in itertools.product((between.control, between.kubelet), (TO_TURIN, "liqo")):
        for what in (
            ("get", "secrets"), ("get", "identities"), ("get", "namespacemaps"),
            ("create", "configmap", "x"), ("run", "x", "--image=x"),
            ("patch", "namespacemap", "turin", "--type=merge", "-p", body),
            ("delete", "resourceslices.authentication.liqo.io", "turin"),
            ("delete", "renew", "controlplane-turin"),
        ):  # fmt: skip
            assert "orbidden" in world.refusal(who, *what, "-n", space), (what, space)
    unchanged(between, before)


def test_a_consumer_gets_no_namespace_of_the_providers_own(
    between: Between, before: dict[str, dict[str, Object]]
) -> None:
    """Twins of milan's other peers, their tenant namespaces, and what milan offloads itself."""
    names = {"t": TO_TURIN, "s": SPACE, "d": "data", "l": "liqo"}
    between.milan.run("create", "namespace", "data")
    spec = {"spec": {"desiredMapping": names}}
    patch = ("patch", "namespacemap", "milan", "-n", SPACE, "--type=merge", "-p")
    between.control.run(*patch, json.dumps(spec))

    def phases() -> Object:
        (map_,) = (
            one for one in between.three["milan"].get("namespacemaps", "-n", SPACE)
            if one["metadata"]["name"] == "milan"
        )  # fmt: skip
        current = (map_.get("status") or {}).get("currentMapping") or {}
        return {name: current.get(name, {}).get("phase") for name in names}

    refused = dict.fromkeys(names, "CreationLoopBackOff")
    assert world.settled(phases, refused) == refused
    back = {"spec": {"desiredMapping": dict.fromkeys(names)}}
    between.control.run(*patch, json.dumps(back))
    between.milan.run("delete", "namespace", "data")
    before["milan"].pop("Namespace /data", None)
    unchanged(between, before)
