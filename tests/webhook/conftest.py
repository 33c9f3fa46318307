"""One installed webhook for all tests that want it as the manifests register it."""

from collections.abc import Iterator

import pytest

from sandbox.controlplane import Plane
from tests.webhook.installed import Installed, installed


@pytest.fixture(scope="package", name="live")
def start_installed(
    plane: Plane, crds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """Yield the webhook of this package's run."""
    with installed(plane, tmp_path_factory.mktemp("installed")) as found:
        yield found
