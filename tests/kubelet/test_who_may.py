"""Who may use which route of the kubelet API: one golden table.

Source: docs/parity.md SEC-D1 to SEC-D3.
"""

from typing import Final
from urllib.parse import quote

import pytest

from apis import keys
from apis.objects import Object
from kube import errors
from tests.kubelet.callers import (
    GRANTED,
    ROUTES,
    TABLE,
    TOKENS,
    Credential,
    ask,
    leads_nowhere_else,
    only_the_very_pod_is_reached,
    opens_its_routes_and_no_other,
    tls_context,
)
from tests.kubelet.rigs import Rig


def granted(review: Object) -> Object:
    asked = review["spec"].get("resourceAttributes") or {}
    assert (asked.get("resource"), asked.get("name")) == ("nodes", "milan")
    right = (asked["verb"], asked["subresource"])
    return {"allowed": right in GRANTED.get(review["spec"]["user"], set())}


def token_review(review: Object) -> Object:
    user = TOKENS.get(review["spec"]["token"], "")
    return {"authenticated": bool(user), "user": {"username": user}}


@pytest.fixture
def judged(rig: Rig) -> Rig:
    rig.answer = (200, '{"metadata":{},"items":[]}')
    rig.local.answers[keys.SUBJECT_ACCESS_REVIEW] = granted
    rig.local.answers[keys.TOKEN_REVIEW] = token_review
    return rig


@pytest.mark.parametrize("name", TABLE)
async def test_each_credential_opens_its_routes_and_no_other(judged: Rig, name: str) -> None:
    await opens_its_routes_and_no_other(judged, *TABLE[name])


def test_the_table_has_no_fewer_requests_than_promised() -> None:
    assert len(TABLE) * len(ROUTES) >= 170


METHODS: Final = ("HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nothing", {401}),
        ("token without a right", {403}),
        ("token for metrics", {403, 501}),
        ("API server", {400, 404, 405, 501}),
    ],
)
async def test_no_other_method_opens_a_route(judged: Rig, name: str, expected: set[int]) -> None:
    """501 of metrics: let in, as the right is one for all that is below that path."""
    by, _ = TABLE[name]
    tls, paths = tls_context(judged, by), sorted({route.split()[1] for route in ROUTES})
    others = [f"{method} {path}" for method in METHODS for path in paths]
    got = {
        other: await ask(judged, tls, f"{other} HTTP/1.1\r\nHost: me\r\n{by.headers}\r\n\r\n")
        for other in others
        if other not in ROUTES
    }
    assert len(got) >= 80
    assert {other: status for other, status in got.items() if status not in expected} == {}
    assert set(got.values()) == expected
    assert judged.seen == []


async def test_nobody_is_let_in_while_nobody_can_say(rig: Rig) -> None:
    def away(_: Object) -> Object:
        raise errors.NotReachableError("away")

    rig.local.answers[keys.SUBJECT_ACCESS_REVIEW] = away
    assert (await rig.get("/pods"))[0] == 403
    rig.local.answers[keys.TOKEN_REVIEW] = away
    assert (await rig.get("/pods", None, token="good"))[0] == 401  # noqa: S106  # of the test


# Paths (D2) --------------------------------------------------------------------------------------


async def test_no_path_leads_elsewhere(judged: Rig) -> None:
    await leads_nowhere_else(judged)


async def test_what_is_asked_for_is_quoted(judged: Rig) -> None:
    tls = tls_context(judged, Credential("kube-apiserver-kubelet-client"))
    words = ["a&stdin=true", "b#c", "d e", "/../..", "é", "f+g", "%41"]
    query = "&".join(f"command={quote(word, safe='')}" for word in words)
    head = f"POST /exec/shop/web/main?{query}&container=other&stdin=true&namespace=x HTTP/1.1\r\n"
    await ask(judged, tls, f"{head}Host: me\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
    [seen] = judged.queries
    assert seen == [("container", "main"), *(("command", word) for word in words)]


# Pods (D3) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/containerLogs/shop/{}/main", "/exec/shop/{}/main", "/portForward/shop/{}"]
)
async def test_only_the_very_pod_that_is_bound_here_is_reached(rig: Rig, path: str) -> None:
    await only_the_very_pod_is_reached(rig, path)
