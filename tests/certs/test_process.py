"""``python3 -m certs`` as several processes at once. Source: docs/parity.md F-27."""

import asyncio
import base64
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from apis import keys
from apis.objects import Object
from certs import pki
from certs.rotation import RotationOptions
from kube.client import ClusterClient
from sandbox import controlplane
from sandbox.controlplane import Plane
from tests import scraping
from tests.kube.running import until_so

pytestmark = pytest.mark.cluster

REPLICAS = 3


@pytest.fixture
def cluster(server: ClusterClient) -> ClusterClient:
    return server


@contextlib.asynccontextmanager
async def certs_processes(
    kubeconfig: Path, namespace: str, directory: Path, count: int
) -> AsyncIterator[list[int]]:
    """Start so many processes at once; give the ports of their metrics."""
    ports = controlplane.free_ports(count)
    async with contextlib.AsyncExitStack() as stack:
        for port in ports:
            log = stack.enter_context((directory / f"log-{port}").open("wb"))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "certs",
                "--kubeconfig", str(kubeconfig),
                "--namespace", namespace,
                "--health-port", "0", "--metrics-address", f"127.0.0.1:{port}",
                stdout=log, stderr=log,
            )  # fmt: skip
            stack.push_async_callback(process.wait)
            stack.callback(process.kill)
        yield ports


async def stored(cluster: ClusterClient, settings: RotationOptions) -> tuple[Object, Object] | None:
    found = [
        await cluster.get_live(keys.SECRET, key) for key in (settings.ca_key, settings.certs_key)
    ]
    return (found[0], found[1]) if found[0] and found[1] else None


async def test_processes_that_boot_at_once_agree_on_one_authority(
    cluster: ClusterClient, plane: Plane, namespace: str, tmp_path: Path
) -> None:
    settings = RotationOptions(namespace=namespace)
    token = await scraping.reader(cluster)
    async with certs_processes(plane.kubeconfig, namespace, tmp_path, REPLICAS) as ports:
        for port in ports:
            await until_so(lambda: is_done(port, token), "a process that looked")  # noqa: B023
        pair = await stored(cluster, settings)
        pages = [(await scraping.page(port, token))[1] for port in ports]

    assert pair
    authority, served = (
        {name: base64.b64decode(text) for name, text in one["data"].items()} for one in pair
    )
    assert sorted(authority) == ["tls.crt", "tls.key"]
    assert served["ca.crt"] == authority["tls.crt"]
    assert pki.is_signed_by(served["tls.crt"], authority["tls.crt"])
    assert all(
        'pyliqo_certs_expiry_timestamp_seconds{certificate="serving"} ' in page for page in pages
    )
    versions = [one["metadata"]["resourceVersion"] for one in pair]
    after = await stored(cluster, settings)
    assert after
    assert [one["metadata"]["resourceVersion"] for one in after] == versions


async def is_done(port: int, token: str) -> bool:
    """Whether the process has looked at the Secrets and found nothing more to do."""
    _, page = await scraping.page(port, token)
    line = 'pyliqo_reconciles_total{controller="certificates",outcome="again"} '
    return any(found.startswith(line) and not found.endswith(" 0.0") for found in page.splitlines())
