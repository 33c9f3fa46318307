"""A plugin of pytest: what coverage measures has the name of the test that executes it."""

from collections.abc import Generator

import pytest
from coverage import Coverage


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    """Have a context for ``item`` with its fixtures; none for what an import executes."""
    running = Coverage.current()
    assert running
    running.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        running.switch_context("")
