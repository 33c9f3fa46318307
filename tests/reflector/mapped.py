"""Namespaces with an entry in the NamespaceMap."""

import base64

from apis import keys
from apis.objects import Key
from kube.cluster import Cluster
from reflector.namespaces import ReflectorIdentity
from tests import factories
from tests.fakes import FakeCluster
from tests.world import offload

TENANT = "liqo-tenant-milan"
MAP = Key(TENANT, "milan")
IDENTITY = ReflectorIdentity("rome", "milan", TENANT)
WITHIN_S = 300.0


def tell(*_: object) -> None:
    """Drop what is told."""


async def both_fakes() -> tuple[FakeCluster, FakeCluster]:
    home, foreign = FakeCluster(), FakeCluster()
    for name in ("foo", "bar"):
        await home.create(keys.NAMESPACE_OFFLOADING, factories.offloading(name))
    await home.create(keys.NAMESPACE_MAP, factories.namespace_map(MAP))
    await home.create(keys.CONFIG_MAP, factories.config_map("foo"))
    return home, foreign


async def offloaded_pairs(
    home: Cluster,
    stem: str,
    *config_maps: str,
    there: Cluster | None = None,
    kubeconfig: bytes = b"",
) -> ReflectorIdentity:
    """Let ``<stem>`` be offloaded to ``<stem>-remote``; ``kubeconfig`` is that to the provider."""
    tenant, remote = f"{stem}-tenant", f"{stem}-remote"
    for cluster, name in ((home, stem), (home, tenant), (there or home, remote)):
        await cluster.create(keys.NAMESPACE, factories.namespace(name))
    await home.create(keys.NAMESPACE_OFFLOADING, factories.offloading(stem))
    for name in config_maps:
        await home.create(keys.CONFIG_MAP, factories.config_map(stem, name))
    if kubeconfig:
        encoded = base64.b64encode(kubeconfig).decode()
        await home.create(keys.SECRET, factories.secret(tenant, "key", kubeconfig=encoded))
    await offload(home, Key(tenant, "milan"), {stem: remote})
    return ReflectorIdentity("rome", "milan", tenant)
