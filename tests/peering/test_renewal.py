"""Certificates that live for a minute: renewed under way, and nobody notices.

``PYLIQO_RENEWAL_S`` sets how long calls are counted: 1800 with a lifetime of 3m is the run of
faults.md F25. Source: faults.md F25, F26.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pytest

from apis import keys, naming
from apis.objects import Key, Object
from kube import client, errors, peer
from kube.client import ClusterClient
from kube.cluster import Selection
from liqoctl.forge import flags
from tests.peering import world
from tests.peering.world import World

pytestmark = pytest.mark.cluster

LIFETIME: Final = os.environ.get("PYLIQO_RENEWAL_LIFETIME", "60s")
COUNTED_S: Final = float(os.environ.get("PYLIQO_RENEWAL_S", "65"))
LEAST: Final = int(COUNTED_S / flags.seconds(LIFETIME)) + 1
"""So many identities are used in that time, at least: each is renewed at two thirds of its life."""
PAUSE_S: Final = 0.1
SPACE: Final = "liqo-tenant-milan"
ENDED_S: Final = 2 * flags.seconds(LIFETIME) + 300
IDENTITIES: Final = (
    naming.controlplane_identity("milan"),
    naming.resourceslice_identity("milan"),
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world.running(tmp_path_factory.mktemp("renewal"), lifetime=LIFETIME) as running:
        running.peer("rome", "milan")
        yield running


def test_no_call_fails_at_any_renewal(both: World) -> None:
    """As a kubelet and a replicator connect: by the Secret, and on by what it becomes."""
    for traffic in asyncio.run(_of_all(both)):
        assert traffic.failures == []
        assert traffic.calls > COUNTED_S
        assert len(traffic.used) >= LEAST
    assert all(member.process and member.process.poll() is None for member in both.members.values())


@dataclass
class Traffic:
    """Calls to the provider by one identity, and what became of them."""

    failures: list[str] = field(default_factory=list)
    calls: int = 0
    used: set[str] = field(default_factory=set)
    """Digests of the credentials that were used."""


async def _of_all(both: World) -> list[Traffic]:
    return await asyncio.gather(*(_traffic(both, identity) for identity in IDENTITIES))


async def _traffic(both: World, identity: str) -> Traffic:
    secret = Key(SPACE, naming.kubeconfig_secret(identity))
    traffic = Traffic()
    loop = asyncio.get_running_loop()
    async with (
        client.connect(both["rome"].plane.kubeconfig, user_agent="tests") as home,
        peer.follow(home, secret, user_agent="traffic") as remote,
    ):
        end = loop.time() + COUNTED_S
        while loop.time() < end:
            traffic.used.add(remote.access.digest)
            traffic.calls += 1
            if said := await _call(remote):
                traffic.failures.append(said)
            await asyncio.sleep(PAUSE_S)
    sys.stderr.write(f"{identity}: {traffic.calls} calls, {len(traffic.used)} identities\n")
    return traffic


async def _call(remote: ClusterClient) -> str:
    """Return why the provider did not take the call; a refusal by RBAC shows who we are, too."""
    try:
        await remote.list(Selection(keys.RENEW, Object, "liqo-tenant-rome"))
    except errors.ForbiddenError:
        return ""
    except errors.KubeError as error:
        return repr(error)
    return ""


def test_a_signer_that_refuses_is_told_of_and_what_has_ended_takes_the_same_command(
    both: World,
) -> None:
    """F26: nobody can fetch a new certificate with one that has ended."""
    milan = both["milan"].kubectl
    told = ("get", "events", "-A", "-o", "name", "--field-selector=reason=CertificateNotRenewed")
    with both["milan"].without("signers"):
        world.until(lambda: _refusals(both) > 0, "a refusal", ENDED_S)
        world.until(lambda: milan.run(*told), "an event")
        world.until(lambda: not _is_accepted(both), "the identity to end", ENDED_S)

    both.peer("rome", "milan")

    world.until(lambda: _is_accepted(both), "the fresh identity to be accepted", ENDED_S)


def _refusals(both: World) -> int:
    return both["milan"].log().count("could not be renewed")


def _is_accepted(both: World) -> bool:
    who = both.identity("rome", "milan")
    return not world.refusal(who, "get", "renews", "-n", "liqo-tenant-rome")
