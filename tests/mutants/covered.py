"""A plugin of pytest: measures coverage, by the name of the test that executes a line.

Each worker of xdist writes a file of its own: ``coverage combine`` makes one of them.
"""

from collections.abc import Generator

import pytest
from coverage import Coverage

running = Coverage(data_suffix=True)
running.start()  # before anything of the product is imported


def pytest_unconfigure() -> None:
    """Write what was measured."""
    running.stop()
    running.save()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    """Have a context for ``item`` with its fixtures; none for what an import executes."""
    running.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        running.switch_context("")
