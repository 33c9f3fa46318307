"""What a NamespaceOffloading may say. Source: docs/parity.md § 3.2; A-24 to A-25."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from apis import keys, naming
from apis.objects import Key, Object
from apis.validation import DeniedError
from tests import factories
from tests.webhook.reviews import REFUSED, by_policy, offloading, wrong_offloading
from webhook.admission import Admitted, MalformedError
from webhook.rules import namespaceoffloadings as rules

POLICIES = ("DenyList", "AllowList", "Referenced")
EU = {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]}


def selector(*terms: Object) -> Object:
    return {"nodeSelectorTerms": list(terms)}


def expression(**requirement: Any) -> Object:
    return selector({"matchExpressions": [{"key": "region", "operator": "In", **requirement}]})


def field(**requirement: Any) -> Object:
    return selector({"matchFields": [{"key": "metadata.name", "operator": "In", **requirement}]})


def created(
    obj: Object,
    *,
    others: dict[Key, Object] | None = None,
    cluster_id: str = "rome",
    known: Iterable[str] = ("b",),
    namespaces: Iterable[str] = (),
) -> Admitted:
    names = {key: msgspec.convert(other, rules.TwinName) for key, other in (others or {}).items()}
    return rules.check_create(
        obj,
        obj["metadata"]["namespace"],
        others=rules.Others(names, lambda: namespaces, set(known).__contains__),
        cluster_id=cluster_id,
    )


@pytest.mark.parametrize(
    "obj",
    [
        offloading(),
        offloading(namespaceMappingStrategy="EnforceSameName", podOffloadingStrategy="Remote"),
        offloading(namespaceMappingStrategy="SelectedName", remoteNamespaceName="their-shop"),
        offloading(clusterSelector=selector(EU)),
        offloading(clusterSelector=selector()),
        offloading(clusterSelector=None),
        offloading(clusterSelector=field(values=["milan"])),
        offloading(clusterSelector=expression(operator="Exists")),
        offloading(clusterSelector=expression(operator="Gt", values=["5"])),
        offloading("default"),
        offloading("liqor"),
        offloading("liqo-demo"),
    ],
)
def test_what_is_right_passes_silently(obj: Object) -> None:
    assert created(obj) == Admitted(warnings=[])


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_with_field_and_cure(row: Object) -> None:
    with pytest.raises(DeniedError) as denied:
        created(wrong_offloading(row))

    assert row["says"] in str(denied.value)
    assert len(str(denied.value)) <= 256
    assert 400 <= denied.value.code < 500


@pytest.mark.parametrize("cluster_id", ["rome", ""])
def test_a_name_that_is_too_long_is_shortened(cluster_id: str) -> None:
    assert created(offloading("n" * 60), cluster_id=cluster_id) == Admitted(warnings=[])


def test_who_may_not_see_the_other_namespace_is_not_told_it() -> None:
    wanted = offloading(namespaceMappingStrategy="SelectedName", remoteNamespaceName="b-rome")

    with pytest.raises(DeniedError) as denied:
        created(wanted, others={Key("b", "offloading"): offloading("b")}, known=())

    assert "'b-rome' is already that of another namespace: choose another" in str(denied.value)


@pytest.mark.parametrize(
    ("obj", "other"),
    [
        pytest.param(
            offloading(namespaceMappingStrategy="SelectedName", remoteNamespaceName="twin"),
            offloading("b", namespaceMappingStrategy="SelectedName", remoteNamespaceName="twin"),
            id="both selected",
        ),
        pytest.param(
            offloading(namespaceMappingStrategy="SelectedName", remoteNamespaceName="b"),
            offloading("b", namespaceMappingStrategy="EnforceSameName"),
            id="selected like one of the same name",
        ),
        pytest.param(
            offloading(namespaceMappingStrategy="SelectedName", remoteNamespaceName="b-rome"),
            offloading("b"),
            id="selected like a default",
        ),
        pytest.param(
            offloading("b-rome", namespaceMappingStrategy="EnforceSameName"),
            offloading("b"),
            id="same name as a default",
        ),
    ],
)
def test_two_namespaces_never_share_a_twin(obj: Object, other: Object) -> None:
    others = {Key("b", "offloading"): other}

    with pytest.raises(DeniedError, match="already that of b"):
        created(obj, others=others)


def selected(name: str) -> Object:
    return offloading(namespaceMappingStrategy="SelectedName", remoteNamespaceName=name)


@pytest.mark.parametrize("other", ["b", "b" * 62])
@pytest.mark.parametrize(("known", "whose"), [(1, "namespace b"), (0, "another namespace")])
def test_the_default_name_of_a_namespace_is_kept_for_it(other: str, known: int, whose: str) -> None:
    """Also the shortened one, and before that namespace is offloaded.

    Source: docs/parity.md H21.
    """
    wanted = naming.default_remote_namespace(other, "rome")
    told = [other][:known]

    with pytest.raises(DeniedError, match=f"{wanted}' is kept for {whose}") as denied:
        created(selected(wanted), known=told, namespaces=["shop", other])

    assert denied.value.code == 409
    assert created(selected(wanted), namespaces=["shop"]) == Admitted(warnings=[])


def test_what_is_kept_for_nobody_else_may_be_selected() -> None:
    """The own default name, and the name of a namespace that is not offloaded under it."""
    for name in ("shop-rome", "b", "x-0123456789"):
        assert created(selected(name), namespaces=["shop", "b"]) == Admitted(warnings=[])


def test_what_the_status_says_is_taken() -> None:
    other = {**offloading("b"), "status": {"remoteNamespaceName": "twin"}}
    wanted = offloading(namespaceMappingStrategy="SelectedName", remoteNamespaceName="twin")

    with pytest.raises(DeniedError, match="'twin' is already that of b"):
        created(wanted, others={Key("b", "offloading"): other}, cluster_id="")


def test_a_namespace_does_not_collide_with_itself() -> None:
    obj = offloading()

    assert created(obj, others={Key("shop", "offloading"): obj}) == Admitted(warnings=[])


@pytest.mark.parametrize(
    ("obj", "warning"),
    [
        (offloading(remoteNamespaceName="x"), "no effect without SelectedName"),
        (offloading(clusterSelector=selector(EU, {})), "nodeSelectorTerms[1] is empty"),
    ],
)
def test_what_is_odd_is_admitted_with_a_warning(obj: Object, warning: str) -> None:
    (found,) = created(obj).warnings

    assert warning in found
    assert len(found) <= 120


@factories.cases("before, after, field")
@pytest.mark.parametrize("metadata", [{}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}])
def test_mapping_and_remote_name_never_change(
    before: Object, after: Object, field: str, metadata: Object
) -> None:
    new = offloading(**after)
    new["metadata"] |= metadata

    with pytest.raises(DeniedError, match=f"spec.{field} cannot be modified"):
        rules.check_update(offloading(**before), new)


@pytest.mark.parametrize("strategy", ["DefaultName", "EnforceSameName"])
@pytest.mark.parametrize("before", ["", "a"])
@pytest.mark.parametrize("after", ["", "b", "No.Name", "kube-system"])
def test_a_remote_name_is_ignored_where_the_strategy_makes_its_own(
    strategy: str, before: str, after: str
) -> None:
    old, new = (
        offloading(namespaceMappingStrategy=strategy, remoteNamespaceName=name)
        for name in (before, after)
    )

    warnings = ["spec.remoteNamespaceName has no effect without SelectedName"] if after else []
    assert created(new).warnings == warnings
    assert [*rules.check_update(old, new).warnings] == (warnings if before != after else [])


def test_a_default_written_out_is_no_change() -> None:
    new = offloading(namespaceMappingStrategy="DefaultName")

    assert rules.check_update(offloading(), new) == Admitted(warnings=[])


STRATEGIES = ("Local", "Remote", "LocalAndRemote")


@pytest.mark.parametrize("before", STRATEGIES)
@pytest.mark.parametrize("after", STRATEGIES)
def test_only_another_rule_can_leave_pods_out_of_place(before: str, after: str) -> None:
    old, new = (offloading(podOffloadingStrategy=strategy) for strategy in (before, after))

    assert rules.is_another_rule(old, new) is (after not in (before, "LocalAndRemote"))
    selected = offloading(podOffloadingStrategy=after, clusterSelector=selector(EU))
    assert rules.is_another_rule(new, selected)


@factories.cases("count, note, told")
def test_a_change_of_strategy_tells_what_becomes_of_running_pods(
    count: int | None, note: str, told: str
) -> None:
    obj = offloading(podOffloadingStrategy="Remote")
    obj["metadata"]["annotations"] = {keys.EVICT_MISPLACED: note} if note else {}

    warnings = rules.count_warnings(obj, count)

    assert (warnings == []) is (told == "")
    assert all(told in text and len(text) <= 256 for text in warnings)


def test_a_request_to_evict_for_another_strategy_is_odd() -> None:
    obj = offloading(podOffloadingStrategy="Remote")
    obj["metadata"]["annotations"] = {keys.EVICT_MISPLACED: "Local"}

    (told,) = rules.check_update(offloading(), obj).warnings

    assert "has no effect" in told
    assert rules.check_update(obj, obj) == Admitted()


def test_a_new_selector_is_judged_and_an_old_one_is_not() -> None:
    wrong = offloading(clusterSelector=expression(operator="Near"))

    with pytest.raises(DeniedError):
        rules.check_update(offloading(), wrong)
    assert rules.check_update(wrong, wrong) == Admitted()


@pytest.mark.parametrize(
    "obj",
    [
        {"metadata": {"name": "offloading"}},
        {"metadata": [], "spec": {}},
        {"metadata": {"name": "offloading"}, "spec": "x"},
        offloading(clusterSelector=[]),
        offloading(clusterSelector={"nodeSelectorTerms": [1]}),
        offloading(clusterSelector=expression(values="eu")),
        offloading(podOffloadingStrategy=[]),
    ],
)
def test_what_is_none_is_malformed(obj: Object) -> None:
    with pytest.raises(MalformedError, match="not a NamespaceOffloading"):
        rules.check_alone(obj, "shop")


@pytest.mark.parametrize("said", POLICIES)
def test_a_policy_of_reflection_may_be_chosen_and_changed(said: str) -> None:
    assert created(by_policy(said)) == Admitted(warnings=[])
    assert rules.check_update(offloading(), by_policy(said)) == Admitted(warnings=[])


@pytest.mark.parametrize("said", ["referenced", "", "CustomLiqo", "everything"])
def test_what_is_no_policy_of_reflection_is_refused_with_those_that_are(said: str) -> None:
    about = rf"{keys.REFLECTION_POLICY} is {said!r}.*{', '.join(POLICIES)}"
    with pytest.raises(DeniedError, match=about):
        created(by_policy(said))
    with pytest.raises(DeniedError, match=about):
        rules.check_update(offloading(), by_policy(said))


def test_a_policy_that_was_there_before_is_not_judged_again() -> None:
    old, new = by_policy("referenced"), by_policy("referenced")
    new["spec"]["podOffloadingStrategy"] = "Remote"

    assert rules.check_update(old, new) == Admitted(warnings=[])
