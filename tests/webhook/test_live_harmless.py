"""What is asked of the webhook changes nothing, and who is slow keeps nobody waiting.

Source: docs/parity.md A-32; SEC-D4, SEC-D9.
"""

import contextlib
import http.client
import json
import secrets
import socket
import ssl
from collections.abc import Iterator
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from sandbox import audit
from tests.factories import pod, pod_spec
from tests.webhook import reviews
from tests.webhook.installed import CONSUMER, Installed
from tests.webhook.served import CA

pytestmark = pytest.mark.cluster

TIMES: Final = 1000
CLOSED: Final = (
    keys.LABELLING_PATH,
    f"{keys.LABELLING_PATH}/",
    f"{keys.LABELLING_PATH}/{'0' * 32}",
)
"""Where a namespace is labelled, as far as anybody but API servers knows."""
SLOW: Final = 200
AGENT: Final = "pyliqo-webhook"


def webhook_writes(live: Installed, log: audit.Log) -> list[audit.Call]:
    """Return what the webhook itself has written since ``log`` began."""
    calls = log.settled(live.plane.api)
    return [call for call in calls if call.is_write and call.agent.startswith(AGENT)]


def tls() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=CA.certificate.decode())


def forged_posts(space: str) -> list[tuple[str, Object]]:
    """Return what somebody inside the cluster might post, with the path to post it to."""
    metadata = {"labels": {keys.CREATOR_USER: "rome-c34af51dd912", keys.ORIGIN: CONSUMER}}
    found: list[tuple[str, Kind, Object]] = [
        ("/validate/namespace-offloading", keys.NAMESPACE_OFFLOADING, reviews.offloading(space)),
        ("/mutate/pod", keys.POD, pod(space)),
        ("/validate/pod", keys.POD, pod(space)),
        (
            "/validate/shadowpods",
            keys.SHADOW_POD,
            named(keys.SHADOW_POD, Key(space, "s"), metadata=metadata, spec={"pod": pod_spec()}),
        ),
        ("/mutate/tenants", keys.TENANT, named(keys.TENANT, Key(space, "t"), spec={})),
    ]
    found += [
        (path, keys.NAMESPACE_OFFLOADING, reviews.offloading(space, podOffloadingStrategy="Remote"))
        for path in CLOSED
    ]
    return [(path, reviews.review(obj, kind=kind, namespace=space)) for path, kind, obj in found]


def test_a_thousand_reviews_that_no_api_server_sent_change_nothing(live: Installed) -> None:
    space = live.space()
    namespace = named(keys.NAMESPACE, Key("", space))
    before, log = live.read(keys.NAMESPACE, namespace), audit.Log(live.plane.audit_log)
    posts = forged_posts(space)

    with contextlib.closing(
        http.client.HTTPSConnection("127.0.0.1", live.hooked.port, context=tls())
    ) as connection:
        for number in range(TIMES):
            path, review = posts[number % len(posts)]
            connection.request(
                "POST", path, json.dumps(review), {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            told = json.loads(answer.read())
            assert answer.status == (404 if path in CLOSED else 200)
            if path in CLOSED:
                continue
            assert set(told["response"]) <= {
                "uid", "allowed", "patch", "patchType", "warnings", "status", "auditAnnotations"
            }  # fmt: skip

    assert webhook_writes(live, log) == []
    assert live.read(keys.NAMESPACE, namespace) == before


def test_a_dry_run_and_a_refusal_by_ours_label_no_namespace(live: Installed) -> None:
    space, log = live.space(), audit.Log(live.plane.audit_log)
    remote = reviews.offloading(space, podOffloadingStrategy="Remote")
    wrong = reviews.offloading(space, name="another", podOffloadingStrategy="Remote")

    assert live.create(keys.NAMESPACE_OFFLOADING, remote, dryRun="All").is_done
    assert not live.create(keys.NAMESPACE_OFFLOADING, wrong).is_done
    assert webhook_writes(live, log) == []

    assert live.create(keys.NAMESPACE_OFFLOADING, remote).is_done
    assert [call.resource for call in webhook_writes(live, log)] == ["namespaces"]
    namespace = live.read(keys.NAMESPACE, named(keys.NAMESPACE, Key("", space))) or {}
    stored = live.read(keys.NAMESPACE_OFFLOADING, remote) or {}
    assert namespace["metadata"]["labels"][keys.SCHEDULING_ENABLED] == "true"
    by = namespace["metadata"]["annotations"][keys.SCHEDULING_ENABLED_BY]
    assert by == stored["metadata"]["uid"]
    assert not live.create(keys.NAMESPACE_OFFLOADING, remote).is_done  # it is there already
    assert webhook_writes(live, log) == []


def test_a_thousand_refused_creates_leave_nothing_behind(live: Installed) -> None:
    space = live.space({keys.SCHEDULING_ENABLED: "true"})
    log = audit.Log(live.plane.audit_log)

    for number in range(TIMES):
        found = live.create(keys.POD, pod(space, f"p-{number}"))
        assert "no NamespaceOffloading" in found.message

    assert webhook_writes(live, log) == []
    pods = live.send("GET", f"/api/v1/namespaces/{space}/pods")
    assert pods.body["items"] == []


@contextlib.contextmanager
def slow(live: Installed) -> Iterator[None]:
    """Keep connections open that say nothing, half a head, or half a body."""
    head = b"POST /mutate/pod HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    said = [b"", head, head + b"Content-Length: 5000\r\n\r\n{"]
    with contextlib.ExitStack() as stack:
        for number in range(SLOW):
            plain = stack.enter_context(
                socket.create_connection(("127.0.0.1", live.hooked.port), timeout=300)
            )
            if number % 4:  # the others do not even shake hands
                line = stack.enter_context(tls().wrap_socket(plain, server_hostname="127.0.0.1"))
                line.sendall(said[number % 3])
        yield


def test_two_hundred_slow_clients_keep_no_pod_waiting(live: Installed) -> None:
    space = live.offloaded()

    with slow(live):
        found = [live.create(keys.POD, pod(space, secrets.token_hex(4))) for _ in range(20)]

    assert [answer.message for answer in found if not answer.is_done] == []
