"""The last segment of the labelling webhook's path is in no log of ours, whatever comes there.

Who knows it may have a namespace labelled. Source: docs/parity.md SEC-D4.
"""

import contextlib
import http.client
import json
import logging
from pathlib import Path
from typing import Final, NoReturn

import pytest

from apis import keys
from kube.errors import KubeError
from sandbox.controlplane import Plane
from tests.webhook import reviews
from tests.webhook.hooked import Hooked, start
from tests.webhook.served import DOOR
from tests.webhook.test_live_harmless import tls
from webhook import app
from webhook.admission import Request, WebhookHandler
from webhook.app import AppAccess

PATH: Final = f"{keys.LABELLING_PATH}/{DOOR}"
REVIEW: Final = json.dumps(
    reviews.review(
        reviews.offloading("nowhere"), kind=keys.NAMESPACE_OFFLOADING, namespace="nowhere"
    )
)
JSON: Final = {"Content-Type": "application/json"}
CASES: Final = {
    "a review": ("POST", PATH, REVIEW, JSON, 200),
    "more than the door": ("POST", f"{PATH}0", REVIEW, JSON, 404),
    "something behind the door": ("POST", f"{PATH}/x", REVIEW, JSON, 404),
    "another path": ("POST", f"/x/{DOOR}", REVIEW, JSON, 404),
    "as a query": ("POST", f"/healthz?{DOOR}", REVIEW, JSON, 405),
    "another method": ("GET", PATH, "", {}, 405),
    "no JSON": ("POST", PATH, "{", JSON, 400),
    "another type": ("POST", PATH, REVIEW, {"Content-Type": "text/plain"}, 415),
    "no length": ("POST", PATH, REVIEW, {**JSON, "Content-Length": "x"}, 400),
}


@pytest.mark.cluster
def test_no_line_of_the_process_has_it(plane: Plane, crds: None, tmp_path: Path) -> None:
    found = start(plane.kubeconfig, tmp_path)
    try:
        reviews.wait_until(found.is_ready)
        told = {name: asked(found, *case[:4]) for name, case in CASES.items()}
    finally:
        found.process.terminate()
        found.process.wait()

    assert told == {name: case[4] for name, case in CASES.items()}
    lines = found.log.read_text()
    assert "Serving" in lines
    assert DOOR not in lines


def asked(found: Hooked, method: str, path: str, body: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPSConnection("127.0.0.1", found.port, context=tls())
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        return connection.getresponse().status


@pytest.mark.parametrize("error", [ValueError("a bug"), KubeError("etcd is away")])
def test_no_line_has_it_where_the_judge_fails(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fails(_request: Request) -> NoReturn:
        raise error

    judge = WebhookHandler(keys.NAMESPACE_OFFLOADING, frozenset({"CREATE"}), fails)
    served = app.create_app(
        {keys.LABELLING_PATH: judge}, access=AppAccess(secret_path=lambda: DOOR)
    )
    with caplog.at_level(logging.DEBUG):
        found = served.test_client().post(PATH, data=REVIEW, headers=JSON)

    assert found.status_code in (500, 503)
    assert caplog.records
    assert DOOR not in caplog.text
