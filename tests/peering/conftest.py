"""The two clusters that the tests of this package share."""

from collections.abc import Iterator

import pytest

from tests.peering import world
from tests.peering.world import World


@pytest.fixture(scope="package")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield rome and milan; anybody who peers them ends the peering."""
    with world.two_clusters(tmp_path_factory.mktemp("peering")) as running:
        yield running
