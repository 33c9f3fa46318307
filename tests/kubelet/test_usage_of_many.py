"""What many pods use costs nobody else the loop."""

import asyncio
from collections.abc import Mapping

from apis.objects import Key
from kube.authz import Authorizer
from kubelet.api.server import AT_ONCE, PodLookups
from kubelet.pods.mapping import MappingState, NamespaceMapping
from kubelet.pods.state import NodePod
from tests.factories import pod
from tests.fakes import FakeCluster
from tests.kubelet.worlds import NODE, Namespaces

WAITING = Namespaces(NamespaceMapping(MappingState.WAITING))


async def test_what_is_decoded_for_metrics_lets_others_in_between() -> None:
    pods = {Key("shop", f"web-{n}"): NodePod.cached(pod("shop", f"web-{n}")) for n in range(1000)}
    lookups = lookups_of(pods)
    turns = 0

    async def lease() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(lease())
    assert len(await lookups.measured()) == len(await lookups.pods()) == 1000
    other.cancel()
    assert turns >= 2 * 1000 / AT_ONCE


def lookups_of(pods: Mapping[Key, NodePod]) -> PodLookups:
    home = FakeCluster()
    return PodLookups(NODE, home, FakeCluster(), WAITING, lambda: pods, Authorizer(home, NODE))
