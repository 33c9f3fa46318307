"""To which clusters a namespace may go at most, and who says so. Source: docs/parity.md SEC-D6."""

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from apis import keys
from sandbox.kubectl import Kubectl
from tests.manifests import documents
from tests.manifests.users import refusal, rights
from tests.webhook.reviews import offloading, wait_until

pytestmark = pytest.mark.cluster

ADMIN: Final = "grants-clusters"
TENANT: Final = "renames-namespaces"
POLICIES: Final = ("liqo-allowed-clusters", "liqo-allowing-clusters")
PATIENCE_S: Final = 300


def expression(operator: str, *values: str, key: str = keys.REMOTE_CLUSTER_ID) -> dict[str, Any]:
    found = {"key": key, "operator": operator}
    return {**found, "values": list(values)} if values else found


def selector_term(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


MILAN: Final = expression("In", "milan")
ZONE: Final = expression("In", "north", key="zone")
OTHER: Final = {"matchFields": [expression("In", "milan", key="metadata.name")]}


def annotated(admin: Kubectl, user: str, namespace: str, value: str) -> str:
    said = f"{keys.ALLOWED_CLUSTERS}{value}"
    return refusal(admin, "annotate", "namespace", namespace, said, "--overwrite", f"--as={user}")


def chosen(admin: Kubectl, namespace: str, terms: list[dict[str, Any]] | None) -> str:
    spec: dict[str, Any] = (
        {} if terms is None else {"clusterSelector": {"nodeSelectorTerms": terms}}
    )
    return refusal(admin, "create", "-f", "-", stdin=json.dumps(offloading(namespace, **spec)))


@pytest.fixture(scope="module")
def guarded(kinds: Kubectl) -> Iterator[str]:
    """Yield a namespace that may go to milan and turin, once the policies are in force."""
    namespaces = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "patch"]}
    clusters = {
        "apiGroups": ["offloading.liqo.io"],
        "resources": ["namespaceoffloadings"],
        "verbs": ["allow-clusters"],
    }
    policies = [
        documents.named(f"ValidatingAdmissionPolicy{what}", name)
        for name in POLICIES
        for what in ("", "Binding")
    ]
    items = [
        *rights(namespaces, user=TENANT), *rights(namespaces, clusters, user=ADMIN), *policies,
    ]  # fmt: skip
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kinds.run("apply", "-f", "-", stdin=listed)
    name = f"test-{secrets.token_hex(4)}"
    kinds.run("create", "namespace", name)
    kinds.run("annotate", "namespace", name, f"{keys.ALLOWED_CLUSTERS}=milan, turin")
    until = time.monotonic() + PATIENCE_S
    while (
        annotated(kinds, ADMIN, name, "=paris")
        or "allow-clusters" not in annotated(kinds, TENANT, name, "=paris")
        or "only" not in chosen(kinds, name, None)
    ):
        assert time.monotonic() < until, "the policies are not in force"
    yield name
    kinds.run("delete", "namespace", name, "--wait=false")
    kinds.run("delete", "-f", "-", stdin=listed)


@pytest.mark.parametrize(
    "terms",
    [
        [selector_term(MILAN)],
        [selector_term(expression("In", "milan", "turin"))],
        [selector_term(ZONE, MILAN)],
        [selector_term(MILAN), selector_term(ZONE, expression("In", "turin"))],
    ],
)
def test_of_the_allowed_clusters_any_may_be_chosen(
    kinds: Kubectl, guarded: str, terms: list[dict[str, Any]]
) -> None:
    assert chosen(kinds, guarded, terms) == ""


@pytest.mark.parametrize(
    "terms",
    [
        None,
        [],
        [{}],
        [selector_term()],
        [OTHER],
        [selector_term(ZONE)],
        [selector_term(expression("In", "paris"))],
        [selector_term(expression("In", "milan", "paris"))],
        [selector_term(MILAN), selector_term(ZONE)],
        [selector_term(expression("Exists"))],
        [selector_term(expression("NotIn", "paris"))],
        [selector_term(expression("In", "milan", key="kubernetes.io/hostname"))],
    ],
)
def test_whoever_could_go_elsewhere_is_told_where_to_go(
    kinds: Kubectl, guarded: str, terms: list[dict[str, Any]] | None
) -> None:
    assert f"namespace {guarded} may be offloaded to clusters [milan, turin] only" in chosen(
        kinds, guarded, terms
    )


def test_what_is_offloaded_already_is_kept_up_but_not_sent_elsewhere(
    kinds: Kubectl, guarded: str
) -> None:
    space = f"{guarded}-narrowed"
    kinds.run("create", "namespace", space)
    kinds.run("create", "-f", "-", stdin=json.dumps(offloading(space)))
    kinds.run("annotate", "namespace", space, f"{keys.ALLOWED_CLUSTERS}=")

    known = ("-n", space, keys.NAMESPACE_OFFLOADING.plural, "offloading")
    finalizer = '{"metadata":{"finalizers":["tests/any"]}}'
    strategy = '{"spec":{"podOffloadingStrategy":"Remote"}}'
    change = ("patch", *known, "--type=merge", "-p", strategy)
    wait_until(lambda: "clusters [] only" in refusal(kinds, *change))  # the annotation is news yet
    assert refusal(kinds, "patch", *known, "--type=merge", "-p", finalizer) == ""
    kinds.run("delete", "namespace", space, "--wait=false")


def test_without_the_annotation_all_clusters_are_allowed(kinds: Kubectl, guarded: str) -> None:
    assert chosen(kinds, "default", None) == ""


def test_only_those_who_may_allow_clusters_do(kinds: Kubectl, guarded: str) -> None:
    for change in ("=milan", "=", "-"):
        assert "is for those who may allow-clusters" in annotated(kinds, TENANT, guarded, change)
        assert annotated(kinds, ADMIN, guarded, change) == ""
    assert refusal(kinds, "label", "namespace", guarded, "team=web", f"--as={TENANT}") == ""
