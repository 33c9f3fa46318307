"""What a consumer does in its twin namespaces. Source: docs/parity.md SEC-A23, X11."""

from typing import Any, Final

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from apis.validation import DeniedError
from tests.factories import pod
from tests.manifests.test_consumers import CLAIM, ROWS, hostile
from tests.manifests.twins import claim, silver
from tests.webhook.installed import ADMINISTRATOR, CONSUMER, Installed, User, path_of
from tests.webhook.placed import answered_reviews
from tests.webhook.reviews import wait_until
from webhook import admission
from webhook.rules import shadowpods
from webhook.webhooks import ORDERED

PARTS: Final = ("attach", "exec", "portforward")
KUBELET: Final = User("pool-0123456789ab", [CONSUMER])
SHADOW: Final[Object] = {
    "apiVersion": keys.SHADOW_POD.api_version, "kind": "ShadowPod", "name": "web", "uid": "1",
    "controller": True,
}  # fmt: skip


def consumer_twin(consumer: str | None) -> Object:
    labels = {keys.REMOTE_CLUSTER_ID: consumer} if consumer else {}
    return named(keys.NAMESPACE, Key("", "twin"), metadata={"labels": labels})


def owned(**owner: Any) -> Object:
    return pod("twin", metadata={"ownerReferences": [{**SHADOW, **owner}]})


@pytest.mark.parametrize(
    ("namespace", "user", "groups", "expected"),
    [
        (consumer_twin("rome"), "pool-1", ["rome", "system:authenticated"], True),
        (consumer_twin("rome"), "rome", ["liqo.io"], True),
        (consumer_twin("rome"), "admin", ["system:masters"], False),
        (consumer_twin("rome"), "pool-1", ["naples"], False),
        (consumer_twin(None), "pool-1", ["rome"], False),
        (consumer_twin(""), "", [""], False),
        (None, "pool-1", ["rome"], False),
    ],
)
def test_who_is_the_consumer(
    namespace: Object | None, user: str, groups: list[str], *, expected: bool
) -> None:
    assert shadowpods.is_by_its_consumer(namespace, user, groups) is expected


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
    assert shadowpods.check_connection(owned(), "exec").verdict == "allowed: of a ShadowPod"
    with pytest.raises(DeniedError, match="exec: the pod is not of a ShadowPod"):
        shadowpods.check_connection(other, "exec")


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
    path, before = path_of(keys.POD, debug, part="exec"), answered_reviews(live)

    live.send("POST", path, command="id")
    live.send("POST", path, command="id", user=User("robot", ["system:serviceaccounts"]))
    live.send("POST", path, command="id", user=KUBELET)

    counts = answered_reviews(live)
    path = "/validate/pod/connection"
    assert counts.get(path, 0) == before.get(path, 0) + 1


def noted(**annotations: str) -> Object:
    return named(keys.SECRET, Key("twin", "a"), metadata={"annotations": annotations})


COPIED: Final = "replicator.v1.mittwald.de/replicate-from"


@pytest.mark.parametrize(
    ("wanted", "had", "opened", "kept"),
    [
        ({COPIED: "a/b", "note": "x"}, {}, "", {"note": "x"}),
        ({COPIED: "a/b"}, {COPIED: "a/b"}, "", {COPIED: "a/b"}),
        ({COPIED: "c/d"}, {COPIED: "a/b"}, "", {COPIED: "a/b"}),
        ({COPIED: "a/b"}, {}, "mittwald.de", {COPIED: "a/b"}),
        ({COPIED: "a/b"}, {}, "example.com,v1.mittwald.de", {COPIED: "a/b"}),
        ({COPIED: "a/b"}, {}, "wald.de", {}),
        ({"example.com/team": "x"}, {}, "", {"example.com/team": "x"}),
    ],
)
def test_what_programs_obey_is_as_it_was(
    wanted: dict[str, str], had: dict[str, str], opened: str, kept: dict[str, str]
) -> None:
    """Of an object that exists an annotation that an administrator set keeps its value."""
    namespace = consumer_twin("rome")
    namespace["metadata"]["annotations"] = {keys.OFFERED_ANNOTATION_DOMAINS: opened}
    new, old = noted(**wanted), noted(**had) if had else {}

    admitted = shadowpods.without_orders(keys.SECRET, new, old, namespace)

    assert objects.annotations(admission.applied(new, admitted.patch)) == kept
    assert bool(admitted.warnings) == bool(admitted.patch) == (kept != wanted)


@pytest.mark.cluster
def test_data_and_claims_are_not_refused_for_an_annotation(provider: Installed) -> None:
    """The API server asks about those alone that policies would refuse."""
    assert provider.apply(keys.STORAGE_CLASS, silver()).is_done
    space = provider.twin()
    rows = {name: row for name, row in ROWS.items() if row.kind in ORDERED.values()}
    ordering = {name for name, row in rows.items() if "annotation" in row.told}
    sent = {name: (rows[name].kind, hostile(space)[name]) for name in ordering}
    wait_until(lambda: provider.create(CLAIM, claim(space, "honest"), user=KUBELET).is_done)
    before = answered_reviews(provider)

    made = {name: provider.create(*each, user=KUBELET) for name, each in sent.items()}

    assert len(sent) > len(ORDERED)
    assert {name: found.message for name, found in made.items() if not found.is_done} == {}
    assert all(not objects.annotations(found.body) for found in made.values())
    counts = answered_reviews(provider)
    asked = sum(counts.get(path, 0) - before.get(path, 0) for path in ORDERED)
    assert asked == len(sent)

    kind, obj = sent["copied-secret"]
    path = path_of(kind, obj)
    theirs = {"metadata": {"annotations": {COPIED: "kube-system/a"}}}
    provider.send("PATCH", path, theirs, form="merge-patch+json")
    more = {"metadata": {"annotations": {COPIED: "other/b", "note": "x"}}}
    changed = provider.send("PATCH", path, more, form="merge-patch+json", user=KUBELET)
    assert objects.annotations(changed.body) == {COPIED: "kube-system/a", "note": "x"}
    plain = {"metadata": {"annotations": {"note": "y"}}}
    assert provider.send("PATCH", path, plain, form="merge-patch+json", user=KUBELET).is_done
    assert sum(answered_reviews(provider).get(path, 0) for path in ORDERED) == (
        sum(counts.get(path, 0) for path in ORDERED) + 1
    )


@pytest.mark.cluster
def test_an_opened_domain_is_left_on_data(provider: Installed) -> None:
    space = provider.twin()
    kind, obj = ROWS["copied-secret"].kind, hostile(space)["copied-secret"]
    obj["metadata"]["annotations"] = {COPIED: "a/b"}
    domains = {"metadata": {"annotations": {keys.OFFERED_ANNOTATION_DOMAINS: "v1.mittwald.de"}}}
    where = f"/api/v1/namespaces/{space}"
    assert provider.send("PATCH", where, domains, form="merge-patch+json").is_done

    def is_kept() -> bool:
        made = provider.create(kind, obj, user=KUBELET, dryRun="All")
        return objects.annotations(made.body) == {COPIED: "a/b"}

    wait_until(is_kept)
