"""What a run says of the tests that docs/parity.md names: a plugin of pytest, and its judge.

``pytest --shown=FILE`` writes how each case of a named test ended. `make test` has one such run
beside another; then ``python -m tests.shown FILE...`` says of each named test whether it ran and
passed, and ends with 1 if one did not. A run by hand, without the option, writes nothing.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests import parity

Cases = Mapping[str, str]
"""Cases of tests by node id: ``passed``, ``failed`` or ``skipped: reason``."""

PLACES: Final = pytest.StashKey[dict[str, str]]()
"""Where each collected test runs."""
FROM_OUTSIDE: Final = {
    "tests/peering/test_liqo.py": "programs of Liqo, named by PYLIQO_TEST_LIQO_BIN"
}
"""Files whose tests need what no checkout has; skipped without it, which is no error."""


class Recorder:
    """Keeps how the cases of named tests end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._named = parity.named_tests()
        self._cases: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the worst of what setup, call and teardown say."""
        if parity.function_of(report.nodeid) not in self._named:
            return
        if report.failed:
            self._cases[report.nodeid] = "failed"
        elif report.skipped:
            self._cases[report.nodeid] = f"skipped: {_reason(report)}"
        elif report.when == "call":
            self._cases[report.nodeid] = "passed"

    def pytest_sessionfinish(self) -> None:
        """Write them."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._cases, indent=1), encoding="utf-8")


def _reason(report: pytest.TestReport) -> str:
    said: Any = report.longrepr
    text = said[-1] if isinstance(said, tuple) else str(said)
    return str(text).removeprefix("Skipped: ")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Know the option."""
    group = parser.getgroup("parity")
    group.addoption("--shown", type=Path, help="write how the tests of docs/parity.md ended")


def pytest_configure(config: pytest.Config) -> None:
    """Record, in the process to which all others report."""
    path: Path | None = config.getoption("--shown")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(path), "shown")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep where all run, before any is deselected."""
    config.stash[PLACES] = parity.places_of(items)


def is_from_outside(test: str) -> bool:
    """Say whether ``test`` needs what is given from outside."""
    return test.partition("::")[0] in FROM_OUTSIDE


def verdict(test: str, cases: Cases) -> str:
    """Return ``passed``, or why ``test`` does not count as shown, given its own cases."""
    ends = set(cases.values())
    if "failed" in ends:
        return "failed"
    skipped = sorted(end for end in ends if end.startswith("skipped"))
    if skipped:
        return skipped[0]
    return "passed" if ends else "did not run"


def report(named: Iterable[str], cases: Cases) -> tuple[list[str], list[str]]:
    """Return a line for each named test, and the lines of those that are an error."""
    by_test: dict[str, dict[str, str]] = {test: {} for test in named}
    for nodeid, end in cases.items():
        by_test.get(parity.function_of(nodeid), {})[nodeid] = end
    lines, wrong = [], []
    for test, own in sorted(by_test.items()):
        said = verdict(test, own)
        excused = said.startswith("skipped") and is_from_outside(test)
        lines.append(f"{said if said != 'passed' else f'passed ({len(own)})'}: {test}")
        if said != "passed" and not excused:
            wrong.append(lines[-1])
    return lines, wrong


def rows_that_lack(rows: Iterable[parity.Promise], wrong: Sequence[str]) -> Iterator[str]:
    """Yield the names of the rows whose tests are among those of ``wrong``."""
    for row in rows:
        if any(line.endswith(f": {test}") for test in row.tests for line in wrong):
            yield row.name


def main(paths: Sequence[str]) -> int:
    """Judge what runs wrote to ``paths``; return the exit code."""
    cases: dict[str, str] = {}
    for path in map(Path, paths):
        if path.exists():
            cases |= json.loads(path.read_text(encoding="utf-8"))
    named = parity.named_tests()
    lines, wrong = report(named, cases)
    excused = [line for line in lines if line.startswith("skipped") and line not in wrong]
    Path(paths[0]).with_name("report.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    passed = len(named) - len(wrong) - len(excused)
    said = [f"docs/parity.md: {passed} of {len(named)} named tests ran and passed"]
    said += [f"  {line}" for line in excused]
    said += [f"  {line}" for line in wrong]
    if wrong:
        said.append("  rows: " + ", ".join(rows_that_lack(parity.rows(), wrong)))
    sys.stdout.write("\n".join(said) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
