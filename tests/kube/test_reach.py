"""Whether a server answers is asked until it does, whatever a probe meets."""

import asyncio

from kube.reachability import Reachability


async def test_a_probe_that_raises_is_followed_by_the_next() -> None:
    causes: list[Exception] = [AssertionError("a defect of a library")]
    returned = asyncio.Event()

    async def probe() -> bool:
        if causes:
            raise causes.pop()
        return True

    reach = Reachability(probe, lambda: None)
    reach.subscribe(returned.set)
    reach.doubt()

    assert await asyncio.wait_for(returned.wait(), 60) is True
    assert not reach.is_lost
    await reach.close()
