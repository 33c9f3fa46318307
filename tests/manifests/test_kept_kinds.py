"""Our kinds stay while there are peers. Source: docs/decisions/0013 (29)."""

import json
import time
from typing import Any, Final

import pytest

from apis import keys
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests.manifests import documents
from tests.manifests.users import refusal

pytestmark = pytest.mark.cluster

POLICY: Final = "liqo-kinds"
PATIENCE_S: Final = 300
OURS: Final = ("crd", "quotas.offloading.liqo.io")
PEER: Final[dict[str, Any]] = {
    "apiVersion": keys.FOREIGN_CLUSTER.api_version,
    "kind": keys.FOREIGN_CLUSTER.kind,
    "metadata": {"name": "kept-kinds"},
    "spec": {"clusterID": "kept-kinds"},
}


def deleted(admin: Kubectl, *what: str) -> str:
    return refusal(admin, "delete", *what, "--dry-run=server")


def is_now(admin: Kubectl, role: str) -> None:
    said = json.dumps({"status": {"role": role}})
    flags = ("--subresource=status", "--type=merge", "-p", said)
    admin.run("patch", "foreigncluster", "kept-kinds", *flags)


@pytest.fixture(scope="module")
def kubectl_with_peer(own_plane: Plane) -> Kubectl:
    """Return kubectl towards an API server with one peer, once the policy is in force."""
    admin = Kubectl(own_plane.kubeconfig)
    found = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    policies = [documents.named(kind, POLICY) for kind in found]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [PEER, *policies]})
    admin.run("apply", "-f", "-", stdin=listed)
    is_now(admin, "Provider")
    until = time.monotonic() + PATIENCE_S
    while not deleted(admin, *OURS):
        assert time.monotonic() < until, "the policy is not in force"
    return admin


def test_our_kinds_stay_while_there_is_a_peer(kubectl_with_peer: Kubectl) -> None:
    said = deleted(kubectl_with_peer, *OURS)
    assert "cluster kept-kinds is a peer" in said
    assert "liqoctl uninstall" in said
    other = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "others.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "others", "kind": "Other"},
            "versions": [{
                "name": "v1", "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    }  # fmt: skip
    kubectl_with_peer.run("apply", "-f", "-", stdin=json.dumps(other))
    assert not deleted(kubectl_with_peer, "crd", "others.example.com")
    kubectl_with_peer.run("delete", "crd", "others.example.com")


@pytest.mark.parametrize("is_left", [True, False])
def test_without_a_peer_they_may_go(kubectl_with_peer: Kubectl, *, is_left: bool) -> None:
    """Of a peering that has ended a ForeignCluster may be left."""
    if is_left:
        is_now(kubectl_with_peer, "Unknown")
    else:
        kubectl_with_peer.run("delete", "foreignclusters", "kept-kinds")
    until = time.monotonic() + PATIENCE_S
    while deleted(kubectl_with_peer, *OURS):
        assert time.monotonic() < until, "the policy still names a peer that is gone"
