"""What a consumer has counts as long as it is there, and goes when its provider says so.

Its own controllers are ended, and it uses the kubeconfigs that milan gave it as it likes. Source:
docs/parity.md M3, M15, M17, M22.
"""

import asyncio
import contextlib
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Object, named
from kube import client, errors
from sandbox.kubectl import Kubectl
from tests.conftest import size_of
from tests.manifests import consumers, twins
from tests.peering import world
from tests.peering.world import SPACE, TWIN, Member, World

pytestmark = pytest.mark.cluster

SLICES: Final = "resourceslices.authentication.liqo.io"
QUOTAS: Final = "quotas.offloading.liqo.io"
ENFORCED: Final = "--enable-resource-enforcement"
FAT: Final = "fat-rome"
LABELLED: Final = size_of("PYLIQO_LABELLED", 100, 2000)
"""How many objects name peers that are none."""


class Held(NamedTuple):
    """Both clusters, and rome's two identities at milan."""

    both: World
    control: Kubectl
    kubelet: Kubectl

    @property
    def milan(self) -> Kubectl:
        return self.both["milan"].kubectl

    def get(self, kind: str, name: str, space: str = SPACE) -> Object:
        """Return one object; nothing where it is gone."""
        return next(
            (one for one in self.both["milan"].get(kind, "-n", space)
             if one["metadata"]["name"] == name), {},
        )  # fmt: skip

    def ask(self, name: str, **spec: Any) -> None:
        pod = {"containers": [{"name": "app", "image": "app"}], **spec}
        user = naming.quota_name("milan", "rome")  # as the webhook writes it
        metadata = {"labels": {keys.ORIGIN: "rome", keys.CREATOR_USER: user}}
        made = named(keys.SHADOW_POD, Key(TWIN, name), metadata=metadata, spec={"pod": pod})
        self.kubelet.run("create", "-f", "-", stdin=json.dumps(made))

    def verdict(self, name: str) -> str:
        """Return why a ShadowPod has no Pod; empty as long as that is not told."""
        status = self.get("shadowpods", name, TWIN).get("status") or {}
        found = objects.find_condition(status.get("conditions"), "Admitted") or {}
        return str(found.get("reason")) if found.get("status") == "False" else ""


def restart(member: Member, *flags: str) -> None:
    member.kill()
    member.start(*flags)
    world.wait(member.is_ready, f"the controllers of {member.name}")


@pytest.fixture(scope="module")
def held(both: World) -> Iterator[Held]:
    """Peer, make a twin, end what rome runs of ours; milan counts what its Quotas hold."""
    both.peer("rome", "milan")
    both.make_twin(TWIN)
    control = both.identity("rome", "milan")
    kubelet = both.identity("rome", "milan", naming.resourceslice_identity("milan"))
    both["rome"].kill()
    restart(both["milan"], ENFORCED)
    yield Held(both, control, kubelet)
    restart(both["milan"])
    both["rome"].start()
    both.unpeer("rome", "milan")


def test_whom_the_policies_are_tested_with_is_who_peering_makes(held: Held) -> None:
    def flags(who: Kubectl) -> tuple[str, ...]:
        told = json.loads(who.run("auth", "whoami", "-o", "json"))["status"]["userInfo"]
        return (f"--as={told['username']}", *(f"--as-group={one}" for one in told["groups"]))

    assert flags(held.control) == consumers.ROME
    assert flags(held.kubelet) == consumers.KUBELET
    assert flags(held.kubelet) == twins.ROME


def watches(held: Held) -> int:
    """Return how many watches milan's API server has open."""

    async def read() -> str:
        async with client.connect(held.milan.kubeconfig, user_agent="tests") as found:
            return await found.get_text("/metrics")

    text = asyncio.run(read())
    lines = re.findall(
        r'^apiserver_longrunning_requests\{.*verb="WATCH".*\} (\d+)', text, re.MULTILINE
    )
    return sum(map(int, lines))


def test_peers_that_objects_make_up_cost_no_watch(held: Held) -> None:
    """M15: what was labelled before the policies stands; an administrator puts it there."""
    names = [f"x{number}" for number in range(LABELLED)]
    items = [
        named(
            keys.NAMESPACE_MAP, Key(SPACE, name), spec={"desiredMapping": {"a": "a-rome"}},
            metadata={"labels": {keys.REPLICATION: "true", keys.REMOTE_ID: name}},
        )
        for name in names
    ]  # fmt: skip
    refused = world.refusal(held.control, "create", "-f", "-", stdin=json.dumps(items[0]))
    before = watches(held)

    held.milan.apply(items)
    gone = ("get", "namespace", "after-rome")

    def is_there() -> bool:
        return not world.refusal(held.milan, *gone)

    for entry in ("after-rome", None):  # which shows that they were looked at
        changes = json.dumps({"spec": {"desiredMapping": {"after": entry}}})
        patch = ("patch", "namespacemap", "milan", "-n", SPACE, "--type=merge", "-p", changes)
        held.control.run(*patch)
        world.wait(lambda entry=entry: is_there() == bool(entry), "an answer")

    assert "orbidden" in refused or "denied" in refused
    # Each would cost one at least; a few may still come of the peering itself.
    assert watches(held) - before < len(names) / 2
    held.milan.run("delete", "namespacemaps", *names, "-n", SPACE, "--wait=false")


def test_what_a_policy_no_longer_allows_is_not_made_again(held: Held) -> None:
    """M22."""
    high: Object = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 7}
    fields = {"allowedPodFields": {"priorityClassNames": ["high"]}}
    policy = named(keys.PROVIDER_POLICY, Key("", "rome"), spec=fields)
    held.milan.apply([{**high, "metadata": {"name": "high"}}, policy])
    held.ask("urgent", priorityClassName="high")
    world.wait(lambda: held.get("pods", "urgent", TWIN), "a Pod")

    held.milan.run("delete", "providerpolicy", "rome")
    held.milan.run("delete", "pod", "urgent", "-n", TWIN, "--grace-period=0", "--force")

    told = world.settled(lambda: held.verdict("urgent"), "PolicyRefused")
    assert told == "PolicyRefused"
    assert not held.get("pods", "urgent", TWIN)
    held.kubelet.run("delete", "shadowpod", "urgent", "-n", TWIN)
    held.milan.run("delete", "priorityclass", "high")


def cordoned(held: Held) -> list[bool]:
    found = held.both["milan"].get(QUOTAS, "-n", SPACE)
    return [one["spec"].get("cordoned") is True for one in found]


def test_a_cordon_reaches_a_slice_that_denies_whose_it_is(held: Held) -> None:
    """M3: its label had gone before the policies."""
    label = ("label", SLICES, "milan", "-n", SPACE, "--overwrite")
    held.milan.run(*label, f"{keys.REPLICATED}-")

    done = held.both.liqoctl("milan", "cordon", "tenant", "rome")

    assert done.exit_code == 0, done.output
    assert world.settled(lambda: cordoned(held), [True]) == [True]
    held.ask("late")
    world.wait(lambda: held.verdict("late"), "a verdict")
    assert not held.get("pods", "late", TWIN)
    held.kubelet.run("delete", "shadowpod", "late", "-n", TWIN)
    held.milan.run(*label, f"{keys.REPLICATED}=true")
    done = held.both.liqoctl("milan", "uncordon", "tenant", "rome")
    assert done.exit_code == 0, done.output
    assert world.settled(lambda: cordoned(held), [False]) == [False]


def bound(held: Held) -> int:
    found = held.both["milan"].get("rolebindings,clusterrolebindings", "-A")
    return sum(
        "rome" in {subject["name"] for subject in one.get("subjects") or []} for one in found
    )


def fill(held: Held) -> None:
    """Have rome fill a map to the last byte, as it could before the kind had bounds: X3."""
    crd = ("crd", "namespacemaps.offloading.liqo.io")
    (bounded,) = [one for one in held.both["milan"].get("crd") if one["metadata"]["name"] == crd[1]]
    where = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/desiredMapping"
    schema: Any = bounded
    for name in where.split("/")[1:]:
        schema = schema[0 if name == "0" else name]
    free = {"type": "object", "additionalProperties": {"type": "string"}}

    def judge_by(schema: Object) -> None:
        changes = json.dumps([{"op": "replace", "path": where, "value": schema}])
        held.milan.run("patch", *crd, "--type=json", "-p", changes)

    judge_by(free)
    made = world.replica(keys.NAMESPACE_MAP, "fat", spec={"desiredMapping": {"fat": FAT}})
    held.control.run("create", "-f", "-", stdin=json.dumps(made))
    world.wait(
        lambda: not world.refusal(held.milan, "get", "rolebinding", "-n", FAT, SPACE), "a twin"
    )
    asyncio.run(_fill(held.control.kubeconfig))
    judge_by(schema)


async def _fill(rome: Path) -> None:
    """Add to the map until not one byte more fits in, whatever the controllers write meanwhile."""
    where = Key(SPACE, "fat")
    async with client.connect(rome, user_agent="hostile") as control:

        async def takes(**mapping: str) -> bool:
            try:
                await control.patch(
                    keys.NAMESPACE_MAP, where, {"spec": {"desiredMapping": mapping}}
                )
            except errors.BusyError as error:
                if not errors.is_too_large(error):
                    raise
                return False
            return True

        async with asyncio.timeout(world.PATIENCE_S):
            while True:  # until the kind is no longer the bounded one
                with contextlib.suppress(errors.InvalidError):
                    assert await takes(y="Z" * 10**6)
                    break
        fits, beyond = 0, 10**6
        while beyond - fits > 1:
            size = (fits + beyond) // 2
            fits, beyond = (size, beyond) if await takes(z="Z" * size) else (fits, size)


def test_a_drain_waits_and_by_force_it_takes_rights_and_namespaces(held: Held) -> None:
    """M17: rome evicts nothing, whatever it is asked; X3: one of its maps is full."""
    held.ask("stays")
    fill(held)
    no_room = world.refusal(held.milan, "annotate", "namespacemap", "fat", "-n", SPACE, "a=b")
    assert "request is too large" in no_room

    def booked() -> list[str]:
        quotas = held.both["milan"].get(QUOTAS, "-n", SPACE)
        return [one.get("status", {}).get("booked", {}).get("pods", "0") for one in quotas]

    assert world.settled(booked, ["1"]) == ["1"]
    drain = ("drain", "tenant", "rome", "--skip-confirm", "--timeout=3s")
    rights = bound(held)

    refused = held.both.liqoctl("milan", *drain)

    assert refused.exit_code == 1
    assert "there are left 1 pods" in " ".join(refused.output.split())
    assert held.get("tenants", "rome")["spec"]["tenantCondition"] == "Cordoned"
    assert bound(held) == rights == 4
    assert held.get("pods", "stays", TWIN)

    forced = held.both.liqoctl("milan", *drain, "--force")

    assert "its rights and namespaces are taken" in " ".join(forced.output.split())
    assert held.get("tenants", "rome")["spec"]["tenantCondition"] == "Drained"
    done = held.both.liqoctl("milan", *drain[:-1], "--timeout=60s")
    assert done.exit_code == 0, done.output
    assert bound(held) == 0  # at once: it says so when it is
    gone = ("get", "namespace", TWIN)
    world.wait(lambda: world.refusal(held.milan, *gone), "the end of the twin")
    for kind in ("shadowpods", "pods", "namespacemaps", SLICES, "renews", QUOTAS):
        look = functools.partial(held.both["milan"].get, kind, "-A")
        assert world.settled(look, []) == []
    for who in (held.control, held.kubelet):
        assert "orbidden" in world.refusal(who, "get", "namespacemaps", "-n", SPACE)
        assert "orbidden" in world.refusal(who, "get", "shadowpods", "-n", TWIN)
