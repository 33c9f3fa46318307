"""What the command says of a failure."""

import pytest

from bench import __main__ as command
from kube.errors import NotReachableError


def test_the_first_failure_is_told_before_that_of_the_cleanup() -> None:
    failure = RuntimeError("the namespace stays")
    failure.__context__ = NotReachableError("no answer")

    assert command.told(failure) == "no answer; then: the namespace stays"


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["check", "--nonsense"])
    assert "usage" in capsys.readouterr().err
