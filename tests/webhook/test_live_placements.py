"""Who may go to which node, however it is asked for, on a real API server.

Source: docs/parity.md SEC-D5; A-21, A-22, A-28, A-33, A-34; § 3.1.
"""

import itertools
import secrets
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apis import keys, naming
from apis.objects import Key, Object, named
from tests.factories import pod, pod_spec
from tests.manifests import documents
from tests.webhook import reviews
from tests.webhook.installed import EXEMPT, Answer, Installed, User, path_of
from tests.webhook.placed import EU, EVERYTHING, answered_reviews, required, values
from tests.webhook.podtable import PODS
from tests.webhook.reviews import offloading

pytestmark = pytest.mark.cluster

STRATEGIES: Final = ("Local", "Remote", "LocalAndRemote")
SELECTORS: Final[dict[str, Object]] = {"all": {}, "eu": {"clusterSelector": EU}}
NODES: Final = ("milan", "boston", "worker")
WAYS: Final = ("by name", "bound")
RUNTIMES: Final = ("", keys.RUNTIME_CLASS)


def is_allowed(strategy: str, selector: str, node: str, runtime: str) -> bool:
    if node == "worker":
        return True
    wanted = strategy != "Local" or runtime == keys.RUNTIME_CLASS
    return wanted and (selector == "all" or node == "milan")


def name_of(live: Installed, node: str) -> str:
    return {"milan": live.milan, "boston": live.boston}.get(node, node)


def bind(live: Installed, made: Object, node: str, **how: Any) -> Answer:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": made["metadata"]["name"]},
        "target": {"kind": "Node", "name": node},
    }
    return live.send("POST", path_of(keys.POD, made, part="binding"), binding, **how)


def create_pod_in(live: Installed, space: str, **spec: Any) -> Answer:
    return live.create(keys.POD, pod(space, f"p-{secrets.token_hex(4)}", spec=pod_spec(**spec)))


@pytest.fixture(scope="module")
def spaces(live: Installed) -> dict[tuple[str, str], str]:
    """Make an offloaded namespace for each strategy and selector."""
    return {
        (strategy, selector): live.offloaded(
            label="false" if strategy == "Local" else "true",  # as the controller has it
            podOffloadingStrategy=strategy,
            **SELECTORS[selector],
        )
        for strategy, selector in itertools.product(STRATEGIES, SELECTORS)
    }


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in itertools.product(STRATEGIES, SELECTORS, NODES, RUNTIMES, WAYS)
        if row[2:4] != ("worker", keys.RUNTIME_CLASS)  # the class itself selects virtual nodes
    ],
)
def test_a_node_is_one_of_those_that_the_namespace_allows(
    live: Installed, spaces: dict[tuple[str, str], str], row: tuple[str, str, str, str, str]
) -> None:
    strategy, selector, node, runtime, way = row
    space, name = spaces[strategy, selector], name_of(live, node)
    spec = {"runtimeClassName": runtime} if runtime else {}

    if way == "by name":
        found = create_pod_in(live, space, nodeName=name, **spec)
    else:
        made = create_pod_in(live, space, **spec)
        assert made.is_done, made
        found = bind(live, made.body, name)

    assert found.is_done is is_allowed(strategy, selector, node, runtime), found
    assert found.is_done or f"spec.nodeName: {name} is" in found.message


@pytest.mark.parametrize("way", WAYS)
def test_a_namespace_that_is_not_offloaded_is_not_judged(live: Installed, way: str) -> None:
    """Its virtual kubelet starts no pod of a namespace that is not mapped to its cluster."""
    space = live.space()
    if way == "by name":
        assert create_pod_in(live, space, nodeName=live.milan).is_done
    else:
        assert bind(live, create_pod_in(live, space).body, live.milan).is_done


def test_the_scheduler_is_not_asked_about(live: Installed) -> None:
    space = live.offloaded(podOffloadingStrategy="Remote", clusterSelector=EU)
    scheduler = User("system:kube-scheduler", [EXEMPT])

    found = bind(live, create_pod_in(live, space).body, live.boston, user=scheduler)

    assert found.is_done  # the affinity of the pod is what the scheduler obeys


OURS: Final = {"key": keys.VIRTUAL_NODE_TAINT, "operator": "Exists"}


@pytest.mark.parametrize("toleration", [EVERYTHING, OURS])
@pytest.mark.parametrize("label", ["true", "false"])
def test_a_toleration_made_by_hand_leads_out_of_no_local_namespace(
    live: Installed, toleration: Object, label: str
) -> None:
    space = live.offloaded(label=label, podOffloadingStrategy="Local")

    made = create_pod_in(live, space, tolerations=[toleration])

    (term,) = required(made.body)
    assert term == {"matchExpressions": [{"key": keys.NODE_TYPE, "operator": "NotIn",
                                          "values": [keys.VIRTUAL_NODE_TYPE]}]}  # fmt: skip


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nor_does_one_that_is_added_later(live: Installed, strategy: str) -> None:
    """A pod that was made before its namespace was offloaded has nothing that holds it back."""
    space = live.space()
    made = create_pod_in(live, space).body
    how = offloading(space, podOffloadingStrategy=strategy, clusterSelector=EU)
    assert live.create(keys.NAMESPACE_OFFLOADING, how).is_done
    path = path_of(keys.POD, made)
    have = made["spec"].get("tolerations") or []

    def change(*more: Object) -> Answer:
        wanted = {"spec": {"tolerations": [*have, *more]}}
        return live.send("PATCH", path, wanted, form="merge-patch+json")

    other = change({"key": "gpu", "operator": "Exists"})
    assert other.is_done, other
    reviews.wait_until(lambda: not change({"key": "gpu", "operator": "Exists"}, OURS).is_done)
    found = change({"key": "gpu", "operator": "Exists"}, OURS)
    assert "spec.tolerations" in found.message
    labels = {"metadata": {"labels": {"app": "web"}}}
    assert live.send("PATCH", path, labels, form="merge-patch+json").is_done


# What never reaches us ----------------------------------------------------------------------------


EVERY_WAY: Final[tuple[Object, ...]] = (
    {},
    {"nodeName": "worker"},
    {"tolerations": [EVERYTHING]},
    {"tolerations": [OURS]},
    {"runtimeClassName": keys.RUNTIME_CLASS},
)


def test_pods_of_namespaces_that_nobody_offloads_are_not_asked_about(live: Installed) -> None:
    offloaded = live.offloaded(podOffloadingStrategy="Remote")
    others = [live.space(), live.twin()]
    before = answered_reviews(live)

    for space, spec in itertools.product(others, EVERY_WAY):
        assert create_pod_in(live, space, **spec).is_done
    bound = create_pod_in(live, others[0]).body
    assert bind(live, bound, "worker").is_done
    assert create_pod_in(live, offloaded).is_done

    more = {path: count - before.get(path, 0) for path, count in answered_reviews(live).items()}
    assert {path: count for path, count in more.items() if count} == {"/mutate/pod": 1}


def test_pods_of_local_namespaces_are_if_virtual_nodes_let_them_in(live: Installed) -> None:
    space = live.offloaded(label="false", podOffloadingStrategy="Local")
    before = answered_reviews(live)

    assert create_pod_in(live, space).is_done
    assert answered_reviews(live) == before
    assert create_pod_in(live, space, tolerations=[EVERYTHING]).is_done
    assert answered_reviews(live)["/mutate/pod"] == before.get("/mutate/pod", 0) + 1


def test_a_replaced_list_of_tolerations_keeps_the_one_that_was_added(live: Installed) -> None:
    """As on a real node, where DefaultTolerationSeconds adds its own again."""
    space = live.offloaded(podOffloadingStrategy="LocalAndRemote")
    made = create_pod_in(live, space).body
    mine = {"key": "mine", "operator": "Exists", "effect": "NoSchedule"}
    before = answered_reviews(live)

    made["spec"]["tolerations"] = [mine]
    found = live.send("PUT", path_of(keys.POD, made), made)

    assert found.is_done, found.message
    tolerations = found.body["spec"]["tolerations"]
    assert mine in tolerations
    assert [one["key"] for one in tolerations].count(keys.VIRTUAL_NODE_TAINT) == 1
    assert answered_reviews(live)["/mutate/pod/update"] == before.get("/mutate/pod/update", 0) + 1


def test_no_other_change_of_a_pod_is_asked_about(live: Installed) -> None:
    space = live.offloaded(podOffloadingStrategy="LocalAndRemote")
    made = create_pod_in(live, space).body
    path, status = path_of(keys.POD, made), path_of(keys.POD, made, part="status")
    mine = {"key": "mine", "operator": "Exists", "effect": "NoSchedule"}
    tolerations = [*made["spec"]["tolerations"], mine]
    changes: list[tuple[str, Object]] = [
        (path, {"metadata": {"labels": {"team": "web"}, "annotations": {"a": "b"}}}),
        (path, {"metadata": {"finalizers": ["example.com/held"]}}),
        (path, {"spec": {"tolerations": tolerations}}),
        (status, {"status": {"phase": "Running", "podIP": "10.0.0.1"}}),
        (path, {"metadata": {"finalizers": None}}),
    ]
    before = answered_reviews(live)

    for where, change in changes:
        assert live.send("PATCH", where, change, form="merge-patch+json").is_done

    assert answered_reviews(live) == before


def test_who_may_not_see_the_other_namespace_is_not_told_whose_twin_it_is(live: Installed) -> None:
    twin, role = f"twin-{secrets.token_hex(4)}", f"offloader-{secrets.token_hex(4)}"
    chosen = {"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": twin}
    first, second = live.offloaded(**chosen), live.space()
    group = {"apiGroups": [keys.OFFLOADING_GROUP], "resources": ["namespaceoffloadings"]}
    rules = {"rules": [{**group, "verbs": ["create", "get"]}]}
    made = {"apiVersion": f"{keys.RBAC_GROUP}/v1", "kind": "ClusterRole", **rules}
    where = f"/apis/{keys.RBAC_GROUP}/v1/clusterroles"
    assert live.send("POST", where, {**made, "metadata": {"name": role}}).is_done
    user, wanted = User(role), offloading(second, **chosen)
    live.grant(second, role, "User", role)

    def told() -> str:
        return live.create(keys.NAMESPACE_OFFLOADING, wanted, user=user).message

    reviews.wait_until(lambda: "already" in told())
    assert f"the remote namespace '{twin}' is already that of another namespace" in told()
    assert first not in told()

    live.grant(first, role, "User", role)
    reviews.wait_until(lambda: f"'{twin}' is already that of {first}" in told())


@pytest.mark.parametrize("name", ["n", "n" * 50])
def test_nobody_takes_the_default_name_of_another_namespace_beforehand(
    live: Installed, name: str
) -> None:
    """In both orders: before that namespace is offloaded, and after. Source: docs/parity.md H21."""
    path = f"/api/v1/namespaces/{keys.LIQO_NAMESPACE}/configmaps/{keys.CLUSTER_ID_CONFIG_MAP}"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {keys.CLUSTER_ID_KEY: "rome"}}
    config["metadata"] = {"name": keys.CLUSTER_ID_CONFIG_MAP}
    how: Any = {"fieldManager": "tests", "force": "true"}
    assert live.send("PATCH", path, config, form="apply-patch+yaml", **how).is_done
    known = live.send("GET", path).body["data"][keys.CLUSTER_ID_KEY]
    victim, mallory = f"{name}-{secrets.token_hex(4)}", live.space()
    labels = {"judged": live.run}
    space = named(keys.NAMESPACE, Key("", victim), metadata={"labels": labels})
    assert live.create(keys.NAMESPACE, space).is_done
    twin = naming.default_remote_namespace(victim, known)
    chosen = {"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": twin}

    before = live.create(keys.NAMESPACE_OFFLOADING, offloading(mallory, **chosen))
    mine = live.create(keys.NAMESPACE_OFFLOADING, offloading(victim))
    after = live.create(keys.NAMESPACE_OFFLOADING, offloading(mallory, **chosen))

    assert mine.is_done, mine.message
    assert before.status == 409
    assert f"{victim[-9:]} as its default name" in before.message
    assert after.status == 409
    assert f"{victim[-9:]}: choose another" in after.message


TWO: Final[list[Object]] = [
    {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]},
    {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
]


def own(*terms: Object) -> Object:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("strategy", ["Remote", "LocalAndRemote"])
@pytest.mark.parametrize(
    "spec", [{}, own(*TWO), own(TWO[0]), {"tolerations": [{"key": "x", "operator": "Exists"}]}]
)
def test_a_pod_that_is_stored_as_it_was_judged_is_not_asked_about_again(
    live: Installed, strategy: str, selector: str, spec: Object
) -> None:
    space = live.offloaded(podOffloadingStrategy=strategy, **SELECTORS[selector])
    before = answered_reviews(live)

    assert create_pod_in(live, space, **spec).is_done

    after = answered_reviews(live)
    assert after["/mutate/pod"] == before.get("/mutate/pod", 0) + 1
    assert after.get("/validate/pod", 0) == before.get("/validate/pod", 0)


def expressions(each: int) -> list[Object]:
    return [
        {"matchExpressions": [{"key": f"k{t}-{n}", "operator": "Exists"} for n in range(each)]}
        for t in range(100)
    ]


@pytest.mark.parametrize(
    "spec",
    [
        own({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}),
        own({**TWO[0], "matchFields": [{"key": "metadata.name", "operator": "NotIn",
                                        "values": ["n"]}]}),
        {"tolerations": [{"operator": "Exists"}]},
        {"nodeName": "worker"},
        {"runtimeClassName": keys.RUNTIME_CLASS},
        own({"matchExpressions": [{"key": f"key-{n}", "operator": "Exists"} for n in range(60)]}),
        own(*expressions(10)),
        own(*values(999)),
    ],
)  # fmt: skip
def test_any_other_is(live: Installed, spec: Object) -> None:
    space = live.offloaded(podOffloadingStrategy="Remote")
    before = answered_reviews(live)

    assert create_pod_in(live, space, **spec).is_done

    assert answered_reviews(live)["/validate/pod"] == before.get("/validate/pod", 0) + 1


@pytest.mark.parametrize("spec", [own(*expressions(400)), own(*values(20_000))])
def test_one_of_any_size_is_where_the_namespace_asks_nothing(live: Installed, spec: Object) -> None:
    space = live.offloaded(podOffloadingStrategy="LocalAndRemote")
    before = answered_reviews(live)

    assert create_pod_in(live, space, **spec).is_done

    assert answered_reviews(live)["/validate/pod"] == before.get("/validate/pod", 0) + 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_pod_that_is_changed_is_as_secure_as_before(live: Installed, strategy: str) -> None:
    space = live.space({keys.SCHEDULING_ENABLED: "true", keys.POD_SECURITY_ENFORCE: "restricted"})
    how = offloading(space, podOffloadingStrategy=strategy, clusterSelector=EU)
    assert live.create(keys.NAMESPACE_OFFLOADING, how).is_done
    context = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }

    assert create_pod_in(
        live, space, containers=[{"name": "main", "image": "i", "securityContext": context}]
    ).is_done
    assert create_pod_in(live, space).status == 403


@settings(max_examples=50, deadline=None)
@given(sent=PODS, chosen=st.integers(0, 5))
def test_any_pod_that_the_server_takes_it_takes_changed(
    live: Installed, spaces: dict[tuple[str, str], str], sent: Object, chosen: int
) -> None:
    """Whatever the server takes where nothing is offloaded, it takes where something is."""
    space = sorted(spaces.values())[chosen]

    def dry(namespace: str) -> Answer:
        metadata = {**sent["metadata"], "namespace": namespace}
        obj = {**pod(namespace), "metadata": metadata, "spec": sent["spec"]}
        return live.create(keys.POD, obj, dryRun="All")

    if dry("default").is_done:
        assert dry(space).is_done or "node" in dry(space).message


def test_what_a_cluster_lives_on_is_not_intercepted() -> None:
    """Leases, access reviews, events and the configurations themselves are no business of ours."""
    ours = {
        "",
        keys.DAEMON_SET.group,
        keys.OFFLOADING_GROUP,
        "authentication.liqo.io",
        "core.liqo.io",
    }
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for configuration in documents.of_kind(kind):
            for hook in configuration["webhooks"]:
                (rule,) = hook["rules"]
                assert set(rule["apiGroups"]) <= ours
                if rule["apiGroups"] == [""] and not all(
                    resource.partition("/")[0] == "pods" for resource in rule["resources"]
                ):
                    (one,) = hook["namespaceSelector"]["matchExpressions"]
                    assert (one["key"], one["operator"]) == (keys.REMOTE_CLUSTER_ID, "Exists")
                    assert hook["failurePolicy"] == "Ignore"
                if rule["apiGroups"] == [keys.DAEMON_SET.group]:
                    assert rule["resources"] == [keys.DAEMON_SET.plural]
                    assert hook["failurePolicy"] == "Ignore"
