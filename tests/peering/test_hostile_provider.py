"""A provider without our controllers: what it says of itself, and where it would have rome go.

Source: docs/parity.md SEC-B3 to SEC-B5; principle 1: what protects a consumer is enforced at home.
"""

import asyncio
import base64
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from apis import keys, naming
from apis.objects import Key, Object, named
from apis.offloading import VirtualNode
from kube import client, peer
from kube.client import ClusterClient
from sandbox.kubectl import Kubectl
from tests.kube.running import running
from tests.kube.test_kubeconfig import REFUSED as ODD_KUBECONFIGS
from tests.peering import world
from tests.peering.world import World
from tests.world import remove

pytestmark = pytest.mark.cluster

HOME: Final = naming.tenant_namespace("milan")
SLICE: Final = "resourceslices.authentication.liqo.io"
CONTROL: Final = naming.controlplane_identity("milan")


@pytest.fixture(scope="module")
def hostile(both: World) -> Iterator[World]:
    """Peer, and end what milan runs of ours."""
    both.peer("rome", "milan", "--cpu=8", "--memory=8Gi")
    both["milan"].kill()
    yield both
    both["milan"].start()
    both.unpeer("rome", "milan")


def say(both: World, kind: str, name: str, **status: Any) -> None:
    """Write a status on milan, and wait until rome has a copy of it."""
    patch = json.dumps({"status": status})
    flags = ("--subresource=status", "--type=merge", "-p", patch)
    both["milan"].kubectl.run("patch", kind, name, "-n", world.SPACE, *flags)

    def is_told() -> bool:
        found = both["rome"].kubectl.get(kind, name, "-n", HOME).get("status") or {}
        return all(_has(found.get(part), value) for part, value in status.items())

    world.wait(is_told, f"the status of {kind} {name}")


def _has(found: Any, told: Any) -> bool:
    """Whether a status says what it was told, of which None takes a field away."""
    if isinstance(told, dict):
        return all((found or {}).get(name) == value for name, value in told.items())
    return bool(found == told)


# B3: what it says of itself -----------------------------------------------------------------------

LABELS: Final = {
    **dict.fromkeys(
        (
            "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/worker",
            "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch",
            "beta.kubernetes.io/os", "node.kubernetes.io/instance-type",
            "node.kubernetes.io/exclude-from-external-load-balancers",
            "failure-domain.beta.kubernetes.io/zone", "node-restriction.kubernetes.io/x",
            "topology.kubernetes.io/host", "liqo.io/type", "liqo.io/remote-cluster-id",
            "liqo.io/remote-unavailable", "offloading.liqo.io/x", "x.k8s.io/y", "a/b/c", "/x", "x/",
            "UPPER_DOMAIN!/x", "x" * 64, "x.example/" + "y" * 64,
        ),
        "evil",
    ),
    "vendor.example/disk": "fast", "karpenter.sh/nodepool": "default",
    "eks.amazonaws.com/nodegroup": "prod",
    "bad-value": "no such thing\n",
    "long-value": "x" * 64,
}  # fmt: skip
ALLOWED: Final = {"topology.kubernetes.io/zone": "z1", "disk": "fast"}
AMOUNTS: Final = {
    "cpu": "1000000000000000000", "memory": "-1Gi", "nvidia.com/gpu": "3", "pods": "110",
}  # fmt: skip


def test_a_provider_names_no_role_of_its_node_and_gives_no_more_than_was_asked(
    hostile: World,
) -> None:
    """What becomes of it is the VirtualNode, of which the virtual kubelet makes the Node."""
    say(hostile, SLICE, "milan", nodeLabels={**LABELS, **ALLOWED}, resources=AMOUNTS)
    rome = hostile["rome"].kubectl
    mark = f"{keys.CREATE_VIRTUAL_NODE}=true"
    rome.run("annotate", "--overwrite", SLICE, "milan", "-n", HOME, mark)
    where = ("virtualnode", "milan", "-n", HOME)
    world.wait(lambda: not world.refusal(rome, "get", *where), "the virtual node")

    made = VirtualNode.parse(rome.get(*where))

    assert made.labels == {**ALLOWED, keys.REMOTE_CLUSTER_ID: "milan"}
    assert made.suggested == ALLOWED.keys()
    hard = made.hard
    assert hard["cpu"] == "8"
    assert "memory" not in hard, "less than nothing was granted"
    many = {f"l{number}": "x" for number in range(5_000)}
    say(hostile, SLICE, "milan", nodeLabels=many, resources={"cpu": "4"})
    world.wait(lambda: _cpu(rome, where) == "4", "the virtual node to follow")
    assert len(VirtualNode.parse(rome.get(*where)).labels) < 100
    rome.run("annotate", SLICE, "milan", "-n", HOME, f"{keys.CREATE_VIRTUAL_NODE}-")
    rome.run("delete", *where)


def _cpu(rome: Kubectl, where: tuple[str, ...]) -> str:
    return str(rome.get(*where)["spec"]["resourceQuota"]["hard"].get("cpu"))


# H14: replicas without a bound --------------------------------------------------------------------


def test_a_provider_that_sends_more_than_is_kept_of_it_is_told_as_such(hostile: World) -> None:
    """It says too much of slices that the consumer has; of others nothing is kept."""
    rome, milan = hostile["rome"].kubectl, hostile["milan"].kubectl
    asked = rome.get(SLICE, "milan", "-n", HOME)
    names = [f"heavy-{number}" for number in range(24)]
    text = base64.b64encode(b"x" * 700_000).decode()
    labels, spec = asked["metadata"]["labels"], {**asked["spec"], "class": "nobody"}
    for name in names:
        where = Key(HOME, name)
        rome.apply([named(keys.RESOURCE_SLICE, where, metadata={"labels": labels}, spec=spec)])
    for name in names:
        there = ("get", SLICE, name, "-n", world.SPACE)
        world.wait(lambda there=there: not world.refusal(milan, *there), "the replica")
        changes = json.dumps({"status": {"authParams": {"signedCRT": text}}})
        how = ("--subresource=status", "--type=merge", "--patch-file=/dev/stdin")
        milan.run("patch", SLICE, name, "-n", world.SPACE, *how, stdin=changes)

    world.wait(lambda: "more than is kept" in _said(hostile), "the condition of the peer")
    rome.run("delete", SLICE, *names, "-n", HOME, "--wait=false")
    milan.run("delete", SLICE, *names, "-n", world.SPACE, "--wait=false", "--ignore-not-found")
    world.wait(lambda: "answers" in _said(hostile), "the peer to be followed again")


def _said(both: World) -> str:
    """Return what rome says of milan's API server."""
    found = both["rome"].kubectl.get("foreigncluster", "milan").get("status") or {}
    listed = found.get("conditions") or [{}]
    return str(listed[0].get("message", ""))


# B4: where it would have rome go ------------------------------------------------------------------

URLS: Final = (
    "http://127.0.0.1:{port}", "https://127.0.0.1:{port}", "https://localhost:{port}",
    "https://[::1]:{port}", "https://user:word@127.0.0.1:{port}", "https://127.0.0.1:{port}/x?y=z",
    "https://127.0.0.1:{port}#x", "https://2130706433:{port}", "https://127.1:{port}",
    "https://0.0.0.0:{port}", "https://[::ffff:127.0.0.1]:{port}", "//127.0.0.1:{port}",
    "127.0.0.1:{port}", "HTTPS://127.0.0.1:{port}", "https://127.0.0.1:{port}\\@milan",
    "https://127.0.0.1.nip.io:{port}", "ftp://127.0.0.1:{port}", "file:///etc/passwd",
    "https://169.254.169.254", "",
)  # fmt: skip


async def test_a_provider_moves_no_connection_to_anywhere_else(hostile: World) -> None:
    """By slice and by renewal: other servers, CAs and proxies; nobody comes to the listener."""
    came: list[str] = []

    async def listen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(str(writer.get_extra_info("peername")))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        await asyncio.to_thread(_moves, hostile, port)

    assert came == []


def _moves(hostile: World, port: int) -> None:
    rome = hostile["rome"]
    right = rome.kubectl.get(SLICE, "milan", "-n", HOME)["status"]["authParams"]
    # A certificate of the slice would be taken for the renewed one, and may not replicate.
    control = rome.kubectl.get("identity", CONTROL, "-n", HOME)["spec"]["authParams"]
    held = _held(rome)
    wrong: list[Object] = [{"apiServer": url.format(port=port)} for url in URLS]
    wrong += [
        {"ca": base64.b64encode(b"another").decode()},
        {"proxyURL": f"http://127.0.0.1:{port}"},
        {"signedCRT": "bm9uc2Vuc2U="},
    ]
    for params in wrong:
        say(hostile, SLICE, "milan", authParams={"proxyURL": None, **right, **params})
        say(hostile, "renew", CONTROL, authParams={"proxyURL": None, **control, **params})
        assert _held(rome) == held
    told = rome.kubectl.items("events", "-n", HOME)
    assert "ServerChanged" in {event["reason"] for event in told}
    say(hostile, SLICE, "milan", authParams={"proxyURL": None, **right})
    assert _held(rome) == held


def _held(rome: world.Member) -> list[str]:
    """Return where rome connects to: servers, authorities and proxies of its kubeconfigs."""
    secrets = rome.kubectl.items("secrets", "-n", HOME, "-l", keys.IDENTITY_TYPE)
    texts = (base64.b64decode(one["data"][keys.KUBECONFIG_KEY]) for one in secrets)
    return sorted(json.dumps(yaml.safe_load(text)["clusters"]) for text in texts)


# B5: kubeconfigs that are more than one -----------------------------------------------------------


async def test_of_a_secret_only_an_inline_kubeconfig_is_used(
    hostile: World, tmp_path: Path
) -> None:
    """Each row is stored in turn, then a right one, which alone is connected by."""
    secret = Key(HOME, "kubeconfig-odd")
    canary = tmp_path / "canary"
    good = hostile["rome"].secret(HOME, naming.kubeconfig_secret(CONTROL), keys.KUBECONFIG_KEY)
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch"}
    plugin = {**run, "args": [str(canary)], "interactiveMode": "Never"}
    async with client.connect(hostile["rome"].plane.kubeconfig, user_agent="tests") as home:
        await home.create(keys.SECRET, named(keys.SECRET, secret, data={}))
        connected = asyncio.Event()
        async with running(_connect(home, secret, connected)):
            for _, change, _ in ODD_KUBECONFIGS:
                document = yaml.safe_load(good)
                change(document)
                for user in document.get("users") or []:
                    if isinstance(user, dict) and "exec" in (user.get("user") or {}):
                        user["user"]["exec"] = copy.deepcopy(plugin)
                await _store(home, secret, yaml.safe_dump(document).encode())
                await asyncio.sleep(0)
                assert not connected.is_set()
            await _store(home, secret, good)
            async with asyncio.timeout(world.PATIENCE_S):
                await connected.wait()
        await remove(home, keys.SECRET, secret)

    assert not canary.exists()


async def _connect(home: ClusterClient, secret: Key, connected: asyncio.Event) -> None:
    async with peer.follow(home, secret, user_agent="tests"):
        connected.set()
        await asyncio.Event().wait()


async def _store(home: ClusterClient, secret: Key, text: bytes) -> None:
    data = {keys.KUBECONFIG_KEY: base64.b64encode(text).decode()}
    await home.patch(keys.SECRET, secret, {"data": data})
