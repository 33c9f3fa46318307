"""The table of what a consumer may write, its page, and the rights that peering gives."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from apis import keys, naming
from tests.manifests import documents, policytable
from tests.manifests import webhooks as configurations
from webhook import webhooks

ROLES = {
    keys.REMOTE_CONTROLPLANE_ROLE: "control plane",
    keys.VIRTUAL_KUBELET_REMOTE_ROLE: "virtual kubelet",
}
WRITING = {"create", "update", "patch", "delete"}


def test_the_page_is_made_of_the_table() -> None:
    run = "python -m tests.manifests.policytable"
    assert policytable.PAGE.read_text() == policytable.policy_page(), f"run {run}"


def test_the_table_has_each_kind_that_peering_lets_a_consumer_write() -> None:
    """Anybody who adds a right adds rows."""
    for role, who in ROLES.items():
        written = {
            (group, plural)
            for rule in documents.named("ClusterRole", role)["rules"]
            if WRITING & {*rule["verbs"]}
            for group in rule["apiGroups"]
            for plural in rule["resources"]
            if "/" not in plural  # connections to pods, which store nothing
        }
        rows = {
            (kind.group, kind.plural) for kind in policytable.EVERY if policytable.who(kind) == who
        }
        assert written == rows, role


def test_each_kind_has_rows_for_all_of_its_metadata() -> None:
    for kind in policytable.EVERY:
        fields = {
            row.field.split(" ")[0].rstrip("s") for row in policytable.TABLE if kind in row.kinds
        }
        assert {"finalizer", "ownerReference", "annotation"} <= fields, kind


def test_no_row_is_there_twice() -> None:
    assert len({*map(str, policytable.TABLE)}) == len(policytable.TABLE)


# The namespaces that the manifests leave alone are those of the code.


NAME = "kubernetes.io/metadata.name"


def left_out() -> Iterator[tuple[str, list[str]]]:
    """Yield which namespaces a webhook or policy never sees, by its name."""
    for obj in documents.of_kind("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        yield from ((hook["name"], names) for hook in obj["webhooks"] for names in _names(hook))
    for obj in documents.of_kind("ValidatingAdmissionPolicy"):
        chosen = obj["spec"]["matchConstraints"]
        yield from ((obj["metadata"]["name"], names) for names in _names(chosen))


def _names(chosen: dict[str, Any]) -> Iterator[list[str]]:
    for rule in (chosen.get("namespaceSelector") or {}).get("matchExpressions") or []:
        if (rule["key"], rule["operator"]) == (NAME, "NotIn"):
            yield rule["values"]


def test_what_no_webhook_sees_is_never_offloaded() -> None:
    found = dict(left_out())

    assert {"pod.mutate.liqo.io", "liqo-judged-pods", "liqo-added-tolerations"} <= set(found)
    for who, names in found.items():
        assert {keys.LIQO_NAMESPACE, keys.NODE_LEASE_NAMESPACE} <= set(names), who
        assert all(map(naming.is_system, names)), who


def test_expressions_that_name_the_systems_namespaces_name_all() -> None:
    found = [
        expression
        for obj in documents.of_kind("ValidatingAdmissionPolicy")
        for part in obj["spec"]["validations"]
        if f"'{keys.STORAGE_NAMESPACE}'" in (expression := part["expression"])
    ]

    assert found
    for expression in found:
        (listed,) = re.findall(
            r"in \[(" + f"[^]]*'{keys.STORAGE_NAMESPACE}'[^]]*" + r")\]", expression
        )
        assert set(re.findall(r"'([^']+)'", listed)) == naming.SYSTEM
        for prefix in naming.SYSTEM_PREFIXES:
            is_tenants = prefix == "liqo-tenant-" and "isTenant" in expression
            assert f".startsWith('{prefix}')" in expression or is_tenants


# What the API server asks the webhook is one table.


@pytest.mark.parametrize("is_mutating", [True, False])
def test_the_configurations_are_made_of_the_table(*, is_mutating: bool) -> None:
    made = configurations.page(is_mutating=is_mutating)

    assert configurations.path(is_mutating=is_mutating).read_text(encoding="utf-8") == made


def test_rows_of_one_path_ask_about_the_same() -> None:
    first = {row.path: row for row in reversed(webhooks.WEBHOOKS)}
    for row in webhooks.WEBHOOKS:
        same = first[row.path]
        assert (row.kind, row.operations) == (same.kind, same.operations), row.name
        assert row.subresources == same.subresources, row.name
        assert (row.handler, row.waits) == (same.handler, same.waits), row.name
