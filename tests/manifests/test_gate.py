"""What no consumer may write into the metadata of any kind, or do to what is not its own.

Source: security.md A7, A16, A17, A20; hostile.md, causes 1 and 2.
"""

from typing import Any, Final

import pytest

from apis import keys, marks
from apis.objects import Kind, Object, owner_reference
from tests.manifests.asking import (
    ADMINISTRATOR,
    OWNER,
    REFLECTED,
    SPECS,
    Provider,
    local_one,
    made,
)

pytestmark = pytest.mark.cluster

EVERY: Final = (*SPECS, *REFLECTED)
PROTECTION: Final = "kubernetes.io/pvc-protection"
CLEANUP: Final = "service.kubernetes.io/load-balancer-cleanup"


def names(kinds: tuple[Kind, ...]) -> Any:
    return pytest.mark.parametrize("kind", kinds, ids=[kind.kind for kind in kinds])


@names(EVERY)
def test_a_consumer_sets_no_finalizer(milan: Provider, kind: Kind) -> None:
    for finalizer in ("a.io/b", CLEANUP, keys.NAMESPACE_MAP_FINALIZER):
        said = milan.create(made(kind, metadata={"finalizers": [finalizer]}), kind)
        assert "metadata.finalizers" in said, finalizer


@names(EVERY)
def test_the_finalizer_of_claims_is_for_claims_alone(milan: Provider, kind: Kind) -> None:
    """Nobody takes it off anything else, whose twin would never end."""
    said = milan.create(made(kind, metadata={"finalizers": [PROTECTION]}), kind)

    assert ("metadata.finalizers" in said) == (kind != keys.PERSISTENT_VOLUME_CLAIM), said


@names(EVERY)
def test_a_consumer_removes_and_adds_no_finalizer_later(milan: Provider, kind: Kind) -> None:
    held = made(kind, "held", metadata={"finalizers": [CLEANUP]})
    assert milan.create(held, kind, user=ADMINISTRATOR, for_good=True) == ""

    for finalizers in ([], [CLEANUP, "a.io/b"], ["a.io/b"]):
        said = milan.patch(kind, "held", {"metadata": {"finalizers": finalizers}})
        assert "metadata.finalizers" in said, finalizers
    assert milan.patch(kind, "held", {"metadata": {"annotations": {"a": "b"}}}) == ""
    assert milan.patch(kind, "held", {"metadata": {"finalizers": []}}, user=ADMINISTRATOR) == ""


@names(EVERY)
def test_a_consumer_names_no_owner(milan: Provider, kind: Kind) -> None:
    owned = made(kind, "owned", metadata={"ownerReferences": [OWNER]})
    assert "metadata.ownerReferences" in milan.create(owned, kind)
    assert milan.create(owned, kind, user=ADMINISTRATOR, for_good=True) == ""

    for owners in ([], [OWNER, {**OWNER, "uid": "2"}], [{**OWNER, "uid": "2"}]):
        said = milan.patch(kind, "owned", {"metadata": {"ownerReferences": owners}})
        assert "metadata.ownerReferences" in said, owners
    assert milan.patch(kind, "owned", {"metadata": {"annotations": {"a": "b"}}}) == ""


def test_a_secret_goes_with_its_shadowpod_and_holds_nothing(milan: Provider) -> None:
    """As the virtual kubelet has it for tokens; a ShadowPod that is made again is another one."""
    shadow = made(keys.SHADOW_POD)
    owners = [
        owner_reference(
            keys.SHADOW_POD, {"metadata": {**shadow["metadata"], "uid": uid}}, block=False
        )
        for uid in ("1", "2")
    ]
    for kind in (keys.SECRET, keys.CONFIG_MAP):
        said = milan.create(made(kind, metadata={"ownerReferences": [owners[0]]}), kind)
        assert ("metadata.ownerReferences" in said) == (kind == keys.CONFIG_MAP)
    kept = made(keys.SECRET, "kept", metadata={"ownerReferences": [owners[0]]})
    assert milan.create(kept, keys.SECRET, for_good=True) == ""
    for again in ([owners[1]], []):
        change = {"metadata": {"ownerReferences": again}}
        assert milan.patch(keys.SECRET, "kept", change) == ""
    blocking = {**owners[0], "blockOwnerDeletion": True}
    said = milan.create(made(keys.SECRET, metadata={"ownerReferences": [blocking]}), keys.SECRET)
    assert "metadata.ownerReferences" in said


# What the provider itself keeps beside its consumer's replicas ------------------------------------

CHANGES: Final[dict[Kind, Object]] = {
    keys.NAMESPACE_MAP: {"desiredMapping": {"shop": "kube-system"}},
    keys.RESOURCE_SLICE: {"resources": {"cpu": "1000000"}},
    keys.RENEW: {"identityType": "ResourceSlice"},
}


@names(marks.REPLICAS)
def test_what_the_provider_replicates_is_not_its_consumers_to_change(
    milan: Provider, kind: Kind
) -> None:
    local = local_one(kind, f"own-{kind.resource.lower()}")
    name = local["metadata"]["name"]
    assert milan.create(local, kind, user=ADMINISTRATOR, for_good=True) == ""
    stands = milan.read(kind, name)
    assert stands is not None

    told = {
        "patch": milan.patch(kind, name, {"spec": CHANGES[kind]}),
        "relabel": milan.patch(
            kind, name, {"metadata": {"labels": {keys.REPLICATED: "true", keys.ORIGIN_ID: "rome"}}}
        ),
        "replace": milan.replace(kind, {**stands, "spec": {**stands["spec"], **CHANGES[kind]}}),
        "delete": milan.delete(kind, name),
        "deletecollection": milan.delete(kind, ""),
    }

    for how, said in told.items():
        assert "liqo-consumer-originals" in said, (how, said)
        assert "so it is of this cluster and no replica" in said, (how, said)
    assert milan.patch(kind, name, {"spec": CHANGES[kind]}, user=ADMINISTRATOR) == ""


@names(marks.REPLICAS)
def test_its_own_replicas_a_consumer_changes_and_deletes(milan: Provider, kind: Kind) -> None:
    name = f"replica-{kind.resource.lower()}"
    assert milan.create(made(kind, name), kind, for_good=True) == ""
    stands = milan.read(kind, name)
    assert stands is not None

    assert milan.patch(kind, name, {"metadata": {"labels": {"a": "b"}}}) == ""
    assert milan.replace(kind, stands) == ""
    assert milan.delete(kind, name, for_good=True) == ""
    assert milan.read(kind, name) is None


@names(marks.REPLICAS)
def test_a_replica_that_the_provider_holds_ends_once_it_lets_go(
    milan: Provider, kind: Kind
) -> None:
    name = f"held-{kind.resource.lower()}"
    held = made(kind, name, metadata={"finalizers": [keys.NAMESPACE_MAP_FINALIZER]})
    assert milan.create(held, kind, user=ADMINISTRATOR, for_good=True) == ""

    assert milan.delete(kind, name, for_good=True) == ""
    stands = milan.read(kind, name)
    assert stands is not None
    assert stands["metadata"]["deletionTimestamp"]
    let_go = {"metadata": {"finalizers": []}}
    assert milan.patch(kind, name, let_go, user=ADMINISTRATOR, for_good=True) == ""
    assert milan.read(kind, name) is None
