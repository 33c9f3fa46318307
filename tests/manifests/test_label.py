"""Who may set the label that switches the admission of pods on. Source: docs/parity.md A-30."""

import json
import secrets
import time
from collections.abc import Iterator

import pytest

from apis import keys
from sandbox.kubectl import Kubectl, KubectlError
from tests.manifests.users import refusal, rights

pytestmark = pytest.mark.cluster

LABELLER = "labeller"
OFFLOADER = "offloader"
PARTIAL = "partial"
"""Who may write parts of namespaces."""
MANAGER = "system:serviceaccount:liqo:liqo-controller-manager"
SET, CHANGED, REMOVED = (f"{keys.SCHEDULING_ENABLED}{end}" for end in ("=true", "=false", "-"))
PATIENCE_S = 300


def label(admin: Kubectl, user: str, namespace: str, *labels: str) -> str:
    """Return why ``user`` may not label ``namespace`` so, or an empty string; nothing changes."""
    return refusal(admin, "label", "namespace", namespace, *labels, "--overwrite", f"--as={user}")


@pytest.fixture
def space(admin: Kubectl) -> Iterator[str]:
    """Yield a labelled namespace, once the policy is in force and both users have their rights."""
    namespaces = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "patch"]}
    offloadings = {
        "apiGroups": ["offloading.liqo.io"],
        "resources": ["namespaceoffloadings"],
        "verbs": ["create"],
    }
    parts = {
        "apiGroups": [""],
        "resources": ["namespaces/status", "namespaces/finalize"],
        "verbs": ["update", "patch"],
    }
    items = [
        *rights(parts, user=PARTIAL),
        *rights(namespaces, user=LABELLER),
        *rights(namespaces, offloadings, user=OFFLOADER),
    ]
    admin.run(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    )
    name = f"test-{secrets.token_hex(4)}"
    admin.run("create", "namespace", name)
    admin.run("label", "namespace", name, SET)
    until = time.monotonic() + PATIENCE_S
    while "NamespaceOffloadings" not in label(admin, LABELLER, name, REMOVED) or label(
        admin, OFFLOADER, name, REMOVED
    ):
        assert time.monotonic() < until, "the policy is not in force"
    yield name
    admin.run("delete", "namespace", name, "--wait=false")


def test_the_label_is_for_those_who_may_offload(admin: Kubectl, space: str) -> None:
    for change in (CHANGED, REMOVED):
        refusal = label(admin, LABELLER, space, change)
        assert f"label {keys.SCHEDULING_ENABLED} of namespace {space} is for those" in refusal
        assert label(admin, OFFLOADER, space, change) == ""
        assert label(admin, MANAGER, space, change) == ""


def test_nothing_else_about_namespaces_is_guarded(admin: Kubectl, space: str) -> None:
    assert label(admin, LABELLER, space, "team=web") == ""
    assert label(admin, LABELLER, space, SET, "team=web") == ""  # as it is already


@pytest.mark.parametrize("part", ["status", "finalize"])
def test_no_part_of_a_namespace_leads_past_it(admin: Kubectl, space: str, part: str) -> None:
    """A write of the status, or of the finalizers, may change labels and annotations, too."""
    found = json.loads(admin.run("get", "namespace", space, "-o", "json"))
    found["metadata"]["labels"].pop(keys.SCHEDULING_ENABLED)
    found["metadata"]["annotations"] = {keys.ALLOWED_CLUSTERS: "milan"}
    path = f"/api/v1/namespaces/{space}/{part}?dryRun=All"

    with pytest.raises(KubectlError, match="is for those who may"):
        admin.run("replace", "--raw", path, "-f", "-", f"--as={PARTIAL}", stdin=json.dumps(found))
    admin.run("replace", "--raw", path, "-f", "-", stdin=json.dumps(found))
