"""Two processes that want to lead, whose clocks are wrong, and of which the leader is frozen.

``PYLIQO_TEST_FREEZES`` says how often; 300 make ten thousand seconds at the durations that Leases
have by default, ten times those here. Source: docs/parity.md C-32; F-19.
"""

import asyncio
import functools
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from apis import keys
from apis.objects import Key, named
from kube import client
from sandbox.controlplane import Plane
from tests.conftest import size_of
from tests.kube import candidate
from tests.kube.running import dice, until

pytestmark = pytest.mark.cluster

FREEZES: Final = size_of("PYLIQO_TEST_FREEZES", 3, 300)
WITHIN_S: Final = 300
ROOT: Final = Path(__file__).parents[2]


class Term(NamedTuple):
    """Between which moments somebody might write, from one election to its loss."""

    first: float
    last: float
    who: str


class Candidate:
    """A process, and what it said."""

    def __init__(self, who: str, process: asyncio.subprocess.Process) -> None:
        self.who, self._process = who, process
        self.terms: dict[str, tuple[float, float]] = {}
        self.moments = 0
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self._process.stdout
        async for line in self._process.stdout:
            term, moment = line.decode().split()
            first, _ = self.terms.get(term, (float(moment), 0.0))
            self.terms[term] = (first, float(moment))
            self.moments += 1

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading


@pytest.fixture
async def candidates(plane: Plane) -> AsyncIterator[tuple[Candidate, Candidate]]:
    namespace = f"test-{secrets.token_hex(4)}"
    async with client.connect(plane.kubeconfig, user_agent="tests") as server:
        await server.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", namespace)))
    command = [sys.executable, "-m", candidate.__name__, str(plane.kubeconfig), namespace]
    both = [
        Candidate(
            who,
            await asyncio.create_subprocess_exec(
                *command, who, skew, cwd=ROOT, stdout=asyncio.subprocess.PIPE
            ),
        )
        for who, skew in (("one", "5"), ("two", "-5"))
    ]
    yield both[0], both[1]
    for each in both:
        await each.end()


async def leading(candidates: tuple[Candidate, Candidate]) -> tuple[Candidate, Candidate]:
    """Return who says just now that he may write, and the other."""
    before = {each: each.moments for each in candidates}
    await until(lambda: any(each.moments > before[each] for each in candidates), WITHIN_S)
    one, two = candidates
    return (one, two) if one.moments > before[one] else (two, one)


async def test_of_two_that_are_frozen_and_have_wrong_clocks_never_both_may_write(
    candidates: tuple[Candidate, Candidate],
) -> None:
    chance = dice(FREEZES)
    for _ in range(FREEZES):
        leader, other = await leading(candidates)
        await asyncio.sleep(chance.uniform(0, candidate.RENEW_S))  # at any moment of a renewal
        moments = other.moments
        leader.freeze()
        await until(functools.partial(has_more_moments, other, moments), WITHIN_S)
        await asyncio.sleep(chance.uniform(0, candidate.RENEW_S))  # it finds any state of the other
        leader.go_on()

    for each in candidates:
        await each.end()
    terms = sorted(Term(*span, each.who) for each in candidates for span in each.terms.values())
    assert {each.who for each in terms} == {"one", "two"}
    assert [pair for pair in pairwise(terms) if pair[0].last >= pair[1].first] == []


def has_more_moments(of: Candidate, than: int) -> bool:
    return of.moments > than
