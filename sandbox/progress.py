"""Long steps told as they go: a spinner on a terminal, plain lines in a log."""

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

_QUIET_S = 10.0


class Step(Protocol):
    """A step under way."""

    def update(self, detail: str) -> None:
        """Say how far it is; call it as often as you like."""
        ...


class _PlainStep:
    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._spoke = clock()

    def update(self, detail: str) -> None:
        if self._clock() - self._spoke >= _QUIET_S:  # a log needs no line a second
            self._say(f"    {detail}")
            self._spoke = self._clock()


class _SpinningStep:
    def __init__(self, bars: Bars, task: TaskID, title: str) -> None:
        self._bars, self._task, self._title = bars, task, title

    def update(self, detail: str) -> None:
        text = f"{escape(self._title)} [dim]{escape(detail)}[/dim]"
        self._bars.update(self._task, description=text)


class Progress:
    """Tells steps on standard error, so that standard output stays the command's answer."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Announce ``title``, yield the step, and say how long it took."""
        telling = self._spin if self._console.is_terminal else self._tell
        began = self._clock()
        end = "stopped after"
        try:
            with telling(title) as step:
                yield step
            end = "done in"
        finally:
            self._finish(title, f"{end} {duration(self._clock() - began)}")

    @contextlib.contextmanager
    def _tell(self, title: str) -> Iterator[Step]:
        self._line(f"==> {title}")
        yield _PlainStep(self._line, self._clock)

    @contextlib.contextmanager
    def _spin(self, title: str) -> Iterator[Step]:
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        with Bars(*columns, console=self._console, transient=True) as bars:
            yield _SpinningStep(bars, bars.add_task(escape(title), total=None), title)

    def _finish(self, title: str, outcome: str) -> None:
        if self._console.is_terminal:
            self._console.print(
                f"[bold]==>[/bold] {escape(title)} [dim]{outcome}[/dim]", highlight=False
            )
        else:
            self._line(f"    {outcome}")

    def _line(self, text: str) -> None:
        sys.stdout.flush()  # what was printed before stands before, in a log of both
        print(text, file=self._console.file, flush=True)


def duration(seconds: float) -> str:
    """Return ``seconds`` as people say it: "12 s", "3 min 05 s"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def step(title: str) -> contextlib.AbstractContextManager[Step]:
    """Return the step ``title`` of this process, to be used with ``with``."""
    return _shared().step(title)


@functools.cache
def _shared() -> Progress:
    return Progress(Console(stderr=True))
