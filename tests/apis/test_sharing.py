"""How much is free, how much of that is shared, and how several divide it."""

import random

import pytest

from apis import keys, resources, sharing, slices
from apis.providerpolicy import Sharing
from apis.resources import Quantity
from tests import factories


@pytest.mark.parametrize(
    ("free", "percent", "shared"),
    [
        ({"cpu": "100"}, 90, {"cpu": "90"}),
        ({"cpu": "50"}, 90, {"cpu": "45"}),
        ({"cpu": "200"}, 90, {"cpu": "180"}),
        ({"cpu": "333m"}, 50, {"cpu": "166m"}),
        ({"memory": "15Gi"}, 90, {"memory": "13824Mi"}),
        ({"nvidia.com/gpu": "1"}, 90, {"nvidia.com/gpu": "1"}),
        ({"nvidia.com/gpu": "10"}, 90, {"nvidia.com/gpu": "9"}),
        ({"nvidia.com/gpu": "0"}, 90, {"nvidia.com/gpu": "0"}),
        ({"nvidia.com/gpu": "1"}, 0, {"nvidia.com/gpu": "0"}),
        ({"pods": "110"}, 90, {"pods": "99"}),
        ({"ephemeral-storage": "15Gi"}, 90, {"ephemeral-storage": "13824Mi"}),
        ({"hugepages-2Mi": "200Mi"}, 90, {"hugepages-2Mi": "180Mi"}),
        ({"hugepages-2Mi": "10Mi"}, 90, {"hugepages-2Mi": "8Mi"}),
        ({"hugepages-1Gi": "1Gi"}, 90, {"hugepages-1Gi": "1Gi"}),
        ({"hugepages-1Gi": "4Gi"}, 90, {"hugepages-1Gi": "3Gi"}),
        ({"hugepages-what": "10Mi"}, 50, {"hugepages-what": "5Mi"}),
    ],
)
def test_a_percentage_of_what_is_free(
    free: dict[str, str], percent: int, shared: dict[str, str]
) -> None:
    found = sharing.pool(resources.parse_resources(free), Sharing(percent))

    assert resources.to_json(found.amounts) == shared


def test_one_resource_may_have_a_percentage_of_its_own() -> None:
    available = resources.parse_resources({"cpu": "100", "nvidia.com/gpu": "10"})

    found = sharing.pool(available, Sharing(90, {"nvidia.com/gpu": 50}))

    assert resources.to_json(found.amounts) == {"cpu": "90", "nvidia.com/gpu": "5"}


@pytest.mark.parametrize(
    ("rounding", "note"),
    [
        ("AtLeastOne", "nvidia.com/gpu: 90% of 1 free is 0.9, granted 1 (rounding AtLeastOne)"),
        ("Down", "nvidia.com/gpu: 90% of 1 free is 0.9, granted 0 (rounding Down)"),
    ],
)
def test_what_is_rounded_is_said(rounding: str, note: str) -> None:
    available = resources.parse_resources({"nvidia.com/gpu": "1", "cpu": "1"})

    found = sharing.pool(available, Sharing(rounding=rounding))

    assert found.notes == {"nvidia.com/gpu": note}


@pytest.mark.parametrize(("rounding", "granted"), [("AtLeastOne", "1Gi"), ("Down", "0")])
def test_a_page_that_is_rounded_is_said(rounding: str, granted: str) -> None:
    found = sharing.pool(
        resources.parse_resources({"hugepages-1Gi": "1Gi"}), Sharing(rounding=rounding)
    )

    assert resources.to_json(found.amounts) == {"hugepages-1Gi": granted}
    assert f"granted {granted} (rounding {rounding})" in found.notes["hugepages-1Gi"]


@pytest.mark.parametrize(("pages", "parts"), [(3, ["2Gi", "1Gi"]), (1, ["1Gi", "0"])])
def test_consumers_divide_whole_pages(pages: int, parts: list[str]) -> None:
    total = resources.parse_quantity(f"{pages}Gi")

    assert [str(part) for part in sharing.shares("hugepages-1Gi", total, [None, None])] == parts


def test_no_piece_is_lost_without_a_word_whatever_the_numbers() -> None:
    dice = random.Random(7)  # noqa: S311  # to be repeatable
    for _ in range(10_000):
        pieces, percent = dice.randrange(0, 500), dice.randrange(0, 101)
        free = {"example.com/fpga": resources.parse_quantity(pieces)}
        for rounding in ("AtLeastOne", "Down"):
            found = sharing.pool(free, Sharing(percent, rounding=rounding))
            shared = found.amounts["example.com/fpga"]
            assert shared <= free["example.com/fpga"]
            if pieces and percent and rounding == "AtLeastOne":
                assert shared >= resources.parse_quantity(1)
            if shared.nanos != free["example.com/fpga"].nanos * percent // 100:
                assert "example.com/fpga" in found.notes


@factories.cases("total, wants, parts")
def test_several_divide_it_fairly(total: int, wants: list[int | None], parts: list[int]) -> None:
    assert sharing.fair(total, wants) == parts


def test_a_division_gives_away_all_that_is_wanted_and_no_more() -> None:
    dice = random.Random(11)  # noqa: S311  # to be repeatable
    for _ in range(2_000):
        total = dice.randrange(0, 1000)
        wants = [dice.choice([None, dice.randrange(0, 300)]) for _ in range(dice.randrange(1, 9))]
        parts = sharing.fair(total, wants)
        bounded = [total if want is None else min(want, total) for want in wants]
        assert sum(parts) == min(total, sum(bounded))
        assert all(part <= want for part, want in zip(parts, bounded, strict=True))


def test_what_pods_take_is_not_free_and_less_than_nothing_is_nothing() -> None:
    nodes = [
        resources.parse_resources({"cpu": "60", "x/gpu": 1}),
        resources.parse_resources({"cpu": "40"}),
    ]

    found = sharing.free(nodes, resources.parse_resources({"cpu": "50", "x/gpu": 2, "pods": 3}))

    assert resources.to_json(found) == {"cpu": "50", "x/gpu": "0"}


CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


@pytest.mark.parametrize(
    ("node", "is_usable"),
    [
        (READY, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, False),
        ({**READY, "spec": {"unschedulable": True}}, False),
        ({**READY, "metadata": {"labels": {"liqo.io/type": "virtual-node"}}}, False),
        ({**READY, "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}}, True),
        ({**READY, "spec": {"taints": [{"key": CONTROL_PLANE, "effect": "NoSchedule"}]}}, False),
    ],
)
def test_nodes_that_consumers_can_use(node: dict[str, object], is_usable: bool) -> None:  # noqa: FBT001
    assert sharing.is_usable({"metadata": {}, **node}) is is_usable


def test_amounts_are_cut_to_what_can_be_used() -> None:
    (cut,) = sharing.shares("memory", Quantity(10**9 * (2**20 + 1)), [None])
    assert cut.nanos == 10**9 * 2**20


def test_a_slice_is_cordoned_itself_or_with_its_tenant_unless_that_says_no() -> None:
    for name in (keys.CORDON, keys.CORDON_TENANT):
        said = [{"metadata": {"annotations": {name: one}}} for one in ("", "true", "false", "0")]
        assert [*map(slices.is_cordoned, said)] == [True, True, False, False]
