"""What a user of a provider is granted, judged in front of a real API server.

Source: docs/parity.md § 3.8, 3.8.2; SEC-A7, SEC-A12.
"""

import json
import secrets
from collections.abc import Iterator
from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Key, Object, labels, named
from sandbox.api import wait_until
from sandbox.controlplane import Plane
from tests.factories import pod_spec
from tests.webhook.installed import CONSUMER, Answer, Installed, User, installed, path_of

pytestmark = pytest.mark.cluster

EVEN: Final = {"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"cpu": "1", "memory": "1Mi"}}


@pytest.fixture(scope="module", name="enforcing")
def start_enforcing(
    plane: Plane, crds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """Yield a webhook that enforces Quotas."""
    folder = tmp_path_factory.mktemp("enforcing")
    with installed(plane, folder, "--enable-resource-enforcement") as found:
        yield found


@pytest.fixture
def user() -> User:
    """Return a virtual kubelet of the consumer that nobody has a Quota for."""
    return User(f"{CONSUMER}-{secrets.token_hex(4)}", [CONSUMER, "system:authenticated"])


def asks(
    live: Installed,
    twin: str,
    user: User,
    resources: Object,
    *,
    more: Object | None = None,
    **marks: str,
) -> Answer:
    """Return the answer to a ShadowPod whose container has ``resources``."""
    container = {"name": "main", "image": "nginx", "resources": resources}
    metadata = {"labels": {keys.ORIGIN: CONSUMER, **marks}}
    spec = {"pod": pod_spec(containers=[container], **(more or {}))}
    key = Key(twin, f"s-{secrets.token_hex(4)}")
    return live.create(
        keys.SHADOW_POD, named(keys.SHADOW_POD, key, metadata=metadata, spec=spec), user=user
    )


def cores(amount: str) -> Object:
    return {"requests": {"cpu": amount}}


def grant_cores(live: Installed, user: User, **spec: Any) -> Object:
    """Grant ``user`` four cores, unless ``spec`` says otherwise; return the Quota."""
    space = live.space()
    given = {"user": user.name, "resources": {"cpu": "4", "memory": "1Gi"}, **spec}
    made = live.create(keys.QUOTA, named(keys.QUOTA, Key(space, "pool"), spec=given))
    assert made.is_done, made
    return made.body


def test_without_a_quota_nothing_is_admitted(enforcing: Installed, user: User) -> None:
    found = asks(enforcing, enforcing.twin(), user, cores("1"))

    assert found.status == 403
    assert f"user '{user.name}' has no Quota here" in found.message


def test_what_plainly_does_not_fit_is_refused_and_all_else_admitted(
    enforcing: Installed, user: User
) -> None:
    twin = enforcing.twin()
    quota = grant_cores(enforcing, user)

    for _ in range(3):  # more than there is in all: the rest waits for its turn
        assert asks(enforcing, twin, user, cores("3")).is_done
    refused = asks(enforcing, twin, user, cores("5"))
    missing = asks(enforcing, twin, user, {"limits": {"example.com/gpu": "1"}})

    assert "the pod asks for 5 of cpu, quota" in refused.message
    assert "has 4 in all: ask for less" in refused.message
    assert "of which quota" in missing.message

    grown = {"spec": {"resources": {"cpu": "8"}}}
    assert enforcing.send("PATCH", path_of(keys.QUOTA, quota), grown, form="merge-patch+json")
    assert asks(enforcing, twin, user, cores("5")).is_done  # at once, whatever a cache says


def test_who_created_it_is_who_asked(enforcing: Installed, user: User) -> None:
    twin = enforcing.twin()
    grant_cores(enforcing, user)

    claim: dict[str, Any] = {keys.CREATOR_USER: "somebody-else"}
    made = asks(enforcing, twin, user, cores("1"), **claim)

    assert labels(made.body)[keys.CREATOR_USER] == user.name
    stolen = {"metadata": {"labels": claim}}
    path = path_of(keys.SHADOW_POD, made.body)
    changed = enforcing.send("PATCH", path, stolen, form="merge-patch+json", user=user)
    assert "cannot be changed" in changed.message


def test_what_lacks_nothing_is_not_sent_to_be_completed(enforcing: Installed, user: User) -> None:
    twin = enforcing.twin()
    grant_cores(enforcing, user)
    field = "automountServiceAccountToken"
    begin = enforcing.plane.audit_log.stat().st_size
    complete, not_said = Object({field: False}), Object({field: None})
    who: dict[str, Any] = {keys.CREATOR_USER: user.name}
    rows: list[tuple[Object, dict[str, Any]]] = [
        (complete, {}),
        (complete, {keys.CREATOR_USER: "milan"}),
        (not_said, who),
    ]

    asked = [asks(enforcing, twin, user, EVEN, more=more, **marks) for more, marks in rows]
    last = asks(enforcing, twin, user, EVEN, more=complete, **who)

    made = [found.body for found in (*asked, last)]
    assert {labels(one)[keys.CREATOR_USER] for one in made} == {user.name}
    assert {one["spec"]["pod"][field] for one in made} == {False}
    *names, without = [one["metadata"]["name"] for one in made]
    sent = completed(enforcing, twin, len(made), begin)
    assert sent == {**dict.fromkeys(names, True), without: False}


def completed(live: Installed, twin: str, count: int, begin: int) -> dict[str, bool]:
    """Return which of the ``count`` ShadowPods of ``twin`` met the mutating webhook, by name.

    It is in the audit log behind ``begin``.
    """
    hook = "shadowpod.mutate.liqo.io/verdict"

    def told() -> dict[str, bool]:
        with live.plane.audit_log.open("rb") as log:
            log.seek(begin)
            lines = log.read().decode(errors="replace").split("\n")[:-1]
        events = [json.loads(line) for line in lines if f'"{twin}"' in line]
        return {
            event["objectRef"]["name"]: hook in (event.get("annotations") or {})
            for event in events
            if (event["objectRef"]["resource"], event["verb"]) == ("shadowpods", "create")
            and event["stage"] == "ResponseComplete"
        }

    wait_until(lambda: len(told()) == count, "the audit log has all", timeout_s=300)
    return told()


@pytest.mark.parametrize(
    ("quota", "resources", "told"),
    [
        ({"cordoned": True}, cores("1"), "is cordoned and takes no new pods"),
        ({"limitsEnforcement": "None"}, {}, ""),
        ({"limitsEnforcement": "Soft"}, cores("1"), "requests.memory is missing"),
        ({"limitsEnforcement": "Soft"}, EVEN, ""),
        ({"limitsEnforcement": "Soft"}, {**EVEN, "limits": {"cpu": "2"}}, ""),
        ({"limitsEnforcement": "Hard"}, {**EVEN, "limits": {"cpu": "2"}}, "differs from its"),
        ({"limitsEnforcement": "Hard"}, EVEN, ""),
    ],
)
def test_enforcement_is_as_the_quota_says(
    enforcing: Installed, user: User, quota: Object, resources: Object, told: str
) -> None:
    grant_cores(enforcing, user, **quota)

    found = asks(enforcing, enforcing.twin(), user, resources)

    assert found.is_done is (not told)
    assert told in found.message
