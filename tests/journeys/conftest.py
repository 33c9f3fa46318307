"""The pair of clusters that all journeys share, and a namespace for each."""

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from apis import keys
from apis.objects import Key, named
from kube import access, client
from sandbox import images, pair
from sandbox.clusters import Sandbox
from tests.journeys import world


@pytest.fixture(scope="session")
def kubeconfigs() -> Iterator[Mapping[str, Path]]:
    """Start rome and milan unless they run, install this tree, peer them: once for the run.

    What ran before is left running.
    """
    sandbox = Sandbox()
    were_up = bool(sandbox.sites())
    yield pair.ensure()
    if not were_up:
        sandbox.down()


@pytest.fixture
async def both(kubeconfigs: Mapping[str, Path]) -> AsyncIterator[world.Pair]:
    rome = await access.from_file(kubeconfigs["rome"])
    milan = await access.from_file(kubeconfigs["milan"])
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
