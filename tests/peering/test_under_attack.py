"""The consumer of a provider that turns against it: its processes keep their size and its word.

Three control planes with our controllers, a virtual kubelet and a reflector as processes. Between
the consumer and its provider milan stands a liar (``tests.liar``); naples is an honest provider.
20 namespaces have 200 offloaded pods and 100 ConfigMaps. ``PYLIQO_TEST_ATTACK_S`` is how long each
attack lasts: 30 s unless said otherwise, 600 by ``make bench ARGS=hostile``.

Source: docs/decisions/0013 (21); docs/parity.md H14 to H16; a peer beside it waits for at
most 5 s more.
"""

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from apis import keys, naming
from apis.objects import Key, Object, key_of, named
from kube import client
from liqoctl.options import cli
from sandbox import controlplane
from sandbox.kubectl import Kubectl
from tests import factories, liar
from tests.conftest import size_of
from tests.liar import ATTACKS, Liar
from tests.peering import world
from tests.peering.world import Member, World

pytestmark = pytest.mark.cluster

ATTACK_S: Final = size_of("PYLIQO_TEST_ATTACK_S", 10.0, 30.0)
SHAPES: Final = size_of("PYLIQO_TEST_SHAPES", 300, 10_000)
"""Answers and lines that are spoiled."""
REPORT: Final = os.environ.get("PYLIQO_TEST_ATTACK_REPORT")
"""A file to which what was measured is added, a line of JSON an attack."""
NAMESPACES: Final = tuple(f"shop-{number}" for number in range(20))
PODS: Final = tuple(f"web-{number}" for number in range(10))
CONFIG_MAPS: Final = tuple(f"settings-{number}" for number in range(5))
TENANT: Final = naming.tenant_namespace("milan")
GROWTH_MIB: Final = 80
LIMITS_MIB: Final = {"kubelet": 256, "reflector": 256, "controllers": 512}
LOOK_S: Final = 0.5
DELAY_S: Final = 5.0
"""By how much longer, at most, an honest peer waits while another attacks."""
TRIES: Final = 3
"""Of that wait: other tests on this machine delay it, too."""


@dataclass
class Attacked:
    """The world, its liar, and the processes of rome."""

    both: World
    liar: Liar
    processes: Mapping[str, subprocess.Popen[bytes]]
    usual: dict[str, float] = field(default_factory=dict)
    """MiB of each process before any attack."""
    usual_s: float = 0.0
    """How long it takes then until naples has a twin of a namespace that is offloaded."""

    @property
    def rome(self) -> Kubectl:
        return self.both["rome"].kubectl

    @property
    def milan(self) -> Kubectl:
        return self.both["milan"].kubectl

    def beside_s(self, space: str) -> float:
        """Return after how many seconds naples has a twin of ``space``, which is offloaded now."""
        began, tenant = time.monotonic(), naming.tenant_namespace("naples")
        self.rome.apply([factories.namespace(space), factories.offloading(space)])
        world.wait(lambda: self.is_mapped(tenant, space), "a twin at naples")
        return time.monotonic() - began

    def is_mapped(self, tenant: str, *spaces: str) -> bool:
        """Whether the peer of that tenant namespace has twins of ``spaces``."""
        current: Object = {}
        for found in self.rome.items("namespacemaps", "-n", tenant):
            current |= (found.get("status") or {}).get("currentMapping") or {}
        return all((current.get(name) or {}).get("phase") == "Accepted" for name in spaces)

    def sizes(self) -> dict[str, float]:
        """Return the resident MiB of each process.

        Raises:
            AssertionError: one has ended.
        """
        assert all(one.poll() is None for one in self.processes.values()), "none ends"
        return {name: _resident_mib(one.pid) for name, one in self.processes.items()}


def _resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """Peer through the liar, offload the namespaces, and have all pods run."""
    directory = tmp_path_factory.mktemp("attacked")
    with contextlib.ExitStack() as stack:
        stand = stack.enter_context(contextlib.ExitStack())

        class Lied(Member):
            """Milan, which is reached by way of a liar."""

            way: Liar

            def start(self, *flags: str) -> None:
                self.way = stand.enter_context(liar.liar_before(self.plane))
                address = f"127.0.0.1:{self.way.port}"
                super().start(f"--api-server-address-override={address}", *flags)

        both = stack.enter_context(world.two_clusters(directory, milan=Lied, others=["naples"]))
        milan = both["milan"]
        assert isinstance(milan, Lied)
        _peer(both, milan.way, directory)
        processes = {
            name: stack.enter_context(_process(name, both["rome"], directory))
            for name in ("kubelet", "reflector")
        }
        controllers = both["rome"].process
        assert controllers is not None
        found = Attacked(both, milan.way, {**processes, "controllers": controllers})
        _offload(found)
        found.usual = found.sizes()
        found.usual_s = min(found.beside_s(f"usual-{number}") for number in range(TRIES))
        yield found


def _peer(both: World, way: Liar, directory: Path) -> None:
    kubeconfig = directory / "milan-by-the-liar"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(way.kubeconfig())
    words = ("--kubeconfig", str(both["rome"].plane.kubeconfig), "peer")
    rest = ("--remote-kubeconfig", str(kubeconfig), f"--timeout={world.PATIENCE_S}s")
    more = ("--cpu=100", "--memory=100Gi", "--pods=1000")
    done = CliRunner().invoke(cli, [*words, *rest, "--no-create-virtual-node", *more])
    assert done.exit_code == 0, done.output
    both.peer("rome", "naples", *more)
    template = Key(keys.LIQO_NAMESPACE, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    image: Object = {
        "containerImage": "pyliqo:not-run",
        "createNode": True,
        "disableNetworkCheck": True,
        "metricsEnabled": False,
    }
    both["rome"].kubectl.apply([named(keys.VK_OPTIONS_TEMPLATE, template, spec=image)])
    both["rome"].kubectl.apply([_virtual_node(name) for name in ("milan", "naples")])


def _virtual_node(provider: str) -> Object:
    secret = naming.kubeconfig_secret(naming.resourceslice_identity(provider))
    spec = {
        "clusterID": provider,
        "kubeconfigSecretRef": {"name": secret},
        "resourceQuota": {"hard": {"cpu": "100", "memory": "100Gi", "pods": "1000"}},
    }
    where = Key(naming.tenant_namespace(provider), provider)
    return named(keys.VIRTUAL_NODE, where, spec=spec)


@contextlib.contextmanager
def _process(name: str, rome: Member, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    flags = {
        "kubeconfig": str(rome.plane.kubeconfig),
        "nodename": "milan",
        "tenant-namespace": TENANT,
        "home-cluster-id": "rome",
        "foreign-cluster-id": "milan",
        "foreign-kubeconfig-secret-name": naming.kubeconfig_secret(
            naming.resourceslice_identity("milan")
        ),
        "health-port": str(controlplane.free_ports(1)[0]),
    }
    if name == "kubelet":
        port = controlplane.free_ports(1)[0]
        flags |= {"node-ip": "127.0.0.1", "listen-port": str(port), "node-ping-interval": "2s"}
    command = [sys.executable, "-m", name, *(f"--{flag}={flags[flag]}" for flag in flags)]
    environment = {**os.environ, "POD_NAME": f"vk-{name}"}
    with (directory / f"{name}.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        yield running
    finally:
        running.kill()
        running.wait()
        sys.stdout.write((directory / f"{name}.log").read_text()[-20_000:])


def _offload(attacked: Attacked) -> None:
    rome = attacked.rome
    world.wait(lambda: not world.refusal(rome, "get", "node", "milan"), "the virtual node")
    binding = "validatingadmissionpolicybinding"
    rome.run("delete", binding, "liqo-judged-pods")  # of the webhook, which does not run here
    rome.apply([factories.namespace(name) for name in NAMESPACES])
    rome.apply([factories.offloading(name) for name in NAMESPACES])
    world.wait(lambda: attacked.is_mapped(TENANT, *NAMESPACES), "the twins")
    spec = {**factories.pod_spec(), "nodeName": "milan"}
    rome.apply(
        [
            made
            for space in NAMESPACES
            for made in (
                *(factories.pod(space, name, spec=spec) for name in PODS),
                *(factories.config_map(space, name, key="x" * 1000) for name in CONFIG_MAPS),
            )
        ]
    )
    world.wait(lambda: len(_twins(attacked, "pods")) == len(NAMESPACES) * len(PODS), "the Pods")
    _run(attacked, _twins(attacked, "pods"), "10.1.0.1")
    world.wait(lambda: _running(attacked, "10.1.0.1") == len(NAMESPACES) * len(PODS), "all run")
    wanted = len(NAMESPACES) * len(CONFIG_MAPS)
    world.wait(lambda: len(_twins(attacked, "configmaps")) == wanted, "the twins")


def _twins(attacked: Attacked, resource: str) -> list[Object]:
    labels = f"{keys.ORIGIN}=rome"
    return list(attacked.milan.get(resource, "-A", "-l", labels)["items"])


def _run(attacked: Attacked, pods: list[Object], address: str) -> None:
    """Have ``pods`` of milan run, as a kubelet there says it."""

    async def say() -> None:
        async with client.connect(attacked.milan.kubeconfig, user_agent="kubelet") as milan:
            for pod in pods:
                await milan.patch_status(keys.POD, key_of(pod), _status(address))

    asyncio.run(say())


def _status(address: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"}
    return {"phase": "Running", "podIP": address, "conditions": [ready], "message": address}


def _running(attacked: Attacked, message: str) -> int:
    found = attacked.rome.get("pods", "-A")["items"]
    return sum((one.get("status") or {}).get("message") == message for one in found)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_process_keeps_its_size_under_attack_and_tells_the_truth_afterwards(
    attacked: Attacked, name: str
) -> None:
    most = dict(attacked.usual)
    lies, attacked.liar.attack = attacked.liar.lies, ATTACKS[name]
    attacked.liar.cut()
    until = time.monotonic() + ATTACK_S
    while time.monotonic() < until:
        most = {each: max(most[each], size) for each, size in attacked.sizes().items()}
        time.sleep(LOOK_S)  # noqa: TID251  # how long an attack lasts is given
    beside_s = _beside_s(attacked, f"own-{list(ATTACKS).index(name)}")
    attacked.liar.attack = None
    attacked.liar.cut()
    said = attacked.liar.lies - lies
    _report(name, attacked, most, lies=said, beside_s=beside_s)

    assert said, "the attack took place"
    assert beside_s <= attacked.usual_s + DELAY_S, (beside_s, attacked.usual_s)
    grown = {each: most[each] - attacked.usual[each] for each in most}
    assert all(mib <= GROWTH_MIB for mib in grown.values()), grown
    assert all(most[each] < 0.9 * LIMITS_MIB[each] for each in most), most
    pods = _twins(attacked, "pods")
    assert len(pods) == len(NAMESPACES) * len(PODS), "no twin goes for what a liar said"
    address = f"10.1.0.{2 + list(ATTACKS).index(name)}"
    _run(attacked, pods[:20], address)
    world.wait(lambda: _running(attacked, address) == 20, "the truth to arrive")


def test_whatever_shape_answers_have_the_truth_is_told_afterwards(attacked: Attacked) -> None:
    """Lists, watches, reads and writes of all three processes; no twin goes for it."""
    pods = _twins(attacked, "pods")
    lies, attacked.liar.spoil = attacked.liar.lies, liar.shapes(seed=7)
    for count in itertools.count():
        if attacked.liar.lies - lies >= SHAPES:
            break
        attacked.liar.cut()  # so that all is listed once more, too
        _run(attacked, pods[:40], f"10.1.1.{count % 200}")
        attacked.sizes()
        _say(f"{attacked.liar.lies - lies} of {SHAPES}")
    attacked.liar.spoil = None
    attacked.liar.cut()

    _run(attacked, pods, "10.1.9.9")
    world.wait(lambda: _running(attacked, "10.1.9.9") == len(pods), "the truth to arrive")
    uids = {pod["metadata"]["uid"] for pod in pods}
    assert {pod["metadata"]["uid"] for pod in _twins(attacked, "pods")} == uids


def _say(text: str) -> None:
    """Show how far a long run is (``pytest -s``)."""
    sys.stdout.write(f"{text}\n")


def _beside_s(attacked: Attacked, space: str) -> float:
    """Return the least of a few waits for naples, of which the first is mostly enough."""
    least = float("inf")
    for number in range(TRIES):
        least = min(least, attacked.beside_s(f"{space}-{number}"))
        if least <= attacked.usual_s + DELAY_S:
            break
    return least


def _report(
    name: str, attacked: Attacked, most: dict[str, float], *, lies: int, beside_s: float
) -> None:
    rounded = {
        "attack": name,
        "seconds": ATTACK_S,
        "lies": lies,
        "beside_s": [round(attacked.usual_s, 1), round(beside_s, 1)],
        "usual_mib": {each: round(size, 1) for each, size in attacked.usual.items()},
        "most_mib": {each: round(size, 1) for each, size in most.items()},
    }
    sys.stdout.write(f"{json.dumps(rounded)}\n")
    if REPORT:
        with Path(REPORT).open("a", encoding="utf-8") as report:
            report.write(f"{json.dumps(rounded)}\n")
