"""Who may use what a process of ours serves (docs/parity.md SEC-D1, SEC-I7)."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from apis import keys
from apis.objects import Kind, Object
from kube import authz, errors
from kube.authz import Authorizer, NotAuthorizedError, Right, UnauthenticatedError, User
from tests.fakes import FakeCluster
from tests.kube.running import Time

LOGS = (Right("get", "proxy"),)
ADMIN = User("admin", ("system:masters", "system:authenticated"))


def allows(*names: str) -> Callable[[Object], Object]:
    return lambda review: {"allowed": review["spec"]["user"] in names}


def knows(token: str) -> Callable[[Object], Object]:
    def answer(review: Object) -> Object:
        if review["spec"]["token"] != token:
            return {"authenticated": False}
        return {"authenticated": True, "user": {"username": "robot", "groups": ["robots"]}}

    return answer


def access_reviews(cluster: FakeCluster) -> int:
    return cluster.requests["create", "subjectaccessreviews"]


def test_a_certificate_names_user_and_groups() -> None:
    certificate = {
        "subject": (
            (("organizationName", "a"),), (("organizationName", "b"),), (("commonName", "me"),),
        )
    }  # fmt: skip
    assert authz.subject(certificate) == User("me", ("a", "b", "system:authenticated"))


@pytest.mark.parametrize(
    "subject", [(), ((("commonName", ""),),), ((("commonName", "a"),), (("commonName", "b"),))]
)
def test_a_certificate_without_one_name_names_nobody(subject: object) -> None:
    with pytest.raises(UnauthenticatedError):
        authz.subject({"subject": subject})


@pytest.mark.parametrize("header", ["", "Basic eDp5", "Bearer", "Bearer ", "Bearer wrong"])
async def test_nobody_we_know(header: str) -> None:
    cluster = FakeCluster()
    cluster.answers[keys.TOKEN_REVIEW] = knows("right")
    with pytest.raises(UnauthenticatedError):
        await Authorizer(cluster, "milan").user(None, header)


async def test_a_token_is_reviewed_and_remembered() -> None:
    cluster = FakeCluster()
    cluster.answers[keys.TOKEN_REVIEW] = knows("right")
    clock = Time()
    gate = Authorizer(cluster, "milan", clock=clock)

    for seconds in (0, 100, 30):
        clock.now += seconds
        assert await gate.user(None, "Bearer right") == User("robot", ("robots",))

    assert cluster.requests["create", "tokenreviews"] == 2


async def test_a_verdict_is_remembered_two_minutes_or_half_a_one() -> None:
    cluster = FakeCluster()
    cluster.answers[keys.SUBJECT_ACCESS_REVIEW] = allows("admin")
    clock = Time()
    gate = Authorizer(cluster, "milan", clock=clock)

    await gate.check(ADMIN, LOGS)
    clock.now += 119
    await gate.check(ADMIN, LOGS)
    assert access_reviews(cluster) == 1
    clock.now += 2
    await gate.check(ADMIN, LOGS)
    assert access_reviews(cluster) == 2

    for seconds, expected in ((0, 3), (29, 3), (2, 4)):
        clock.now += seconds
        with pytest.raises(NotAuthorizedError, match="get nodes/proxy"):
            await gate.check(User("mallory"), LOGS)
        assert access_reviews(cluster) == expected


async def test_many_who_want_to_know_the_same_at_once_ask_once() -> None:
    """As when a remembered answer ends under two hundred streams."""
    cluster = FakeCluster()
    cluster.answers[keys.SUBJECT_ACCESS_REVIEW] = allows("admin")
    cluster.answers[keys.TOKEN_REVIEW] = knows("right")
    clock = Time()
    gate = Authorizer(cluster, "milan", clock=clock)

    for time in (1, 2):
        await asyncio.gather(*(gate.check(ADMIN, LOGS) for _ in range(200)))
        users = await asyncio.gather(*(gate.user(None, "Bearer right") for _ in range(200)))
        assert set(users) == {User("robot", ("robots",))}
        assert (access_reviews(cluster), cluster.requests["create", "tokenreviews"]) == (time, time)
        clock.now += 121

    others = (gate.check(ADMIN, (Right("get", "stats"),)), gate.check(User("admin"), LOGS))
    await asyncio.gather(*others)
    assert access_reviews(cluster) == 4, "another right and another user are other questions"


async def test_who_gives_up_takes_the_answer_from_nobody() -> None:
    cluster = FakeCluster()
    cluster.answers[keys.SUBJECT_ACCESS_REVIEW] = allows("admin")
    gate = Authorizer(cluster, "milan")

    first, second = (asyncio.create_task(gate.check(ADMIN, LOGS)) for _ in range(2))
    while not access_reviews(cluster):  # noqa: ASYNC110  # the first one is asking
        await asyncio.sleep(0)
    first.cancel()
    await second
    with contextlib.suppress(asyncio.CancelledError):
        await first
    assert access_reviews(cluster) == 1


async def test_a_question_that_could_not_be_asked_is_asked_again() -> None:
    cluster = FakeCluster()
    cluster.answers[keys.SUBJECT_ACCESS_REVIEW] = allows("admin")
    cluster.fail("create", errors.NotReachableError("away"))
    gate = Authorizer(cluster, "milan")

    both = (gate.check(ADMIN, LOGS) for _ in range(2))
    said = await asyncio.gather(*both, return_exceptions=True)
    assert any(isinstance(one, NotAuthorizedError) for one in said)
    await gate.check(ADMIN, LOGS)


async def test_one_of_several_rights_suffices() -> None:
    cluster = FakeCluster()
    cluster.answers[keys.SUBJECT_ACCESS_REVIEW] = lambda review: {
        "allowed": review["spec"]["resourceAttributes"]["subresource"] == "proxy"
    }
    await Authorizer(cluster, "milan").check(ADMIN, (Right("get", "pods"), Right("get", "proxy")))


async def test_a_path_is_no_resource() -> None:
    cluster = FakeCluster()
    cluster.answers[keys.SUBJECT_ACCESS_REVIEW] = lambda review: {
        "allowed": review["spec"].get("nonResourceAttributes")
        == {"verb": "get", "path": "/metrics"}
    }
    gate = Authorizer(cluster)

    await gate.check(ADMIN, (Right("get", path="/metrics"),))
    with pytest.raises(NotAuthorizedError, match="needs create /metrics"):
        await gate.check(ADMIN, (Right("create", path="/metrics"),))


async def test_it_fails_closed_when_nobody_can_be_asked() -> None:
    cluster = FakeCluster()
    cluster.fail("create", errors.NotReachableError("away"), times=9)
    gate = Authorizer(cluster, "milan")
    with pytest.raises(NotAuthorizedError):
        await gate.check(ADMIN, LOGS)
    with pytest.raises(UnauthenticatedError):
        await gate.user(None, "Bearer right")


class Busy(FakeCluster):
    """Knows how many requests were there at once."""

    def __init__(self) -> None:
        super().__init__()
        self.there = self.most = 0

    async def create(self, kind: Kind, obj: Object) -> Object:
        self.there += 1
        self.most = max(self.most, self.there)
        for _ in range(50):
            await asyncio.sleep(0)
        try:
            return await super().create(kind, obj)
        finally:
            self.there -= 1


async def test_a_flood_of_tokens_takes_a_few_requests_at_once_and_all_are_judged() -> None:
    cluster = Busy()
    cluster.answers[keys.TOKEN_REVIEW] = knows("t7")
    gate = Authorizer(cluster)

    found = await asyncio.gather(
        *(gate.user(None, f"Bearer t{number}") for number in range(40)), return_exceptions=True
    )

    assert [number for number, one in enumerate(found) if isinstance(one, User)] == [7]
    assert cluster.most == authz.REVIEWS_AT_ONCE
