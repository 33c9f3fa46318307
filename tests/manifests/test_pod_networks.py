"""What an administrator names as networks of a provider's pods. Source: docs/decisions/0013 (5)."""

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from apis import keys
from apis.networks import parse_pod_networks
from sandbox.kubectl import Kubectl
from tests.manifests import documents
from tests.manifests.users import refusal

pytestmark = pytest.mark.cluster

POLICY: Final = "liqo-pod-networks"
PATIENCE_S: Final = 300


def identity(networks: str) -> dict[str, Any]:
    return {
        "apiVersion": keys.IDENTITY.api_version,
        "kind": keys.IDENTITY.kind,
        "metadata": {
            "name": f"test-{secrets.token_hex(4)}",
            "annotations": {keys.POD_NETWORKS: networks},
        },
        "spec": {"clusterID": "milan", "type": "ControlPlane", "authParams": {"apiServer": "x"}},
    }


def refused_networks(admin: Kubectl, networks: str) -> str:
    given = json.dumps(identity(networks))
    return refusal(admin, "create", "--dry-run=server", "-f", "-", stdin=given)


@pytest.fixture(scope="module")
def guarded(kinds: Kubectl) -> Iterator[Kubectl]:
    kinds_ = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    policies = [documents.named(kind, POLICY) for kind in kinds_]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": policies})
    kinds.run("apply", "-f", "-", stdin=listed)
    until = time.monotonic() + PATIENCE_S
    while keys.POD_NETWORKS not in refused_networks(kinds, "pods"):
        assert time.monotonic() < until, "the policy is not in force"
    yield kinds
    kinds.run("delete", "-f", "-", stdin=listed)


TEXTS: Final = (
    "", "10.1.0.0/16", " 10.1.0.0/16 ,fd00:1::/56,", "10.1.0.7", "pods", "0.0.0.0/0",
    "10.1.0.0/16,::/0", "10.1.0.0/33",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_what_names_no_network_is_refused_where_it_is_written(guarded: Kubectl, text: str) -> None:
    _, wrong = parse_pod_networks(text)
    said = refused_networks(guarded, text)
    if not wrong:
        assert not said
    else:
        assert f"{wrong[0]} is no network: name networks such as" in said
