"""The whole controller manager on a real API server, which is consumer and provider at once."""

import asyncio
import base64
import contextlib
import itertools
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from apis import keys, naming, objects, whose
from apis.objects import Key, Kind, Object, named
from kube import client
from kube.cluster import Cluster
from sandbox import controlplane
from sandbox.controlplane import Plane
from tests import factories, scraping
from tests.controllers.support import end, ensure_namespace, offloading, there, virtual_node
from tests.kube.running import until_so

pytestmark = pytest.mark.cluster

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
AT_FIRST = {"secrets", "roles"}
"""In a tenant namespace it may read Secrets, and let others read one, a moment after it bound
itself there: what is refused until then is asked again."""


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


@pytest.fixture
async def cluster(own_plane: Plane) -> AsyncIterator[Cluster]:
    """Only the real one: the process speaks HTTP."""
    async with client.connect(own_plane.kubeconfig, user_agent="pyliqo-tests") as real:
        yield real


@pytest.fixture
async def rights(cluster: Cluster) -> None:
    """Do ``install_rights``."""
    await install_rights(cluster)


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


@pytest.fixture
async def manager(
    cluster: Cluster, namespace: str, own_plane: Plane, tmp_path: Path, rights: None
) -> AsyncIterator[Manager]:
    """Do ``managing``."""
    async with managing(cluster, namespace, own_plane, tmp_path) as made:
        yield made


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


async def peer(cluster: Cluster, unique: str, kubeconfig: Path) -> tuple[str, str]:
    """Set up both tenant namespaces and the identity; return local and remote namespace."""
    rome, milan = f"rome-{unique}", f"milan-{unique}"
    for remote in (rome, milan):
        labels = {keys.TENANT_NAMESPACE: "true", keys.REMOTE_CLUSTER_ID: remote}
        tenant = factories.namespace(naming.tenant_namespace(remote), **labels)
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


async def test_a_namespace_is_offloaded_and_taken_back(
    cluster: Cluster, namespace: str, manager: Manager, own_plane: Plane
) -> None:
    local, remote = await peer(cluster, namespace, own_plane.kubeconfig)
    key, milan = Key(namespace, "offloading"), f"milan-{namespace}"
    only = {"key": keys.REMOTE_CLUSTER_ID, "operator": "In", "values": [milan]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [only]}]}
    obj = offloading(namespace, clusterSelector=selector)
    await cluster.create(keys.NAMESPACE_OFFLOADING, obj)

    async def is_ready() -> bool:
        status = (await there(cluster, keys.NAMESPACE_OFFLOADING, key)).get("status") or {}
        return status.get("offloadingPhase") == "Ready"

    async def is_gone(kind: Kind, where: Key) -> bool:
        return await cluster.get_live(kind, where) is None

    await until_so(is_ready, "the namespace is offloaded")
    twin = await there(cluster, keys.NAMESPACE, Key("", f"{namespace}-rome-{namespace}"))
    assert objects.annotations(twin)[keys.MANAGED_BY_NAMESPACE_MAP] == f"{remote}/{milan}"
    assert not await is_gone(keys.DEPLOYMENT, Key(local, f"vk-{milan}"))
    assert await manager.refused() <= AT_FIRST
    await idle(cluster, manager, key)

    await end(cluster, keys.NAMESPACE_OFFLOADING, key)

    async def is_terminating() -> bool:
        found = await there(cluster, keys.NAMESPACE, objects.key_of(twin))
        return objects.is_terminating(found)

    await until_so(is_terminating, "the twin is being deleted")
    await end(cluster, keys.VIRTUAL_NODE, Key(local, milan))
    await until_so(
        lambda: is_gone(keys.VIRTUAL_NODE, Key(local, milan)), "the virtual node is gone"
    )
    assert await is_gone(keys.DEPLOYMENT, Key(local, f"vk-{milan}"))
    assert await is_gone(keys.SERVICE_ACCOUNT, Key(local, milan))
    assert await manager.refused() <= AT_FIRST


async def test_what_was_replicated_can_be_deleted_after_the_identity_is_gone(
    cluster: Cluster, namespace: str, manager: Manager
) -> None:
    """Somebody deletes a tenant namespace by hand: the kubeconfig goes before the replicas do."""
    peer_ = f"milan-{namespace}"
    space = naming.tenant_namespace(peer_)
    labels = {keys.TENANT_NAMESPACE: "true", keys.REMOTE_CLUSTER_ID: peer_}
    await cluster.create(keys.NAMESPACE, factories.namespace(space, **labels))
    metadata = {"labels": whose.original(peer_), "finalizers": [keys.REPLICATION_FINALIZER]}
    key = Key(space, "renewed")
    await cluster.create(keys.RENEW, named(keys.RENEW, key, metadata=metadata, spec={}))

    await end(cluster, keys.RENEW, key)

    async def is_gone() -> bool:
        return await cluster.get_live(keys.RENEW, key) is None

    await until_so(is_gone, "what was replicated is gone")
    assert await manager.refused() <= AT_FIRST


async def idle(cluster: Cluster, manager: Manager, key: Key) -> None:
    """Show that looking at everything once more writes nothing and lists nothing."""

    async def looks() -> float:
        return await manager.counts("pyliqo_reconciles_total", controller="namespaceoffloading")

    async def virtual() -> Key:
        name = f"milan-{key.namespace}"
        return Key(naming.tenant_namespace(name), name)

    async def touch(kind: Kind, what: Key, number: int) -> None:
        before = await looks()
        await cluster.patch(kind, what, {"metadata": {"labels": {"touched": str(number)}}})

        async def looked() -> bool:
            return await looks() > before

        await until_so(looked, f"the controllers looked again at {kind} {what}")

    async def round_(number: int) -> tuple[float, float]:
        await touch(keys.NAMESPACE_OFFLOADING, key, number)
        await touch(keys.VIRTUAL_NODE, await virtual(), number)
        lists = await manager.counts("pyliqo_requests_total", verb="list")
        return await manager.writes(), lists

    numbers = itertools.count(1)  # each value once: a patch that changes nothing wakes nobody
    first = await round_(next(numbers))

    async def is_quiet() -> bool:
        nonlocal first
        before, first = first, await round_(next(numbers))
        return before == first

    await until_so(is_quiet, "nothing is written or listed any more")
