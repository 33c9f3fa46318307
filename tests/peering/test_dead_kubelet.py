"""A virtual node whose virtual kubelet is dead, its provider too or not, on real API servers.

Nothing runs Deployments here, so no virtual kubelet ever runs; its Node is played, and since when
that is not ready. Source: docs/parity.md § 4.3; F-22.
"""

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Object, named
from controllers import vkoptions
from controllers.offloading.virtualnode.forge import lifecycle
from tests import factories
from tests.controllers.support import defaulted, virtual_node
from tests.peering import world
from tests.peering.world import Member, World

pytestmark = pytest.mark.cluster

HERE: Final = naming.tenant_namespace("milan")
SPACE: Final = "cart"
TWIN: Final = "cart-rome"
POD: Final = ("pod", "web", "-n", SPACE)
NODE: Final = ("node", "milan")
VIRTUAL_NODE: Final = ("virtualnode", "milan", "-n", HERE)
OFFLOADING: Final = ("namespaceoffloading", "offloading", "-n", SPACE)
OURS: Final = "tenants,identities,renews,resourceslices.authentication.liqo.io,namespacemaps"
FORCE: Final = (
    "unpeer",
    "--force",
    "--remote-cluster-id=milan",
    "--skip-confirm",
    f"--timeout={world.PATIENCE_S}s",
)


@pytest.fixture
def dead(both: World) -> Iterator[World]:
    """Yield both clusters, peered, with one pod of an offloaded namespace on the dead node."""
    both.peer("rome", "milan")
    rome = both["rome"].kubectl
    secret = naming.kubeconfig_secret(naming.resourceslice_identity("milan"))
    rome.apply([vkoptions.template(keys.LIQO_NAMESPACE, "none"), factories.namespace(SPACE)])
    rome.apply([virtual_node(HERE, "milan", "milan", kubeconfigSecretRef={"name": secret})])
    rome.apply(
        [factories.virtual_node(), named(keys.SERVICE_ACCOUNT, Key(SPACE, "default")), pod()]
    )
    not_ready(both, timedelta(0))
    rome.apply([defaulted(SPACE)])  # now: where no webhook judges pods, no more may be created
    milan = both["milan"].kubectl
    world.wait(lambda: not world.refusal(milan, "get", "namespace", TWIN), "the twin")
    yield both
    rome.run("delete", "namespace", SPACE, "--ignore-not-found")
    world.wait(lambda: world.refusal(milan, "get", "namespace", TWIN), "the twin to go")


def pod() -> Object:
    """Return a pod that is on the node, and that its virtual kubelet has offloaded."""
    metadata = {"labels": {keys.SHADOW_POD_LABEL: "true"}}
    return factories.pod(SPACE, "web", metadata=metadata, spec=factories.offloaded_spec("milan"))


def not_ready(both: World, age: timedelta) -> None:
    """Let the node be not ready for ``age``, as Kubernetes would have noted it."""
    since = (datetime.now(UTC) - age).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": since}
    status = json.dumps({"status": {"conditions": [ready]}})
    both["rome"].kubectl.run("patch", *NODE, "--subresource=status", "-p", status)


def test_what_is_on_it_is_given_up_after_a_while_and_all_goes_that_the_provider_has(
    dead: World,
) -> None:
    rome, milan = dead["rome"].kubectl, dead["milan"].kubectl
    rome.run("delete", *VIRTUAL_NODE, "--wait=false")

    def told() -> str:
        found = (rome.get(*VIRTUAL_NODE).get("status") or {}).get("conditions") or []
        return next((one["message"] for one in found if one["type"] == lifecycle.NODE), "")

    world.wait(lambda: "no virtual kubelet runs" in told(), "the condition")
    assert "1 pods are leaving the node, but" in told()
    assert ": given up at " in told()
    assert objects.is_terminating(rome.get(*POD)), "it was asked to leave"
    done = dead.liqoctl("rome", "unoffload", "namespace", SPACE, "--skip-confirm")
    assert done.exit_code == 0, done.output
    assert world.refusal(milan, "get", "namespace", TWIN), "the provider's side waits for nobody"
    assert objects.is_terminating(rome.get(*POD)), "nobody has ended it"

    not_ready(dead, lifecycle.GIVEN_UP_AFTER + timedelta(minutes=1))
    dead.unpeer("rome", "milan")

    for what in (POD, NODE, VIRTUAL_NODE):
        assert "not found" in world.refusal(rome, "get", *what), what
    said = "no virtual kubelet ran for 10 minutes: cluster milan may still run cart/web, in"
    abandoned = ("events", "-n", HERE, "--field-selector=reason=PodsAbandoned")
    world.wait(lambda: said in json.dumps(rome.items(*abandoned)), "the Event")
    for member in dead.members.values():
        assert member.get(OURS, "-A") == []


def test_without_a_word_of_the_provider_all_goes_at_home(dead: World) -> None:
    """Force asks nothing of the provider; what that has is its own to remove."""
    rome, milan = dead["rome"].kubectl, dead["milan"].kubectl
    not_ready(dead, lifecycle.GIVEN_UP_AFTER + timedelta(minutes=1))

    done = dead.liqoctl("rome", *FORCE)

    assert done.exit_code == 0, done.output
    assert "left on milan: the tenant of this cluster" in " ".join(done.output.split())
    for what in (POD, NODE, ("namespace", HERE)):
        assert "not found" in world.refusal(rome, "get", *what), what
    assert dead["rome"].get(OURS, "-A") == []
    removed = dead.liqoctl("milan", "delete", "tenant", "rome", "--skip-confirm")
    assert removed.exit_code == 0, removed.output
    world.wait(lambda: world.refusal(milan, "get", "namespace", TWIN), "the twin to go")


@contextlib.contextmanager
def without_api_server(member: Member) -> Iterator[None]:
    """Let the API server of ``member`` be dead meanwhile, as after a crash."""
    member.plane.kill_apiserver()
    try:
        yield
    finally:
        member.plane.start_apiserver()


def offloaded(both: World) -> tuple[str, list[str]]:
    status = both["rome"].kubectl.get(*OFFLOADING).get("status") or {}
    return str(status.get("offloadingPhase")), list(status.get("remoteNamespacesConditions") or {})


def test_with_the_provider_dead_too_nothing_of_a_namespace_is_held_at_home(dead: World) -> None:
    """K7 whole: no wait for the provider, nor for the ten minutes that a living one is given."""
    rome, milan = dead["rome"].kubectl, dead["milan"].kubectl
    world.wait(lambda: offloaded(dead) == ("Ready", ["milan"]), "the twin to be known at home")
    with without_api_server(dead["milan"]):
        done = dead.liqoctl("rome", *FORCE)

        assert done.exit_code == 0, done.output
        told = " ".join(done.output.split())
        assert f"left on milan: the tenant of this cluster, namespaces {TWIN}" in told
        for what in (POD, NODE, VIRTUAL_NODE, ("namespace", HERE)):
            assert "not found" in world.refusal(rome, "get", *what), what
        world.wait(lambda: offloaded(dead) == ("NoClusterSelected", []), "the offloading to know")
        again = dead.liqoctl("rome", *FORCE)
        assert again.exit_code == 0, again.output
        done = dead.liqoctl("rome", "unoffload", "namespace", SPACE, "--skip-confirm")
        assert done.exit_code == 0, done.output
        rome.run("delete", "namespace", SPACE)

    removed = dead.liqoctl("milan", "delete", "tenant", "rome", "--skip-confirm")
    assert removed.exit_code == 0, removed.output
    world.wait(lambda: world.refusal(milan, "get", "namespace", TWIN), "the orphan to go")
