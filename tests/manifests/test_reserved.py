"""The namespaces that the manifests leave alone are those of the code."""

import re
from collections.abc import Iterator
from typing import Any

from apis import keys, naming
from tests.manifests import documents

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
