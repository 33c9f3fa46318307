"""The administrators of the consumer, rome, and of its provider, cool-firefly."""

import pytest

from tests.documents.terminal import Terminal
from tests.journeys.three import THIRD, Three


@pytest.fixture
def consumer(three: Three) -> Terminal:
    return Terminal(three.kubeconfigs["rome"])


@pytest.fixture
def provider(three: Three) -> Terminal:
    return Terminal(three.kubeconfigs[THIRD])
