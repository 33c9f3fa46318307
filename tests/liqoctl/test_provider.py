"""What a provider's administrator types: sharing, cordon, drain; and slices, on a real server."""

import contextlib
import functools
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from apis import keys, objects, resources
from apis.objects import Key, Object, named
from apis.providerpolicy import ProviderPolicy
from apis.slices import ResourceSlice
from controllers.granting.grants.forge.division import SliceDemand, divide
from kube import informer
from kube.client import ClusterClient
from liqoctl.forge import resourceslice, sharing
from tests import factories
from tests.controllers.slicereplicas import AUTHENTICATED, replica
from tests.liqoctl.test_on_servers import Server

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def allocatable_node(name: str, **allocatable: str) -> Object:
    return factories.node(name, status={**READY, "allocatable": allocatable})


def pod(name: str, user: str = "", **requests: str) -> Object:
    spec = factories.pod_spec(nodeName="a")
    spec["containers"][0]["resources"] = {"requests": requests}
    labels = {keys.CREATOR_USER: user} if user else {}
    return factories.pod(name=name, spec=spec, metadata={"labels": labels})


def seen(**parts: Any) -> sharing.ProviderState:
    found: dict[str, Any] = {"nodes": [], "pods": [], "slices": [], "tenants": [], "policies": []}
    return sharing.ProviderState(**{**found, **parts})


TENANT = named(keys.TENANT, Key("liqo-tenant-rome", "rome"), spec={"clusterID": "rome"})


def test_what_is_shown_is_what_the_controllers_grant() -> None:
    mine = replica(Key("liqo-tenant-rome", "pool"), "rome", "shared", {})
    mine["status"] = {"resources": {"cpu": "40"}}
    found = sharing.shown(
        seen(
            nodes=[allocatable_node("a", cpu="100", pods="110")],
            pods=[pod("local", cpu="50"), pod("theirs", "pool-a8a4c692b93b", cpu="20")],
            slices=[mine],
            tenants=[TENANT],
        )
    )

    (rome,) = found
    assert (rome["tenant"], rome["policy"], rome["rounding"]) == ("rome", "(none)", "AtLeastOne")
    cpu = {"free": "50", "percentage": 90, "shared": "45", "granted": "40"}
    assert rome["resources"]["cpu"] == cpu
    assert rome["resources"]["pods"]["shared"] == "98"
    assert sharing.rows(found)[0] == ("rome", "(none)", "cpu", "50", "90", "45", "40")


def test_a_policy_of_a_tenants_own_starts_as_a_copy_of_the_default() -> None:
    default = {"spec": {"limits": {"cpu": "9"}, "sharing": {"percentage": 80}}}
    wanted = sharing.SharingOptions("rome", 50, {"nvidia.com/gpu": 100}, "Down", {"cpu": "3"})

    made = sharing.policy(wanted, None, default)

    assert made["metadata"]["name"] == "rome"
    assert made["spec"] == {
        "limits": {"cpu": "3"},
        "sharing": {"percentage": 50, "resources": {"nvidia.com/gpu": 100}, "rounding": "Down"},
    }
    assert default["spec"] == {"limits": {"cpu": "9"}, "sharing": {"percentage": 80}}


def test_limits_of_all_tenants_together_are_not_copied_for_one() -> None:
    """Each policy is a bound of its own: a copy would let the tenants have twice as much."""
    default = {"spec": {"limits": {"cpu": "9", "memory": "1Ti"}}}
    lower = sharing.SharingOptions("rome", 50)

    with pytest.raises(ValueError, match="limits cpu to 9, memory to 1Ti for all its tenants"):
        sharing.policy(lower, None, default)
    with pytest.raises(ValueError, match="add --limits memory=AMOUNT"):
        sharing.policy(replace(lower, limits={"cpu": "1"}), None, default)
    own = {"spec": {"limits": {"cpu": "2"}}}
    assert sharing.policy(lower, own, default)["spec"]["limits"] == {"cpu": "2"}
    everybody = sharing.policy(sharing.SharingOptions(limits={"cpu": "8"}), default, default)
    assert everybody["spec"]["limits"] == {"cpu": "8", "memory": "1Ti"}
    assert "limits" not in sharing.policy(lower, None, {"spec": {}})["spec"]


def test_a_percentage_of_a_tenants_own_grants_no_more_in_all() -> None:
    """By the division of the controllers: rome has all that default grants, so has nobody else."""
    default = named(keys.PROVIDER_POLICY, Key("", "default"), spec={"limits": {"cpu": "100"}})
    wanted = sharing.SharingOptions("turin", 50, limits={"cpu": "1"})
    own = sharing.policy(wanted, None, default)
    found = [ProviderPolicy.parse(each) for each in (default, own)]

    claims = [
        SliceDemand(
            Key(name, name),
            tenant=name,
            wanted={"cpu": resources.parse_quantity("100")},
            policy=policy,
        )
        for name, policy in zip(("rome", "turin"), found, strict=True)
    ]
    shares = divide(claims, {})

    assert [str(shares[one.key].now["cpu"]) for one in claims] == ["100", "1"]


def test_what_is_not_said_stays() -> None:
    existing = {"spec": {"sharing": {"percentage": 70, "rounding": "Down"}}}

    made = sharing.policy(sharing.SharingOptions(percentage=60), existing, existing)

    assert made["spec"] == {"sharing": {"percentage": 60, "rounding": "Down"}}


def test_a_slice_is_answered_by_one_no_or_two_answers() -> None:
    def answered(**said: str) -> bool:
        listed = [{"type": type_, "status": status} for type_, status in said.items()]
        return resourceslice.is_answered({"metadata": {}, "status": {"conditions": listed}})

    assert answered(Authentication="Denied")
    assert answered(Authentication="Accepted", Resources="Denied")
    assert answered(Authentication="Accepted", Resources="Accepted")
    assert not answered(Authentication="Accepted")
    assert not resourceslice.is_answered(None)


# On a real API server -----------------------------------------------------------------------------


@pytest.fixture
def server(plane: Any, crds: None) -> Server:
    return Server(plane)


@pytest.mark.cluster
def test_sharing_is_set_and_shown(server: Server) -> None:
    assert server.liqoctl("set", "sharing").exit_code == 2
    assert server.liqoctl("set", "sharing", "--resource", "x/gpu=101").exit_code == 2
    printed = server.liqoctl("set", "sharing", "--sharing-percentage", "70", "-o", "yaml")
    assert "percentage: 70" in printed.stdout
    assert server.get(keys.PROVIDER_POLICY, Key("", "default")) is None

    assert server.liqoctl("set", "sharing", "--sharing-percentage", "70").exit_code == 0
    own = ("--tenant", "genoa", "--resource", "x/gpu=50")
    said = server.liqoctl("set", "sharing", *own)
    again = server.liqoctl("set", "sharing", *own)

    assert "providerpolicy genoa: created, a copy of default" in said.stderr
    assert "is as asked for already" in again.stderr
    made = server.get(keys.PROVIDER_POLICY, Key("", "genoa"))
    assert made
    assert made["spec"]["sharing"] == {
        "percentage": 70,
        "resources": {"x/gpu": 50},
        "rounding": "AtLeastOne",
    }

    async def tenant(cluster: ClusterClient) -> None:
        space, spec = "liqo-tenant-genoa", {"clusterID": "genoa"}
        await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", space)))
        await cluster.create(keys.TENANT, named(keys.TENANT, Key(space, "genoa"), spec=spec))
        allocatable = {"cpu": "10", "x/gpu": "4"}
        await cluster.create(keys.NODE, named(keys.NODE, Key("", "genoa-1"), spec={}))
        await cluster.patch_status(
            keys.NODE, Key("", "genoa-1"), {**READY, "allocatable": allocatable}
        )

    server.do(tenant)
    table = server.liqoctl("get", "sharing").stdout.splitlines()
    assert table[0].split() == list(sharing.HEADER)
    rows = [line.split() for line in table if line.startswith("genoa ")]
    (gpu,) = [row for row in rows if row[2] == "x/gpu"]
    assert gpu == ["genoa", "genoa", "x/gpu", "4", "50", "2", "0"]
    (cpu,) = [row for row in rows if row[2] == "cpu"]
    assert (cpu[1], cpu[4]) == ("genoa", "70"), "of nodes that other tests left, too"
    assert server.liqoctl("set", "sharing", "--limits", "cpu=9").exit_code == 0
    refused = server.liqoctl("set", "sharing", "--tenant", "pisa", "--sharing-percentage", "10")
    assert refused.exit_code == 1
    assert "add --limits cpu=AMOUNT for pisa alone" in " ".join(refused.stderr.split())
    assert server.get(keys.PROVIDER_POLICY, Key("", "pisa")) is None

    async def clean(cluster: ClusterClient) -> None:
        node = await cluster.get(keys.NODE, Key("", "genoa-1"))
        assert node
        await cluster.delete(keys.NODE, Key("", "genoa-1"), uid=node["metadata"]["uid"])
        for name in ("default", "genoa"):
            found = await cluster.get(keys.PROVIDER_POLICY, Key("", name))
            assert found
            uid = found["metadata"]["uid"]
            await cluster.delete(keys.PROVIDER_POLICY, Key("", name), uid=uid)

    server.do(clean)


@contextlib.contextmanager
def controlled(server: Server, tenant: Key, reason: str) -> Iterator[None]:
    """Say of a Tenant, as the controllers do, what becomes of it once it is to be drained."""

    def is_to_go(found: Object | None) -> bool:
        return objects.spec(found).get("tenantCondition") == "Drained"

    async def answer(cluster: ClusterClient) -> None:
        found = await informer.until(cluster, keys.TENANT, tenant, is_to_go)
        assert found
        ready = {
            "type": "Ready",
            "status": "False",
            "reason": reason,
            "message": "1 are going",
            "observedGeneration": found["metadata"]["generation"],
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await cluster.patch_status(keys.TENANT, tenant, {"conditions": [ready]})

    answering = threading.Thread(target=server.do, args=[answer])
    answering.start()
    try:
        yield
    finally:
        answering.join()


@pytest.mark.cluster
def test_tenants_and_slices_are_cordoned_drained_and_taken_back(server: Server) -> None:
    space = "liqo-tenant-siena"
    tenant, slice_ = Key(space, "siena"), Key(space, "vault")

    async def prepare(cluster: ClusterClient) -> None:
        await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", space)))
        spec = {"clusterID": "siena"}
        await cluster.create(keys.TENANT, named(keys.TENANT, tenant, spec=spec))
        await cluster.create(keys.RESOURCE_SLICE, replica(slice_, "siena", "", {"cpu": "1"}))
        await cluster.patch_status(keys.RESOURCE_SLICE, slice_, AUTHENTICATED)

    def condition() -> str:
        return str((server.get(keys.TENANT, tenant) or {})["spec"].get("tenantCondition"))

    def marks() -> dict[str, str]:
        found = server.get(keys.RESOURCE_SLICE, slice_) or {"metadata": {}}
        given: dict[str, str] = found["metadata"].get("annotations") or {}
        return given

    server.do(prepare)
    assert server.liqoctl("cordon", "tenant", "siena").exit_code == 0
    assert condition() == "Cordoned"
    assert server.liqoctl("uncordon", "tenant", "siena").exit_code == 0
    assert condition() == "Active"
    told = server.liqoctl("uncordon", "tenant", "siena")
    assert told.exit_code == 0
    assert "WARN" in told.stderr
    assert "is not cordoned but Active" in told.stderr

    which = ("resourceslice", "vault", "--remote-cluster-id", "siena")
    assert server.liqoctl("cordon", *which).exit_code == 0
    assert marks() == {keys.CORDON: "true"}
    assert server.liqoctl("drain", *which).exit_code == 0  # no Quota: no pod is left
    assert marks() == {keys.CORDON: "true", keys.DRAIN: "true"}
    assert server.liqoctl("uncordon", *which).exit_code == 0
    assert marks() == {}
    assert "does not exist" in server.liqoctl("cordon", "resourceslice", "none").stderr

    assert server.liqoctl("drain", "tenant", "siena", answer="n\n").exit_code == 1
    assert condition() == "Active"
    with controlled(server, tenant, "Drained"):
        assert server.liqoctl("drain", "tenant", "siena", "--skip-confirm").exit_code == 0
    assert condition() == "Drained"
    told = server.liqoctl("uncordon", "tenant", "siena")
    assert told.exit_code == 0
    assert "is not cordoned but Drained; liqoctl activate tenant siena" in told.stderr
    assert condition() == "Drained"
    assert server.liqoctl("activate", "tenant", "siena").exit_code == 0
    assert condition() == "Active"

    table = server.liqoctl("get", "resourceslice", "vault", "-n", space).stdout.splitlines()
    assert table[1].split() == ["vault", "siena", "Providing", "-", "Accepted", "-", "-", "-", "-"]
    shown = json.loads(server.liqoctl("get", "rs", "vault", "-n", space, "-o", "json").stdout)
    assert resources.parse_resources(shown["spec"]["resources"]) == resources.parse_resources(
        {"cpu": "1"}
    )
    assert server.liqoctl("get", "rs", "nothing").exit_code == 1


@pytest.mark.cluster
def test_a_consumer_that_evicts_nothing_is_cordoned_at_once_and_drained_by_force(
    server: Server,
) -> None:
    """Nobody plays the consumer here: what it holds stays, of a slice and of none."""
    space = "liqo-tenant-cortona"
    tenant, slice_, quota = (Key(space, name) for name in ("cortona", "vault", "of-no-slice"))

    async def prepare(cluster: ClusterClient) -> None:
        await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", space)))
        await cluster.create(keys.TENANT, named(keys.TENANT, tenant, spec={"clusterID": "cortona"}))
        await cluster.create(keys.RESOURCE_SLICE, replica(slice_, "cortona", "", {"cpu": "1"}))
        spec = {"user": "of-no-slice", "resources": {"cpu": "1"}}
        await cluster.create(keys.QUOTA, named(keys.QUOTA, quota, spec=spec))
        await cluster.patch_status(keys.QUOTA, quota, {"booked": {"pods": "3"}})

    def condition() -> str:
        return str((server.get(keys.TENANT, tenant) or {})["spec"].get("tenantCondition"))

    server.do(prepare)
    drain = ("drain", "tenant", "cortona", "--skip-confirm", "--timeout", "3s")

    refused = server.liqoctl(*drain)

    assert refused.exit_code == 1
    told = " ".join(refused.stderr.split())
    assert f"after 3s there are left 3 pods of quota {quota}; it stays Cordoned" in told
    assert condition() == "Cordoned"
    drained = (server.get(keys.RESOURCE_SLICE, slice_) or {})["metadata"]["annotations"]
    assert drained[keys.DRAIN] == "true"

    server.do(functools.partial(run_unbooked, quota, Key("shop-cortona", "web")))
    unbooked = " ".join(server.liqoctl(*drain).stderr.split())
    assert "after 3s there are left pod shop-cortona/web; it stays Cordoned" in unbooked

    with controlled(server, tenant, "Draining"):
        forced = server.liqoctl(*drain, "--force")

    assert forced.exit_code == 1, forced.stderr
    told = " ".join(forced.stderr.split())
    assert "taken all the same" in told
    assert f"still waiting for tenant {tenant} to be drained: Draining: 1 are going" in told
    assert condition() == "Drained"

    again = server.liqoctl(*drain)
    assert again.exit_code == 1
    told = " ".join(again.stderr.split())
    assert f"tenant {tenant}: is not drained after 3s: Draining: 1 are going" in told
    with controlled(server, tenant, "Drained"):
        done = server.liqoctl(*drain)
    assert done.exit_code == 0, done.stderr


@pytest.mark.cluster
def test_what_its_quota_still_lets_in_is_not_called_cordoned(server: Server) -> None:
    """Nobody closes the Quota, then it is closed; a slice that is full is emptied for its mark."""
    space = "liqo-tenant-prato"
    tenant, slice_ = Key(space, "prato"), Key(space, "vault")
    quota = Key(space, ResourceSlice(slice_, "prato").user)

    async def prepare(cluster: ClusterClient) -> None:
        await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", space)))
        await cluster.create(keys.TENANT, named(keys.TENANT, tenant, spec={"clusterID": "prato"}))
        full = replica(slice_, "prato", "", {"cpu": "1"})
        full["metadata"]["annotations"] = {"a.b/x": "x" * (262_144 - len("a.b/x"))}
        made = await cluster.create(keys.RESOURCE_SLICE, full)
        owner = {
            "apiVersion": keys.RESOURCE_SLICE.api_version,
            "kind": "ResourceSlice",
            "name": slice_.name,
            "uid": objects.uid(made),
            "controller": True,
        }
        spec = {"user": quota.name, "resources": {"cpu": "1"}}
        owned = named(keys.QUOTA, quota, metadata={"ownerReferences": [owner]}, spec=spec)
        await cluster.create(keys.QUOTA, owned)

    async def close(cluster: ClusterClient) -> None:
        await cluster.patch(keys.QUOTA, quota, {"spec": {"cordoned": True}})

    server.do(prepare)
    of_slice = ("cordon", "resourceslice", "vault", "--remote-cluster-id", "prato")
    of_tenant = ("cordon", "tenant", "prato")

    for command in (of_tenant, of_slice):
        waited = server.liqoctl(*command, "--timeout", "1s")
        assert waited.exit_code == 1
        told = " ".join(waited.stderr.split())
        assert f"still waiting for quota {quota} to be cordoned" in told
        assert "INFO" not in told
    server.do(close)
    assert "is Cordoned already" in server.liqoctl(*of_tenant).stderr
    assert f"resourceslice {slice_}: cordoned" in server.liqoctl(*of_slice).stderr
    marked = server.get(keys.RESOURCE_SLICE, slice_)
    assert marked
    assert objects.annotations(marked) == {keys.CORDON: "true"}


async def run_unbooked(quota: Key, pod: Key, cluster: ClusterClient) -> None:
    """Have a pod of a consumer that its Quota does not tell of yet."""
    await cluster.patch_status(keys.QUOTA, quota, {"booked": {"pods": "0"}})
    twin = factories.namespace(pod.namespace, **{keys.REMOTE_CLUSTER_ID: "cortona"})
    await cluster.create(keys.NAMESPACE, twin)
    account = named(keys.SERVICE_ACCOUNT, Key(pod.namespace, "default"))
    await cluster.create(keys.SERVICE_ACCOUNT, account)
    made = factories.pod(*pod)
    made["metadata"]["labels"] = {keys.MANAGED_BY: keys.MANAGED_BY_SHADOW_POD}
    await cluster.create(keys.POD, made)


@pytest.mark.cluster
def test_a_slice_is_asked_for_and_given_back(server: Server) -> None:
    """Without controllers nobody answers: what is sent, and what is said of it."""
    flags = ("--remote-cluster-id", "lodi", "--cpu", "2", "--resource", "x/gpu=1")
    nowhere = server.liqoctl("create", "resourceslice", "lamp", *flags, "--timeout", "1s")
    assert "no peer is called lodi" in nowhere.stderr or "run liqoctl peer" in nowhere.stderr
    space = "liqo-tenant-lodi"

    async def prepare(cluster: ClusterClient) -> None:
        await cluster.create(keys.NAMESPACE, factories.tenant_namespace(space, "lodi"))

    server.do(prepare)
    waited = server.liqoctl("create", "rs", "lamp", *flags, "--timeout", "10s")
    assert waited.exit_code == 1
    assert "Authentication open" in waited.stderr
    made = server.get(keys.RESOURCE_SLICE, Key(space, "lamp"))
    assert made
    assert made["spec"] == {
        "class": "default",
        "providerClusterID": "lodi",
        "resources": {"cpu": "2", "x/gpu": "1"},
    }
    assert made["metadata"]["labels"] == {
        keys.REMOTE_CLUSTER_ID: "lodi",
        keys.REMOTE_ID: "lodi",
        keys.REPLICATION: "true",
    }
    assert made["metadata"]["annotations"] == {keys.CREATE_VIRTUAL_NODE: "true"}

    # Typed again it changes what the flags name; what others wrote beside that stays.
    key = Key(space, "lamp")
    theirs = {"csr": "Q1NS", "consumerClusterID": "rome", "class": "gold"}
    said = [
        {"type": name, "status": "Accepted", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for name in ("Authentication", "Resources")
    ]
    told = {"conditions": said, "resources": {"cpu": "2", "x/gpu": "1"}}

    async def answer(cluster: ClusterClient) -> None:
        await cluster.patch(keys.RESOURCE_SLICE, key, {"spec": theirs})
        await cluster.patch_status(keys.RESOURCE_SLICE, key, told)

    server.do(answer)
    same = server.liqoctl("create", "rs", "lamp", *flags, "--timeout", "10s")
    assert same.exit_code == 0, same.stderr
    assert "is as it should be" in same.stderr
    more = ("--remote-cluster-id", "lodi", "--cpu", "3", "--timeout", "1s")
    changed = server.liqoctl("create", "rs", "lamp", *more)
    assert "what was changed is not answered yet" in " ".join(changed.stderr.split())
    after = server.get(keys.RESOURCE_SLICE, key)
    assert after
    assert after["spec"] == {
        **made["spec"], **theirs, "resources": {"cpu": "3", "x/gpu": "1"},
    }  # fmt: skip
    assert after["metadata"]["generation"] == made["metadata"]["generation"] + 2

    gone = server.liqoctl("delete", "resourceslice", "lamp", "--skip-confirm")

    assert gone.exit_code == 0
    assert server.get(keys.RESOURCE_SLICE, Key(space, "lamp")) is None
