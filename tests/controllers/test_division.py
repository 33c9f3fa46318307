"""How much each slice gets, and that sums hold whatever is held meanwhile."""

import random

from apis import providerpolicy, resources
from apis.objects import Key
from apis.providerpolicy import ProviderPolicy, Sharing
from apis.resources import Quantity, Resources
from controllers.granting.grants.forge import division
from controllers.granting.grants.forge.division import Share, SliceDemand


def policy(name: str = "default", percentage: int = 90, **limits: str) -> ProviderPolicy:
    return ProviderPolicy(
        name=name, sharing=Sharing(percentage), limits=resources.parse_resources(limits)
    )


def claim(  # noqa: PLR0913  # all by name
    name: str,
    wanted: dict[str, str] | None = None,
    *,
    tenant: str = "rome",
    held: dict[str, str] | None = None,
    by: ProviderPolicy | None = None,
    is_shared: bool = True,
    is_frozen: bool = False,
    is_leaving: bool = False,
) -> SliceDemand:
    return SliceDemand(
        Key(tenant, name),
        tenant,
        by or policy(),
        resources.parse_resources(wanted),
        resources.parse_resources(held),
        name,
        is_shared=is_shared,
        is_frozen=is_frozen,
        is_leaving=is_leaving,
    )


def divided(*claims: SliceDemand, **free: str) -> dict[str, Share]:
    shares = division.divide(claims, resources.parse_resources(free))
    return {key.name: share for key, share in shares.items()}


def cpus(share: Share) -> tuple[str, str]:
    return str(share.target["cpu"]), str(share.now["cpu"])


def test_one_slice_gets_the_percentage_of_what_is_free() -> None:
    for free, part in (("100", "90"), ("50", "45"), ("200", "180")):
        assert cpus(divided(claim("a"), cpu=free)["a"]) == (part, part)


def test_two_slices_divide_it_and_the_second_waits_for_the_first_to_give_back() -> None:
    shares = divided(claim("a", held={"cpu": "90"}), claim("b", tenant="turin"), cpu="100")

    assert cpus(shares["a"]) == ("45", "45")
    assert cpus(shares["b"]) == ("45", "0")
    assert not shares["b"].is_final
    later = divided(claim("a", held={"cpu": "45"}), claim("b", tenant="turin"), cpu="100")
    assert cpus(later["b"]) == ("45", "45")


def test_who_asks_for_less_leaves_the_rest_to_the_others() -> None:
    shares = divided(claim("a", {"cpu": "10"}), claim("b"), cpu="100")

    assert (cpus(shares["a"])[0], cpus(shares["b"])[0]) == ("10", "80")


def test_who_asks_for_more_is_told_what_there_is() -> None:
    share = divided(claim("a", {"cpu": "100", "x/gpu": "1"}), cpu="100")["a"]

    assert cpus(share) == ("90", "90")
    assert share.notes == (
        "cpu: asked for 100, 90 of it is free to share",
        "x/gpu: asked for 1, none of it is free to share",
    )


def test_tenants_have_percentages_of_their_own() -> None:
    small = policy("turin", 20)
    shares = divided(claim("a"), claim("b", tenant="turin", by=small), cpu="100")

    assert cpus(shares["b"])[0] == "20"
    assert cpus(shares["a"])[0] == "70"


def test_one_gpu_goes_to_the_oldest_and_the_others_are_told() -> None:
    shares = divided(claim("a"), claim("b"), **{"cpu": "2", "x/gpu": "1"})

    assert str(shares["a"].target["x/gpu"]) == "1"
    assert not shares["b"].target["x/gpu"]
    assert "x/gpu: 1 to share, none left for this slice" in shares["b"].notes


def test_limits_hold_and_who_has_something_keeps_it() -> None:
    bounded = policy(cpu="10")
    old = claim("a", {"cpu": "9"}, held={"cpu": "4"}, by=bounded, is_shared=False)
    new = claim("b", {"cpu": "4"}, held={"cpu": "4"}, by=bounded, is_shared=False)

    shares = divided(old, new)

    assert (cpus(shares["a"]), cpus(shares["b"])) == (("6", "6"), ("4", "4"))
    assert shares["a"].notes == ("cpu: 6 of 9, policy default grants 10 in all",)


def test_lowered_limits_take_from_the_youngest() -> None:
    bounded = policy(cpu="5")
    old = claim("a", {"cpu": "4"}, held={"cpu": "4"}, by=bounded, is_shared=False)
    new = claim("b", {"cpu": "4"}, held={"cpu": "4"}, by=bounded, is_shared=False)

    shares = divided(old, new)

    assert (cpus(shares["a"])[0], cpus(shares["b"])[0]) == ("4", "1")


def test_without_limits_more_is_granted_than_there_is() -> None:
    shares = divided(claim("a", {"cpu": "1000"}, is_shared=False), cpu="1")

    assert cpus(shares["a"]) == ("1k", "1k")


def test_a_cordoned_tenant_keeps_what_it_has_and_gets_no_more() -> None:
    more = claim("a", {"cpu": "9"}, held={"cpu": "4"}, is_shared=False, is_frozen=True)
    less = claim("b", {"cpu": "2"}, held={"cpu": "4"}, is_shared=False, is_frozen=True)

    shares = divided(more, less)

    assert (cpus(shares["a"])[0], cpus(shares["b"])[0]) == ("4", "2")


def test_what_goes_counts_until_it_is_gone() -> None:
    gone = claim("a", held={"cpu": "30"}, is_leaving=True)

    shares = divided(gone, claim("b"), cpu="100")

    assert cpus(shares["b"]) == ("60", "60")
    assert "a" not in shares


def test_the_sums_hold_at_each_step_whatever_order_they_are_written_in() -> None:
    """Thirty slices of three tenants that want something else each time, and write in any order."""
    dice = random.Random(3)  # noqa: S311  # to be repeatable
    rules = {name: policy(name, cut, cpu="70") for name, cut in (("a", 90), ("b", 50), ("c", 10))}
    held: dict[Key, Resources] = {}
    wants: dict[Key, dict[str, str]] = {}
    for _ in range(300):
        free = str(dice.randrange(20, 200))
        key = Key(dice.choice("abc"), str(dice.randrange(10)))
        wants[key] = dice.choice([{}, {"cpu": str(dice.randrange(0, 40))}])
        claims = [
            SliceDemand(
                one,
                one.namespace,
                rules[one.namespace],
                resources.parse_resources(want),
                held.get(one, {}),
                one.name,
                is_shared=one.namespace != "c",
            )
            for one, want in wants.items()
        ]
        shares = division.divide(claims, resources.parse_resources({"cpu": free}))
        for one in dice.sample(sorted(shares), len(shares)):
            before = held.get(one, {}).get("cpu", Quantity())
            now = shares[one].now.get("cpu", Quantity())
            held[one] = {"cpu": now}
            if now > before:
                check_division(held, rules, free, one.namespace)


def check_division(
    held: dict[Key, Resources], rules: dict[str, ProviderPolicy], free: str, tenant: str
) -> None:
    """Show that a slice of ``tenant`` did not grow beyond what bounds it."""

    def total(tenants: str) -> Quantity:
        mine = [amounts for key, amounts in held.items() if key.namespace in tenants]
        return resources.total(mine).get("cpu", Quantity())

    assert total(tenant) <= rules[tenant].limits["cpu"]
    if tenant == "c":
        return
    pool = resources.parse_resources({"cpu": free})["cpu"].nanos
    assert total("ab").nanos * 100 <= pool * 90
    assert total(tenant).nanos * 100 <= pool * rules[tenant].sharing.percentage


def test_a_policy_of_ones_own_replaces_the_default_whole() -> None:
    default = {"metadata": {"name": "default"}, "spec": {"limits": {"cpu": "1"}}}
    own = {"metadata": {"name": "rome"}, "spec": {"sharing": {"percentage": 10}}}

    assert providerpolicy.policy_of([default, own], "rome").limits == {}
    assert providerpolicy.policy_of([default, own], "rome").sharing.percentage == 10
    assert providerpolicy.policy_of([default, own], "turin").limits == resources.parse_resources(
        {"cpu": "1"}
    )
    assert providerpolicy.policy_of([], "turin") == ProviderPolicy()
