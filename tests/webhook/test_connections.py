"""Into which pods of a twin namespace a consumer may reach. Source: docs/parity.md SEC-A23."""

from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Key, Object, named
from apis.validation import DeniedError
from tests.factories import pod
from tests.webhook.installed import ADMINISTRATOR, CONSUMER, Installed, User, path_of
from tests.webhook.placed import answered
from webhook.rules import connections

PARTS: Final = ("attach", "exec", "portforward")
KUBELET: Final = User("pool-0123456789ab", [CONSUMER])
SHADOW: Final[Object] = {
    "apiVersion": keys.SHADOW_POD.api_version, "kind": "ShadowPod", "name": "web", "uid": "1",
    "controller": True,
}  # fmt: skip


def twin(consumer: str | None) -> Object:
    labels = {keys.REMOTE_CLUSTER_ID: consumer} if consumer else {}
    return named(keys.NAMESPACE, Key("", "twin"), metadata={"labels": labels})


def owned(**owner: Any) -> Object:
    return pod("twin", metadata={"ownerReferences": [{**SHADOW, **owner}]})


@pytest.mark.parametrize(
    ("namespace", "user", "groups", "expected"),
    [
        (twin("rome"), "pool-1", ["rome", "system:authenticated"], True),
        (twin("rome"), "rome", ["liqo.io"], True),
        (twin("rome"), "admin", ["system:masters"], False),
        (twin("rome"), "pool-1", ["naples"], False),
        (twin(None), "pool-1", ["rome"], False),
        (twin(""), "", [""], False),
        (None, "pool-1", ["rome"], False),
    ],
)
def test_who_is_the_consumer(
    namespace: Object | None, user: str, groups: list[str], *, expected: bool
) -> None:
    assert connections.is_by_its_consumer(namespace, user, groups) is expected


@pytest.mark.parametrize(
    "other",
    [
        pod("twin"),
        owned(kind="Pod", apiVersion="v1"),
        owned(apiVersion="shadowpods.example.com/v1"),
        owned(apiVersion="apps/v1"),
        owned(controller=False),
        owned(apiVersion=None),
    ],
)
def test_only_a_shadow_pod_that_controls_a_pod_opens_it(other: Object) -> None:
    assert connections.check(owned(), "exec").verdict == "allowed: of a ShadowPod"
    with pytest.raises(DeniedError, match="exec: the pod is not of a ShadowPod"):
        connections.check(other, "exec")


@pytest.mark.cluster
@pytest.mark.parametrize("part", PARTS)
def test_a_consumer_reaches_into_no_pod_of_the_provider(live: Installed, part: str) -> None:
    """No pod here has a node: who gets past admission is told so."""
    space = live.twin()
    debug, offloaded = pod(space, "debug"), pod(space, "offloaded")
    offloaded["metadata"]["ownerReferences"] = [SHADOW]
    for made in (debug, offloaded):
        assert live.create(keys.POD, made).is_done

    def reach(what: Object, user: User) -> Any:
        query = {"command": "id"} if part == "exec" else {}
        return live.send("POST", path_of(keys.POD, what, part=part), user=user, **query)

    refused = reach(debug, KUBELET)

    assert refused.status == 403
    assert f"{part}: the pod is not of a ShadowPod" in refused.message
    for let_in in (reach(offloaded, KUBELET), reach(debug, ADMINISTRATOR)):
        assert let_in.status == 400
        assert "does not have a host assigned" in let_in.message


@pytest.mark.cluster
def test_who_belongs_to_the_cluster_is_not_asked_about(live: Installed) -> None:
    space = live.twin()
    debug = pod(space, "debug")
    assert live.create(keys.POD, debug).is_done
    path, before = path_of(keys.POD, debug, part="exec"), answered(live)

    live.send("POST", path, command="id")
    live.send("POST", path, command="id", user=User("robot", ["system:serviceaccounts"]))
    live.send("POST", path, command="id", user=KUBELET)

    counts = answered(live)
    path = "/validate/pod/connection"
    assert counts.get(path, 0) == before.get(path, 0) + 1
