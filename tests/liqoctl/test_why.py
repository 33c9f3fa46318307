"""Why a pod is where it is, or why a namespace is offloaded as it is."""

import itertools
import json
from collections.abc import Sequence

import click
import pytest
import yaml

from apis import keys
from apis.objects import Key, Kind, Object, key_of, named, uid
from kube import errors
from liqoctl import why as work
from liqoctl.forge import why, whynamespace
from liqoctl.forge.findings import Facts
from tests import factories
from tests.factories import condition
from tests.fakes import FakeCluster

TAINT = {"key": keys.VIRTUAL_NODE_TAINT, "value": "true", "effect": "NoExecute"}
TOLERATES = {"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists", "effect": "NoExecute"}
REFUSAL = "namespace foo has no NamespaceOffloading: create it"
HOOK = "pod.mutate.liqo.io"
DENIED = f'Error creating: admission webhook "{HOOK}" denied the request: {REFUSAL}'
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"
NAMES = itertools.count(1)


def node(name: str, *, is_virtual: bool = False, ready: str = "True", **labels: str) -> Object:
    virtual = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: f"{name}-id"}
    return named(
        keys.NODE,
        Key("", name),
        metadata={"labels": {**(virtual if is_virtual else {}), **labels}},
        spec={"taints": [TAINT] if is_virtual else []},
        status={"conditions": [{"type": "Ready", "status": ready}]},
    )


ROME = node("rome-1", region="it")
MILAN = node("milan", is_virtual=True, region="eu")
TURIN = node("turin", is_virtual=True, region="us", ready="False")
NODES = (ROME, TURIN, MILAN)


def pod(
    phase: str = "Pending",
    on: str = "",
    *,
    selector: Object | None = None,
    tolerations: Sequence[Object] = (TOLERATES,),
    metadata: Object | None = None,
    **status: object,
) -> Object:
    spec: Object = {"nodeSelector": selector or {}, "tolerations": list(tolerations)}
    spec |= {"nodeName": on} if on else {}
    status = {"phase": phase, **status}
    return factories.pod("foo", "web", metadata=metadata or {}, spec=spec, status=status)


REQUIRED = condition("OffloadingRequired", "True", "ClusterSelected")
NOT_REQUIRED = condition("OffloadingRequired", "False", "ClusterNotSelected")
THERE = condition("Ready", "True", "NamespaceCreated")
LOOPS = condition("Ready", "False", "CreationLoopBackOff", "the namespace is somebody else's")


def offloading(
    strategy: str = "LocalAndRemote",
    phase: str = "Ready",
    *,
    region: str = "",
    clusters: Object | None = None,
    metadata: Object | None = None,
) -> Object:
    spec: Object = {"podOffloadingStrategy": strategy}
    if region:
        terms = [{"matchExpressions": [{"key": "region", "operator": "In", "values": [region]}]}]
        spec["clusterSelector"] = {"nodeSelectorTerms": terms}
    status = {
        "offloadingPhase": phase,
        "observedGeneration": 1,
        "remoteNamespaceName": "foo-rome",
        "remoteNamespacesConditions": clusters or {"milan-id": [REQUIRED, THERE]},
    }
    return named(
        keys.NAMESPACE_OFFLOADING,
        Key("foo", "offloading"),
        metadata={"generation": 1, **(metadata or {})},
        spec=spec,
        status=status,
    )


def event(
    reason: str, message: str, *, about: str = "ReplicaSet/web-5d9c", at: str = EARLY
) -> Object:
    kind, _, name = about.partition("/")
    return named(
        keys.EVENT,
        Key("foo", f"{name}.{next(NAMES)}"),
        involvedObject={"kind": kind, "name": name, "namespace": "foo"},
        reason=reason,
        message=message,
        lastTimestamp=at,
        count=3,
    )


def facts(seen: Object | None = None, **rest: object) -> Facts:
    return Facts("foo", pod=seen, **{"offloading": offloading(), "nodes": NODES, **rest})  # type: ignore[arg-type]  # a table's


def verdict_of(found: Object | None) -> str:
    assert found is not None
    return str(found["verdict"])


# Pods ---------------------------------------------------------------------------------------------

QUOTA = "quota exceeded: cpu"
REFUSED_THERE = condition("pyliqo.io/Offloaded", "False", "FailedReflection", QUOTA)
UNANSWERED = condition("pyliqo.io/Offloaded", "Unknown", "NoRemotePod", "no Pod in a minute")
UNSCHEDULABLE = condition("PodScheduled", "False", "Unschedulable", "0/3 nodes: too many pods")
PULLS = {"name": "app", "state": {"waiting": {"reason": "ErrImagePull", "message": "no x"}}}
CREATING = {"name": "app", "state": {"waiting": {"reason": "ContainerCreating"}}}
UNREADY = condition("Ready", "False", "ContainersNotReady", "app")
GATED = {**pod(), "spec": {"schedulingGates": [{"name": "a/b"}]}}
DELETED = {"deletionTimestamp": EARLY}
AWAY = {"labels": {keys.REMOTE_UNAVAILABLE: "true"}}


VERDICTS = factories.table("why")
PODS = {
    "offloaded": pod("Running", "milan"),
    "at home": pod("Running", "rome-1"),
    "unready": pod("Running", "rome-1", conditions=[UNREADY]),
    "deleted": pod("Running", "rome-1", metadata=DELETED),
    "cannot end": pod("Running", "milan", metadata=DELETED, conditions=[REFUSED_THERE]),
    "ended": pod("Succeeded", "rome-1"),
    "evicted": pod("Failed", "gone", reason="Evicted", message="low on disk"),
    "unreachable": pod("Running", "milan", metadata=AWAY),
    "refused there": pod(on="milan", conditions=[REFUSED_THERE]),
    "not offloaded there": pod(on="milan", reason="OffloadingBackOff"),
    "no image": pod(on="rome-1", containerStatuses=[PULLS]),
    "starts": pod(on="rome-1", containerStatuses=[CREATING]),
    "node gone": pod(on="gone"),
    "gated": GATED,
    "no node": pod(selector={"gpu": "yes"}),
    "unanswered": pod(on="milan", conditions=[UNANSWERED]),
    "unschedulable there": pod(on="milan", conditions=[UNSCHEDULABLE]),
    "unschedulable": pod(conditions=[UNSCHEDULABLE]),
    "new": pod(),
}


@pytest.mark.parametrize("name", PODS)
def test_a_pod(name: str) -> None:
    outcome, verdict = VERDICTS["pods"][name]

    found = why.of_pod(facts(PODS[name]), "web")

    assert verdict_of(found) == f"pod foo/web {verdict}"
    assert found is not None
    assert found["outcome"] == outcome


@factories.cases("reason, how")
def test_what_to_do_about_a_container_that_does_not_run(reason: str, how: str) -> None:
    waiting = {"name": "app", "state": {"waiting": {"reason": reason}}}
    for phase in ("Pending", "Running"):
        shown = pod(phase, on="rome-1", containerStatuses=[waiting], conditions=[UNREADY])
        found = why.of_pod(facts(shown), "web")
        assert found is not None
        assert found["next"][0] == how


@pytest.mark.parametrize("name", ["cannot end", "refused there"])
def test_who_refuses_a_pod_is_to_be_asked(name: str) -> None:
    found = why.of_pod(facts(PODS[name]), "web")

    assert found is not None
    assert "ask the administrator of milan-id; it is tried again" in found["next"][0]


def test_a_pod_that_is_not_ready_is_to_be_described() -> None:
    found = why.of_pod(facts(PODS["unready"]), "web")

    assert found is not None
    probed = "see what its readiness probe says: kubectl describe pod web -n foo"
    assert found["next"][0] == probed


@pytest.mark.parametrize(
    ("nodes", "clause"),
    [
        ((), "because the cluster has no nodes"),
        ((MILAN,), "because the only node does not take it: taint "),
        (None, "for the scheduler; its nodes are not known"),
    ],
)
def test_few_nodes(nodes: Sequence[Object] | None, clause: str) -> None:
    found = why.of_pod(facts(pod(tolerations=()), nodes=nodes), "web")

    assert verdict_of(found).startswith(f"pod foo/web waits {clause}")


@factories.cases("path, note, says")
def test_what_it_reads_of_itself_otherwise_than_here(path: str, note: str, says: list[str]) -> None:
    env = [{"name": "NS", "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    seen = pod("Running", "milan", metadata={"annotations": {keys.DOWNWARD_NAMESPACE: note}})
    seen["spec"]["containers"] = [{"name": "main", "env": env}]
    found = why.of_pod(facts(seen), "web")
    assert found is not None
    assert [one.partition(": ")[0] for one in found["next"]] == says


def test_each_node_with_its_reasons_virtual_nodes_first() -> None:
    found = why.of_pod(facts(pod(selector={"region": "eu"})), "web")

    assert found is not None
    assert [(n["name"], n["virtual"], n["cluster"], n["matches"]) for n in found["nodes"]] == [
        ("milan", True, "milan-id", True),
        ("turin", True, "turin-id", False),
        ("rome-1", False, "", False),
    ]
    assert found["nodes"][1]["obstacles"] == [
        {"rule": "notReady", "text": "is not Ready"},
        {"rule": "nodeSelector", "text": "nodeSelector region=eu is not met: it has region=us"},
    ]


BEFORE = "it was created before its namespace was offloaded"
EXCLUDED = "it runs where its namespace places no pods any more"
DAEMON = {
    "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}
    ]
}


@pytest.mark.parametrize(
    ("seen", "how", "says"),
    [
        (pod("Running", "rome-1"), offloading(), ""),
        (pod("Running", "rome-1"), offloading("Remote"), EXCLUDED),
        (pod("Succeeded", "rome-1"), offloading("Remote"), ""),
        (pod("Running", "rome-1", metadata=DAEMON), offloading("Remote"), ""),
        (pod("Running", "milan"), offloading("Local"), EXCLUDED),
        (pod("Running", "milan"), offloading(region="us"), EXCLUDED),
        (pod("Running", "milan"), offloading(region="eu"), ""),
        (pod("Running", "rome-1", tolerations=()), None, ""),
        (pod(tolerations=()), offloading(), BEFORE),
        (pod(tolerations=()), offloading("Local"), ""),
        (pod(tolerations=()), offloading("Nonsense"), ""),
    ],
)
def test_what_to_do_when_the_rules_changed(seen: Object, how: Object | None, says: str) -> None:
    found = why.of_pod(facts(seen, offloading=how), "web")

    assert found is not None
    drifts = [text for text in found["next"] if text.startswith((BEFORE, EXCLUDED))]
    assert len(drifts) == bool(says)
    assert "".join(drifts).startswith(says)


def test_what_the_provider_said_once_each_what_holds_now_last() -> None:
    events = [
        event("FailedReflection", QUOTA, about="Pod/web", at=LATE),
        event("FailedReflection", "cordoned", about="Pod/web"),
        event("Scheduled", "to milan", about="Pod/web"),
    ]
    seen = pod(on="milan", reason="FailedReflection", message="no", conditions=[REFUSED_THERE])

    found = why.of_pod(facts(seen, events=events), "web")

    assert found is not None
    said = [(one["source"], one["message"]) for one in found["provider"]]
    assert said == [("event", "cordoned"), ("status", "no"), ("condition", QUOTA)]


def test_what_the_webhook_wrote_is_shown() -> None:
    seen = pod("Running", "milan", metadata={"annotations": {"pyliqo.io/x": "Remote", "a": "b"}})

    found = why.of_pod(facts(seen), "web")

    assert found is not None
    assert found["pod"]["admission"] == {"pyliqo.io/x": "Remote"}
    assert "  pyliqo.io/x: Remote" in why.lines(found)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (None, "to let it go to virtual nodes: liqoctl offload namespace foo"),
        (
            offloading("Local"),
            (
                "to let it go to virtual nodes: "
                "liqoctl offload namespace foo --pod-offloading-strategy LocalAndRemote"
            ),
        ),
        (
            offloading(),
            (
                f"{BEFORE}: delete it, so that its owner creates it again "
                "(a pod without an owner: create it)"
            ),
        ),
    ],
)
def test_what_to_do_when_only_virtual_nodes_are_left(how: Object | None, says: str) -> None:
    found = why.of_pod(facts(pod(tolerations=()), nodes=[MILAN], offloading=how), "web")

    assert found is not None
    assert found["next"] == [says]


def test_a_pod_without_room_there_is_told_how_large_one_may_be() -> None:
    large = node("milan", is_virtual=True)
    large["metadata"]["annotations"] = {keys.LARGEST_POD: "cpu 2"}
    found = why.of_pod(facts(PODS["unschedulable there"], nodes=[large]), "web")

    assert found is not None
    assert "request less (no node behind it has more free than cpu 2), or" in found["next"][0]


def test_a_daemon_sets_pod_on_a_virtual_node_is_not_to_be_deleted() -> None:
    seen = pod("Pending", "milan", metadata=DAEMON)
    seen["status"]["reason"] = keys.OFFLOADING_BACK_OFF

    found = why.of_pod(facts(seen, offloading=None), "web")

    assert found is not None
    assert found["next"] == [
        "keep its DaemonSet off virtual nodes by the patch that liqoctl info prints"
    ]


# Refused pods -------------------------------------------------------------------------------------


@factories.cases("kind, owner, asked, is_named")
def test_which_refusals_are_meant(kind: str, owner: str, asked: str, *, is_named: bool) -> None:
    events = [event("FailedCreate", DENIED, about=f"{kind}/{owner}")]

    assert len(whynamespace.find(events, asked)) == is_named


@factories.cases("message, clause")
def test_a_refused_pod(message: str, clause: str) -> None:
    found = why.of_pod(facts(events=[event("FailedCreate", message)]), "web")

    assert verdict_of(found) == f"pod foo/web {clause}"


def test_the_newest_refusal_counts_and_is_over_once_a_pod_was_created() -> None:
    events = [
        event("FailedCreate", "Error creating: new", at=LATE),
        event("FailedCreate", "Error creating: old"),
        event("SuccessfulCreate", "Created pod", about="ReplicaSet/other-1", at=LATE),
    ]
    created = event("SuccessfulCreate", "Created pod", at="2026-01-01T00:00:10Z")

    before = why.of_pod(facts(events=events), "web")
    after = why.of_pod(facts(events=[*events, created]), "web")

    assert verdict_of(before) == verdict_of(after) == "pod foo/web was refused because new"
    assert before is not None
    assert after is not None
    assert [one["isOver"] for one in before["refusals"]] == [False, False]
    assert [one["isOver"] for one in after["refusals"]] == [True, True]
    assert "created a pod since" in after["next"][0]
    assert why.of_namespace(facts(events=[*events, created])).get("refusals") is None


def test_an_event_of_a_series_counts_for_all_of_it() -> None:
    once = event("FailedCreate", DENIED)
    said = [{**once, "count": None, "series": series} for series in ({"count": 7}, None)]

    assert [whynamespace.find([one], "web")[0].count for one in said] == [7, 1]


def test_nothing_to_say_of_what_is_not_there() -> None:
    elsewhere = [event("FailedCreate", DENIED, about="Deployment/web")]

    assert why.of_pod(facts(events=elsewhere), "web") is None


# Namespaces ---------------------------------------------------------------------------------------

ENABLED = {"metadata": {"labels": {keys.SCHEDULING_ENABLED: "true"}}}
HALF = {"milan-id": [REQUIRED, THERE], "turin-id": [REQUIRED, LOOPS], "x": [NOT_REQUIRED]}
STALE = offloading(metadata={"generation": 2})
NONE_YET = {**offloading(), "status": {}}


NAMESPACES = {
    "offloaded": facts(),
    "remote": facts(offloading=offloading("Remote")),
    "not offloaded": facts(offloading=None),
    "refuses": facts(offloading=None, about=ENABLED),
    "unknown": facts(offloading=None, is_offloading_known=False),
    "deleted": facts(about={"metadata": DELETED}),
    "taken back": facts(offloading=offloading(metadata=DELETED)),
    "unreadable": facts(offloading=offloading("Nonsense")),
    "not looked at": facts(offloading=NONE_YET),
    "stale": facts(offloading=STALE),
    "no cluster meets": facts(offloading=offloading(phase="NoClusterSelected", region="ca")),
    "no virtual node": facts(offloading=offloading(phase="NoClusterSelected"), nodes=[ROME]),
    "some failed": facts(offloading=offloading(phase="SomeFailed", clusters=HALF)),
    "in progress": facts(offloading=offloading(phase="InProgress", clusters={"a": [REQUIRED]})),
    "all failed": facts(offloading=offloading(phase="AllFailed", clusters={"x": [NOT_REQUIRED]})),
}


@pytest.mark.parametrize("name", NAMESPACES)
def test_a_namespace(name: str) -> None:
    outcome, verdict = VERDICTS["namespaces"][name]

    found = why.of_namespace(NAMESPACES[name])

    assert found["verdict"] == f"namespace foo {verdict}"
    assert found["outcome"] == outcome


def test_the_nodes_of_a_namespace_are_those_for_a_plain_pod() -> None:
    found = why.of_namespace(facts(offloading=offloading("Remote", region="us")))

    assert [(n["name"], [o["rule"] for o in n["obstacles"]]) for n in found["nodes"]] == [
        ("milan", ["clusterSelector"]),
        ("turin", ["notReady"]),
        ("rome-1", ["strategy"]),
    ]


def test_the_policies_of_a_namespace_that_hold_here_only() -> None:
    seen = offloading()
    told = {"type": "PoliciesReflected", "status": "False", "message": "NetworkPolicy deny stays"}
    seen["status"]["conditions"] = [told]

    here = why.lines(why.of_namespace(facts(offloading=seen)))
    told["status"] = "True"
    everywhere = why.lines(why.of_namespace(facts(offloading=seen)))

    assert [line for line in here if line not in everywhere] == ["  NetworkPolicy deny stays"]


def test_the_clusters_of_a_namespace() -> None:
    section = whynamespace.section(facts(offloading=offloading(clusters=HALF)))

    assert [(c["cluster"], c["selected"], c["ready"]) for c in section["clusters"]] == [
        ("milan-id", True, True),
        ("turin-id", True, False),
        ("x", False, False),
    ]


@pytest.mark.parametrize(
    ("said", "allowed", "which"),
    [
        ("milan-id, turin-id", "milan-id, turin-id", " -l '{} in (milan-id,turin-id)'"),
        ("", "none", ""),
    ],
)
def test_the_clusters_that_an_administrator_allows(said: str, allowed: str, which: str) -> None:
    about = {"metadata": {"annotations": {keys.ALLOWED_CLUSTERS: said}}}
    lines = why.lines(why.of_namespace(facts(about=about, offloading=None)))

    assert f"  clusters that its administrator allows ({keys.ALLOWED_CLUSTERS}): {allowed}" in lines
    command = f"liqoctl offload namespace foo{which.format(keys.REMOTE_CLUSTER_ID)}"
    assert f"  to offload it: {command}" in lines


# Text ---------------------------------------------------------------------------------------------

PAGE = """\
pod foo/web waits because milan-id refuses it: quota exceeded: cpu

Namespace
  foo: Remote, clusters: region In [eu]
  phase Ready
  on milan-id as foo-rome: ready, NamespaceCreated

Pod
  phase Pending, node milan
  webhook: added node affinity and the toleration of virtual nodes (strategy Remote, generation 1)

Nodes
  milan (virtual): matches
  turin (virtual): no, is not Ready
  rome-1, rome-2, rome-3, rome-4 and 1 more (this cluster): matches

The provider said
  FailedReflection: quota exceeded: cpu

What to do
  do what the message says, or ask the administrator of milan-id; it is tried again

Not known
  a note"""


def test_the_page() -> None:
    told = {keys.PLACEMENT: "strategy=Remote generation=1 added=toleration,nodeAffinity"}
    seen = pod(on="milan", metadata={"annotations": told}, conditions=[REFUSED_THERE])
    nodes = [MILAN, TURIN, *(node(f"rome-{number}") for number in range(1, 6))]
    wanted = offloading("Remote", region="eu")
    known = facts(seen, nodes=nodes, offloading=wanted, notes=["a note"])

    found = why.of_pod(known, "web")

    assert found is not None
    assert "\n".join(why.lines(found)) == PAGE


@factories.cases("note, judged, line")
def test_what_the_webhook_did_is_told(note: str | None, judged: Object, line: str) -> None:
    metadata: Object = {"annotations": {keys.PLACEMENT: note} if note else {}}

    found = why.of_pod(facts(pod(metadata=metadata)), "web")

    assert found is not None
    assert found["pod"]["judged"] == judged
    assert f"  {line}" in why.lines(found)


def test_pods_that_wait_for_the_same_share_a_line() -> None:
    waiting = [
        {**pod(on="milan", conditions=[REFUSED_THERE]), "metadata": {"name": f"web-{number}"}}
        for number in range(6)
    ]

    page = why.lines(why.of_namespace(facts(pending=waiting)))

    assert f"  web-0, web-1, web-2, web-3 and 2 more: {QUOTA}" in page


def test_nothing_that_moves_a_terminal_is_printed() -> None:
    evil = condition("pyliqo.io/Offloaded", "False", "R", "a\x1b[2J\n\u202eb")

    found = why.of_pod(facts(pod(on="milan", conditions=[evil])), "web")

    assert found is not None
    assert all(line.isprintable() for line in why.lines(found))


# With a cluster -----------------------------------------------------------------------------------

WITH_TWO = ((keys.NODE, ROME), (keys.NODE, MILAN), (keys.NAMESPACE_OFFLOADING, offloading()))


async def cluster_with(*objects: tuple[Kind, Object]) -> FakeCluster:
    made = FakeCluster()
    await made.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", "foo")))
    for kind, obj in (*WITH_TWO, *objects):
        await made.create(kind, obj)
        if "status" in obj and kind is not keys.NODE:
            await made.patch_status(kind, key_of(obj), obj["status"])
    return made


async def test_a_pod_in_a_cluster_is_only_read() -> None:
    there = await cluster_with((keys.POD, pod("Running", "milan")))
    before = there.everything()

    found = await work.pod(there, Key("foo", "web"))

    assert found["outcome"] == "Runs"
    assert found["namespace"]["strategy"] == "LocalAndRemote"
    assert there.everything() == before


MOUNTS = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
NO_STORAGE = "virtual node milan offers no storage"


@pytest.mark.parametrize(
    ("claim", "said", "clause"),
    [
        (None, None, "persistentvolumeclaim data does not exist"),
        ("Lost", None, "persistentvolumeclaim data has lost its volume"),
        (
            "Pending",
            ("ReflectionDisabled", NO_STORAGE),
            f"its persistentvolumeclaim data is not bound: ReflectionDisabled: {NO_STORAGE}",
        ),
        ("Pending", None, "the scheduler says: 0/3 nodes: too many pods"),
        ("Pending", ("WaitForFirstConsumer", "it waits"), "the scheduler says: "),
        ("Bound", ("ReflectionDisabled", NO_STORAGE), "the scheduler says: "),
    ],
)
async def test_a_pod_that_waits_for_its_claim(
    claim: str | None, said: tuple[str, str] | None, clause: str
) -> None:
    waiting = pod(conditions=[UNSCHEDULABLE])
    waiting["spec"] |= MOUNTS
    there = await cluster_with((keys.POD, waiting))
    data = Key("foo", "data")
    if claim:
        made = await there.create(
            keys.PERSISTENT_VOLUME_CLAIM, named(keys.PERSISTENT_VOLUME_CLAIM, data, spec={})
        )
        await there.patch_status(keys.PERSISTENT_VOLUME_CLAIM, data, {"phase": claim})
        for reason, message in filter(None, [said]):
            about = event(reason, message, about="PersistentVolumeClaim/data", at=LATE)
            about["involvedObject"]["uid"] = uid(made)
            await there.create(keys.EVENT, about)

    found = await work.pod(there, Key("foo", "web"))

    assert verdict_of(found).startswith(f"pod foo/web waits because {clause}")


def reading() -> Object:
    """Return a pod on milan that mentions two Secrets, a ConfigMap and two claims."""
    seen = pod("Running", "milan")
    sources: list[Object] = [
        {"secret": {"secretName": "token"}},
        {"secret": {"secretName": "plain"}},
        {"configMap": {"name": "skipped"}},
        {"persistentVolumeClaim": {"claimName": "data"}},
        {"persistentVolumeClaim": {"claimName": "not-there"}},
    ]
    volumes = [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
    return {**seen, "spec": {**seen["spec"], "volumes": volumes}}


SKIPPED = {"annotations": {keys.SKIP_REFLECTION: "true"}}
MENTIONED: tuple[tuple[Kind, Object], ...] = (
    (keys.SECRET, named(keys.SECRET, Key("foo", "plain"))),
    (keys.SECRET, named(keys.SECRET, Key("foo", "unmentioned"), type="helm.sh/release.v1")),
    (
        keys.SECRET,
        named(keys.SECRET, Key("foo", "token"), type="kubernetes.io/service-account-token"),
    ),
    (keys.CONFIG_MAP, named(keys.CONFIG_MAP, Key("foo", "skipped"), metadata=SKIPPED)),
    (
        keys.PERSISTENT_VOLUME_CLAIM,
        named(keys.PERSISTENT_VOLUME_CLAIM, Key("foo", "data"), spec={"storageClassName": "fast"}),
    ),
)
STAYING = {
    "ConfigMap skipped": f"reflection disabled by annotation {keys.SKIP_REFLECTION}",
    "Secret token": "secret foo/token is protected and never reflected",
    "PersistentVolumeClaim data": (
        "its class is fast, not liqo, so it stays here: pods on milan-id use the claim of this "
        "name there, which only the administrator of milan-id makes"
    ),
}


async def test_what_a_remote_pod_mentions_and_the_provider_has_not_is_named() -> None:
    there = await cluster_with((keys.POD, reading()), *MENTIONED)

    found = await work.pod(there, Key("foo", "web"))

    assert {f"{one['kind']} {one['name']}": one["reason"] for one in found["staying"]} == STAYING
    assert {one["state"] for one in found["staying"]} == {"stays"}
    lines = why.lines(found)
    assert "Mentioned by the pod, and not reflected" in lines
    assert f"  Secret token: stays, {STAYING['Secret token']}" in lines
    assert found["notes"] == []


UNASKED = "reflection needs annotation liqo.io/allow-reflection (policy AllowList)"
ASKED = dict.fromkeys(("ConfigMap skipped", "Secret plain"), UNASKED)


@pytest.mark.parametrize(("policy", "more"), [("Referenced", {}), ("AllowList", ASKED)])
async def test_what_the_pod_itself_mentions_goes_where_only_that_does(
    policy: str, more: dict[str, str]
) -> None:
    asking = offloading(metadata={"annotations": {keys.REFLECTION_POLICY: policy}})
    there = FakeCluster()
    node_ = named(keys.VIRTUAL_NODE, Key("liqo-tenant", "milan"), spec={"clusterID": "milan-id"})
    for kind, obj in (
        (keys.NAMESPACE, named(keys.NAMESPACE, Key("", "foo"))),
        (keys.NODE, MILAN),
        (keys.VIRTUAL_NODE, node_),
        (keys.NAMESPACE_OFFLOADING, asking),
        (keys.POD, reading()),
        *MENTIONED,
    ):
        await there.create(kind, obj)

    found = await work.pod(there, Key("foo", "web"))

    stays = {f"{one['kind']} {one['name']}": one["reason"] for one in found["staying"]}
    assert stays == {**STAYING, **more}


async def test_a_pod_of_this_cluster_leaves_nothing_behind() -> None:
    here = reading()
    here["spec"]["nodeName"] = "rome-1"
    there = await cluster_with((keys.POD, here), *MENTIONED)

    assert "staying" not in await work.pod(there, Key("foo", "web"))


async def test_who_may_not_read_secrets_is_told_of_the_others() -> None:
    there = await cluster_with((keys.POD, reading()), *MENTIONED)
    there.fail("*", errors.ForbiddenError("no"), kind=keys.SECRET, times=9)

    found = await work.pod(there, Key("foo", "web"))

    told_of = {f"{one['kind']} {one['name']}" for one in found["staying"]}
    assert told_of == STAYING.keys() - {"Secret token"}
    assert found["notes"] == ["you may not read secrets, so nothing is said of that"]


async def test_a_refused_pod_in_a_cluster() -> None:
    there = await cluster_with((keys.EVENT, event("FailedCreate", DENIED)))

    found = await work.pod(there, Key("foo", "web-5d9c-x2x8z"))

    assert found["verdict"] == f"pod foo/web-5d9c-x2x8z was refused because {REFUSAL}"


async def test_what_is_not_there_is_told_with_what_is() -> None:
    there = await cluster_with((keys.POD, pod()))

    with pytest.raises(click.ClickException, match=r"does not exist.*did you mean web"):
        await work.pod(there, Key("foo", "we"))
    with pytest.raises(click.ClickException, match=r"no event tells that it was refused$"):
        await work.pod(there, Key("foo", "api"))
    with pytest.raises(click.ClickException, match="namespace bar does not exist"):
        await work.pod(there, Key("bar", "web"))
    with pytest.raises(click.ClickException, match="namespace bar does not exist"):
        await work.namespace(there, "bar")


async def test_a_namespace_in_a_cluster_with_what_waits_there() -> None:
    refused = pod(on="milan", conditions=[REFUSED_THERE])
    there = await cluster_with((keys.POD, refused), (keys.EVENT, event("FailedCreate", DENIED)))

    found = await work.namespace(there, "foo")

    assert found["outcome"] == "Offloaded"
    assert found["waiting"] == [{"name": "web", "message": QUOTA}]
    assert [one["message"] for one in found["refusals"]] == [REFUSAL]


async def test_who_may_see_little_is_told_what_is_missing() -> None:
    there = await cluster_with((keys.POD, pod()))
    for kind in (keys.NODE, keys.NAMESPACE_OFFLOADING, keys.EVENT, keys.NAMESPACE):
        there.fail("*", errors.ForbiddenError("no"), kind=kind, times=9)

    found = await work.pod(there, Key("foo", "web"))

    assert found["verdict"] == "pod foo/web waits for the scheduler; its nodes are not known"
    assert [note.split(",")[0] for note in found["notes"]] == [
        "you may not read namespaceoffloadings",
        "you may not read nodes",
        "you may not read events",
    ]


@pytest.mark.parametrize("form", ["text", "json", "yaml"])
def test_forms(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = why.of_namespace(facts())

    work.show(answer, form)

    out = capsys.readouterr().out
    match form:
        case "text":
            assert out.splitlines() == why.lines(answer)
        case "json":
            assert json.loads(out) == answer
        case _:
            assert next(yaml.safe_load_all(out)) == answer
