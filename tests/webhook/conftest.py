"""Webhooks for tests: one that is installed as the manifests say, and replicas behind a Service."""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kube import client
from sandbox.controlplane import Plane
from tests.webhook.installed import Installed, installed
from tests.webhook.replicas import Replica, Service


@pytest.fixture(scope="package", name="live")
def start_installed(
    plane: Plane, crds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """Yield the webhook of this package's run."""
    with installed(plane, tmp_path_factory.mktemp("installed"), "--json-logs") as found:
        yield found


@pytest.fixture
async def service(plane: Plane, crds: None) -> AsyncIterator[Service]:
    """Yield a Service without replicas, in a namespace of its own."""
    async with client.connect(plane.kubeconfig) as real:
        made = Service(real, f"liqo-{secrets.token_hex(4)}")
        await made.create()
        yield made


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[Replica]]:
    """Yield four replicas that are not started yet."""
    found = [Replica(tmp_path / str(number)) for number in range(4)]
    yield found
    for replica in found:
        replica.kill()
