"""However an object is written, the verdict is the same: a matrix on a real API server.

Source: docs/parity.md A-25, A-27, A-29, A-31; SEC-A7.
"""

import copy
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pytest

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from tests.factories import pod, pod_spec
from tests.webhook.installed import (
    ADMINISTRATOR,
    CONSUMER,
    EXEMPT,
    MANAGER,
    Answer,
    Installed,
    User,
    path_of,
)
from tests.webhook.reviews import offloading

pytestmark = pytest.mark.cluster

Change: TypeAlias = Object
"""A merge patch."""
CONTROL_PLANE: Final = User(CONSUMER, ["liqo.io", EXEMPT])
"""A consumer's control plane, with more rights than it has."""
DRY: Final = {"dryRun": "All"}
UNSATISFIABLE: Final = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}]
}


@dataclass(frozen=True)
class Case:
    """A kind of ours, an object that is right, and one change that is not."""

    kind: Kind
    space: Callable[[Installed], str]
    good: Callable[[Installed, str], Object]
    wrong: Change
    message: str
    user: User
    is_judged_at_birth: bool = True


def _offloading(_live: Installed, space: str) -> Object:
    return offloading(space)


def _shadow(_live: Installed, space: str) -> Object:
    return named(
        keys.SHADOW_POD,
        Key(space, _name()),
        metadata={"labels": {keys.ORIGIN: CONSUMER}},
        spec={"pod": pod_spec()},
    )


def _virtual_node(live: Installed, space: str) -> Object:
    spec = {"clusterID": "milan", "vkOptionsTemplateRef": {"name": live.run}}
    return named(keys.VIRTUAL_NODE, Key(space, _name()), spec=spec)


def _tenant(_live: Installed, space: str) -> Object:
    return named(keys.TENANT, Key(space, _name()), spec={"clusterID": CONSUMER})


def _slice(_live: Installed, space: str) -> Object:
    return named(keys.RESOURCE_SLICE, Key(space, _name()), spec={"class": "gold"})


def _name() -> str:
    return f"w-{secrets.token_hex(4)}"


def _tenancy(live: Installed) -> str:
    return live.space({keys.TENANT_NAMESPACE: "true", keys.REMOTE_CLUSTER_ID: CONSUMER})


CASES: Final = {
    "namespaceoffloading": Case(
        keys.NAMESPACE_OFFLOADING,
        Installed.space,
        _offloading,
        {"spec": {"clusterSelector": UNSATISFIABLE}},
        "spec.clusterSelector",
        ADMINISTRATOR,
    ),
    "shadowpod": Case(
        keys.SHADOW_POD,
        Installed.twin,
        _shadow,
        {"spec": {"pod": {"hostNetwork": True}}},
        "spec.pod.hostNetwork",
        ADMINISTRATOR,
    ),
    "virtualnode": Case(
        keys.VIRTUAL_NODE,
        _tenancy,
        _virtual_node,
        {"spec": {"vkOptionsTemplateRef": {"name": "a", "namespace": "shop"}}},
        "vkOptionsTemplateRef.namespace",
        ADMINISTRATOR,
    ),
    "tenant": Case(
        keys.TENANT,
        _tenancy,
        _tenant,
        {"metadata": {"labels": {keys.REMOTE_CLUSTER_ID: "turin"}}},
        "must equal spec.clusterID",
        ADMINISTRATOR,
    ),
    "resourceslice": Case(
        keys.RESOURCE_SLICE,
        _tenancy,
        _slice,
        {"metadata": {"annotations": {"liqo.io/cordon": "true"}}},
        "is the provider's to change",
        CONTROL_PLANE,
        is_judged_at_birth=False,
    ),
}


def changed(obj: Object, change: Change) -> Object:
    """Return ``obj`` with ``change``, of which none is a removal."""
    made = copy.deepcopy(obj)
    for name, value in change.items():
        is_merged = isinstance(value, dict) and isinstance(made.get(name), dict)
        made[name] = changed(made[name], value) if is_merged else value
    return made


# The ways to change -------------------------------------------------------------------------------

Way: TypeAlias = Callable[[Installed, Case, Object, Change, Object], Answer]


def _patch(form: str) -> Way:
    def way(live: Installed, case: Case, obj: Object, change: Change, how: Object) -> Answer:
        body: Any = change
        if form == "json-patch":
            whole = changed(obj, change)
            body = [{"op": "replace", "path": f"/{top}", "value": whole[top]} for top in change]
        return live.send("PATCH", path_of(case.kind, obj), body, form=f"{form}+json", **how)

    return way


def _put(live: Installed, case: Case, obj: Object, change: Change, how: Object) -> Answer:
    return live.send("PUT", path_of(case.kind, obj), changed(obj, change), **how)


def _apply(live: Installed, case: Case, obj: Object, change: Change, how: Object) -> Answer:
    metadata = {key: obj["metadata"][key] for key in ("name", "namespace")}
    identity = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
    return live.apply(case.kind, changed(identity, change), **how)


CHANGES: Final[dict[str, Way]] = {
    "update": _put,
    "json patch": _patch("json-patch"),
    "merge patch": _patch("merge-patch"),
    "strategic merge patch": _patch("strategic-merge-patch"),
    "apply": _apply,
}


@pytest.mark.parametrize("dry", [{}, DRY], ids=["real", "dry-run"])
@pytest.mark.parametrize("way", CHANGES)
@pytest.mark.parametrize("name", CASES)
def test_a_wrong_change_is_refused(live: Installed, name: str, way: str, dry: Object) -> None:
    case = CASES[name]
    made = born(live, case)

    found = CHANGES[way](live, case, made, case.wrong, {"user": case.user, **dry})

    if way == "strategic merge patch":
        assert found.status == 415, "custom resources have none"
    else:
        assert not found.is_done
        assert case.message in found.message
    assert live.read(case.kind, made) == made


@pytest.mark.parametrize("way", [way for way in CHANGES if way != "strategic merge patch"])
@pytest.mark.parametrize("name", CASES)
def test_a_right_change_is_done_and_a_dry_one_changes_nothing(
    live: Installed, name: str, way: str
) -> None:
    case = CASES[name]
    made = born(live, case)
    change = {"metadata": {"labels": {"app": "web"}}}

    assert CHANGES[way](live, case, made, change, {"user": case.user, **DRY}).is_done
    assert live.read(case.kind, made) == made
    assert CHANGES[way](live, case, made, change, {"user": case.user}).is_done
    found = live.read(case.kind, made)
    assert found is not None
    assert found["metadata"]["labels"]["app"] == "web"


@pytest.mark.parametrize("name", CASES)
def test_what_is_being_deleted_is_judged_too(live: Installed, name: str) -> None:
    case = CASES[name]
    made = born(live, case)
    hold = {"metadata": {"finalizers": ["tests.pyliqo.io/hold"]}}
    assert CHANGES["merge patch"](live, case, made, hold, {}).is_done
    assert live.send("DELETE", path_of(case.kind, made)).is_done

    found = CHANGES["merge patch"](live, case, made, case.wrong, {"user": case.user})

    assert case.message in found.message
    let_go: Object = {"metadata": {"finalizers": []}}
    assert CHANGES["merge patch"](live, case, made, let_go, {}).is_done
    assert live.read(case.kind, made) is None


LOCAL: Final = User("somebody", [EXEMPT])
PRINTED: Final[Object] = {"creationTimestamp": None}
NO_NODE: Final = {"annotations": {keys.CREATE_VIRTUAL_NODE: "false"}}
REPLICA: Final = {"labels": {keys.REPLICATED: "true"}}


@pytest.mark.parametrize("way", ["create", "apply"])
@pytest.mark.parametrize(
    ("user", "metadata", "said"),
    [
        (LOCAL, PRINTED, "true"),
        (LOCAL, {"annotations": {"a": "b"}}, "true"),
        (LOCAL, NO_NODE, "false"),
        (LOCAL, REPLICA, None),
        (CONTROL_PLANE, PRINTED, None),
    ],
    ids=["as printed", "annotated", "says no", "replica", "control plane"],
)
def test_a_slice_of_this_cluster_becomes_a_virtual_node_unless_it_says_otherwise(
    live: Installed, way: str, user: User, metadata: Object, said: str | None
) -> None:
    case = CASES["resourceslice"]
    asked = _slice(live, _tenancy(live))
    asked["metadata"] |= metadata
    made = BIRTHS[way](live, case, {**asked, "status": {}}, {"user": user})
    assert made.is_done, made

    change = {"spec": {"resources": {"cpu": "2"}}}
    later = CHANGES["merge patch"](live, case, made.body, change, {})

    for answer in (made, later):
        found = objects.annotations(answer.body)
        assert found.get(keys.CREATE_VIRTUAL_NODE) == said


# The ways to create -------------------------------------------------------------------------------


def born(live: Installed, case: Case) -> Object:
    made = live.create(case.kind, case.good(live, case.space(live)))
    assert made.is_done, made
    return made.body


def _created(live: Installed, case: Case, obj: Object, how: Object) -> Answer:
    return live.create(case.kind, obj, **how)


def _applied(live: Installed, case: Case, obj: Object, how: Object) -> Answer:
    return live.apply(case.kind, obj, **how)


def _replaced(live: Installed, case: Case, obj: Object, how: Object) -> Answer:
    """Delete what is there and create it again, as ``kubectl replace --force`` does."""
    first = case.good(live, obj["metadata"]["namespace"])
    first["metadata"]["name"] = obj["metadata"]["name"]
    assert live.create(case.kind, first).is_done
    assert live.send("DELETE", path_of(case.kind, first)).is_done
    return live.create(case.kind, obj, **how)


BIRTHS: Final = {"create": _created, "apply": _applied, "replace": _replaced}


@pytest.mark.parametrize("dry", [{}, DRY], ids=["real", "dry-run"])
@pytest.mark.parametrize("way", BIRTHS)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_judged_at_birth])
def test_a_wrong_object_is_refused(live: Installed, name: str, way: str, dry: Object) -> None:
    case = CASES[name]
    obj = changed(case.good(live, case.space(live)), case.wrong)

    found = BIRTHS[way](live, case, obj, {"user": case.user, **dry})

    assert not found.is_done
    assert case.message in found.message
    assert live.read(case.kind, obj) is None


@pytest.mark.parametrize("way", BIRTHS)
@pytest.mark.parametrize("name", CASES)
def test_a_right_object_is_stored_and_a_dry_one_is_not(
    live: Installed, name: str, way: str
) -> None:
    case = CASES[name]
    obj = case.good(live, case.space(live))

    assert BIRTHS[way](live, case, obj, {"user": case.user, **DRY}).is_done
    assert live.read(case.kind, obj) is None
    assert BIRTHS[way](live, case, obj, {"user": case.user}).is_done
    assert live.read(case.kind, obj) is not None


@pytest.mark.parametrize("name", CASES)
def test_all_of_a_namespace_may_be_deleted(live: Installed, name: str) -> None:
    case = CASES[name]
    made = born(live, case)
    path = path_of(case.kind, made, is_list=True)

    assert live.send("DELETE", path, dryRun="All").is_done
    assert live.read(case.kind, made) is not None
    assert live.send("DELETE", path).is_done
    assert live.read(case.kind, made) is None


@pytest.mark.parametrize("name", CASES)
def test_every_version_that_is_served_is_judged(live: Installed, name: str) -> None:
    case = CASES[name]
    group = live.send("GET", f"/apis/{case.kind.group}").body
    served = [version["version"] for version in group["versions"]]
    assert served
    for version in served:
        kind = Kind(case.kind.group, version, case.kind.kind, case.kind.plural)
        made = born(live, case)
        wrong = {**changed(made, case.wrong), "apiVersion": f"{kind.group}/{version}"}
        found = live.send("PUT", path_of(kind, made), wrong, user=case.user)
        assert case.message in found.message


# Pods ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", BIRTHS)
def test_a_pod_is_changed_however_it_is_made(live: Installed, way: str) -> None:
    space = live.offloaded(podOffloadingStrategy="Remote")
    case = Case(keys.POD, Installed.space, lambda _live, there: pod(there), {}, "", ADMINISTRATOR)

    if way == "replace":
        first = pod(space)
        assert live.create(keys.POD, first).is_done
        assert live.send("DELETE", path_of(keys.POD, first), gracePeriodSeconds="0").is_done
        found = [live.create(keys.POD, pod(space), **how) for how in (DRY, {})]
    else:
        found = [BIRTHS[way](live, case, pod(space), how) for how in (DRY, {})]

    for made in found:
        affinity = made.body["spec"]["affinity"]["nodeAffinity"]
        terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert terms[0]["matchExpressions"][0]["key"] == keys.NODE_TYPE
        tolerated = [one.get("key") for one in made.body["spec"]["tolerations"]]
        assert tolerated.count(keys.VIRTUAL_NODE_TAINT) == 1


@pytest.mark.parametrize("dry", [{}, DRY], ids=["real", "dry-run"])
@pytest.mark.parametrize("way", ["create", "apply"])
def test_a_pod_that_cannot_be_judged_is_refused(live: Installed, way: str, dry: Object) -> None:
    space = live.space({keys.SCHEDULING_ENABLED: "true"})
    how = {"fieldManager": MANAGER} | dry

    found = live.create(keys.POD, pod(space), **how) if way == "create" else live.apply(
        keys.POD, pod(space), **how
    )  # fmt: skip

    assert "no NamespaceOffloading" in found.message
    assert live.read(keys.POD, pod(space)) is None


# What is only claimed -----------------------------------------------------------------------------

FORGED: Final = {
    keys.ORIGIN: "turin",
    keys.REMOTE_CLUSTER_ID: "turin",
    keys.CREATOR_USER: "system-admin",
    keys.APP_MANAGED_BY: "pyliqo",
    keys.MANAGED_BY: keys.MANAGED_BY_SHADOW_POD,
    keys.REPLICATED: "true",
    "liqo.io/webhook-skip": "true",
    keys.SKIP_REFLECTION: "true",
}
CLAIMS: Final = ("labels", "annotations")


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("mark", FORGED)
@pytest.mark.parametrize("name", CASES)
def test_no_label_or_annotation_changes_a_verdict(
    live: Installed, name: str, mark: str, claim: str
) -> None:
    """What is refused without it is refused with it, by create, update, patch and apply."""
    case = CASES[name]
    forged = changed({"metadata": {claim: {mark: FORGED[mark]}}}, case.wrong)
    made = born(live, case)
    for way in ("update", "merge patch", "apply"):
        assert not CHANGES[way](live, case, made, forged, {"user": case.user}).is_done, way
        assert live.read(case.kind, made) == made
    if case.is_judged_at_birth:
        obj = changed(case.good(live, case.space(live)), forged)
        assert not live.create(case.kind, obj, user=case.user).is_done
