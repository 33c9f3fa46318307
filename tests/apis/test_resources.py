"""What pods take, exactly, and whether it fits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis import resources
from apis.resources import Quantity

amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 10**12).map(Quantity)
)


def container(**rest: Any) -> dict[str, Any]:
    sidecar = rest.pop("sidecar", False)
    made: dict[str, Any] = {"name": "c", "resources": {"requests": rest}}
    return {**made, "restartPolicy": "Always"} if sidecar else made


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": []}, {}),
        ({"containers": [{"name": "c"}, {"name": "d", "resources": {"requests": None}}]}, {}),
        (
            {
                "containers": [container(cpu="100m"), container(cpu="200m")],
                "initContainers": [container(cpu="500m")],
            },
            {"cpu": "500m"},
        ),
        (
            {
                "containers": [container(cpu="50m")],
                "initContainers": [container(cpu="100m"), container(cpu="900m")],
            },
            {"cpu": "900m"},
        ),
        (
            {"containers": [container(cpu="1")], "initContainers": [container(memory="1Gi")]},
            {"cpu": "1", "memory": "1Gi"},
        ),
        (
            {
                "containers": [container(cpu="100m")],
                "initContainers": [container(cpu="200m", sidecar=True), container(cpu="50m")],
            },
            {"cpu": "300m"},
        ),
        (
            {
                "containers": [container(cpu="100m")],
                "initContainers": [container(cpu="200m", sidecar=True), container(cpu="400m")],
            },
            {"cpu": "600m"},
        ),
        (
            {
                "containers": [container(cpu="100m")],
                "initContainers": [container(cpu="400m"), container(cpu="200m", sidecar=True)],
            },
            {"cpu": "400m"},
        ),
    ],
)
def test_usage(spec: dict[str, Any], expected: dict[str, str]) -> None:
    assert resources.to_json(resources.usage(spec)) == expected


@given(amounts, amounts, amounts)
def test_a_total_does_not_depend_on_the_order(one: Any, two: Any, three: Any) -> None:
    assert resources.total([one, two, three]) == resources.total([three, one, two])


@given(amounts, amounts)
def test_what_is_taken_is_missing_after(there: Any, taken: Any) -> None:
    left = resources.less(there, taken)

    fits = all(name in there and there[name] >= amount for name, amount in taken.items())
    assert resources.fits(taken, there) == fits
    assert {name: left[name] + taken.get(name, Quantity()) for name in there} == there


def test_what_is_lacking_is_named() -> None:
    free = resources.parse_resources({"cpu": "1", "memory": "1Gi"})
    wanted = resources.parse_resources({"cpu": "1001m", "memory": "1024Mi", "nvidia.com/gpu": 1})

    assert resources.lacking(wanted, free) == ["cpu", "nvidia.com/gpu"]


def test_a_wrong_amount_names_its_resource() -> None:
    with pytest.raises(ValueError, match=r"resource cpu: 'lots' is not a quantity"):
        resources.parse_resources({"cpu": "lots"})


def test_amounts_are_read_and_written_in_canonical_form() -> None:
    assert resources.to_json(resources.parse_resources({"cpu": "1000m", "pods": 110})) == {
        "cpu": "1",
        "pods": "110",
    }
    assert resources.parse_resources(None) == {}
    assert resources.parse_quantity("1") == resources.parse_resources({"cpu": 1})["cpu"]
