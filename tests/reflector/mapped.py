"""Namespaces with an entry in the NamespaceMap."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from apis import keys
from apis.objects import Key, Object, named
from reflector.namespaces import ReflectorIdentity
from tests import factories
from tests.fakes import FakeCluster

TENANT = "liqo-tenant-milan"
MAP = Key(TENANT, "milan")
IDENTITY = ReflectorIdentity("rome", "milan", TENANT)
WITHIN_S = 300.0


def namespace_map(name: str = "milan", **replication: str) -> Object:
    labels = {
        "liqo.io/remote-cluster-id": "milan",
        "liqo.io/replication": replication.get("replication", "true"),
    }
    return named(keys.NAMESPACE_MAP, Key(TENANT, name), metadata={"labels": labels}, spec={})


async def offload(
    home: FakeCluster, twins: Mapping[str, str | None], phase: str = "Accepted"
) -> None:
    """Say that the provider made ``twins``; None takes one back."""
    current = {
        local: remote and {"remoteNamespace": remote, "phase": phase}
        for local, remote in twins.items()
    }
    await home.patch(keys.NAMESPACE_MAP, MAP, {"spec": {"desiredMapping": dict(twins)}})
    await home.patch_status(keys.NAMESPACE_MAP, MAP, {"currentMapping": current})


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not await holds():  # noqa: ASYNC110  # a cluster in a dict has no event to await
            await asyncio.sleep(0.005)


def tell(*_: object) -> None:
    """Drop what is told."""


async def world() -> tuple[FakeCluster, FakeCluster]:
    home, foreign = FakeCluster(), FakeCluster()
    for name in ("foo", "bar"):
        await home.create(keys.NAMESPACE_OFFLOADING, factories.offloading(name))
    await home.create(keys.NAMESPACE_MAP, namespace_map())
    await home.create(keys.CONFIG_MAP, factories.config_map("foo"))
    return home, foreign
