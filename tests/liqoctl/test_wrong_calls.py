"""Sixty wrong calls, and what each is answered: status 2, what is wrong, and what to do."""

import shlex

import pytest
from click.testing import CliRunner

from liqoctl import reflections
from liqoctl.forge.reflections import Line
from liqoctl.options import cli
from tests import factories

NOWHERE = {"KUBECONFIG": "/nonexistent/kubeconfig", "HOME": "/nonexistent"}
CALLS = factories.table("wrong_calls")


def test_there_are_sixty() -> None:
    assert len({line for line, _ in CALLS}) >= 60


@pytest.mark.parametrize(("line", "expected"), CALLS, ids=[line for line, _ in CALLS])
def test_a_wrong_call_is_told_what_is_wrong(line: str, expected: str) -> None:
    done = CliRunner().invoke(cli, shlex.split(line), env=NOWHERE)

    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert expected in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_reflections_as_data_have_a_field_a_column() -> None:
    line = Line("milan", "foo-rome", "ConfigMap", "web", "reflected", "")

    assert reflections.told([line]) == {
        "items": [
            {
                "cluster": "milan", "remote-namespace": "foo-rome", "kind": "ConfigMap",
                "name": "web", "state": "reflected", "reason": "",
            }
        ]
    }  # fmt: skip
