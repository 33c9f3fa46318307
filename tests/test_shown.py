"""A named test that did not run and pass makes `make test` fail."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import factories, parity, shown

NAMED = "tests/kube/test_a.py::test_it"
OUTSIDE = "tests/peering/test_liqo.py::test_it"


@pytest.mark.parametrize(
    ("cases", "verdict"),
    [
        ({f"{NAMED}[1]": "passed", f"{NAMED}[2]": "passed"}, "passed"),
        ({f"{NAMED}[1]": "passed", f"{NAMED}[2]": "failed"}, "failed"),
        ({f"{NAMED}[1]": "passed", f"{NAMED}[2]": "skipped: no root"}, "skipped: no root"),
        ({}, "did not run"),
    ],
)
def test_every_case_of_a_test_counts(cases: dict[str, str], verdict: str) -> None:
    assert shown.verdict(NAMED, cases) == verdict


@factories.cases("cases, is_wrong")
def test_what_did_not_run_and_pass_is_an_error(cases: dict[str, str], *, is_wrong: bool) -> None:
    _, wrong = shown.report([NAMED], cases)

    assert bool(wrong) is is_wrong


@pytest.mark.parametrize(
    ("end", "is_wrong"), [("skipped: no Liqo", False), ("failed", True), (None, True)]
)
def test_what_needs_programs_from_outside_may_be_skipped_and_no_more(
    end: str | None, *, is_wrong: bool
) -> None:
    lines, wrong = shown.report([OUTSIDE], {OUTSIDE: end} if end else {})

    assert bool(wrong) is is_wrong
    assert len(lines) == 1


def test_the_rows_of_what_is_wrong_are_named() -> None:
    text = f"| S0-1 | a | 1 | in memory | `{NAMED}` | - |\n| S0-2 | b | 1 | - | open | - |"
    _, wrong = shown.report([NAMED], {})

    assert list(shown.rows_that_lack(parity.rows(text), wrong)) == ["S0-1"]


def test_a_run_writes_how_cases_of_named_tests_ended_and_its_judge_misses_the_others(
    tmp_path: Path,
) -> None:
    """One named test of the hundreds: it passed, and all others did not run."""
    named = "tests/kube/test_informer.py::test_versions_are_opaque"
    assert named in parity.named_tests()
    written = tmp_path / "shown" / "some.json"

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *args],
            cwd=parity.ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    run("pytest", "-q", "-p", "no:cacheprovider", "-n1", f"--shown={written}", named)
    assert set(json.loads(written.read_text()).values()) == {"passed"}

    judged = run("tests.shown", str(written), str(tmp_path / "of-a-run-that-never-was.json"))
    assert judged.returncode == 1
    assert "1 of " in judged.stdout
    lines = (written.parent / "report.txt").read_text().splitlines()
    assert f"passed (1): {named}" in lines
    assert sum(line.startswith("did not run: ") for line in lines) == len(lines) - 1
