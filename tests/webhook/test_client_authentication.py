"""An API server that shows who it is, and a webhook that answers nobody else.

Source: docs/parity.md A-38; SEC-D4; Kubernetes, "Dynamic Admission Control", "Authenticate API
servers".
"""

import asyncio
import contextlib
import datetime as dt
import http.client
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from apis import keys
from certs import pki
from certs.pki import Keypair
from certs.rotation import RotationOptions
from kube import client, clock
from sandbox import controlplane
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests.conftest import CRDS
from tests.kube.running import until_so
from tests.webhook.replicas import Load, Replica, Service, certified, filling
from tests.webhook.reviews import body

pytestmark = pytest.mark.cluster

NAMESPACE = "liqo"
NAME = "kube-apiserver"
POD = {"metadata": {"name": "web"}, "spec": {"containers": []}}


def identity(ca: Keypair, name: str) -> Keypair:
    return pki.issue(
        ca, common_name=name, client=True, now=clock.now(), lifetime=dt.timedelta(hours=2)
    )


def client_configuration(directory: Path, pair: Keypair) -> Path:
    """Write what makes an API server show ``pair`` to the webhook; return the file to name."""
    directory.mkdir()
    entry = json.loads(pki.kubeconfig(identity_of(pair)))["users"][0]["user"]
    service = f"{keys.WEBHOOK_SERVICE}.{NAMESPACE}.svc:{keys.WEBHOOK_PORT}"
    users = {"apiVersion": "v1", "kind": "Config", "users": [{"name": service, "user": entry}]}
    (directory / "webhooks").write_text(json.dumps(users))
    plugins = [
        {
            "name": name,
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": str(directory / "webhooks"),
            },
        }
        for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    config = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": plugins,
    }
    found = directory / "admission.yaml"
    found.write_text(json.dumps(config))
    return found


def identity_of(pair: Keypair) -> pki.KubeconfigIdentity:
    return pki.KubeconfigIdentity(
        name=NAME, cluster_id="", server="", ca=b"", certificate=pair.certificate, key=pair.key
    )


@pytest.fixture(scope="module")
def ca() -> Keypair:
    return pki.new_ca(
        "api servers", now=clock.now(), lifetime=dt.timedelta(hours=3), has_identifier=False
    )


@pytest.fixture(scope="module")
def known(ca: Keypair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Yield an API server that shows a certificate to the webhook."""
    directory = tmp_path_factory.mktemp("known")
    config = client_configuration(directory / "admission", identity(ca, NAME))
    with controlplane.start(
        directory / "plane", flags=[f"--admission-control-config-file={config}"]
    ) as plane:
        kubectl = Kubectl(plane.kubeconfig)
        kubectl.run("apply", "--server-side", *[f"--filename={path}" for path in crds()])
        kubectl.wait("--for=condition=Established", "crd", "--all")
        yield plane


def crds() -> list[Path]:
    return [path for path in sorted(CRDS.glob("*.yaml")) if path.name != "kustomization.yaml"]


@pytest.fixture
async def asked_replica(
    known: Plane, ca: Keypair, replicas: list[Replica], tmp_path: Path
) -> AsyncIterator[tuple[Service, Replica]]:
    """Yield a replica that answers only API servers that ``ca`` vouches for, and its Service."""
    authority = tmp_path / "client-ca"
    authority.write_bytes(ca.certificate)
    settings = RotationOptions(namespace=NAMESPACE)
    async with client.connect(known.kubeconfig) as real:
        service, first = Service(real, NAMESPACE), replicas[0]
        await service.create()
        await service.register()
        async with certified(service, settings), filling(real, settings, first.fill):
            first.start(known.kubeconfig, "--client-ca", str(authority), "--client-name", NAME)
            await until_so(first.is_ready, "a replica that is ready")
            await service.join(first)
            yield service, first


async def test_only_the_api_server_is_answered(
    known: Plane, ca: Keypair, asked_replica: tuple[Service, Replica], tmp_path: Path
) -> None:
    service, served = asked_replica
    load = Load(known.kubeconfig, await service.offloaded())
    async with load.running():
        await load.steady()
        await load.more(50)
    stranger = pki.new_ca("somebody", now=clock.now(), lifetime=dt.timedelta(hours=3))

    def status(path: str, pair: Keypair | None) -> int:
        return posted(served.port, path, pair, tmp_path)

    assert load.failures == []
    assert await asyncio.to_thread(status, "/mutate/pod", identity(ca, NAME)) == 200
    assert await asyncio.to_thread(status, "/mutate/pod", identity(ca, "somebody")) == 401
    assert await asyncio.to_thread(status, "/mutate/pod", None) == 401
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.to_thread(status, "/mutate/pod", identity(stranger, NAME))
    assert await served.is_ready()


def posted(port: int, path: str, pair: Keypair | None, directory: Path) -> int:
    """Return the status of a review that is posted to ``path`` by the bearer of ``pair``."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if pair:
        file = directory / "client"
        file.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(file)
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=120, context=context)
    with contextlib.closing(connection):
        connection.request("POST", path, body(POD), {"Content-Type": "application/json"})
        return connection.getresponse().status
