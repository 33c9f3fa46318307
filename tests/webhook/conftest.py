"""Webhooks for tests: one that is installed as the manifests say, and replicas behind a Service."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kube import client
from kube.client import ClusterClient
from sandbox import controlplane
from sandbox.controlplane import Plane
from tests.conftest import install_crds
from tests.webhook.guarded import guarded_webhook
from tests.webhook.installed import Installed, installed
from tests.webhook.replicas import Replica, Service


@pytest.fixture(scope="package", name="live")
def start_installed(
    plane: Plane, crds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """Yield the webhook of this package's run."""
    with installed(plane, tmp_path_factory.mktemp("installed"), "--json-logs") as found:
        yield found


@pytest.fixture(scope="package", name="provider")
def start_guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Yield a provider of this package's own, with all policies besides the webhook."""
    with controlplane.start(tmp_path_factory.mktemp("guarded")) as plane:
        with ThreadPoolExecutor() as pool:  # anybody who asks may be inside an event loop
            pool.submit(lambda: asyncio.run(install_crds(plane.kubeconfig))).result()
        with guarded_webhook(plane, tmp_path_factory.mktemp("hooked")) as found:
            yield found


@pytest.fixture
async def cluster(plane: Plane) -> AsyncIterator[ClusterClient]:
    async with client.connect(plane.kubeconfig) as real:
        yield real


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
