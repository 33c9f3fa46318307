"""What the command says of a failure."""

import asyncio

import pytest

from bench import __main__ as command
from kube.errors import ForbiddenError, NotReachableError


def test_the_first_failure_is_told_before_that_of_the_cleanup() -> None:
    failure = RuntimeError("the namespace stays")
    failure.__context__ = NotReachableError("no answer")

    assert command.told(failure) == "no answer; then: the namespace stays"


def test_why_the_cleanup_failed_does_not_hide_the_first_failure() -> None:
    timeout = TimeoutError()
    timeout.__cause__ = timeout.__context__ = asyncio.CancelledError()
    timeout.__context__.__context__ = ForbiddenError("the policy says no")
    failure = RuntimeError("the namespace stays")
    failure.__cause__ = failure.__context__ = timeout

    assert command.told(failure) == "the policy says no; then: the namespace stays"


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["check", "--nonsense"])
    assert "usage" in capsys.readouterr().err
