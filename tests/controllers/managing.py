"""The controller manager as a process, with the account and the rights that it has in a cluster."""

import asyncio
import base64
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import yaml

from apis import keys, naming
from apis.objects import Key, Object, named
from kube.cluster import Cluster
from sandbox import controlplane
from sandbox.controlplane import Plane
from tests import factories, scraping
from tests.controllers.support import end, ensure_namespace, virtual_node
from tests.kube.running import until_so

WRITES = ("apply", "create", "delete", "patch", "post")
WITHIN_S = 300
RBAC = Path(__file__).parents[2] / "manifests" / "20-rbac"
KINDS = {
    kind.kind: kind
    for kind in (
        keys.SERVICE_ACCOUNT,
        keys.ROLE,
        keys.ROLE_BINDING,
        keys.CLUSTER_ROLE,
        keys.CLUSTER_ROLE_BINDING,
    )
}
SUCCESS = 200
AT_FIRST = {"secrets", "roles", "resourcequotas"}
"""In a tenant namespace it may read Secrets, let others read one, and bound numbers, a moment after
it bound itself there: what is refused until then is asked again."""


class Manager:
    """The process, and what it says of itself."""

    def __init__(self, port: int, metrics: int, token: str) -> None:
        self.port, self._metrics, self._token = port, metrics, token

    async def counts(self, metric: str, **labels: str) -> float:
        """Return the sum of ``metric`` over everything with ``labels``."""
        text = await self._page()
        wanted = [f'{name}="{value}"' for name, value in labels.items()]
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith(metric) and all(each in line for each in wanted)
        )

    async def writes(self) -> float:
        """Return how much was written, leases aside."""
        total = sum([await self.counts("pyliqo_requests_total", verb=verb) for verb in WRITES])
        leases = [
            await self.counts("pyliqo_requests_total", verb=verb, resource="leases")
            for verb in WRITES
        ]
        return total - sum(leases)

    async def refused(self) -> set[str]:
        """Return the resources of which it was refused something for want of a right."""
        text = await self._page()
        lines = (line for line in text.splitlines() if line.startswith("pyliqo_requests_total"))
        refused = (line for line in lines if 'code="403"' in line)
        return {line.split('resource="')[1].split('"')[0] for line in refused}

    async def is_ready(self) -> bool:
        """Whether it answers so."""
        try:
            url = f"http://127.0.0.1:{self.port}/readyz"
            async with aiohttp.ClientSession() as http, http.get(url) as answer:
                return answer.status == SUCCESS
        except aiohttp.ClientError:
            return False

    async def _page(self) -> str:
        status, text = await scraping.first_page(self._metrics, self._token)
        assert status == SUCCESS, text
        return text


async def install_rights(cluster: Cluster) -> None:
    """Install what the manifests let the process do, and nothing more."""
    for name in (keys.LIQO_NAMESPACE, keys.NODE_LEASE_NAMESPACE):
        await ensure_namespace(cluster, name)
    for path in sorted(RBAC.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document["kind"] in KINDS:
                await cluster.apply(KINDS[document["kind"]], document, manager="tests")


async def kubeconfig_of_its_account(cluster: Cluster, plane: Plane) -> Object:
    """Return a kubeconfig for the ServiceAccount of the controller manager."""
    account = Key(keys.LIQO_NAMESPACE, "liqo-controller-manager")
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    }
    answer = await cluster.post(keys.SERVICE_ACCOUNT, account, "token", request)
    config: Object = json.loads(inline(plane.kubeconfig))
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    return config


@contextlib.asynccontextmanager
async def managing(
    cluster: Cluster, unique: str, plane: Plane, tmp_path: Path
) -> AsyncIterator[Manager]:
    """Run ``python -m controllers`` as the cluster ``rome-<unique>``, in its own name."""
    key = Key(keys.LIQO_NAMESPACE, keys.CLUSTER_ID_CONFIG_MAP)
    data = {"CLUSTER_ID": f"rome-{unique}"}
    await cluster.create(keys.CONFIG_MAP, named(keys.CONFIG_MAP, key, data=data))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(await kubeconfig_of_its_account(cluster, plane)))
    port, metrics = controlplane.free_ports(2)
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "controllers",
            "--kubeconfig", str(kubeconfig),
            "--liqo-namespace", keys.LIQO_NAMESPACE,
            "--health-port", str(port),
            "--metrics-address", f"127.0.0.1:{metrics}",
            stderr=log, stdout=log,
        )  # fmt: skip
        made = Manager(port, metrics, await scraping.reader(cluster))
        try:
            await until_so(made.is_ready, "the process is ready")
            yield made
        finally:
            process.terminate()
            code = await asyncio.wait_for(process.wait(), WITHIN_S)
            sys.stdout.write((tmp_path / "log").read_text())  # pytest shows it for what failed
            await end(cluster, keys.CONFIG_MAP, key)
    assert code == 0


def inline(kubeconfig: Path) -> bytes:
    """Return the administrator's kubeconfig with its files inside."""
    config = yaml.safe_load(kubeconfig.read_text())
    for entry in (config["clusters"][0]["cluster"], config["users"][0]["user"]):
        for name in ("certificate-authority", "client-certificate", "client-key"):
            if path := entry.pop(name, None):
                content = (kubeconfig.parent / path).read_bytes()
                entry[f"{name}-data"] = base64.b64encode(content).decode()
    return json.dumps(config).encode()


async def set_up_peer(cluster: Cluster, unique: str, kubeconfig: Path) -> tuple[str, str]:
    """Set up both tenant namespaces and the identity; return local and remote namespace."""
    rome, milan = f"rome-{unique}", f"milan-{unique}"
    for remote in (rome, milan):
        tenant = factories.tenant_namespace(naming.tenant_namespace(remote), remote)
        await cluster.create(keys.NAMESPACE, tenant)
    local, remote = naming.tenant_namespace(milan), naming.tenant_namespace(rome)
    data = {"kubeconfig": base64.b64encode(inline(kubeconfig)).decode()}
    secret = factories.secret(local, f"kubeconfig-controlplane-{milan}", **data)
    await cluster.create(keys.SECRET, secret)
    template = {
        "containerImage": "pyliqo:1",
        "createNode": True,
        "disableNetworkCheck": False,
        "metricsEnabled": False,
    }
    key = Key(keys.LIQO_NAMESPACE, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    wanted = named(keys.VK_OPTIONS_TEMPLATE, key, spec=template)
    await cluster.apply(keys.VK_OPTIONS_TEMPLATE, wanted, manager="tests")
    await cluster.create(keys.VIRTUAL_NODE, virtual_node(local, milan, milan))
    return local, remote
