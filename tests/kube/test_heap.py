"""What nobody needs any more goes back to the system, at rest after a burst too."""

import gc
import weakref

import pytest

from kube import heap
from tests.kube.running import running, until


class _Own:
    def __init__(self) -> None:
        self.me = self


async def test_what_refers_to_itself_is_collected_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "GIVE_BACK_S", 0.01)
    gc.disable()
    try:
        made = [_Own() for _ in range(2 * heap.MUCH)]
        last = weakref.ref(made[-1])
        del made
        async with running(heap.give_back_for_ever(collects=True)):
            await until(lambda: last() is None)
    finally:
        gc.enable()
