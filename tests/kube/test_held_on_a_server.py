"""What a real server does not let goes on by itself soon after it does, however much it is.

``PYLIQO_TEST_HELD=5000`` is the full size; ``-s`` shows the seconds. Source: docs/parity.md F-34.
"""

import os
import secrets
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, named
from kube import client
from kube.client import ClusterClient
from kube.controller import Runner
from kube.queue import Queue
from sandbox.controlplane import Plane
from tests.factories import config_map
from tests.kube.running import running, until
from tests.kubelet.toll import identity

pytestmark = pytest.mark.cluster

HELD: Final = int(os.environ.get("PYLIQO_TEST_HELD", "300"))
FULL: Final = 5000
WITHIN_S: Final = 30.0
"""Promised for the full size; a smaller one says little of seconds."""
WORKERS: Final = 10


class Writes:
    """Creates a ConfigMap for each key."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.cluster = cluster
        self.done: set[Key] = set()
        self.refused: set[Key] = set()
        self.tries = 0

    async def reconcile(self, key: Key) -> float | None:
        self.tries += 1
        self.refused.add(key)
        await self.cluster.apply(
            keys.CONFIG_MAP, config_map(key.namespace, key.name), manager="tests"
        )
        self.done.add(key)
        return None


async def test_all_that_was_refused_goes_on_once_the_right_is_there(
    plane: Plane, tmp_path: Path
) -> None:
    namespace = f"held-{secrets.token_hex(4)}"
    path = tmp_path / "somebody.kubeconfig"
    path.write_text(identity(plane, "somebody", "nobodies"))
    subject = {"apiGroup": keys.ROLE_BINDING.group, "kind": "User", "name": "somebody"}
    binding = named(
        keys.ROLE_BINDING,
        Key(namespace, "writers"),
        roleRef={
            "apiGroup": keys.ROLE_BINDING.group,
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        subjects=[subject],
    )
    async with (
        client.connect(plane.kubeconfig, user_agent="pyliqo-tests") as admin,
        client.connect(path, user_agent="pyliqo-tests") as cluster,
    ):
        await admin.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", namespace)))
        writes, queue = Writes(cluster), Queue[Key]()
        runner = Runner("held", writes, [], workers=WORKERS, queue=queue)
        async with running(runner.run()):
            for number in range(HELD):
                runner.enqueue(Key(namespace, f"held-{number}"))
            await until(lambda: writes.tries >= 4 * HELD and len(writes.refused) == HELD)
            before = writes.tries
            allowed = time.monotonic()
            await admin.create(keys.ROLE_BINDING, binding)
            await until(lambda: len(writes.done) == HELD)
            after_s = time.monotonic() - allowed
    sys.stderr.write(f"{HELD} went on in {after_s:.1f} s, by {writes.tries - before} tries\n")

    assert writes.tries - before <= 3 * HELD + 100 * WORKERS
    if HELD >= FULL:
        assert after_s <= WITHIN_S * HELD / FULL
