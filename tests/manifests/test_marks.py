"""Who may set the marks by which a namespace is a tenant's, or a twin.

Source: docs/parity.md SEC-A10.
"""

import json
import secrets
import time
from collections.abc import Iterator
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Object, named
from sandbox.kubectl import Kubectl, KubectlError
from tests.manifests.users import refusal, rights

pytestmark = pytest.mark.cluster

OWNER: Final = "project-admin"
"""Who may create namespaces, and patch them in each of their parts."""
PEERER: Final = "peerer"
"""Who may create Tenants in the whole cluster besides."""
GUEST: Final = "tenant-admin"
"""Who may create Tenants in one namespace."""
MANAGER: Final = "system:serviceaccount:liqo:liqo-controller-manager"
PATIENCE_S: Final = 300
TWIN: Final = {"labels": {keys.REMOTE_CLUSTER_ID: "rome"}, "annotations": {
    keys.MANAGED_BY_NAMESPACE_MAP: "liqo-tenant-rome/milan",
    keys.ORIGINAL_NAME: "shop",
    keys.OFFERED_STORAGE_CLASSES: "silver",
}}  # fmt: skip
LABELS: Final = (keys.TENANT_NAMESPACE, keys.REMOTE_CLUSTER_ID)
NOTES: Final = (keys.MANAGED_BY_NAMESPACE_MAP, keys.ORIGINAL_NAME)
OFFERS: Final = (
    keys.OFFERED_STORAGE_CLASSES, keys.OFFERED_INGRESS_CLASSES, "pyliqo.io/opened-some-day",
)  # fmt: skip


def patched(admin: Kubectl, user: str, name: str, metadata: Object) -> str:
    """Return why ``user`` may not change ``name`` so, or an empty string; nothing changes."""
    change = json.dumps({"metadata": metadata})
    patch = ("patch", "namespace", name, "--type=merge", "-p", change)
    return refusal(admin, *patch, f"--as={user}")


def marked_namespace(name: str, metadata: Object) -> Object:
    return named(keys.NAMESPACE, Key("", name), metadata=metadata)


@pytest.fixture
def spaces(admin: Kubectl) -> Iterator[tuple[str, str]]:
    """Yield a plain namespace and a twin, once the policy is in force and users have rights."""
    plain, twin = (f"test-{secrets.token_hex(4)}" for _ in range(2))
    parts = ["namespaces", "namespaces/status", "namespaces/finalize"]
    verbs = ["get", "create", "update", "patch"]
    spaces_ = {"apiGroups": [""], "resources": parts, "verbs": verbs}
    tenants = {"apiGroups": ["authentication.liqo.io"], "resources": ["tenants"], "verbs": verbs}
    rights_ = [*rights(spaces_, user=OWNER), *rights(spaces_, tenants, user=PEERER)]
    role = {"apiGroup": keys.RBAC_GROUP, "kind": "ClusterRole", "name": f"test-{PEERER}"}
    subject = {"apiGroup": keys.RBAC_GROUP, "kind": "User", "name": GUEST}
    guest = named(keys.ROLE_BINDING, Key(plain, GUEST), roleRef=role, subjects=[subject])
    admin.apply([*rights_, marked_namespace(plain, {}), marked_namespace(twin, TWIN), guest])
    until = time.monotonic() + PATIENCE_S
    mark = {"labels": {keys.TENANT_NAMESPACE: "true"}}
    while "create Tenants" not in patched(admin, OWNER, plain, mark) or patched(
        admin, PEERER, plain, mark
    ):
        assert time.monotonic() < until, "the policy is not in force"
    yield plain, twin
    for name in (plain, twin):
        admin.run("delete", "namespace", name, "--wait=false")


def test_a_namespace_becomes_nobodys_by_who_only_owns_it(
    admin: Kubectl, spaces: tuple[str, str]
) -> None:
    plain, _ = spaces
    marks: list[Object] = [{"labels": {name: value}} for name in LABELS for value in ("rome", "")]
    marks += [{"annotations": {name: "liqo-tenant-rome/milan"}} for name in NOTES]

    for mark in marks:
        for user in (OWNER, GUEST):
            assert "create Tenants" in patched(admin, user, plain, mark), (user, mark)
        new = marked_namespace("test-new", mark)
        create = ("create", "-f", "-", f"--as={OWNER}")
        assert "create Tenants" in refusal(admin, *create, stdin=json.dumps(new)), mark
        assert patched(admin, PEERER, plain, mark) == ""


def test_a_twin_stays_whose_it_is_and_what_it_offers(
    admin: Kubectl, spaces: tuple[str, str]
) -> None:
    _, twin = spaces
    changes: list[Object] = [{"labels": {keys.REMOTE_CLUSTER_ID: to}} for to in (None, "turin", "")]
    changes += [{"annotations": {name: to}} for name in NOTES for to in (None, "x")]
    changes += [{"annotations": {name: "gold"}} for name in OFFERS]
    changes += [{"annotations": {keys.OFFERED_STORAGE_CLASSES: None}}]

    for change in changes:
        assert "create Tenants" in patched(admin, OWNER, twin, change), change
        assert patched(admin, PEERER, twin, change) == ""
    offer = {"annotations": {keys.OFFERED_STORAGE_CLASSES: "gold"}}
    assert patched(admin, MANAGER, twin, offer) == ""


def test_all_else_about_namespaces_is_their_owners(admin: Kubectl, spaces: tuple[str, str]) -> None:
    plain, twin = spaces
    other = {"labels": {"team": "web", "liqo.io/x": "y"}, "annotations": {"note": "x"}}
    opened = {"annotations": {"pyliqo.io/reflection": "x"}}

    for name in (plain, twin):
        assert patched(admin, OWNER, name, other) == ""
    assert patched(admin, OWNER, plain, opened) == ""
    assert patched(admin, OWNER, twin, TWIN) == "", "as it is already"


@pytest.mark.parametrize("part", ["status", "finalize"])
def test_no_part_of_a_namespace_leads_past_it(
    admin: Kubectl, spaces: tuple[str, str], part: str
) -> None:
    plain, _ = spaces
    found = admin.get("namespace", plain)
    found["metadata"]["labels"][keys.REMOTE_CLUSTER_ID] = "rome"
    path = f"/api/v1/namespaces/{plain}/{part}?dryRun=All"

    with pytest.raises(KubectlError, match="create Tenants"):
        admin.run("replace", "--raw", path, "-f", "-", f"--as={OWNER}", stdin=json.dumps(found))
