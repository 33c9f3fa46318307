"""A peering with a cluster on which Liqo's own programs run, each way round.

Rome is pyliqo, milan is Liqo without its network module. Source: the wire formats of Liqo's
documents are compared with vectors elsewhere; here both ends of the wire are the programs.
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Object, named
from controllers import vkoptions
from sandbox.controlplane import free_ports
from sandbox.kubectl import Kubectl
from tests import factories
from tests.controllers.support import defaulted
from tests.peering import liqo, recording, world
from tests.peering.liqo import Liqo
from tests.peering.world import World

pytestmark = pytest.mark.cluster

SLICES: Final = "resourceslices.authentication.liqo.io"
OURS: Final = f"tenants,identities,renews,{SLICES},namespacemaps,quotas.offloading.liqo.io"
RUNNING: Final = {
    "phase": "Running", "podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}],
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [
        {
            "name": "c", "ready": True, "started": True, "restartCount": 0, "image": "none",
            "imageID": "", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield rome, of ours, and milan, of Liqo's."""
    liqo.folder()
    directory = tmp_path_factory.mktemp("liqo")
    with recording.audited(), world.two_clusters(directory, milan=Liqo) as running:
        yield running
        recording.keep(running["rome"].plane.audit_log)


def theirs(mixed: World) -> Liqo:
    return cast("Liqo", mixed["milan"])


def offloaded(space: str, node: str) -> list[Object]:
    """Return a namespace with a pod on ``node``, and with what is reflected for it."""
    spec = factories.offloaded_spec(node)
    port = {"ports": [{"port": 80}], "selector": {"app": "web"}}
    return [
        factories.namespace(space),
        named(keys.SERVICE_ACCOUNT, Key(space, "default")),
        named(keys.CONFIG_MAP, Key(space, "conf"), data={"a": "b"}),
        named(keys.SECRET, Key(space, "token"), data={"a": "Yg=="}),
        named(keys.SERVICE, Key(space, "web"), spec=port),
        factories.pod(space, "web", metadata={"labels": {"app": "web"}}, spec=spec),
        named(
            keys.ENDPOINT_SLICE, Key(space, "web-at-home"),
            metadata={"labels": {keys.SERVICE_NAME: "web"}}, addressType="IPv4",
            endpoints=[{"addresses": ["10.200.8.8"], "conditions": {"ready": True}}],
            ports=[{"port": 80}],
        ),
    ]  # fmt: skip


def is_there(kubectl: Kubectl, *what: str) -> bool:
    return not world.refusal(kubectl, "get", *what)


def has_answer(kubectl: Kubectl, *what: str) -> Callable[[], bool]:
    """Return whether the kubeconfig of a peer lets it do ``what`` by now."""
    return lambda: not world.refusal(kubectl, "get", *what)


def is_ready(kubectl: Kubectl, node: str) -> bool:
    if not is_there(kubectl, "node", node):
        return False
    found = (kubectl.get("node", node).get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in found)


def lives_and_goes(home: Kubectl, space: str, provider: Kubectl, twin: str) -> None:
    """See the pod and its company at the provider, its status at home, and its end at both."""
    for what in ("pod/web", "configmap/conf", "secret/token", "service/web"):
        world.wait(lambda what=what: is_there(provider, what, "-n", twin), f"{what} in {twin}")
    status = json.dumps({"status": RUNNING})
    pod = ("pod", "web", "-n")
    provider.run("patch", *pod, twin, "--subresource=status", "--type=merge", "-p", status)

    def shown() -> tuple[Any, Any]:
        found = home.get(*pod, space).get("status") or {}
        return found.get("phase"), found.get("podIP")

    assert world.settled(shown, ("Running", "10.9.9.9")) == ("Running", "10.9.9.9")
    home.run("delete", *pod, space, "--wait=false")
    world.wait(lambda: not is_there(provider, *pod, twin), "the pod to end at the provider")
    world.wait(lambda: not is_there(home, *pod, space), "the pod to end at home")


def renews_of_a_slice(mixed: World) -> None:
    """See the certificate of the slice, not of the control plane, when that is asked for again."""
    rome, milan = mixed["rome"], mixed["milan"]
    at_home, there = ("-n", "liqo-tenant-rome"), ("-n", "liqo-tenant-milan")
    milan.kubectl.run("annotate", "identity", "resourceslice-rome", *at_home, "liqo.io/renew=true")

    def answer() -> Any:
        if not is_there(milan.kubectl, "renew", "resourceslice-rome", *at_home):
            return None
        found = milan.kubectl.get("renew", "resourceslice-rome", *at_home)
        return (found.get("status") or {}).get("authParams")

    of_slice = rome.kubectl.get(SLICES, "rome", *there)["status"]["authParams"]
    assert world.settled(answer, of_slice) == of_slice


def is_kept_up_to_date(mixed: World) -> None:
    """See the Renew of the control plane have what its Tenant has: later versions keep one."""
    rome, milan = mixed["rome"], mixed["milan"]
    renew = ("renew", "controlplane-rome", "-n", "liqo-tenant-rome")

    def answer() -> Any:
        found = milan.kubectl.get(*renew) if is_there(milan.kubectl, *renew) else {}
        return (found.get("status") or {}).get("authParams")

    tenant = rome.kubectl.get("tenant", "milan", "-n", "liqo-tenant-milan")
    of_tenant = tenant["status"]["authParams"]
    assert world.settled(answer, of_tenant) == of_tenant


def test_a_cluster_of_liqo_consumes_what_we_provide(mixed: World) -> None:
    rome, milan = mixed["rome"], theirs(mixed)
    remote = f"--remote-kubeconfig={rome.plane.kubeconfig}"
    asked = ("--cpu=2", "--memory=2Gi", f"--timeout={world.PATIENCE_S}s")

    milan.liqoctl("peer", remote, "--networking-disabled", *asked)

    (quota,) = rome.get("quotas.offloading.liqo.io", "-n", "liqo-tenant-milan")
    wanted = {"cpu": "2", "memory": "2Gi"}
    assert wanted.items() <= quota["spec"]["resources"].items()
    assert quota["spec"]["user"] == naming.quota_name("rome", "milan")
    control = mixed.identity("milan", "rome")
    world.wait(has_answer(control, SLICES, "-n", "liqo-tenant-milan"), "milan to be let in")
    assert "orbidden" in world.refusal(control, "get", "secrets", "-n", "liqo")
    virtual = ("virtualnode", "rome", "-n", "liqo-tenant-rome")
    world.wait(lambda: is_there(milan.kubectl, *virtual), "the virtual node")
    hard = milan.kubectl.get(*virtual)["spec"]["resourceQuota"]["hard"]
    assert wanted.items() <= hard.items()

    if liqo.renews_slices():
        renews_of_a_slice(mixed)
    else:
        is_kept_up_to_date(mixed)

    milan.start_kubelet("rome")
    world.wait(lambda: is_ready(milan.kubectl, "rome"), "the node of milan")
    milan.kubectl.apply(offloaded("shop", "rome"))
    milan.liqoctl("offload", "namespace", "shop", f"--timeout={world.PATIENCE_S}s")
    reflected = ("shadowendpointslice", "web-at-home", "-n", "shop-milan")
    world.wait(lambda: is_there(rome.kubectl, *reflected), "endpoints of milan")
    lives_and_goes(milan.kubectl, "shop", rome.kubectl, "shop-milan")

    milan.liqoctl("unoffload", "namespace", "shop", "--skip-confirm")
    world.wait(lambda: not is_there(rome.kubectl, "namespace", "shop-milan"), "the twin to go")
    milan.kubectl.run("delete", SLICES, "rome", "-n", "liqo-tenant-rome", "--wait=false")
    world.wait(lambda: not is_there(milan.kubectl, *virtual), "the virtual node to go")
    if liqo.renews_slices():
        world.wait(lambda: not milan.get("renews", "-A"), "what it asked for again to go")
    milan.liqoctl("unauthenticate", remote, "--skip-confirm")
    assert world.settled(lambda: rome.get(OURS, "-A"), []) == []
    world.wait(
        lambda: bool(world.refusal(control, "get", SLICES, "-n", "liqo-tenant-milan")),
        "the rights of milan to go",
    )


@contextlib.contextmanager
def virtual_kubelet(mixed: World) -> Iterator[None]:
    """Run both of our programs as the Deployment of the virtual node ``milan`` says."""
    rome, deployment = mixed["rome"], ("deployment", "vk-milan", "-n", "liqo-tenant-milan")
    world.wait(lambda: is_there(rome.kubectl, *deployment), "the deployment")
    (port,) = free_ports(1)
    config = f"--kubeconfig={rome.plane.kubeconfig}"
    more = {"kubelet": (f"--listen-port={port}", "--node-check-network=false"), "reflector": ()}
    containers = rome.kubectl.get(*deployment)["spec"]["template"]["spec"]["containers"]
    with contextlib.ExitStack() as stack:
        for container in containers:
            name = container["name"]
            said = [one.replace("$(POD_IP)", "127.0.0.1") for one in container["args"]]
            health = f"--health-port={free_ports(1)[0]}"
            command = [sys.executable, *container["command"][1:], *said, config, health]
            log = stack.enter_context((rome.directory / f"{name}.log").open("ab"))
            process = subprocess.Popen(
                [*command, *more[name]], stdout=log, stderr=log,
                env={**os.environ, "POD_NAME": "vk-milan-0"},
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


ASKED = ("--cpu=1", "--memory=1Gi", "--provider-pod-cidr=10.9.0.0/16")
"""Of a provider without a fabric, which says nothing of the networks of its pods."""


def test_a_cluster_of_liqo_provides_what_we_consume(mixed: World) -> None:
    rome, milan = mixed["rome"].kubectl, mixed["milan"].kubectl

    mixed.peer("rome", "milan", *ASKED)
    mixed.peer("rome", "milan", *ASKED)  # again, which changes nothing

    (quota,) = mixed["milan"].get("quotas.offloading.liqo.io", "-n", "liqo-tenant-rome")
    wanted = {"cpu": "1", "memory": "1Gi"}
    assert wanted.items() <= quota["spec"]["resources"].items()
    control = mixed.identity("rome", "milan")
    world.wait(has_answer(control, SLICES, "-n", "liqo-tenant-rome"), "rome to be let in")
    rome.apply([vkoptions.template(keys.LIQO_NAMESPACE, "none"), *offloaded("cart", "milan")])
    own = (SLICES, "milan", "-n", naming.tenant_namespace("milan"))
    rome.run("annotate", "--overwrite", *own, f"{keys.CREATE_VIRTUAL_NODE}=true")

    with virtual_kubelet(mixed):
        world.wait(lambda: is_ready(rome, "milan"), "the node of rome")
        assert wanted.items() <= rome.get("node", "milan")["status"]["capacity"].items()
        rome.apply([defaulted("cart")])  # now: where no webhook judges pods, none may be created
        lives_and_goes(rome, "cart", milan, "cart-rome")
        done = mixed.liqoctl("rome", "unoffload", "namespace", "cart", "--skip-confirm")
        assert done.exit_code == 0, done.output
        mixed.unpeer("rome", "milan")

    for member in mixed.members.values():
        assert world.settled(functools.partial(member.get, OURS, "-A"), []) == []
    assert not is_there(milan, "namespace", "cart-rome")
    assert "orbidden" in world.refusal(control, "get", SLICES, "-n", "liqo-tenant-rome")
    assert not objects.is_terminating(rome.get("namespace", "cart"))
