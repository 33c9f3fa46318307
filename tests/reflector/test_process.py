"""The process itself, twice, on a real API server that is both clusters."""

import asyncio
import base64
import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from apis import keys
from apis.objects import Key, Object, named
from apis.offloading import ReflectionPolicy as Policy
from kube import client
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from reflector import __main__
from sandbox import audit
from sandbox.controlplane import Plane
from tests import factories

ROOT = Path(__file__).parents[2]
WITHIN_S = 60


@contextlib.contextmanager
def process(plane: Plane, tenant: str, pod: str) -> Iterator[subprocess.Popen[bytes]]:
    args = {
        "nodename": "milan",
        "tenant-namespace": tenant,
        "home-cluster-id": "rome",
        "foreign-cluster-id": "milan",
        "foreign-kubeconfig-secret-name": "key",
        "kubeconfig": str(plane.kubeconfig),
        "health-port": "0",
    }
    command = [sys.executable, "-m", "reflector", *(f"--{name}={args[name]}" for name in args)]
    running = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "POD_NAME": pod})
    try:
        yield running
    finally:
        running.kill()
        running.wait(WITHIN_S)


async def appears(cluster: Cluster, selection: Selection[Object], key: Key) -> Object:
    """Wait for an object, by a watch."""
    async with asyncio.timeout(WITHIN_S):
        return await _appears(cluster, selection, key)


async def _appears(cluster: Cluster, selection: Selection[Object], key: Key) -> Object:
    listing = await cluster.list(selection)
    if key in listing.items:
        return listing.items[key]
    async for event in cluster.watch(selection, listing.version):
        if event.key == key:
            return event.object
    raise AssertionError("the watch ended")


@pytest.fixture
async def server(plane: Plane, crds: None) -> AsyncIterator[ClusterClient]:
    async with client.connect(plane.kubeconfig, user_agent="tests") as server:
        yield server


@pytest.fixture
async def names(server: ClusterClient, plane: Plane) -> tuple[str, str, str]:
    """Return a tenant namespace, an offloaded one and its twin, as if a peering had made them."""
    stem = f"test-{secrets.token_hex(4)}"
    tenant, local, remote = stem, f"{stem}-local", f"{stem}-remote"
    for name in (tenant, local, remote):
        await server.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
    encoded = base64.b64encode(plane.kubeconfig.read_bytes()).decode()
    data = {"kubeconfig": encoded}
    await server.create(keys.SECRET, named(keys.SECRET, Key(tenant, "key"), data=data))
    labels = {"liqo.io/remote-cluster-id": "milan", "liqo.io/replication": "true"}
    key, desired = Key(tenant, "milan"), {"desiredMapping": {local: remote}}
    made = named(keys.NAMESPACE_MAP, key, metadata={"labels": labels}, spec=desired)
    await server.create(keys.NAMESPACE_MAP, made)
    current = {local: {"remoteNamespace": remote, "phase": "Accepted"}}
    await server.patch_status(keys.NAMESPACE_MAP, key, {"currentMapping": current})
    return tenant, local, remote


@pytest.mark.cluster
async def test_it_reflects_costs_nothing_when_idle_and_hands_over(
    server: ClusterClient, plane: Plane, names: tuple[str, str, str]
) -> None:
    tenant, local, remote = names
    lease = Key(tenant, "virtual-kubelet-leader-election")
    twins = Selection(keys.CONFIG_MAP, Object, remote)
    await server.create(keys.CONFIG_MAP, factories.config_map(local, "first", a="1"))

    with process(plane, tenant, "one") as one, process(plane, tenant, "two") as two:
        await appears(server, twins, Key(remote, "first"))
        log = audit.Log(plane.audit_log)
        log.settled(plane.api)
        await server.create(keys.CONFIG_MAP, factories.config_map(local, "second", a="1"))
        await appears(server, twins, Key(remote, "second"))
        ours = [
            call for call in log.settled(plane.api) if call.agent.startswith("pyliqo-reflector")
        ]
        written = [(call.verb, call.resource) for call in ours if call.is_write]
        assert [call for call in ours if call.verb == "list"] == []
        assert written.count(("patch", "configmaps")) == 1
        assert {resource for _, resource in written} <= {"configmaps", "events", "leases"}

        found = await server.get_live(keys.LEASE, lease)
        assert found
        leader, other = (one, two) if found["spec"]["holderIdentity"] == "one" else (two, one)
        leader.send_signal(signal.SIGTERM)
        assert leader.wait(WITHIN_S) == 0
        await server.create(keys.CONFIG_MAP, factories.config_map(local, "third", a="1"))
        await appears(server, twins, Key(remote, "third"))
        other.send_signal(signal.SIGTERM)
        assert other.wait(WITHIN_S) == 0

    released = await server.get_live(keys.LEASE, lease)
    assert released
    assert not released["spec"].get("holderIdentity")


MANDATORY = (
    "--nodename", "milan", "--tenant-namespace", "liqo-tenant-milan", "--home-cluster-id", "rome",
    "--foreign-cluster-id", "milan", "--foreign-kubeconfig-secret-name", "key",
)  # fmt: skip


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "--nodename"),
        ((*MANDATORY, "--secret-reflection-type", "Everything"), "none of DenyList"),
        ((*MANDATORY, "--service-reflection-type", "Referenced"), "none of DenyList"),
        ((*MANDATORY, "--secret-reflection-workers", "-1"), "no count"),
        ((*MANDATORY, "--enable-load-balancer=maybe"), "neither true nor false"),
    ],
)
def test_wrong_flags_are_refused(
    args: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        __main__.main(args)

    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_flags_say_what_is_reflected_and_how() -> None:
    settings = __main__.settings(
        [
            *MANDATORY, "--secret-reflection-workers=0", "--configmap-reflection-type=AllowList",
            "--labels-not-reflected=a,b", "--labels-not-reflected=c",
            "--annotations-not-reflected", "d", "--enable-load-balancer",
            "--remote-real-load-balancer-class-name=theirs",
        ],
        instance="vk-milan-0",
    )  # fmt: skip

    assert settings.secret == Key("liqo-tenant-milan", "key")
    assert settings.instance == "vk-milan-0"
    assert settings.workers["configmap"] == 3
    assert settings.workers["secret"] == 0
    assert settings.policies["configmap"] is Policy.ALLOW_LIST
    assert settings.policies["secret"] is Policy.DENY_LIST
    assert settings.twins.hidden.labels_not_reflected == {"a", "b", "c"}
    assert settings.twins.hidden.annotations_not_reflected == {"d"}
    assert settings.twins.load_balancer_class == "theirs"
