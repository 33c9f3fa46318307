"""The policy that refuses pods which nobody judged, on a real API server where nobody judges.

Source: docs/parity.md § 3.2; decision 0004.
"""

import json
import secrets
from collections.abc import Iterator

import pytest

from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests.factories import namespace
from tests.manifests import policies
from tests.webhook.reviews import offloading, wait_until

pytestmark = pytest.mark.cluster

BOUND = "duration('60s')"


@pytest.fixture
def kubectl(plane: Plane, crds: None) -> Kubectl:
    return Kubectl(plane.kubeconfig)


@pytest.fixture
def run(kubectl: Kubectl) -> Iterator[str]:
    """Have the policies in force for the namespaces of this test, with a bound of 5 seconds."""
    run = f"bound-{secrets.token_hex(4)}"
    whole = policies.listed(policies.of_namespaces(run))
    assert whole.count(BOUND) == 1
    kubectl.run("apply", "-f", "-", stdin=whole.replace(BOUND, "duration('5s')"))
    yield run
    kubectl.run("delete", "-f", "-", stdin=whole)


def test_no_namespace_stays_closed_because_nobody_judges(kubectl: Kubectl, run: str) -> None:
    """As where our controllers, or the webhook's registration, are away."""
    space = f"closed-{secrets.token_hex(4)}"
    made = [namespace(space, judged=run), offloading(space, podOffloadingStrategy="Remote")]
    kubectl.run("apply", "-f", "-", stdin=policies.listed(made))

    def again(strategy: str) -> None:
        """Change the NamespaceOffloading, so that it is new once more."""
        change = json.dumps({"spec": {"podOffloadingStrategy": strategy}})
        kubectl.run("patch", "nsoff", "offloading", "-n", space, "--type=merge", f"-p={change}")

    def is_refused_when_changed() -> bool:
        for strategy in ("LocalAndRemote", "Remote"):
            again(strategy)
        return policies.AGAIN in policies.refusal(kubectl, space)

    wait_until(is_refused_when_changed)
    wait_until(lambda: not policies.refusal(kubectl, space))
