"""Who may do what: the least that works, said without wildcards."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from apis import keys, reflection
from apis.reflection import Rights
from tests.manifests import documents
from tests.manifests.policies import NAMES as POD_POLICIES

WRITES: Final = {"create", "update", "patch", "delete", "deletecollection", "escalate"}
OF_KUBERNETES: Final = "extension-apiserver-authentication-reader"
QUESTIONS: Final = {"tokenreviews", "subjectaccessreviews"}
"""They are created and never stored."""


def rules() -> Iterator[tuple[str, dict[str, Any]]]:
    for role in documents.of_kind("Role", "ClusterRole"):
        for rule in role["rules"]:
            if "nonResourceURLs" not in rule:
                yield role["metadata"]["name"], rule


def verbs(role: str, resource: str, kind: str = "ClusterRole") -> set[str]:
    found = documents.named(kind, role)["rules"]
    return {verb for rule in found if resource in rule["resources"] for verb in rule["verbs"]}


def test_no_role_has_a_wildcard_or_can_become_another() -> None:
    for name, rule in rules():
        for part in ("verbs", "resources", "apiGroups"):
            assert "*" not in rule[part], name
        assert {"escalate", "impersonate"}.isdisjoint(rule["verbs"]), name
        if "bind" in rule["verbs"]:
            assert rule["resourceNames"], name


def test_roles_that_others_bind_have_the_names_of_the_code() -> None:
    names = {role["metadata"]["name"] for role in documents.of_kind("ClusterRole")}

    assert {
        keys.CONTROLLER_MANAGER_TENANT_ROLE,
        keys.CONTROLLER_MANAGER_TWIN_ROLE,
        keys.REMOTE_CONTROLPLANE_ROLE,
        keys.VIRTUAL_KUBELET_REMOTE_ROLE,
        keys.VIRTUAL_KUBELET_LOCAL_ROLE,
        keys.VIRTUAL_KUBELET_NAMESPACED_ROLE,
        keys.VIRTUAL_KUBELET_TENANT_ROLE,
        keys.VIRTUAL_KUBELET_REMOTE_CLUSTERWIDE_ROLE,
    } <= names


@pytest.mark.parametrize(
    ("role", "name"),
    [
        (keys.REMOTE_CONTROLPLANE_ROLE, "remote-controlplane"),
        (keys.VIRTUAL_KUBELET_REMOTE_CLUSTERWIDE_ROLE, "virtual-kubelet-remote-clusterwide"),
    ],
)
def test_roles_are_found_by_label(role: str, name: str) -> None:
    assert documents.named("ClusterRole", role)["metadata"]["labels"][keys.APP_NAME] == name


def test_the_webhook_writes_nothing_but_a_label_of_namespaces() -> None:
    written = {
        (resource, verb)
        for name, rule in rules()
        if name == "liqo-webhook"
        for resource in set(rule["resources"]) - QUESTIONS
        for verb in WRITES & set(rule["verbs"])
    }

    assert written == {("namespaces", "patch")}


def test_the_one_path_that_a_role_opens_is_that_of_the_metrics_and_nobody_has_it() -> None:
    paths = [
        (role["metadata"]["name"], rule)
        for role in documents.of_kind("Role", "ClusterRole")
        for rule in role["rules"]
        if "nonResourceURLs" in rule
    ]
    bound = {one["roleRef"]["name"] for one in documents.of_kind("ClusterRoleBinding")}

    reader = keys.METRICS_READER_ROLE
    assert paths == [(reader, {"nonResourceURLs": ["/metrics"], "verbs": ["get"]})]
    assert reader not in bound


def test_who_serves_metrics_may_ask_who_may_read_them_and_nobody_else_may() -> None:
    asking = {name for name, rule in rules() if QUESTIONS & set(rule["resources"]) if rule["verbs"]}
    names = {found["metadata"]["name"] for found in documents.of_kind("Deployment")}

    assert asking == {*names, keys.VIRTUAL_KUBELET_LOCAL_ROLE}
    for name in asking:
        for resource in QUESTIONS:
            assert verbs(name, resource) == {"create"}, name


def test_secrets_are_written_by_those_who_hand_out_identities_and_by_consumers_in_twins() -> None:
    writers = {
        name
        for name, rule in rules()
        if "secrets" in rule["resources"] and WRITES & set(rule["verbs"])
    }

    manager = "liqo-controller-manager"
    ours = {"liqo-certs", manager, f"{manager}-tenant", "liqo-peering-user-tenant-ns"}
    assert writers == {*ours, keys.VIRTUAL_KUBELET_REMOTE_ROLE}


def test_nobody_reads_secrets_that_no_rule_names_but_in_single_namespaces() -> None:
    """No binding of the manifests allows it: each role is bound where it belongs. Source: R5."""
    readers = {
        name
        for name, rule in rules()
        if "secrets" in rule["resources"]
        and {"get", "list", "watch"} & set(rule["verbs"])
        and "resourceNames" not in rule
    }
    bound = {
        binding["roleRef"]["name"]
        for binding in documents.of_kind("RoleBinding", "ClusterRoleBinding")
    }

    assert keys.CONTROLLER_MANAGER_TENANT_ROLE in readers
    assert readers.isdisjoint(bound)


def test_a_consumer_reads_status_and_does_not_write_it() -> None:
    for resource in ("resourceslices/status", "namespacemaps/status", "renews/status"):
        assert verbs(keys.REMOTE_CONTROLPLANE_ROLE, resource) == {"get"}
    assert not WRITES & verbs(keys.VIRTUAL_KUBELET_REMOTE_ROLE, "pods")
    assert not verbs(keys.VIRTUAL_KUBELET_REMOTE_ROLE, "namespaces")


def test_a_virtual_kubelet_has_cluster_wide_only_what_cannot_be_narrowed() -> None:
    resources = {
        resource
        for rule in documents.named("ClusterRole", keys.VIRTUAL_KUBELET_LOCAL_ROLE)["rules"]
        for resource in rule["resources"]
    }

    assert resources == {
        "pods",
        "pods/status",
        "nodes",
        "nodes/status",
        "persistentvolumes",
        "storageclasses",
        "namespaceoffloadings",
        "certificatesigningrequests",
        "tokenreviews",
        "subjectaccessreviews",
        "virtualnodes",
        "servicecidrs",
        "endpointslices",
    }
    assert verbs(keys.VIRTUAL_KUBELET_LOCAL_ROLE, "virtualnodes") == {"serve"}
    for (_, resource), needed in reflection.rights_cluster_wide().items():
        assert verbs(keys.VIRTUAL_KUBELET_LOCAL_ROLE, resource) == set(needed)


OF_PODS_HERE: Final[Rights] = {
    (keys.IP.group, keys.IP.plural): ("create", "delete"),
    ("", "events"): ("create", "patch"),
    ("", "serviceaccounts/token"): ("create",),
}


OF_PODS_THERE: Final[Rights] = {
    (keys.OFFLOADING_GROUP, "shadowpods"): reflection.KEEP,
    ("", "pods"): reflection.READ,
    ("metrics.k8s.io", "pods"): reflection.READ,
    ("", "pods/log"): ("get", "list"),
    ("", "pods/attach"): ("create", "get"),
    ("", "pods/exec"): ("create", "get"),
    ("", "pods/portforward"): ("create", "get"),
}


@pytest.mark.parametrize(
    ("role", "reflected", "besides"),
    [
        (keys.VIRTUAL_KUBELET_NAMESPACED_ROLE, reflection.rights_here(), OF_PODS_HERE),
        (keys.VIRTUAL_KUBELET_REMOTE_ROLE, reflection.rights_there(), OF_PODS_THERE),
    ],
    ids=["at home", "on the provider"],
)
def test_what_is_reflected_may_be_and_nothing_else(
    role: str, reflected: Rights, besides: Rights
) -> None:
    needed = reflection.union([reflected, besides])

    assert granted_by(role) == {resource: set(verbs) for resource, verbs in needed.items()}


def granted_by(role: str) -> dict[tuple[str, str], set[str]]:
    granted: dict[tuple[str, str], set[str]] = {}
    for rule in documents.named("ClusterRole", role)["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                granted.setdefault((group, resource), set()).update(rule["verbs"])
    return granted


def test_no_policy_is_evaluated_for_pods_of_who_does_not_use_us() -> None:
    """Without a NamespaceOffloading there is no parameter, and without one nothing to evaluate."""
    asked = {
        policy["metadata"]["name"]: policy["spec"].get("paramKind", {}).get("kind")
        for policy in documents.of_kind("ValidatingAdmissionPolicy")
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        if "pods" in rule["resources"] and {"CREATE", "UPDATE", "*"} & set(rule["operations"])
    }

    assert asked == dict.fromkeys(POD_POLICIES, keys.NAMESPACE_OFFLOADING.kind)


def test_who_may_make_pods_has_that_right_in_twins_alone() -> None:
    """Who creates a Pod anywhere is whom he likes."""
    makers = {
        name
        for name, rule in rules()
        if "pods" in rule["resources"] and {"create", "update", "patch"} & set(rule["verbs"])
    }
    bound = {
        binding["roleRef"]["name"]
        for binding in documents.of_kind("RoleBinding", "ClusterRoleBinding")
    }

    assert makers == {keys.CONTROLLER_MANAGER_TWIN_ROLE}
    assert makers.isdisjoint(bound)


def test_every_binding_grants_a_role_to_a_process_of_ours() -> None:
    for binding in documents.of_kind("RoleBinding", "ClusterRoleBinding"):
        role = binding["roleRef"]
        namespace = binding["metadata"].get("namespace", "") if role["kind"] == "Role" else ""
        if role["name"] != OF_KUBERNETES:
            assert documents.named(role["kind"], role["name"], namespace)
        (subject,) = binding["subjects"]
        assert documents.named("ServiceAccount", subject["name"], subject["namespace"])


def test_everything_carries_the_label_of_the_whole() -> None:
    for obj in documents.everything():
        assert obj["metadata"]["labels"]["app.kubernetes.io/part-of"] == "liqo"
