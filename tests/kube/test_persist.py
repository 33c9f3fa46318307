"""A refusal of a server is told and tried again; what is a bug is not."""

import logging

import pytest

from kube import errors
from kube.controller import TerminalError
from kube.process import FIRST_S, MOST_S, persist
from tests.kube.running import Time

REFUSED = errors.refusal(503, {"message": "etcd is away"})
UNSET = TerminalError("NoClusterID", "configmap liqo/liqo has no ID: set it")


class Work:
    """Fails as it is told to, each time after some seconds, and returns then."""

    def __init__(self, time: Time, *failures: tuple[float, Exception]) -> None:
        self.time, self.failures = time, list(failures)
        self.begun = 0

    async def __call__(self) -> None:
        self.begun += 1
        if self.failures:
            lasted_s, error = self.failures.pop(0)
            self.time.now += lasted_s
            raise error


async def test_it_begins_anew_until_it_is_let_and_tells_each_time_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    time = Time()
    both = ExceptionGroup("tasks", [REFUSED, ExceptionGroup("more", [UNSET])])
    work = Work(time, (0, REFUSED), (0, UNSET), (0, both), (MOST_S + 1, REFUSED))

    with caplog.at_level(logging.ERROR):
        await persist(work, "test", sleep=time.sleep, clock=time)

    assert work.begun == 5
    assert time.slept == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, FIRST_S]
    told = [str(vars(record)["error"]) for record in caplog.records]
    assert told == [str(REFUSED), str(UNSET), f"{REFUSED}; {UNSET}", str(REFUSED)]
    assert [record.exc_info for record in caplog.records] == [None] * 4


async def test_the_pause_has_a_bound() -> None:
    time = Time()
    work = Work(time, *([(0.0, REFUSED)] * 8))

    await persist(work, "test", sleep=time.sleep, clock=time)

    assert time.slept[-2:] == [MOST_S, MOST_S]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        ExceptionGroup("tasks", [REFUSED, ValueError("a bug")]),
        errors.UnauthorizedError("kubeconfig not-there: no such file"),
    ],
)
async def test_what_is_a_bug_or_lacks_an_identity_is_not_tried_again(error: Exception) -> None:
    time = Time()
    work = Work(time, (0, error))

    with pytest.raises((ValueError, ExceptionGroup, errors.UnauthorizedError)):
        await persist(work, "test", sleep=time.sleep, clock=time)
    assert work.begun == 1
