"""What the webhook may write of namespaces: the API server holds it to that. Source: D4."""

import json
import secrets
import time
from collections.abc import Iterator
from typing import Final

import pytest

from apis import keys
from apis.objects import Object
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests import factories
from tests.factories import namespace
from tests.manifests import policies
from tests.manifests.users import refusal
from tests.webhook.reviews import offloading, wait_until

pytestmark = pytest.mark.cluster

WEBHOOK: Final = "system:serviceaccount:liqo:liqo-webhook"
PATIENCE_S: Final = 300
LABEL: Final[Object] = {keys.SCHEDULING_ENABLED: "true"}
MARK: Final[Object] = {keys.SCHEDULING_ENABLED_BY: "a-uid"}


@pytest.fixture
def space(admin: Kubectl) -> Iterator[str]:
    name = f"opened-{secrets.token_hex(3)}"
    admin.apply([factories.namespace(name, team="web")])
    until = time.monotonic() + PATIENCE_S
    while not changed(admin, name, labels={"team": "other"}):
        assert time.monotonic() < until, "the policy is not in force"
    yield name
    admin.run("delete", "namespace", name, "--wait=false")


def changed(admin: Kubectl, namespace: str, **metadata: Object) -> str:
    """Return why the webhook may not change ``namespace`` so, or an empty string."""
    patch = json.dumps({"metadata": metadata})
    how = ("--type=merge", f"-p={patch}", f"--as={WEBHOOK}")
    return refusal(admin, "patch", "namespace", namespace, *how)


def test_the_webhook_adds_its_label_and_mark(admin: Kubectl, space: str) -> None:
    assert changed(admin, space, labels=LABEL, annotations=MARK) == ""


def test_the_webhook_changes_nothing_else_of_a_namespace(admin: Kubectl, space: str) -> None:
    for metadata in (
        {"labels": {**LABEL, "team": "other"}, "annotations": MARK},
        {"labels": {**LABEL, "team": None}, "annotations": MARK},
        {"labels": {**LABEL, keys.POD_SECURITY_ENFORCE: "privileged"}, "annotations": MARK},
        {"labels": LABEL, "annotations": {**MARK, "example.com/team": "other"}},
        {"labels": LABEL, "annotations": MARK, "finalizers": ["example.com/held"]},
    ):
        assert "changes no more of it than the label" in changed(admin, space, **metadata)


def test_the_webhook_sets_the_label_only_where_there_is_none(admin: Kubectl, space: str) -> None:
    adds = "only adds the label liqo.io/scheduling-enabled=true"
    for metadata in (
        {"labels": LABEL},  # without its mark nobody could take it back
        {"labels": {keys.SCHEDULING_ENABLED: "false"}, "annotations": MARK},
    ):
        assert adds in changed(admin, space, **metadata)
    admin.run("label", "namespace", space, f"{keys.SCHEDULING_ENABLED}=false")
    for wanted in ("true", None):
        told = changed(admin, space, labels={keys.SCHEDULING_ENABLED: wanted}, annotations=MARK)
        assert adds in told


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "liqo"])
def test_the_webhook_opens_no_namespace_of_the_system(
    admin: Kubectl, space: str, namespace: str
) -> None:
    assert "not the system's" in changed(admin, namespace, labels=LABEL, annotations=MARK)
    assert space


# The policy that refuses pods which nobody judged, on a real API server where nobody judges.
# Source: docs/parity.md § 3.2; decision 0004.


BOUND = "duration('60s')"


@pytest.fixture
def kubectl(plane: Plane, crds: None) -> Kubectl:
    return Kubectl(plane.kubeconfig)


@pytest.fixture
def run(kubectl: Kubectl) -> Iterator[str]:
    """Have the policies in force for the namespaces of this test, with a bound of 5 seconds."""
    run = f"bound-{secrets.token_hex(4)}"
    whole = policies.listed_as_json(policies.of_namespaces(run))
    assert whole.count(BOUND) == 1
    kubectl.run("apply", "-f", "-", stdin=whole.replace(BOUND, "duration('5s')"))
    yield run
    kubectl.run("delete", "-f", "-", stdin=whole)


def test_no_namespace_stays_closed_because_nobody_judges(kubectl: Kubectl, run: str) -> None:
    """As where our controllers, or the webhook's registration, are away."""
    space = f"closed-{secrets.token_hex(4)}"
    made = [namespace(space, judged=run), offloading(space, podOffloadingStrategy="Remote")]
    kubectl.run("apply", "-f", "-", stdin=policies.listed_as_json(made))

    def again(strategy: str) -> None:
        """Change the NamespaceOffloading, so that it is new once more."""
        change = json.dumps({"spec": {"podOffloadingStrategy": strategy}})
        kubectl.run("patch", "nsoff", "offloading", "-n", space, "--type=merge", f"-p={change}")

    def is_refused_when_changed() -> bool:
        for strategy in ("LocalAndRemote", "Remote"):
            again(strategy)
        return policies.AGAIN in policies.policy_refusal(kubectl, space)

    wait_until(is_refused_when_changed)
    wait_until(lambda: not policies.policy_refusal(kubectl, space))
