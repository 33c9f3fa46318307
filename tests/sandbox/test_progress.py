"""Progress on a terminal and in a log."""

import io
import itertools

import pytest
from rich.console import Console

from sandbox import progress


def told(
    *, terminal: bool, clock: list[float] | None = None
) -> tuple[progress.Progress, io.StringIO]:
    out = io.StringIO()
    ticks = iter(clock or itertools.count())
    console = Console(file=out, force_terminal=terminal, width=100)
    return progress.Progress(console, lambda: float(next(ticks))), out


def test_a_log_gets_plain_lines() -> None:
    steps, out = told(terminal=False, clock=[0, 0, 12])
    with steps.step("building the base image"):
        pass
    assert out.getvalue() == "==> building the base image\n    done in 12 s\n"


def test_a_log_gets_details_only_now_and_then() -> None:
    steps, out = told(terminal=False, clock=[0, 0, 1, 11, 11, 12, 20])
    with steps.step("copying") as step:
        step.update("1 of 3")
        step.update("2 of 3")
        step.update("3 of 3")
    assert out.getvalue().splitlines() == ["==> copying", "    2 of 3", "    done in 20 s"]


def test_a_step_that_fails_says_so_and_lets_the_error_pass() -> None:
    steps, out = told(terminal=False, clock=[0, 0, 3])
    with pytest.raises(OSError, match="full"), steps.step("copying"):
        raise OSError("full")
    assert out.getvalue().endswith("    stopped after 3 s\n")


def test_a_terminal_keeps_one_line_a_step() -> None:
    steps, out = told(terminal=True)
    with steps.step("copying [all]") as step:
        step.update("1 of 3")
    assert out.getvalue().splitlines()[-1].count("copying [all]") == 1


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "0 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s")]
)
def test_durations_read_as_people_say_them(seconds: float, said: str) -> None:
    assert progress.duration(seconds) == said
