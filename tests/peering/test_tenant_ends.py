"""The end of a tenant whose consumer holds on to all it has. Source: security.md A.

The policies of the provider are in force, and its controllers at work.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Final

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Kind, Object, named
from kube import client, errors
from kube.client import ClusterClient
from kube.cluster import Selection
from tests.controllers.support import end
from tests.peering import world
from tests.peering.world import SPACE, TWIN, World

pytestmark = pytest.mark.cluster

LABELS: Final = {keys.ORIGIN: "rome"}
OWN_RIGHTS: Final = Key(SPACE, keys.CONTROLLER_MANAGER)
"""What milan's controllers may do in the tenant namespace, which stays."""
HELD: Final = "example.com/held"
"""A finalizer that nobody takes away but who set it."""
OF_TENANT: Final = (
    keys.NAMESPACE_MAP, keys.RESOURCE_SLICE, keys.RENEW, keys.QUOTA, keys.TENANT, keys.IDENTITY,
    keys.SHADOW_POD, keys.SHADOW_ENDPOINT_SLICE, keys.POD, keys.ENDPOINT_SLICE,
)  # fmt: skip
"""Kinds of which nothing is left anywhere: milan has no other tenant."""
OF_PEER: Final = (keys.NAMESPACE, keys.ROLE_BINDING, keys.CLUSTER_ROLE_BINDING)
"""Kinds of which nothing is left that is labelled as the consumer's."""


class Clinging:
    """Rome, which makes anew what is deleted, and takes marks off, as long as it is let."""

    def __init__(self, control: ClusterClient, kubelet: ClusterClient) -> None:
        self._control, self._kubelet = control, kubelet
        self._kept: dict[tuple[Kind, Key], Object] = {}
        self.did: Counter[str] = Counter()

    async def run(self) -> None:
        """Go on until cancelled."""
        number = 0
        while True:
            number += 1
            for kind in (keys.NAMESPACE_MAP, keys.RESOURCE_SLICE, keys.RENEW):
                await self._try("list", self._deny(kind))
            for obj, kind in _work(number):
                if not await self._try("create", self._kubelet.create(kind, obj)):
                    del obj["metadata"]["finalizers"]
                    await self._try("create", self._kubelet.create(kind, obj))
            await asyncio.sleep(0.02)

    async def _deny(self, kind: Kind) -> None:
        """Take the marks of a replica off, hold it, and make anew what is no more."""
        found = (await self._control.list(Selection(kind, Object, SPACE))).items
        for key, obj in found.items():
            self._kept.setdefault((kind, key), obj)
            unmarked = {"labels": {keys.REPLICATED: None, keys.ORIGIN_ID: None}}
            for change in (unmarked, {"finalizers": [*objects.finalizers(obj), HELD]}):
                await self._try("patch", self._control.patch(kind, key, {"metadata": change}))
        for (of, key), obj in self._kept.items():
            if of == kind and key not in found:
                metadata = {"labels": objects.labels(obj)}
                again = named(kind, key, metadata=metadata, spec=obj["spec"])
                await self._try("create", self._control.create(kind, again))

    async def _try(self, what: str, work: Awaitable[object]) -> bool:
        try:
            await work
        except errors.KubeError:
            self.did[f"{what} refused"] += 1
            return False
        self.did[what] += 1
        return True


def _work(number: int) -> Iterator[tuple[Object, Kind]]:
    """Yield what fills a twin, each with a finalizer of the consumer's own."""
    key = Key(TWIN, f"held-{number}")
    held = {"labels": LABELS, "finalizers": [HELD]}
    pod = {"containers": [{"name": "app", "image": "app"}]}
    yield named(keys.SHADOW_POD, key, metadata=held, spec={"pod": pod}), keys.SHADOW_POD
    template = {"endpoints": [], "addressType": "IPv4", "ports": []}
    slice_ = named(keys.SHADOW_ENDPOINT_SLICE, key, metadata=held, spec={"template": template})
    yield slice_, keys.SHADOW_ENDPOINT_SLICE
    yield named(keys.CONFIG_MAP, key, metadata=held, data={"a": "b"}), keys.CONFIG_MAP


@pytest.fixture
def peered(both: World) -> Iterator[tuple[Path, Path]]:
    """Peer, make a twin, end what rome runs of ours; yield the two kubeconfigs that it has."""
    both.peer("rome", "milan")
    both.make_twin(TWIN)
    control = both.identity("rome", "milan")
    kubelet = both.identity("rome", "milan", naming.resourceslice_identity("milan"))
    both["rome"].kill()
    try:
        yield control.kubeconfig, kubelet.kubeconfig
    finally:
        both["rome"].start()
        both.unpeer("rome", "milan")


@pytest.fixture
async def milan(both: World) -> AsyncIterator[ClusterClient]:
    """Yield milan as its administrator sees it."""
    async with client.connect(both["milan"].plane.kubeconfig, user_agent="tests") as found:
        yield found


async def left(milan: ClusterClient) -> list[str]:
    """Return what milan still has of rome."""
    found = [
        f"{kind} {key}"
        for kind in OF_TENANT
        for key in (await milan.list(Selection(kind, Object))).items
        if kind != keys.ENDPOINT_SLICE or key.namespace == TWIN
    ]
    for kind in OF_PEER:
        labelled = Selection(kind, Object, labels=f"{keys.REMOTE_CLUSTER_ID}=rome")
        found += [f"{kind} {key}" for key in (await milan.list(labelled)).items]
    own = (f"{keys.NAMESPACE} {Key('', SPACE)}", f"{keys.ROLE_BINDING} {OWN_RIGHTS}")
    return sorted(each for each in found if each not in own)


async def test_nothing_is_left_of_a_tenant_whose_consumer_holds_on_to_it(
    milan: ClusterClient, peered: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(client.connect(one, user_agent="hostile"))
            for one in peered
        ]
        rome = Clinging(*opened)
        task = asyncio.create_task(rome.run())
        stack.callback(task.cancel)
        async with asyncio.timeout(world.PATIENCE_S):
            while rome.did["create"] < 20:  # noqa: ASYNC110  # it is at work
                await asyncio.sleep(0.1)
        began = time.monotonic()

        await end(milan, keys.TENANT, Key(SPACE, "rome"))

        try:
            async with asyncio.timeout(world.PATIENCE_S):
                while await left(milan):  # noqa: ASYNC110  # of many kinds
                    await asyncio.sleep(0.2)
        except TimeoutError:
            pytest.fail(f"left after {world.PATIENCE_S} s: {json.dumps(await left(milan))}")
        took_s = time.monotonic() - began
        with capsys.disabled():
            sys.stdout.write(f"\ntenant gone after {took_s:.1f} s, {dict(rome.did)}\n")
        before = rome.did.total()
        async with asyncio.timeout(world.PATIENCE_S):
            while rome.did.total() < before + 20:  # noqa: ASYNC110  # it goes on trying
                await asyncio.sleep(0.1)
        assert await left(milan) == []
