"""Peering both ways between two clusters, what each may do meanwhile, and what is left after.

Source: docs/parity.md SEC-A8, SEC-A9, SEC-A14, SEC-A20, SEC-A22; § 7.4, 7.5, 8.1.
"""

import base64
import contextlib
import functools
import itertools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apis import authentication, keys, naming, slices
from apis.objects import find_condition
from certs import identity, pki
from sandbox import audit
from sandbox.kubectl import Kubectl
from tests.peering import rights, world
from tests.peering.rights import Somebody
from tests.peering.typed import type_in, typed_blocks
from tests.peering.world import World

pytestmark = pytest.mark.cluster

MANAGER = f"system:serviceaccount:liqo:{keys.CONTROLLER_MANAGER}"
GOLDEN = Path(__file__).with_name("rights-of-a-consumer.txt")
SPACE, TWIN = world.SPACE, world.TWIN
PLACES, ELSEWHERE = (SPACE, TWIN), ("", "liqo")
"""What is allowed in the cluster is allowed in these; elsewhere nothing is bound to rome."""
ROME = (
    Somebody("the control plane", "rome", ("liqo.io",)),
    Somebody("a virtual kubelet", naming.quota_name("milan", "rome"), ("rome",)),
)
MILAN = (
    Somebody("the control plane", "milan", ("liqo.io",)),
    Somebody("a virtual kubelet", naming.quota_name("rome", "milan"), ("milan",)),
)
OURS = "tenants,identities,renews,resourceslices.authentication.liqo.io,namespacemaps"


def of_rome(both: World, *places: str) -> list[str]:
    return rights.sweep(both["milan"].plane.kubeconfig, ROME, places)


def namespaces_bound(both: World) -> list[str]:
    """Return in which namespaces of milan anything is bound to rome; empty is the cluster."""
    found = both["milan"].get("rolebindings,clusterrolebindings", "-A")
    return sorted(
        one["metadata"].get("namespace", "")
        for one in found
        if "rome" in {subject["name"] for subject in one.get("subjects") or []}
    )


def may(both: World, who: Somebody, *what: str) -> bool:
    """Whether milan lets ``who`` do it, by kubectl's word."""
    groups = [f"--as-group={group}" for group in who.groups]
    question = ("auth", "can-i", *what, "-q", f"--as={who.user}", *groups)
    return not world.refusal(both["milan"].kubectl, *question)


def test_both_ways_and_then_one_and_then_none(both: World) -> None:
    """Each direction stands for itself; the rights are those of the golden file, no more."""
    assert world.settled(lambda: of_rome(both, *ELSEWHERE, SPACE), []) == []
    both.peer("rome", "milan", "--cpu=1")
    both.peer("milan", "rome")
    both.peer("rome", "milan")  # again, which changes nothing
    both.make_twin(TWIN)

    places = sorted(["", *PLACES])
    assert world.settled(lambda: namespaces_bound(both), places) == places
    wanted = GOLDEN.read_text(encoding="utf-8").splitlines()
    found = world.settled(lambda: of_rome(both, *PLACES), wanted)
    if os.environ.get("PYLIQO_WRITE_GOLDEN"):
        GOLDEN.write_text("\n".join(found) + "\n", encoding="utf-8")
    assert found == GOLDEN.read_text(encoding="utf-8").splitlines()
    for here in ("rome", "milan"):
        (slice_,) = both[here].get(
            "resourceslices.authentication.liqo.io", "-A", "-l", "liqo.io/replication=true"
        )
        assert {one["status"] for one in slice_["status"]["conditions"]} == {"Accepted"}

    both.unpeer("milan", "rome")

    rome = both["rome"].plane.kubeconfig
    assert world.settled(lambda: rights.sweep(rome, MILAN, ["liqo-tenant-milan"]), []) == []
    assert may(both, ROME[0], "get", "renews", "-n", SPACE)
    both.peer("rome", "milan", "--cpu=2")

    def quotas() -> list[tuple[str, str]]:
        found = [one["spec"] for one in both["milan"].get("quotas.offloading.liqo.io", "-A")]
        return [(spec["user"], spec["resources"]["cpu"]) for spec in found]

    larger = [(naming.quota_name("milan", "rome"), "2")]
    assert world.settled(quotas, larger) == larger

    stolen = both.identity("rome", "milan")
    both.unpeer("rome", "milan")

    assert world.settled(lambda: of_rome(both, *ELSEWHERE, *PLACES), []) == []
    assert world.settled(lambda: namespaces_bound(both), []) == []
    assert "orbidden" in world.refusal(stolen, "get", "renews", "-n", SPACE)
    for member in both.members.values():
        assert world.settled(functools.partial(member.get, OURS, "-A"), []) == []
        left = member.get("secrets", "-A")
        assert {one["metadata"]["name"] for one in left} == {"authentication-keys"}
    assert not world.refusal(both["milan"].kubectl, "get", "namespace", SPACE)


STATUS = {
    "resourceslices.authentication.liqo.io": {"resources": {"cpu": "1000"}},
    "renews.authentication.liqo.io": {"authParams": {"apiServer": "https://evil"}},
    "namespacemaps.offloading.liqo.io": {"currentMapping": {}},
}


def test_a_hostile_consumer_gets_no_further_than_its_three_kinds(both: World) -> None:
    both.peer("rome", "milan")
    both.make_twin(TWIN)
    control, kubelet = (
        both.identity("rome", "milan"),
        both.identity("rome", "milan", naming.resourceslice_identity("milan")),
    )

    names = {"renews.authentication.liqo.io": "controlplane-milan"}
    for (kind, status), who in itertools.product(STATUS.items(), (control, kubelet)):
        body = json.dumps({"status": status})
        for form in ("merge", "json"):
            patch = body if form == "merge" else json.dumps(
                [{"op": "add", "path": "/status", "value": status}]
            )  # fmt: skip
            said = world.refusal(
                who, "patch", kind, names.get(kind, "milan"), "-n", SPACE, "--subresource=status",
                f"--type={form}", "-p", patch,
            )  # fmt: skip
            assert "orbidden" in said, (kind, form)
    for what in (
        ("create", "namespace", "mine"),
        ("create", "quota", "x", "-n", SPACE),
        ("create", "secret", "generic", "liqo-nonce", "-n", SPACE),
        ("create", "serviceaccount", "x", "-n", SPACE),
        ("create", "rolebinding", "x", "-n", SPACE, "--clusterrole=cluster-admin", "--user=rome"),
        ("create", "configmap", "x", "-n", "kube-system"),
        ("run", "x", "--image=x", "-n", TWIN),
        ("run", "x", "--image=x", "-n", SPACE),
        ("get", "tenants", "-A"),
        ("get", "secrets", "-n", SPACE),
        ("get", "secrets", "-n", "liqo"),
        ("get", "nodes"),
        ("get", "namespaces"),
    ):
        assert "orbidden" in world.refusal(control, *what), what
    both.unpeer("rome", "milan")


def test_a_slice_of_the_longest_name_has_an_identity_that_its_provider_knows(both: World) -> None:
    """D5: certificates name at most 64 characters, and a slice has up to 63."""
    name = "s" * 63
    both.peer("rome", "milan")
    try:
        made = both.liqoctl(
            "rome", "create", "resourceslice", name, "--remote-cluster-id", "milan",
            "--no-virtual-node", "--timeout", f"{world.PATIENCE_S}s",
        )  # fmt: skip
        assert made.exit_code == 0, made.output
        who = both.identity("rome", "milan", naming.resourceslice_identity(name))
        refused = world.refusal(who, "get", "configmaps", "-n", "default")
        assert "forbidden: User" in refused, "it is known, and has no right there"
    finally:
        both.unpeer("rome", "milan")


def test_look_alikes_of_our_secrets_mislead_nobody(both: World) -> None:
    """A11: the controllers read Secrets by name, in tenant namespaces only."""
    log = audit.Log(both["milan"].plane.audit_log)
    both.peer("rome", "milan")
    both.make_twin(TWIN)
    kubelet = both.identity("rome", "milan", naming.resourceslice_identity("milan"))
    labels = {
        "liqo-nonce": {keys.NONCE_LABEL: "true"},
        "liqo-signed-nonce": {keys.SIGNED_NONCE_LABEL: "true"},
        "kubeconfig-controlplane-turin": {keys.IDENTITY_TYPE: "ControlPlane"},
        "liqo-remote-certificate": {keys.REMOTE_CLUSTER_ID: "rome"},
        "liqo-webhook-certs": {keys.WEBHOOK_LABEL: "true"},
    }
    for name, own in labels.items():
        metadata = {
            "name": name,
            "namespace": TWIN,
            "labels": {keys.REMOTE_CLUSTER_ID: "rome", **own},
        }
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "data": {"nonce": "eA=="},
        }
        kubelet.run("create", "-f", "-", stdin=json.dumps(secret))
    both.peer("rome", "milan", "--cpu=3")  # while all of this works on

    found = both["milan"].get("secrets", "-n", TWIN)

    assert {one["metadata"]["name"]: one["data"] for one in found} == {
        name: {"nonce": "eA=="} for name in labels
    }
    assert f"{TWIN}/" not in "".join(
        line for line in both["milan"].log().splitlines() if "nonce" in line
    )
    both.unpeer("rome", "milan")
    asked = [
        call
        for call in log.settled(both["milan"].plane.api)
        if call.user == MANAGER and call.resource == "secrets"
    ]
    places = {call.namespace: (call.verb, call.name) for call in asked}
    assert places.keys() - {"liqo"} == {SPACE}, places  # its own key pair is in liqo


def test_what_a_consumer_poisoned_holds_up_no_end(both: World) -> None:
    """A20: 50 objects with finalizers that nobody removes, and owners that do not exist.

    The policy refuses them; those that stand from before it are an administrator's here.
    """
    both.peer("rome", "milan")
    control = both.identity("rome", "milan")
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "liqo", "uid": "1"}
    poisoned = []
    for number in range(50):
        kind = (keys.RESOURCE_SLICE, keys.RENEW)[number % 2]
        made = world.replica(kind, f"poisoned-{number}", spec={})
        made["metadata"] |= {"finalizers": ["rome.example/never"]}
        poisoned.append(made)
    poisoned[0]["metadata"] |= {"ownerReferences": [owner]}
    sent = json.dumps({"apiVersion": "v1", "kind": "List", "items": poisoned})
    said = world.refusal(control, "create", "-f", "-", stdin=sent)
    assert said.count("metadata.finalizers") == len(poisoned)
    both["milan"].kubectl.run("create", "-f", "-", stdin=sent)

    began = time.monotonic()
    both.unpeer("rome", "milan")

    assert world.settled(lambda: both["milan"].get(OURS, "-A"), []) == []
    world.wait(lambda: not may(both, ROME[0], "get", "renews", "-n", SPACE), "the rights to go")
    sys.stderr.write(f"all that was poisoned is gone after {time.monotonic() - began:.1f} s\n")


def test_another_cluster_of_a_peers_name_takes_its_place_on_neither_side(both: World) -> None:
    """B4, A9: rome knows a milan elsewhere, then milan a rome with another key."""
    both.peer("rome", "milan", "--no-create-resource-slice")
    rome, milan = both["rome"].kubectl, both["milan"].kubectl
    own = ("identities.authentication.liqo.io", "controlplane-milan", "-n", "liqo-tenant-milan")
    elsewhere = {"spec": {"authParams": {"apiServer": "https://milan.example:6443"}}}
    again = ("authenticate", "rome", "milan")

    rome.run("patch", *own, "--type=merge", "-p", json.dumps(elsewhere))
    before = rome.get(*own)["spec"]
    refused = both.between(*again)
    assert refused.exit_code == 1
    assert "milan is a peer already, at https://milan.example:6443" in refused.output
    assert rome.get(*own)["spec"] == before
    moved = both.between(*again, "--replace")
    assert moved.exit_code == 0, moved.output
    assert rome.get(*own)["spec"]["authParams"]["apiServer"] != "https://milan.example:6443"

    theirs = ("tenants.authentication.liqo.io", "rome", "-n", SPACE)
    public = base64.b64encode(identity.public_key(identity.new_key())).decode()
    milan.run("patch", *theirs, "--type=merge", "-p", json.dumps({"spec": {"publicKey": public}}))
    refused = both.between(*again)
    assert refused.exit_code == 1
    assert "it is that of another cluster called rome" in refused.output
    assert milan.get(*theirs)["spec"]["publicKey"] == public
    renewed = both.between(*again, "--replace")
    assert renewed.exit_code == 0, renewed.output
    both.unpeer("rome", "milan")


@pytest.mark.parametrize("kind", ["user", "group"])
def test_a_cluster_id_that_somebody_has_is_refused_and_nothing_signed(
    both: World, kind: str
) -> None:
    """A9, with the webhook away."""
    milan = both["milan"].kubectl
    before = len(both["milan"].get("csr"))
    milan.run("create", "rolebinding", "theirs", "--clusterrole=view", f"--{kind}=rome")

    refused = both.between("authenticate", "rome", "milan")

    assert refused.exit_code == 1
    assert "rolebinding default/theirs gives rights to a user or group 'rome'" in refused.output
    assert len(both["milan"].get("csr")) == before
    milan.run("delete", "rolebinding", "theirs")

    def is_free() -> bool:  # which is repeatable, until milan has looked again
        again = both.between("authenticate", "rome", "milan")
        sys.stdout.write(again.output)  # shown where it fails
        return again.exit_code == 0

    world.wait(is_free, "the cluster ID to be free")
    both.peer("rome", "milan")
    milan.run("create", "rolebinding", "theirs", "--clusterrole=view", f"--{kind}=rome")
    own = ("get", "renews", "-n", SPACE)
    world.wait(lambda: not may(both, ROME[0], *own), "the rights to go")
    milan.run("delete", "rolebinding", "theirs")
    world.wait(lambda: may(both, ROME[0], *own), "the rights to come back")
    both.unpeer("rome", "milan")


def test_a_request_for_more_than_ones_name_is_not_signed(both: World) -> None:
    """A8: every slice of this table asks for what is somebody else's."""
    both.peer("rome", "milan")
    control = both.identity("rome", "milan")
    key = both["rome"].secret("liqo", "authentication-keys", "privateKey")
    user = naming.quota_name("hostile", "rome")
    requests = {
        "masters": pki.new_csr(key, common_name=user, organizations=["rome", "system:masters"]),
        "another tenant": pki.new_csr(key, common_name=user, organizations=["turin"]),
        "no group": pki.new_csr(key, common_name=user),
        "another user": pki.new_csr(key, common_name="admin", organizations=["rome"]),
        "a server": pki.new_csr(key, common_name=user, organizations=["rome"], dns=["x"]),
        "another key": pki.new_csr(identity.new_key(), common_name=user, organizations=["rome"]),
        "nonsense": b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n",
    }
    before = len(both["milan"].get("csr"))
    both["rome"].kill()  # its replicator would sweep what has no original
    for name, request in requests.items():
        spec = {
            "consumerClusterID": "rome",
            "providerClusterID": "milan",
            "csr": authentication.encoded(request),
        }
        made = world.replica(keys.RESOURCE_SLICE, "hostile", spec=spec)
        control.run("create", "-f", "-", stdin=json.dumps(made))
        world.wait(lambda: answer(both["milan"].kubectl) == "Denied", f"a denial of {name}")
        control.run("delete", "resourceslices.authentication.liqo.io", "hostile", "-n", SPACE)

    assert len(both["milan"].get("csr")) == before
    both["rome"].start()
    both.unpeer("rome", "milan")


def answer(kubectl: Kubectl) -> str:
    found = kubectl.get("resourceslices.authentication.liqo.io", "hostile", "-n", SPACE)
    conditions = found.get("status", {}).get("conditions") or []
    return next((one["status"] for one in conditions if one["type"] == "Authentication"), "")


KILLS = 4


@contextlib.contextmanager
def dying(both: World) -> Iterator[None]:
    """Kill the controllers of either side a few times meanwhile, each time once they are ready."""
    is_over = threading.Event()

    def kill() -> None:
        for _, name in zip(range(KILLS), itertools.cycle(both.members), strict=False):
            world.wait(lambda name=name: is_over.is_set() or both[name].is_ready(), name)
            both[name].kill()
            both[name].start()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    for member in both.members.values():
        world.wait(member.is_ready, f"the controllers of {member.name}")


def left(both: World) -> set[str]:
    kinds = f"{OURS},quotas.offloading.liqo.io,secrets,rolebindings"
    found = {name: member.get(kinds, "-A") for name, member in both.members.items()}
    return {
        f"{name} {one['kind']} {one['metadata']['namespace']}/{one['metadata']['name']}"
        for name, objects in found.items()
        for one in objects
    }


def test_controllers_that_are_killed_on_the_way_leave_what_the_others_leave(both: World) -> None:
    """A sample of the points of death on real API servers; each one: test_peering_crashes.py."""
    before = left(both)
    both.peer("rome", "milan")
    undisturbed = left(both)
    both.unpeer("rome", "milan")

    with dying(both):
        both.peer("rome", "milan")
    world.wait(lambda: left(both) == undisturbed, "the same peering")
    with dying(both):
        both.unpeer("rome", "milan")

    world.wait(lambda: left(both) == before, "nothing to be left")


def test_a_consumer_is_let_in_without_waiting_for_what_its_controllers_make(both: World) -> None:
    """``authenticate --no-wait``: they are away, and make the kubeconfig once they are back.

    Before, each half of ``authenticate`` alone lets it in.
    """
    rome = both["rome"]
    remote = ("--remote-kubeconfig", str(both["milan"].plane.kubeconfig))
    for half in ("tenant", "identity"):
        made = both.liqoctl("rome", "create", half, *remote, f"--timeout={world.PATIENCE_S}s")
        assert made.exit_code == 0, made.output
    name = naming.controlplane_identity("milan")
    identity = ("identities.authentication.liqo.io", name, "-n", "liqo-tenant-milan")
    rome.kill()
    rome.kubectl.run("delete", *identity)

    done = both.between("authenticate", "rome", "milan", "--no-wait")

    found = rome.kubectl.get(*identity)
    rome.start()
    assert done.exit_code == 0, done.output
    assert "status" not in found
    world.wait(lambda: rome.kubectl.get(*identity).get("status") or {}, "the kubeconfig")
    both.unpeer("rome", "milan")


def test_a_right_that_is_taken_away_is_named_and_all_goes_on_with_it(both: World) -> None:
    """F34: milan's controllers cannot make what rome asks for, until they may again."""
    milan = both["milan"]
    before = len(milan.log())

    def refusals() -> int:
        return len(re.findall(r"cannot \w+ resource \W+quotas", milan.log()[before:]))

    with milan.without("quotas"):
        may = ("auth", "can-i", "list", "quotas.offloading.liqo.io", "-A", "-q", f"--as={MANAGER}")
        world.wait(lambda: world.refusal(milan.kubectl, *may), "the right to be gone")
        done = both.between("peer", "rome", "milan", "--no-create-virtual-node")
        assert done.exit_code == 1
        assert 'cannot list resource "quotas"' in " ".join(done.output.split())
        assert 'cannot list resource "quotas"' in refused_requests(both)
        world.wait(refusals, "the right to be named")
        assert refusals() < 200, "it runs hot"

    world.wait(lambda: milan.get("quotas.offloading.liqo.io", "-A"), "the quota")
    world.wait(lambda: not refused_requests(both), "rome to be told that it is granted")
    both.peer("rome", "milan")
    both.unpeer("rome", "milan")


def test_a_kind_of_ours_that_is_missing_is_named_and_all_goes_on_once_it_is_there(
    both: World,
) -> None:
    """F34: milan lacks the kind Quota while rome peers."""
    milan = both["milan"]
    before = len(milan.log())

    with milan.lacking("quotas.offloading.liqo.io"):
        served = ("get", "--raw", "/apis/offloading.liqo.io/v1beta1/quotas")
        world.wait(lambda: world.refusal(milan.kubectl, *served), "the kind to be gone")
        missing = "does not serve the kind quotas.offloading.liqo.io: its administrator runs"
        done = both.between("peer", "rome", "milan", "--no-create-virtual-node")
        assert done.exit_code == 1
        assert missing in " ".join(done.output.split())
        assert missing in refused_requests(both)
        world.wait(lambda: "quotas" in milan.log()[before:], "the kind to be named")
        told = ("events", "-n", SPACE, "--field-selector=reason=ProviderIncomplete")
        world.wait(lambda: milan.get(*told), "an event")
        assert milan.log()[before:].count("quotas") < 1000, "it runs hot"

    asked = ("get", "quotas.offloading.liqo.io", "-A")
    world.wait(lambda: not world.refusal(milan.kubectl, *asked), "the kind to be served")
    world.wait(lambda: milan.get("quotas.offloading.liqo.io", "-A"), "the quota")
    world.wait(lambda: not refused_requests(both), "rome to be told that it is granted")
    both.peer("rome", "milan")
    both.unpeer("rome", "milan")


def refused_requests(both: World) -> str:
    """Return why rome's slice has no resources, as rome is told; empty when it has."""
    kind = "resourceslices.authentication.liqo.io"
    found = both["rome"].kubectl.get(kind, "milan", "-n", "liqo-tenant-milan")
    said = find_condition((found.get("status") or {}).get("conditions"), slices.RESOURCES) or {}
    return "" if said.get("status") == slices.ACCEPTED else str(said.get("message", "nothing yet"))


def test_a_twin_that_does_not_go_is_told_and_holds_nobody_up(both: World) -> None:
    """F34: somebody holds what is in it; who maps another namespace is served."""
    both.peer("rome", "milan")
    both.make_twin(TWIN)
    milan = both["milan"].kubectl
    held = ("configmap", "held", "-n", TWIN)
    milan.run("create", *held)
    finalizers = '{"metadata": {"finalizers": ["tests.example/held"]}}'
    milan.run("patch", *held, "-p", finalizers)
    rome, where = both["rome"].kubectl, ("namespacemap", "milan", "-n", "liqo-tenant-milan")
    changes = '{"spec": {"desiredMapping": {"shop": null, "other": "other-rome"}}}'
    rome.run("patch", *where, "--type=merge", "-p", changes)

    def phases() -> dict[str, str]:
        current = (rome.get(*where).get("status") or {}).get("currentMapping") or {}
        return {name: entry["phase"] for name, entry in current.items()}

    world.wait(lambda: phases() == {"shop": "Terminating", "other": "Accepted"}, "both answers")
    milan.run("patch", *held, "-p", '{"metadata": {"finalizers": null}}')
    world.wait(lambda: phases() == {"other": "Accepted"}, "the twin to go")
    both.unpeer("rome", "milan")


def test_a_provider_that_is_gone_for_good_is_given_up_and_may_come_back(both: World) -> None:
    """K7, on real API servers: nothing is asked of it, what it keeps is listed."""
    both.peer("rome", "milan")
    both.make_twin(TWIN)
    milan = both["milan"]
    milan.plane.kill_apiserver()

    given_up = both.liqoctl(
        "rome",
        "unpeer",
        "--force",
        "--remote-cluster-id=milan",
        "--skip-confirm",
        f"--timeout={world.PATIENCE_S}s",
    )

    assert given_up.exit_code == 0, given_up.output
    assert f"namespaces {TWIN}" in " ".join(given_up.output.split())
    assert world.settled(lambda: both["rome"].get(OURS, "-A"), []) == []
    assert world.refusal(both["rome"].kubectl, "get", "namespace", "liqo-tenant-milan")
    milan.plane.start_apiserver()
    removed = both.liqoctl("milan", "delete", "tenant", "rome", "--skip-confirm")
    assert removed.exit_code == 0, removed.output
    assert world.settled(lambda: namespaces_bound(both), []) == []
    world.wait(lambda: world.refusal(milan.kubectl, "get", "namespace", TWIN), "the orphan to go")
    both.peer("rome", "milan")
    both.unpeer("rome", "milan")


def test_tenant_namespaces_deleted_amid_a_peering_go_with_all_that_is_in_them(both: World) -> None:
    """R5: what needs rights there ends before they do, though all is deleted in no order.

    While the controllers are away everything goes that nobody holds.
    """
    both.peer("rome", "milan")
    both.make_twin(TWIN)
    for name, space, unheld in (
        ("rome", "liqo-tenant-milan", "identities.authentication.liqo.io"),
        ("milan", SPACE, "secrets"),
    ):
        member = both[name]
        member.kill()
        member.kubectl.run("delete", "namespace", space, "--wait=false")
        what = (unheld, "-n", space)
        world.wait(lambda member=member, what=what: not member.get(*what), f"{unheld} to go")
        member.start()
        gone = ("get", "namespace", space)
        world.wait(lambda member=member, gone=gone: world.refusal(member.kubectl, *gone), space)

    assert world.settled(lambda: of_rome(both, TWIN), []) == []
    world.wait(lambda: world.refusal(both["milan"].kubectl, "get", "namespace", TWIN), "the twin")
    both.peer("rome", "milan")
    both.unpeer("rome", "milan")


def proves_nothing_again(both: World, tenant: Path) -> None:
    """A10: see that what was proved once gets nothing, by no nonce and by none that is new."""
    milan, nonce = both["milan"].kubectl, ("secret", keys.NONCE_SECRET, "-n", SPACE)
    world.wait(lambda: world.refusal(milan, "get", *nonce), "the nonce that was used to go")
    milan.run("apply", "-f", str(tenant))
    world.wait(lambda: judged_request(milan) == "NonceNotFound", "no nonce to be told of")
    made = both.liqoctl("milan", "create", "nonce", "--remote-cluster-id=rome")
    assert made.exit_code == 0, made.output
    world.wait(
        lambda: judged_request(milan) == "SignatureVerificationFailed", "an old proof to be told of"
    )
    assert "authParams" not in milan.get("tenant", "rome", "-n", SPACE)["status"]
    milan.run("delete", "tenant", "rome", "-n", SPACE)
    milan.run("delete", *nonce)


def judged_request(milan: Kubectl) -> str:
    status = milan.get("tenant", "rome", "-n", SPACE).get("status") or {}
    found = find_condition(status.get("conditions"), "Ready") or {}
    return str(found.get("reason", ""))


def test_by_hand_each_side_applies_what_the_other_prints(both: World, tmp_path: Path) -> None:
    """As docs/peering.md has it, word for word; nothing that is typed reaches both clusters."""
    by_hand, back = typed_blocks()
    secret = naming.kubeconfig_secret(naming.controlplane_identity("milan"))
    theirs = ("get", "secret", secret, "-n", "liqo-tenant-milan")
    rome = both["rome"].kubectl

    type_in(both, by_hand, tmp_path)

    world.wait(lambda: not world.refusal(rome, *theirs), "the kubeconfig of the identity")
    control = both.identity("rome", "milan")
    world.wait(lambda: not world.refusal(control, "get", "renews", "-n", SPACE), "to be let in")
    for name, kind, peer in (("milan", "tenant", "rome"), ("rome", "identity", "milan")):
        assert peer in both.liqoctl(name, "get", kind, peer).stdout

    type_in(both, back, tmp_path)
    proves_nothing_again(both, tmp_path / "tenant.yaml")

    world.wait(lambda: "orbidden" in world.refusal(control, "get", "renews", "-n", SPACE), "an end")
    world.wait(lambda: world.refusal(rome, *theirs), "the kubeconfig to go")
    kinds = f"{OURS},secrets"
    for name, space in (("rome", "liqo-tenant-milan"), ("milan", SPACE)):
        gone = (kinds, "-n", space)
        world.wait(lambda name=name, gone=gone: not both[name].get(*gone), f"all in {space} to go")


OF_A_PEERING_USER = (
    "create secrets",  # of one name: the policy says which
    "create tenants.authentication.liqo.io",
    "delete tenants.authentication.liqo.io",
    "get namespaces",
    "get tenants.authentication.liqo.io",
    "list tenants.authentication.liqo.io",
    "patch tenants.authentication.liqo.io",
    "watch tenants.authentication.liqo.io",
)
CLUSTER_ID = ("configmap", keys.CLUSTER_ID_CONFIG_MAP, "-n", "liqo")


def with_account(name: str, type_: str) -> str:
    """Return a Secret that would hold the token of an account, if it is of that type."""
    account = {"kubernetes.io/service-account.name": "default"}
    metadata = {"name": name, "namespace": SPACE, "annotations": account}
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type_}
    return json.dumps(made)


def keeps_what_the_provider_decided(both: World, user: Kubectl) -> None:
    """See that a peering user does not let a consumer back in whom the provider cordoned."""
    tenant, told = ("tenant", "rome", "-n", SPACE), "only administrators of this cluster change"
    patch = ("patch", *tenant, "--dry-run=server", "--type")
    active = (*patch, "merge", "-p", '{"spec":{"tenantCondition":"Active"}}')
    unset = (*patch, "json", "-p", '[{"op":"remove","path":"/spec/tenantCondition"}]')
    cordoned = both.liqoctl("milan", "cordon", "tenant", "rome")
    assert cordoned.exit_code == 0, cordoned.output

    world.wait(lambda: told in world.refusal(user, *active), "the policy")
    for what in (active, unset, ("delete", *tenant, "--dry-run=server")):
        assert told in world.refusal(user, *what), what
    user.run("annotate", *tenant, "seen=yes", "--dry-run=server")  # what else it says is rome's

    again = both.liqoctl("milan", "activate", "tenant", "rome")
    assert again.exit_code == 0, again.output


def keeps_to_the_nonce_that_it_is_given(user: Kubectl) -> None:
    """See that a peering user brings no nonce of its own, at creation or later: A10."""
    generic = ("create", "secret", "generic", "liqo-nonce", "-n", SPACE)
    own, told = "--from-literal=nonce=mine", "only the controllers of this cluster write"
    assert told in world.refusal(user, *generic, own, "--dry-run=server")
    user.run(*generic)
    patch = ("patch", "secret", "liqo-nonce", "-n", SPACE, "-p")
    for field in ("data", "stringData"):
        changes = json.dumps({field: {"nonce": "bWluZQ=="}})
        assert told in world.refusal(user, *patch, changes, "--dry-run=server"), field
    user.run(*patch, '{"metadata": {"labels": {"seen": "yes"}}}')
    user.run("delete", "secret", "liqo-nonce", "-n", SPACE)


def test_a_peering_user_peers_and_may_do_nothing_else(both: World, tmp_path: Path) -> None:
    """A3, A22: not by an account's token either; and nothing at all once it is deleted."""
    milan = both["milan"].plane.kubeconfig
    made = both.liqoctl("milan", "generate", "peering-user", "--consumer-cluster-id=rome")
    assert made.exit_code == 0, made.output
    config = tmp_path / "for-rome.kubeconfig"
    config.touch(mode=0o600)
    config.write_text(made.stdout)
    user, remote = Kubectl(config), f"--remote-kubeconfig={config}"
    who = Somebody("it", json.loads(made.stdout)["users"][0]["name"], (keys.PEER_ORGANIZATION,))
    tenants = ("tenants", "-n", SPACE)
    world.wait(lambda: not world.refusal(user, "get", *CLUSTER_ID), "its rights in liqo")
    world.wait(lambda: not world.refusal(user, "get", *tenants), "its rights as to tenants")

    wanted = [f"it may {what} in {SPACE}" for what in OF_A_PEERING_USER]
    found = world.settled(lambda: rights.sweep(milan, [who], [SPACE, "liqo"]), wanted)

    assert found == wanted
    create, token = ("create", "-f", "-"), "kubernetes.io/service-account-token"
    dry, stdin = (*create, "--dry-run=server"), with_account("liqo-nonce", token)
    world.wait(lambda: "orbidden" in world.refusal(user, *dry, stdin=stdin), "the policy")
    for name, type_ in (("liqo-nonce", token), ("mine", token), ("mine", "Opaque")):
        assert "Secret liqo-nonce of type Opaque" in world.refusal(
            user, *create, stdin=with_account(name, type_)
        )
    keeps_to_the_nonce_that_it_is_given(user)
    for what in (
        ("get", "secrets", "-n", SPACE),
        ("get", "secret", "authentication-keys", "-n", "liqo"),
        ("get", "tenants", "-A"),
        ("get", "namespaces"),
        ("delete", "namespace", SPACE),
    ):
        assert "orbidden" in world.refusal(user, *what), what

    peered = both.liqoctl(
        "rome", "peer", remote, f"--timeout={world.PATIENCE_S}s", "--no-create-virtual-node"
    )

    assert peered.exit_code == 0, peered.output
    own = ("get", "renews", "-n", SPACE)
    world.wait(lambda: may(both, ROME[0], *own), "rome to be let in")
    keeps_what_the_provider_decided(both, user)
    ended = both.liqoctl(
        "rome", "unpeer", remote, f"--timeout={world.PATIENCE_S}s", "--skip-confirm"
    )
    assert ended.exit_code == 0, ended.output
    world.wait(lambda: not may(both, ROME[0], *own), "its rights to go")
    again = both.liqoctl("milan", "generate", "peering-user", "--consumer-cluster-id=rome")
    assert "rome has a peering user" in again.output

    deleted = both.liqoctl("milan", "delete", "peering-user", "--consumer-cluster-id=rome")

    assert deleted.exit_code == 0, deleted.output
    for what in (CLUSTER_ID, tenants):
        world.wait(lambda what=what: "orbidden" in world.refusal(user, "get", *what), "an end")
    assert world.settled(lambda: rights.sweep(milan, [who], [SPACE, "liqo"]), []) == []
    refused = both.liqoctl("rome", "authenticate", remote, f"--timeout={world.PATIENCE_S}s")
    assert refused.exit_code == 1
    assert "orbidden" in refused.output
