"""What commands do with a cluster: the fake, and a real API server. Controllers are played."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

import click
import pytest

from apis import keys, objects
from apis import offloading as parsed
from apis.objects import Key, Kind, Object, named
from kube import informer
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from kube.informer import Left
from liqoctl import install, uninstall, virtualnode
from liqoctl import offload as offloading
from liqoctl import resourceslice as slices
from liqoctl.clusters import Side
from liqoctl.forge import offloading as offloading_forge
from liqoctl.forge import resourceslice
from liqoctl.forge import virtualnode as virtualnode_forge
from liqoctl.forge.manifests import InstallOptions
from liqoctl.options import Session
from liqoctl.output import Progress
from tests import factories
from tests.fakes import FakeCluster

WITHIN_S = 300.0
SHORT_S = 0.05
LOOKS = 4
"""As many as ``while_moving`` takes in the time that is given."""


class No(Session):
    """Who says no to whatever is asked."""

    def confirm(self, question: str) -> None:
        raise click.Abort


def side(cluster: Cluster, who: Session = Session(skip_confirm=True)) -> Side:  # noqa: B008  # frozen
    return Side(cast("ClusterClient", cluster), Progress(), session=who)


async def after(
    cluster: Cluster, kind: Kind, key: Key, then: Callable[[Object], Awaitable[object]]
) -> None:
    """Do ``then`` once the object is there, as a controller would."""
    listing = await cluster.list(Selection(kind, Object, key.namespace))
    found = listing.items.get(key)
    if found is None:
        async for event in cluster.watch(Selection(kind, Object, key.namespace), listing.version):
            if event.key == key and event.type == "ADDED":
                found = event.object
                break
    assert found is not None
    await then(found)


@contextlib.asynccontextmanager
async def playing(controller: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Play a controller while inside; what is left of it then is ended."""
    task = asyncio.create_task(controller)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def status(phase: str, generation: int = 1, **conditions: Object) -> Object:
    return {
        "offloadingPhase": phase,
        "observedGeneration": generation,
        "remoteNamespaceName": "twin",
        "remoteNamespacesConditions": {name: [one] for name, one in conditions.items()},
    }


def ready(value: str, reason: str, message: str = "m") -> Object:
    return {
        "type": "Ready",
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


async def offload(
    cluster: Cluster,
    namespace: str,
    phase: Object | None,
    *,
    timeout_s: float = WITHIN_S,
    pods: str | None = None,
) -> None:
    """Offload ``namespace`` while a controller answers with the status ``phase``."""
    key = Key(namespace, "offloading")
    wanted = [offloading_forge.manifest(namespace, offloading_forge.OffloadOptions(pods=pods))]

    async def answer(found: Object) -> object:
        if phase is None:
            return None
        now = {**phase, "observedGeneration": found["metadata"]["generation"]}
        return await cluster.patch_status(keys.NAMESPACE_OFFLOADING, key, now)

    async with playing(after(cluster, keys.NAMESPACE_OFFLOADING, key, answer)):
        await offloading.offload(side(cluster), wanted, frozenset(), timeout_s)


async def test_offload_waits_until_ready(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await offload(cluster, namespace, status("Ready", milan=ready("True", "NamespaceCreated")))

    said = capsys.readouterr()
    *lines, names = said.err.splitlines()
    assert lines == [
        f"INFO  namespace {namespace}: offloading enabled",
        f"INFO  namespace {namespace}: offloaded as twin",
    ]
    assert f"as web.twin.svc; web.{namespace}.svc does not resolve there" in names
    assert said.out == ""


@pytest.mark.parametrize("strategy", ["LocalAndRemote", "Local"])
async def test_offload_names_the_policies_that_hold_here_only(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str], strategy: str
) -> None:
    milan = f"milan-{namespace}"
    metadata = {"labels": {keys.REMOTE_CLUSTER_ID: milan, keys.REPLICATION: "true"}}
    key = Key(namespace, milan)
    made = named(keys.NAMESPACE_MAP, key, metadata=metadata, spec={})
    await cluster.create(keys.NAMESPACE_MAP, made)
    there = {namespace: {"remoteNamespace": "twin", "phase": "Accepted"}}
    await cluster.patch_status(keys.NAMESPACE_MAP, key, {"currentMapping": there})
    deny = {"podSelector": {}, "policyTypes": ["Ingress"]}
    kind = keys.NETWORK_POLICY
    await cluster.create(kind, named(kind, Key(namespace, "deny"), spec=deny))
    selector = {"matchLabels": {"app": "web"}}
    kind, spec = keys.POD_DISRUPTION_BUDGET, {"minAvailable": 1, "selector": selector}
    await cluster.create(kind, named(kind, Key(namespace, "web"), spec=spec))

    await offload(cluster, namespace, status("Ready"), pods=strategy)

    told = (
        f"WARN  namespace {namespace}: not reflected, so that they hold in this cluster only: "
        "NetworkPolicy deny, PodDisruptionBudget web"
    )
    is_told = told in capsys.readouterr().err.splitlines()
    assert is_told == (strategy != "Local")


async def test_offloading_again_writes_nothing(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = Key(namespace, "offloading")
    await offload(cluster, namespace, status("Ready"))
    before = await cluster.get_live(keys.NAMESPACE_OFFLOADING, key)

    asked = offloading_forge.OffloadOptions(pods="LocalAndRemote")
    wanted = [offloading_forge.manifest(namespace, asked)]
    await offloading.offload(side(cluster), wanted, asked.fields(), WITHIN_S)

    assert await cluster.get_live(keys.NAMESPACE_OFFLOADING, key) == before
    assert "is as asked for already" in capsys.readouterr().err


async def test_what_no_flag_names_is_left_alone(cluster: Cluster, namespace: str) -> None:
    """Anybody who chose the clusters, and the strategy, meant it."""
    key = Key(namespace, "offloading")
    terms: Object = {"nodeSelectorTerms": [{"matchExpressions": []}]}
    await offload(cluster, namespace, status("Ready"))
    chosen = {"spec": {"clusterSelector": terms, "podOffloadingStrategy": "Remote"}}
    before = await cluster.patch(keys.NAMESPACE_OFFLOADING, key, chosen)

    for asked in (offloading_forge.OffloadOptions(), offloading_forge.OffloadOptions(pods="Local")):
        wanted = [offloading_forge.manifest(namespace, asked)]
        with pytest.raises(click.ClickException):  # nobody answers
            await offloading.offload(side(cluster), wanted, asked.fields(), SHORT_S)
        found = await cluster.get_live(keys.NAMESPACE_OFFLOADING, key)
        strategy = asked.pods or "Remote"
        assert found
        assert found["spec"] == {**before["spec"], "podOffloadingStrategy": strategy}


async def test_a_stricter_strategy_is_warned_about(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = Key(namespace, "offloading")
    await offload(cluster, namespace, status("Ready"))
    asked = offloading_forge.OffloadOptions(pods="Remote")
    wanted = [offloading_forge.manifest(namespace, asked)]

    with pytest.raises(click.ClickException):
        await offloading.offload(side(cluster), wanted, asked.fields(), SHORT_S)

    found = await cluster.get_live(keys.NAMESPACE_OFFLOADING, key)
    assert found
    assert found["spec"]["podOffloadingStrategy"] == "Remote"
    assert f"WARN  namespace {namespace}: the new pod offloading strategy" in (
        capsys.readouterr().err
    )


async def test_no_cluster_selected_is_a_warning(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await offload(cluster, namespace, status("NoClusterSelected"))

    assert "WARN" in capsys.readouterr().err


async def test_failures_name_cluster_and_reason(cluster: Cluster, namespace: str) -> None:
    failed = status("SomeFailed", milan=ready("False", "CreationLoopBackOff", "name is taken"))

    with pytest.raises(click.ClickException) as caught:
        await offload(cluster, namespace, failed)

    assert caught.value.message == (
        f"namespace {namespace} is not offloaded: phase SomeFailed; "
        "milan: Ready=False, CreationLoopBackOff (name is taken)"
    )


async def test_a_timeout_says_how_far_it_came(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(click.ClickException, match=r"not offloaded after 0.05s: phase none yet"):
        await offload(cluster, namespace, None, timeout_s=SHORT_S)


async def test_errors_of_several_namespaces_come_together(cluster: Cluster, namespace: str) -> None:
    wanted = [
        offloading_forge.manifest(name, offloading_forge.OffloadOptions())
        for name in (f"{namespace}-a", f"{namespace}-b")
    ]

    with pytest.raises(click.ClickException) as caught:
        await offloading.offload(side(cluster), wanted, frozenset(), WITHIN_S)

    lines = caught.value.message.splitlines()
    assert [f"{namespace}-a" in lines[0], f"{namespace}-b" in lines[1]] == [True, True]


async def test_no_namespaces_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = frozenset[str]()
    await offloading.offload(side(FakeCluster()), [], nothing, WITHIN_S)

    assert "nothing to do" in capsys.readouterr().err


async def test_namespaces_by_name_and_label(cluster: Cluster, namespace: str) -> None:
    labels = {"metadata": {"labels": {"team": namespace}}}
    await cluster.patch(keys.NAMESPACE, Key("", namespace), labels)

    found = await offloading.namespaces(cluster, ("foo", "foo"), f"team={namespace}")

    assert found == ["foo", namespace]


async def test_unoffload_says_what_goes_and_removes_it(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await offload(cluster, namespace, status("Ready", milan=ready("True", "NamespaceCreated")))
    capsys.readouterr()

    await offloading.unoffload(side(cluster), [namespace], WITHIN_S)

    key = Key(namespace, "offloading")
    assert await cluster.get_live(keys.NAMESPACE_OFFLOADING, key) is None
    assert capsys.readouterr().err.splitlines() == [
        "WARN  namespace twin on milan goes, with everything in it",
        f"INFO  namespace {namespace}: offloading removed",
    ]


async def test_unoffload_says_that_a_label_set_in_advance_goes(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    label = {"metadata": {"labels": {keys.SCHEDULING_ENABLED: "true"}}}
    await cluster.patch(keys.NAMESPACE, Key("", namespace), label)
    await offload(cluster, namespace, status("Ready"))
    capsys.readouterr()

    await offloading.unoffload(side(cluster), [namespace], WITHIN_S, is_dry=True)

    assert "set in advance, goes, too: remove it from the manifest" in capsys.readouterr().err


async def test_unoffload_says_whose_data_goes(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await offload(cluster, namespace, status("Ready", milan=ready("True", "NamespaceCreated")))
    for name, labels in (("away", {keys.REMOTE_CLUSTER_ID: "milan"}), ("here", {})):
        volume = f"{namespace}-{name}"
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/srv/nothing"},
        }
        made = named(
            keys.PERSISTENT_VOLUME, Key("", volume), metadata={"labels": labels}, spec=spec
        )
        await cluster.create(keys.PERSISTENT_VOLUME, made)
        asked = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": volume,
        }
        claim = named(keys.PERSISTENT_VOLUME_CLAIM, Key(namespace, name), spec=asked)
        await cluster.create(keys.PERSISTENT_VOLUME_CLAIM, claim)
    capsys.readouterr()

    await offloading.unoffload(side(cluster), [namespace], WITHIN_S, is_dry=True)

    (told,) = (line for line in capsys.readouterr().err.splitlines() if "claim" in line)
    assert told.startswith("WARN  claim away: its data on milan goes: liqoctl move volume away")


@pytest.mark.parametrize("how", ["dry run", "no"])
async def test_unoffload_removes_nothing_unless_told(
    cluster: Cluster, namespace: str, how: str
) -> None:
    await offload(cluster, namespace, status("Ready", milan=ready("True", "NamespaceCreated")))
    key = Key(namespace, "offloading")

    if how == "no":
        with pytest.raises(click.Abort):
            await offloading.unoffload(side(cluster, No()), [namespace], WITHIN_S)
    else:
        await offloading.unoffload(side(cluster), [namespace], WITHIN_S, is_dry=True)

    assert await cluster.get_live(keys.NAMESPACE_OFFLOADING, key)


async def test_unoffload_waits_for_the_finalizer(cluster: Cluster, namespace: str) -> None:
    key = Key(namespace, "offloading")
    await offload(cluster, namespace, status("Ready", milan=ready("True", "NamespaceCreated")))
    finalizer = {"metadata": {"finalizers": [keys.NAMESPACE_OFFLOADING_FINALIZER]}}
    await cluster.patch(keys.NAMESPACE_OFFLOADING, key, finalizer)

    with pytest.raises(click.ClickException, match="unoffloaded: nothing has changed for"):
        await offloading.unoffload(side(cluster), [namespace], SHORT_S)
    removing = offloading.unoffload(side(cluster), [namespace], WITHIN_S)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(removing)
        changes = {"metadata": {"finalizers": None}}
        tasks.create_task(cluster.patch(keys.NAMESPACE_OFFLOADING, key, changes))

    assert await cluster.get_live(keys.NAMESPACE_OFFLOADING, key) is None


@pytest.mark.parametrize("moves", [True, False])
async def test_time_is_over_only_where_nothing_moves(*, moves: bool) -> None:
    said: list[str] = []
    done = asyncio.Event()

    async def look() -> Left:
        if len(said) == 2 * LOOKS:  # twice the time is over by now
            done.set()
        said.append(f"{len(said)}")
        return Left(said[-1], len(said) if moves else None)

    async with asyncio.timeout(WITHIN_S), contextlib.AsyncExitStack() as stack:
        if not moves:
            stack.enter_context(pytest.raises(TimeoutError))
        async with informer.while_moving(2.0, look, lambda _: None):
            await done.wait()
    assert done.is_set() is moves


async def test_unoffload_waits_as_long_as_something_moves_and_says_what_is_left(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await offload(cluster, namespace, status("Ready", milan=ready("True", "NamespaceCreated")))
    key = Key(namespace, "offloading")
    finalizer = {"metadata": {"finalizers": [keys.NAMESPACE_OFFLOADING_FINALIZER]}}
    await cluster.patch(keys.NAMESPACE_OFFLOADING, key, finalizer)
    labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE}
    node = named(keys.NODE, Key("", namespace), metadata={"labels": labels})
    await cluster.create(keys.NODE, node)
    for number in range(2):
        where = Key(namespace, f"p{number}")
        pod = named(keys.POD, where, spec=factories.pod_spec(nodeName=namespace))
        await cluster.create(keys.POD, pod)
    capsys.readouterr()

    removing = asyncio.create_task(offloading.unoffload(side(cluster), [namespace], WITHIN_S))
    said = ""
    for left in (2, 1):
        while f"waiting for {left} offloaded pods" not in said:
            assert not removing.done()
            await asyncio.sleep(SHORT_S)
            said += capsys.readouterr().err
        await _end(cluster, keys.POD, Key(namespace, f"p{left - 1}"))
    await cluster.patch(keys.NAMESPACE_OFFLOADING, key, {"metadata": {"finalizers": None}})
    await removing

    assert "namespace twin on milan to go" in said
    await _end(cluster, keys.NODE, Key("", namespace))


async def _end(cluster: Cluster, kind: Kind, key: Key) -> None:
    found = await cluster.get_live(kind, key)
    assert found
    await cluster.delete(kind, key, uid=objects.uid(found), grace_s=0)


async def test_unoffload_of_what_is_not_offloaded(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await offloading.unoffload(side(cluster), [namespace], WITHIN_S)
    assert "nothing to do" in capsys.readouterr().err

    with pytest.raises(click.ClickException, match="does not exist"):
        await offloading.unoffload(side(cluster), [f"{namespace}-typo"], WITHIN_S)


def options_of(namespace: str, **rest: Any) -> virtualnode_forge.VirtualNodeOptions:
    return virtualnode_forge.VirtualNodeOptions(
        name=namespace,
        namespace=namespace,
        remote_cluster_id=rest.pop("cluster_id", "milan"),
        kubeconfig_secret_name=rest.pop("secret", "key"),
        hard={"cpu": "2"},
        **rest,
    )


async def kubeconfig_secret(cluster: Cluster, namespace: str, **data: str) -> None:
    made = named(keys.SECRET, Key(namespace, "key"), data=data)
    await cluster.create(keys.SECRET, made)


async def test_create_virtualnode_waits_for_its_node(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await kubeconfig_secret(cluster, namespace, kubeconfig="eA==")
    key, node = Key(namespace, namespace), Key("", namespace)
    is_ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    behind = options_of(namespace).remote_cluster_id
    labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: behind}

    async def answer(_: Object) -> None:
        await cluster.create(keys.NODE, named(keys.NODE, node, metadata={"labels": labels}))
        await cluster.patch_status(keys.NODE, node, is_ready)

    async with playing(after(cluster, keys.VIRTUAL_NODE, key, answer)):
        wanted = options_of(namespace)
        await virtualnode.create(side(cluster), wanted, WITHIN_S)

    assert capsys.readouterr().err.splitlines() == [
        f"INFO  virtual node {key}: created",
        f"INFO  node {namespace}: ready",
    ]
    found = await cluster.get_live(keys.VIRTUAL_NODE, key)
    assert found
    assert found["spec"]["kubeconfigSecretRef"] == {"name": "key"}

    again = options_of(namespace)
    await virtualnode.create(side(cluster), again, WITHIN_S)
    assert await cluster.get_live(keys.VIRTUAL_NODE, key) == found
    made = await cluster.get_live(keys.NODE, node)
    assert made
    await cluster.delete(keys.NODE, node, uid=made["metadata"]["uid"])


@pytest.mark.parametrize(
    ("data", "says"), [(None, "does not exist"), ({"other": "eA=="}, "lacks the key kubeconfig")]
)
async def test_create_virtualnode_needs_a_kubeconfig(
    cluster: Cluster, namespace: str, data: dict[str, str] | None, says: str
) -> None:
    if data is not None:
        await kubeconfig_secret(cluster, namespace, **data)

    with pytest.raises(click.ClickException, match=says):
        await virtualnode.create(side(cluster), options_of(namespace), WITHIN_S)

    assert await cluster.get_live(keys.VIRTUAL_NODE, Key(namespace, namespace)) is None


async def test_create_virtualnode_says_when_the_node_does_not_come(
    cluster: Cluster, namespace: str
) -> None:
    await kubeconfig_secret(cluster, namespace, kubeconfig="eA==")

    with pytest.raises(click.ClickException, match=f"see the pods of deployment vk-{namespace}"):
        await virtualnode.create(side(cluster), options_of(namespace), SHORT_S)


async def test_the_tenant_namespace_is_found_by_its_labels(
    cluster: Cluster, namespace: str
) -> None:
    refused = f"create liqo-tenant-{namespace}|no peer is called {namespace}"  # others leave some
    with pytest.raises(click.ClickException, match=refused):
        await virtualnode.tenant_namespace(cluster, namespace)
    labels = {"liqo.io/tenant-namespace": "true", "liqo.io/remote-cluster-id": namespace}
    await cluster.patch(keys.NAMESPACE, Key("", namespace), {"metadata": {"labels": labels}})

    assert await virtualnode.tenant_namespace(cluster, namespace) == namespace

    other = Key("", f"{namespace}-other")
    await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, other, metadata={"labels": labels}))
    with pytest.raises(click.ClickException, match="several tenant namespaces"):
        await virtualnode.tenant_namespace(cluster, namespace)


async def test_create_virtualnode_from_a_slice(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = Key(namespace, "pool")
    wanted = options_of(namespace, resource_slice_name="pool", create_node=False, secret="")
    with pytest.raises(click.ClickException, match="does not exist"):
        await virtualnode.create(side(cluster), wanted, WITHIN_S)
    await cluster.create(keys.RESOURCE_SLICE, named(keys.RESOURCE_SLICE, key, spec={}))
    with pytest.raises(click.ClickException, match="no resources granted yet"):
        await virtualnode.create(side(cluster), wanted, WITHIN_S)
    labels = {"region": "europe", "pool.example.com/pci-dss": "true"}
    granted = {"resources": {"cpu": "4"}, "nodeLabels": labels}
    await cluster.patch_status(keys.RESOURCE_SLICE, key, granted)
    name = Key(namespace, "kubeconfig-resourceslice-pool")
    await cluster.create(keys.SECRET, named(keys.SECRET, name, data={"kubeconfig": "eA=="}))

    await virtualnode.create(side(cluster), wanted, WITHIN_S)

    found = await cluster.get_live(keys.VIRTUAL_NODE, Key(namespace, namespace))
    assert found
    assert found["spec"]["resourceQuota"]["hard"] == {"cpu": "4"}
    assert found["spec"]["labels"] == {keys.REMOTE_CLUSTER_ID: "milan"}
    assert parsed.suggested_labels(found) == {"region": "europe"}
    again = replace(wanted, labels={"tier": "gold"})
    await virtualnode.create(side(cluster), again, WITHIN_S)
    await virtualnode.create(side(cluster), wanted, WITHIN_S)
    said = [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert said == ["created", "updated", "is as asked for already"]
    kept = await cluster.get_live(keys.VIRTUAL_NODE, Key(namespace, namespace))
    assert kept
    assert kept["spec"] == {
        **found["spec"],
        "labels": {keys.REMOTE_CLUSTER_ID: "milan", "tier": "gold"},
    }


async def test_the_answer_to_a_slice_that_changes_is_waited_for(
    cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What nobody names stays: the request of this cluster's controllers, amounts, the class."""
    key, here = Key(namespace, "pool"), side(cluster)
    spec = {
        "class": "gold", "csr": "Q1NS", "consumerClusterID": "rome", "providerClusterID": "milan",
        "resources": {"cpu": "4", "memory": "16Gi"},
    }  # fmt: skip
    said = [{"type": name, "status": "Accepted"} for name in ("Authentication", "Resources")]
    await cluster.create(keys.RESOURCE_SLICE, named(keys.RESOURCE_SLICE, key, spec=spec))
    before = {"resources": {"cpu": "4", "memory": "16Gi"}, "conditions": said}
    await cluster.patch_status(keys.RESOURCE_SLICE, key, before)
    same = resourceslice.SliceOptions(
        name="pool", namespace=namespace, remote_cluster_id="milan",
        left_out=frozenset({"class_", "makes_node"}),
    )  # fmt: skip
    await slices.ask(here, same, WITHIN_S)
    told = await cluster.get_live(keys.RESOURCE_SLICE, key)
    assert await slices.ask(here, same, WITHIN_S) == told  # the second time nothing is written

    async def answer(obj: Object) -> None:
        while obj["spec"]["resources"]["cpu"] != "8":
            await asyncio.sleep(0.01)
            obj = await cluster.get_live(keys.RESOURCE_SLICE, key) or obj
        given = {"resources": {"cpu": "6", "memory": "16Gi"}}
        await cluster.patch_status(keys.RESOURCE_SLICE, key, given)

    async with playing(after(cluster, keys.RESOURCE_SLICE, key, answer)):
        found = await slices.ask(here, replace(same, resources={"cpu": "8"}), WITHIN_S)

    assert found
    assert found["spec"] == {**spec, "resources": {"cpu": "8", "memory": "16Gi"}}
    assert found["status"]["resources"]["cpu"] == "6"
    capsys.readouterr()
    found = await slices.ask(here, replace(same, resources={"cpu": "9"}), SHORT_S)
    assert found
    assert "what was changed is not answered yet" in " ".join(capsys.readouterr().err.split())


async def test_delete_virtualnode(cluster: Cluster, namespace: str) -> None:
    await kubeconfig_secret(cluster, namespace, kubeconfig="eA==")
    wanted = options_of(namespace, create_node=False)
    await virtualnode.create(side(cluster), wanted, WITHIN_S)
    anywhere = Key("", namespace)
    with pytest.raises(click.Abort):
        await virtualnode.delete(side(cluster, No()), anywhere, WITHIN_S)

    await virtualnode.delete(side(cluster), anywhere, WITHIN_S)

    assert await cluster.get_live(keys.VIRTUAL_NODE, Key(namespace, namespace)) is None
    with pytest.raises(click.ClickException, match="does not exist"):
        await virtualnode.delete(side(cluster), anywhere, WITHIN_S)


async def test_a_cluster_in_which_liqo_runs_is_left_alone() -> None:
    cluster = FakeCluster()
    key, chart = Key("liqo", "liqo-controller-manager"), "liqo-v1.0.1"
    metadata = {"labels": {"helm.sh/chart": chart}}
    await cluster.create(keys.DEPLOYMENT, named(keys.DEPLOYMENT, key, metadata=metadata))
    before, there = cluster.everything(), side(cluster)

    for command in (
        install.install(there, InstallOptions(cluster_id="rome"), default_image="pyliqo:1"),
        install.rehearse(there, InstallOptions(cluster_id="rome"), "pyliqo:1", WITHIN_S),
        uninstall.uninstall(there, WITHIN_S),
    ):
        with pytest.raises(click.ClickException, match=f"runs Liqo .*{chart}.*from-liqo"):
            await command

    assert cluster.everything() == before


async def test_a_peer_that_nobody_knows_is_named_beside_those_there_are() -> None:
    cluster = FakeCluster()
    with pytest.raises(click.ClickException) as alone:
        await virtualnode.tenant_namespace(cluster, "nosuch")
    made = factories.tenant_namespace("liqo-tenant-milan", "milan")
    await cluster.create(keys.NAMESPACE, made)
    with pytest.raises(click.ClickException) as beside:
        await virtualnode.tenant_namespace(cluster, "nosuch")

    assert "run liqoctl peer, or create liqo-tenant-nosuch with the labels" in alone.value.message
    assert "no peer is called nosuch: correct the name among milan" in beside.value.message
    assert await virtualnode.tenant_namespace(cluster, "milan") == "liqo-tenant-milan"
