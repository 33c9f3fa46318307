"""What is true again how soon after a peer was silent, on a real API server behind a gate.

``PYLIQO_TEST_OBJECTS=500 PYLIQO_TEST_OUTAGE_S=60`` is the full size; the seconds are printed, and
what is judged is that all of it is.
"""

import asyncio
import contextlib
import dataclasses
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Key, Object
from controllers.peers.replication.forge import Peering
from controllers.peers.replication.reconciler import ReplicationReconciler
from kube import client, credentials
from kube.cache import CachedCluster
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.controller import Runner, WatchSource
from kube.informer import Change, Informer
from sandbox.controlplane import Plane
from tests.conftest import size_of
from tests.controllers.support import Told, ensure_namespace, local_map
from tests.kube.running import Gate, running, until

pytestmark = pytest.mark.cluster

COUNT: Final = size_of("PYLIQO_TEST_OBJECTS", 20, 500)
OUTAGE_S: Final = size_of("PYLIQO_TEST_OUTAGE_S", 4.0, 60.0)
WITHIN_S: Final = 300.0
KIND: Final = keys.NAMESPACE_MAP


class OutagePair:
    """Objects here, replicas behind the gate, and one loop between them."""

    def __init__(self, here: ClusterClient, there: ClusterClient, peering: Peering) -> None:
        self.here, self.there, self.peering = here, there, peering
        self.originals = Informer(Selection(KIND, Object, peering.local_namespace))
        self.replicas = Informer(Selection(KIND, Object, peering.remote_namespace))
        there.reach.subscribe(self.replicas.resync)  # as replication does with each peer
        local = CachedCluster(here, [self.originals])
        remote = CachedCluster(there, [self.replicas])

        def original(change: Change[Object]) -> list[Key]:
            return [peering.original_of(change.key)]

        self.runner = Runner(
            "outage",
            ReplicationReconciler(KIND, peering, local, remote, Told(here).recorder),
            [WatchSource(self.originals), WatchSource(self.replicas, original)],
            workers=8,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with (
            running(self.originals.run(self.here)),
            running(self.replicas.run(self.there)),
            running(self.runner.run()),
        ):
            yield

    def is_true(self, spec: str, status: str) -> bool:
        """Whether every replica has the spec, and every original the status, of that moment."""
        replicas, originals = self.replicas.items().values(), self.originals.items().values()
        return (
            len(replicas) == len(originals) == COUNT
            and all(one["spec"]["desiredMapping"] == {"now": spec} for one in replicas)
            and all(_phase(one) == status for one in originals)
        )


def _phase(obj: Object) -> str:
    entries: Any = (obj.get("status") or {}).get("currentMapping") or {}
    return str(entries.get("now", {}).get("reason", ""))


@pytest.mark.parametrize("way", ["reject", "drop"])
async def test_everything_is_true_again_soon_after_an_outage(
    plane: Plane, crds: None, gate: Gate, way: str
) -> None:
    who = await credentials.from_file(plane.kubeconfig)
    behind = dataclasses.replace(who, server=f"https://127.0.0.1:{gate.port}")
    peering = Peering("rome", "milan", f"here-{way}", f"there-{way}")
    async with (
        client.connect(who, user_agent="pyliqo-tests") as here,
        client.connect(who, user_agent="pyliqo-tests") as direct,
        client.connect(behind, user_agent="pyliqo-tests") as there,
    ):
        await ensure_namespace(here, peering.local_namespace)
        await ensure_namespace(here, peering.remote_namespace)
        for number in range(COUNT):
            obj = local_map(peering.local_namespace, "milan", now="a")
            obj["metadata"]["name"] = f"map-{number}"
            await here.create(KIND, obj)
        pair = OutagePair(here, there, peering)
        async with pair.running():
            await until(lambda: pair.is_true("a", ""), within_s=WITHIN_S)
            if way == "drop":
                gate.hold()
                there.reach.doubt()  # as the next ping, or call, would
            else:
                await gate.shut()
            await _change_unseen(pair, direct)
            await until(lambda: there.reach.is_lost, WITHIN_S)
            await asyncio.sleep(OUTAGE_S)  # the outage itself
            assert not pair.is_true("b", "B")
            began = time.monotonic()
            gate.let_go()
            if way == "reject":
                await gate.open()
            await until(lambda: pair.is_true("b", "B"), within_s=WITHIN_S)
            took = time.monotonic() - began
            sys.stderr.write(f"{way}: {COUNT} objects true again {took:.1f} s after the return\n")


async def _change_unseen(pair: OutagePair, direct: ClusterClient) -> None:
    """Change each object on both sides, where nobody sees it."""
    status = {"currentMapping": {"now": {"remoteNamespace": "x", "reason": "B"}}}
    for number in range(COUNT):
        here = Key(pair.peering.local_namespace, f"map-{number}")
        await pair.here.patch(KIND, here, {"spec": {"desiredMapping": {"now": "b"}}})
        await direct.patch_status(KIND, pair.peering.replica_of(here), status)
