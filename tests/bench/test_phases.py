"""Where the time of a reflected write goes, by the times of the provider's audit log."""

import pytest

from bench import phases, report
from bench.phases import Way, Written
from bench.result import Block
from bench.suites import reflection
from sandbox.audit import Call
from tests.bench.test_counters import call

BEGAN = 1767225600.0
"""2026-01-01T00:00:00Z."""


def logged(
    verb: str, received: float, completed: float, code: int = 200, name: str = "one"
) -> Call:
    times = {"received": at(received), "completed": at(completed)}
    return call(verb=verb, resource="configmaps", name=name, code=code, **times)


def at(seconds: float) -> str:
    return f"2026-01-01T00:00:{seconds:09.6f}Z"


def written(verb: str, done: float, seen: float, name: str = "one") -> Written:
    return Written(verb, "configmaps", name, BEGAN + done, BEGAN + seen)


def told(way: Way | None) -> list[float]:
    return [round(part * 1000, 3) for part in way or ()]


def test_the_parts_add_up_to_the_whole() -> None:
    log = [logged("patch", 1.003, 1.011, 201)]

    way = phases.way(written("create", 1.0, 1.012), log)

    assert told(way) == [3.0, 8.0, 1.0]
    assert way
    assert way.whole == pytest.approx(0.012, abs=1e-5)


def test_of_several_writes_it_is_the_last_before_it_was_seen() -> None:
    log = [
        logged("patch", 1.0, 1.1),
        logged("patch", 2.0, 2.1),
        logged("patch", 2.05, 2.06, 409),
        logged("patch", 2.06, 2.07, name="another"),
        logged("delete", 2.08, 2.09),
        logged("patch", 3.0, 3.1),
    ]

    assert told(phases.way(written("update", 1.9, 2.2), log)) == [100.0, 100.0, 100.0]


def test_who_is_seen_before_the_answer_was_not_told_later() -> None:
    log = [logged("delete", 1.0, 1.2)]

    assert told(phases.way(written("delete", 1.0, 1.1), log)) == [0.0, 100.0, 0.0]


def test_what_the_log_lacks_has_no_way() -> None:
    assert phases.ways([written("create", 1.0, 2.0)], []) == {}


def test_the_slowest_is_told_with_its_parts() -> None:
    writes = [written("update", 1.0, 1.01, "quick"), written("update", 2.0, 2.045)]
    log = [logged("patch", 1.001, 1.009, name="quick"), logged("patch", 2.004, 2.043)]
    found = phases.ways(writes, log)
    assert phases.times(found)["update-there"] == pytest.approx([0.008, 0.039], abs=1e-5)

    figures = phases.slowest(found) | {"slow_syncs_milan": 2.0}
    block = Block(reflection.SUITE, "ours", 3, 90, figures=figures)

    (line,) = report.slowest([block, Block(reflection.SUITE, "bare", 3, 90, figures=figures)])
    assert line.startswith("Slowest update of ours, in repetition 4: 45.0 ms, 4.0 of them until")
    assert "39.0 in its API server, 2.0 until it was seen; 2 syncs" in line
