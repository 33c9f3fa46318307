"""What pods take, exactly, and whether it fits."""

from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis import resources
from apis.resources import NANO, Form, Quantity

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
        (
            {
                "containers": [container(cpu="100m", memory="1Gi")],
                "resources": {"requests": {"cpu": "2", "hugepages-2Mi": "4Mi", "gpu": "3"}},
            },
            {"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "4Mi"},
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


# Quantities: exact, canonical as Kubernetes writes them, and bounded.


SUFFIXES: Final = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18), "Ki": Fraction(2**10), "Mi": Fraction(2**20),
    "Gi": Fraction(2**30), "Ti": Fraction(2**40), "e3": Fraction(1000), "E-2": Fraction(1, 100),
}  # fmt: skip

numbers = st.from_regex(r"[0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12}", fullmatch=True)
texts = st.builds(
    "{}{}{}".format, st.sampled_from(["", "+", "-"]), numbers, st.sampled_from(list(SUFFIXES))
)
any_amounts = st.builds(Quantity, st.integers(-(10**30), 10**30), st.sampled_from(Form))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("0Gi", "0"),
        ("1000m", "1"),
        ("1.5", "1500m"),
        ("0.5Gi", "512Mi"),
        ("1.5Gi", "1536Mi"),
        ("1536", "1536"),
        ("1024Ki", "1Mi"),
        ("1000Ki", "1000Ki"),
        ("0.1Ki", "102400m"),
        ("500Ki", "500Ki"),
        ("2000", "2k"),
        ("1e3", "1e3"),
        ("1500e0", "1500"),
        ("1E", "1E"),
        ("1000E", "1000E"),
        ("1E3", "1e3"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("-100m", "-100m"),
        ("+5.", "5"),
        (".5", "500m"),
        ("8Ei", str(2**63 - 1)),
        (7, "7"),
    ],
)
def test_canonical_form(text: str | int, canonical: str) -> None:
    assert str(resources.parse_quantity(text)) == canonical


@given(texts)
def test_the_value_is_exact_and_rounded_up_to_billionths(text: str) -> None:
    suffix = max((s for s in SUFFIXES if text.endswith(s)), key=len)
    exact = Fraction(text.removesuffix(suffix)) * SUFFIXES[suffix] * NANO
    rounded = -(-abs(exact) // 1)

    parsed = resources.parse_quantity(text).nanos

    assert abs(parsed) == rounded or suffix.endswith("i")
    assert parsed == 0 or (parsed < 0) == (exact < 0)


@given(any_amounts)
def test_what_is_written_reads_as_the_same_amount(amount: Quantity) -> None:
    assert resources.parse_quantity(str(amount)) == amount
    assert Fraction(amount.value) == Fraction(amount.nanos, NANO)


@given(any_amounts, any_amounts, any_amounts)
def test_addition_is_that_of_integers(one: Quantity, two: Quantity, three: Quantity) -> None:
    assert (one + two) + three == one + (two + three)
    assert one + two == two + one
    assert one + two - two == one
    assert one + -one == Quantity()
    assert (one < two) == (one.nanos < two.nanos)


@given(st.integers(-(10**15), 10**15))
def test_rounding_is_up(nanos: int) -> None:
    amount = Quantity(nanos)

    assert (amount.whole - 1) * NANO < nanos <= amount.whole * NANO


def test_tenths_are_tenths() -> None:
    tenth = resources.parse_quantity("0.1")

    assert tenth + tenth + tenth == resources.parse_quantity("300m")
    assert (tenth + tenth + tenth).value == Decimal("0.3")


def test_the_form_is_that_of_the_first_amount_there_is() -> None:
    assert str(resources.parse_quantity("1Gi") + resources.parse_quantity("1024")) == "1048577Ki"
    assert str(Quantity() + resources.parse_quantity("1Gi")) == "1Gi"


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "-", "+-1", "1.2.3", "NaN", "nan", "Infinity", "inf", "-inf", "1K", "1ki", "1 ",
        " 1", "1 Gi", "1e", "1e+", "1e31", "1e9999", "1e99999999999", "1e1.5", "1e999999999",
        "1e308", "1e-308", "1e2147483648", "-1e999999999", "9" * 10_240, "0." + "0" * 10_240 + "1",
        "0x10", "1_000", "\u0661", "1mm", "Gi", "1" * 65, "9" * 5000, 0.5,
        float("nan"), True, None, 10**80, [], {},
    ],
)  # fmt: skip
def test_what_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"quantity|exponent"):
        resources.parse_quantity(text)  # type: ignore[arg-type]  # what a user may send


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        amount = resources.parse_quantity(text)
    except ValueError:
        return
    assert resources.parse_quantity(str(amount)) == amount
