"""Certificates that change while a real API server asks: no admission fails.

Source: docs/parity.md A-35; F-27; the API server judges trust by the certificates it was
given, so a break of trust shows as a failed creation.
"""

import datetime as dt
import logging
from typing import Final

import pytest

from apis import authentication
from certs.rotation import RotationOptions
from kube import clock
from sandbox.controlplane import Plane
from tests.conftest import size_of
from tests.kube.running import until_so
from tests.webhook.replicas import Load, Replica, Service, certified, filling

pytestmark = pytest.mark.cluster

ROTATIONS: Final = size_of("PYLIQO_ROTATIONS", 16, 200)
"""At least 15: so many bring a new authority, and take the old one out of the bundle."""
MEANWHILE: Final = 60
"""So many pods are created between two rotations, and after each the API server has learned."""
SECOND: Final = dt.timedelta(seconds=1)
AHEAD: Final = dt.timedelta(minutes=30)
logger = logging.getLogger(__name__)


class Clock:
    """Half an hour ahead, so that the API server, whose clock we leave alone, sees nothing end."""

    def __init__(self) -> None:
        self.now = clock.now().replace(microsecond=0) + AHEAD

    def __call__(self) -> dt.datetime:
        return self.now


class Volumes:
    """The Secret volumes of two nodes; the second is always one rotation behind."""

    def __init__(self, first: Replica, second: Replica) -> None:
        self.first, self.second = first, second
        self.leaves: list[bytes] = []
        self._before: dict[str, bytes] = {}

    def fill(self, data: dict[str, bytes]) -> None:
        if self.leaves and data["tls.crt"] == self.leaves[-1]:
            self._before = data  # the bundle alone is another
            return
        self.first.fill(data)
        self.second.fill(self._before or data)
        self._before = data
        self.leaves.append(data["tls.crt"])


async def test_rotations_under_load_fail_no_admission(
    service: Service, plane: Plane, replicas: list[Replica]
) -> None:
    """Lives of seconds: a leaf ends after 1, an authority after 15."""
    now, pair = Clock(), (replicas[0], replicas[1])
    settings = RotationOptions(
        namespace=service.namespace,
        ca_lifetime=15 * SECOND,
        leaf_lifetime=1.5 * SECOND,
        settled=2 * SECOND,
    )
    volumes, authorities = Volumes(*pair), set()
    await service.register()
    async with certified(service, settings, now), filling(service.cluster, settings, volumes.fill):
        for replica in pair:
            replica.start(plane.kubeconfig)
            await until_so(replica.is_ready, "a replica that is ready")
            await service.join(replica)
        pids = [replica.pids() for replica in pair]
        load = Load(plane.kubeconfig, await service.offloaded())
        async with load.running():
            await load.steady()
            for done in range(1, ROTATIONS + 1):
                before = await service.bundle()
                now.now += SECOND
                await until_so(lambda: has_leaves(volumes, done + 1), f"rotation {done}")  # noqa: B023
                await load.more(MEANWHILE)
                after = await service.bundle()
                authorities.update(authentication.certificates(after))
                for known in (before, after):  # anybody who learned late trusts all the same
                    check(pair, known, settings, volumes.leaves)

        await until_so(lambda: has_fewer(service, authorities), "a bundle without the first one")
    figures = (ROTATIONS, len(authorities), load.admitted, load.per_s)
    logger.info("%d rotations, %d authorities: %d pods, %.0f a second", *figures)

    assert load.failures == []
    assert load.admitted >= ROTATIONS * MEANWHILE
    assert len(set(volumes.leaves)) == ROTATIONS + 1
    assert len(authorities) >= max(2, ROTATIONS // 10)
    assert [replica.pids() for replica in pair] == pids


async def has_fewer(service: Service, authorities: set[bytes]) -> bool:
    return len(authentication.certificates(await service.bundle())) < len(authorities)


async def has_leaves(volumes: Volumes, leaves: int) -> bool:
    return len(volumes.leaves) >= leaves


def check(
    pair: tuple[Replica, Replica], known: bytes, settings: RotationOptions, leaves: list[bytes]
) -> None:
    """Shake hands with both as an API server that trusts ``known``."""
    served = [replica.handshake(known, settings.dns[0]) for replica in pair]
    assert served == [leaves[-1], leaves[-2]]
