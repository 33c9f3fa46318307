"""``python -m tests.census FILE MODULE ARGS...`` runs a daemon; SIGRTMIN has it count its objects.

They are counted by type, into FILE, and nothing is collected for it: what only a collection would
free is what the process keeps. Memories that have a bound are given a small one, so that they are
full before anything is compared.
"""

import asyncio
import contextlib
import gc
import json
import os
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import kube.events
import kube.ratelimit
import kubelet.pods.state
from kube import memory

SOON_S: Final = 10.0
"""What has not gone by then is looked at again with more lives."""
WITHIN_S: Final = 120.0
FEW: Final = 4
PASSING: Final = frozenset(
    {
        "asyncio.events.TimerHandle",
        "_contextvars.Context",
        "weakref.ReferenceType",
        "builtins.builtin_function_or_method",
        "builtins.tuple",
    }
)
"""What libraries keep up to a bound, now more and now less: a hundred timers that were cancelled,
what abstract classes know of types, the keys of caches."""


def main() -> None:
    """Run the module named second."""
    file = Path(sys.argv[1])
    sys.argv[:] = sys.argv[2:]
    for module, bound in (
        (kube.events, "MAX_REMEMBERED"),
        (kubelet.pods.state, "MOST_DELETED"),
        (kubelet.pods.state, "MOST_ENDS"),
        (kube.ratelimit, "MAX_REMEMBERED"),
    ):
        setattr(module, bound, FEW)
    memory.GIVE_BACK_S = 1.0  # type: ignore[misc]  # lest a test waits for long

    def counted() -> Counter[str]:
        return Counter(_named(type(each)) for each in gc.get_objects())

    def count(_number: int, _frame: FrameType | None) -> None:
        gc.unfreeze()  # what the collector skips counts, too
        found = counted()
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps({"is_tidy": not memory.owes(), "objects": found}))
        fresh.replace(file)

    counted()  # which leaves something, too, once
    signal.signal(signal.SIGRTMIN, count)  # which gunicorn leaves to its workers as it is
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _named(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class Census:
    """Counts the objects of a process that runs under ``tests.census``."""

    def __init__(self, folder: Path, module: str) -> None:
        self.module = module
        self.pid = 0
        self._file = folder / f"{module}.census"

    def command(self, *args: str) -> list[str]:
        """Return the command that runs the module."""
        return [sys.executable, "-m", "tests.census", str(self._file), self.module, *args]

    async def taken(self) -> Counter[str]:
        """Return how many objects of which type there are, once it has tidied up."""
        async with asyncio.timeout(WITHIN_S):
            while (found := await self._told()) is None:  # noqa: ASYNC110  # another process's
                await asyncio.sleep(0.5)
        return found

    async def grown(
        self, before: Counter[str], by: int, within_s: float, of: Collection[str] | None = None
    ) -> dict[str, int]:
        """Return of which types, of those of ``of``, there are by so many more than ``before``.

        What goes away within ``within_s`` does not count.
        """
        found: dict[str, int] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while found := _more(await self.taken(), before, by, of):  # noqa: ASYNC110
                    await asyncio.sleep(1)
        return found

    async def _told(self) -> Counter[str] | None:
        self._file.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGRTMIN)
        while not self._file.exists():  # noqa: ASYNC110  # written by a process
            await asyncio.sleep(0.05)
        told = json.loads(self._file.read_text())
        return Counter(told["objects"]) if told["is_tidy"] else None


async def what_stays(
    processes: Sequence[Census],
    live: Callable[[range], Awaitable[object]],
    *,
    first: int,
    lives: int,
) -> dict[str, dict[str, int]]:
    """Return for each module of which types as many stay as there were lives.

    What is made once, by an import or by an error's first text, stays once. So what has grown has
    to grow again with as many more lives.
    """
    await live(range(first))
    found: list[dict[str, int]] = []
    of: Sequence[Collection[str] | None] = [None] * len(processes)
    for begin, within_s in ((first, SOON_S), (first + lives, WITHIN_S)):
        before = [await one.taken() for one in processes]
        await live(range(begin, begin + lives))
        triples = zip(processes, before, of, strict=True)
        found = [await one.grown(was, lives, within_s, names) for one, was, names in triples]
        if not any(of := found):
            break
    return {one.module: more for one, more in zip(processes, found, strict=True)}


def _more(
    after: Counter[str], before: Counter[str], by: int, of: Collection[str] | None
) -> dict[str, int]:
    names = set(after if of is None else of) - PASSING
    found = {name: after[name] - before[name] for name in names}
    return {name: more for name, more in found.items() if more >= by}


if __name__ == "__main__":
    main()
