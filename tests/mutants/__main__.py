"""Run ``python3 -m tests.mutants [NAME...]``: is each test named by a patch failing with it?

All named tests run first without any patch. Ends with 1 if one of them does not pass then, if one
still passes with its rule taken out, or if a patch does not apply. What runs is a copy of the files
that git knows, as they are now.

``--drawn 300 --seed 1 [PACKAGE...]`` changes as many lines of the product instead, each against all
tests of its package but journeys, those without a cluster first, and lists those that survive.
With ``--covered FILE``, a file of coverage whose contexts are tests, only those tests of the
package that execute the line run, and lines that none executes are listed as such. It is made by
``pytest -n 3 --dist loadfile -p tests.mutants.covered -m "not journey"`` and ``coverage combine``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from coverage import CoverageData

from tests import mutants
from tests.mutants import Mutant, drawn
from tests.mutants.drawn import Drawn

_AT_ONCE: Final = 2
_FAST: Final = "not cluster and not journey"
_BOUND: Final = ("timeout", "-s", "INT", "-k", "9")
_BOUND_S: Final = 120
"""How long fast tests that execute a line may take, or the change has them hang."""
_PASSED, _FAILED, _NONE, _LATE = 0, 1, 5, 124
"""Exit codes of pytest, 5 where it finds no test; an error of import or collection has another.

``timeout`` ends with the last.
"""


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def _copy() -> Iterator[Path]:
    command = ("git", "ls-files", "-z")
    listed = subprocess.check_output(command, cwd=mutants.ROOT, text=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as made:
        top = Path(made, "whole")
        for name in filter(None, listed.split("\0")):
            if (source := mutants.ROOT / name).is_file():
                (top / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, top / name)
        yield top


def _pytest(top: Path, tests: Iterable[str], *before: str) -> subprocess.CompletedProcess[str]:
    """Run ``tests`` of the copy ``top``, which comes before what is installed."""
    return subprocess.run(
        (*before, sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests),
        cwd=top,
        env={**os.environ, "PYTHONPATH": str(top)},
        capture_output=True,
        text=True,
        check=False,
    )


def _verdict(mutant: Mutant, whole: Path) -> str:
    """Return ``killed``, or what is wrong; ``whole`` has bytecode of all that is not changed."""
    top = shutil.copytree(whole, whole.with_name(mutant.name))
    try:
        if said := mutant.apply(top):
            return f"DOES NOT APPLY: {said}"
        done = _pytest(top, [mutant.killed_by])
    finally:
        shutil.rmtree(top)
    if done.returncode == _PASSED:
        return f"SURVIVED: {mutant.killed_by}"
    is_failed = done.returncode == _FAILED and "\nFAILED " in done.stdout
    return "killed" if is_failed else f"DOES NOT RUN: {mutant.killed_by}\n{done.stdout[-2000:]}"


def _judge(change: Drawn, whole: Path, covered: CoverageData | None) -> str:
    """Return ``killed`` if a test of its package fails with ``change``, or what is so instead."""
    runs = _runs(change, covered)
    if not runs:
        return "NOT EXECUTED"
    top = Path(tempfile.mkdtemp(dir=whole.parent)) / "changed"
    shutil.copytree(whole, top)
    try:
        change.apply(top)
        ends = (
            _pytest(top, [*tests, "-m", marks], *_BOUND, str(bound_s)).returncode
            for tests, marks, bound_s in runs
        )
        end = next((one for one in ends if one not in (_PASSED, _NONE)), _PASSED)
    finally:
        shutil.rmtree(top.parent)
    return {_PASSED: "SURVIVED", _LATE: "HANGS"}.get(end, "killed")


def _runs(change: Drawn, covered: CoverageData | None) -> list[tuple[list[str], str, int]]:
    """Return tests of its package, their marks, and the seconds they may take, soonest first.

    If imports execute ``change``, these are all fast ones, but on API servers only those that
    execute it themselves.
    """
    package = f"tests/{change.package}"
    if covered is None:
        return [([package], _FAST, 10 * _BOUND_S), ([package], "cluster", 100 * _BOUND_S)]
    by_line = covered.contexts_by_lineno(str(mutants.ROOT / change.path))
    found = {test for line in change.lines for test in by_line.get(line, ())}
    own = sorted(one for one in found if one.startswith(f"{package}/"))
    every = [([package], _FAST, 10 * _BOUND_S)] if "" in found else []
    if not own:
        return every
    return [(own, _FAST, _BOUND_S), *every, (own, "cluster", 10 * _BOUND_S)]


def _draw(number: int, seed: int, packages: Sequence[str], covered: CoverageData | None) -> int:
    changes = drawn.draw(number, seed, tuple(packages))
    counts: Counter[str] = Counter()
    with _copy() as whole, ThreadPoolExecutor(_AT_ONCE) as pool:
        _pytest(whole, ["--collect-only"])  # writes bytecode
        judged = pool.map(lambda one: (_judge(one, whole, covered), one.name), changes)
        for verdict, name in judged:
            _say(f"{verdict}: {name}")
            counts[verdict] += 1
    _say(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return 1 if counts["SURVIVED"] else 0


def main(argv: Sequence[str]) -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.mutants")
    parser.add_argument("names", nargs="*", metavar="NAME", help="patches, or packages of --drawn")
    parser.add_argument("--drawn", type=int, metavar="N", help="change N lines of the product")
    parser.add_argument("--seed", type=int, default=1, help="of the lines drawn (default: 1)")
    parser.add_argument("--covered", type=Path, metavar="FILE", help="which test executes what")
    given = parser.parse_args(argv)
    if given.drawn:
        if covered := given.covered and CoverageData(given.covered):
            covered.read()
        return _draw(given.drawn, given.seed, given.names, covered)
    return _patched(given.names)


def _patched(names: Sequence[str]) -> int:
    """Run the tests of the mutants that are named, or of all; return the exit code."""
    found = {one.name: one for one in mutants.every()}
    if unknown := [name for name in names if name not in found]:
        _say(f"tests/mutants has no {', '.join(unknown)}")
        return 1
    chosen = [found[name] for name in names] or list(found.values())
    with _copy() as whole:
        done = _pytest(whole, sorted({one.killed_by for one in chosen}))
        if done.returncode != _PASSED:
            _say(f"{done.stdout}\nwithout any patch the tests have to pass")
            return 1
        wrong = 0
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            verdicts = pool.map(lambda one: _verdict(one, whole), chosen)
            for mutant, verdict in zip(chosen, verdicts, strict=True):
                _say(f"{mutant.name}: {verdict}")
                wrong += verdict != "killed"
    _say(f"{len(chosen) - wrong} of {len(chosen)} rules are noticed by their test when taken out")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
