"""Clients of the pair of clusters, and a namespace for each journey."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from apis import keys
from apis.objects import Key, named
from kube import client, credentials
from sandbox import images, install, pair
from sandbox.clusters import Sandbox
from tests.journeys import world
from tests.journeys.three import THIRD, Three
from tests.journeys.world import BARE


@pytest.fixture
async def both(kubeconfigs: Mapping[str, Path]) -> AsyncIterator[world.Pair]:
    rome = await credentials.from_file(kubeconfigs["rome"])
    milan = await credentials.from_file(kubeconfigs["milan"])
    async with (
        client.connect(rome, user_agent="journeys") as here,
        client.connect(milan, user_agent="journeys") as there,
    ):
        yield world.Pair(here, there, images.workload_name())


@pytest.fixture
async def namespace(both: world.Pair) -> AsyncIterator[str]:
    """Make a namespace in rome; its end, with all that was offloaded, is not waited for."""
    name = f"journey-{secrets.token_hex(3)}"
    await both.rome.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
    yield name
    await world.remove(both.rome, keys.NAMESPACE, Key("", name))


@pytest.fixture
async def unpeered(three: Three) -> AsyncIterator[Three]:
    """Take the peering of rome with the third cluster away, for one that is typed."""
    remote = f"--remote-kubeconfig={three.kubeconfigs[THIRD]}"
    leave = ("unpeer", remote, "--skip-confirm")
    await asyncio.to_thread(install.run, three.kubeconfigs["rome"], *leave)
    yield three
    given = {"spec": {"sharing": None, "resourceSliceClasses": None}}
    await three[THIRD].patch(keys.PROVIDER_POLICY, Key("", "default"), given)
    await asyncio.to_thread(pair.peer, "rome", THIRD, three.kubeconfigs)


@pytest.fixture
def bare() -> Iterator[Mapping[str, Path]]:
    """Start two clusters without pyliqo, which go with the test; return their kubeconfigs."""
    sandbox = Sandbox()
    try:
        found = sandbox.up(BARE)
        yield {name: found[name] for name in BARE}
    finally:
        sandbox.down(BARE)
