"""ProviderPolicies: which one holds, what each field means, what cannot be read."""

from typing import Any

import pytest

from apis import providerpolicy, resources
from apis.offloading import MappingStrategy, OfferedClass
from apis.providerpolicy import ProviderPolicy, Sharing
from tests import factories


def parsed(**spec: Any) -> ProviderPolicy:
    return ProviderPolicy.parse({"metadata": {"name": "rome"}, "spec": spec})


def test_without_a_word_the_defaults_hold() -> None:
    assert parsed() == ProviderPolicy(name="rome")
    assert parsed().sharing == Sharing(90, {}, "AtLeastOne")
    assert parsed().allows_name("anything")
    assert parsed().allows_class("anything")
    assert parsed().class_of("") == "default"
    assert parsed().allows_strategy("foo", "foo", "rome")


def test_each_field_is_read() -> None:
    policy = parsed(
        sharing={"percentage": 0, "resources": {"cpu": 10}, "rounding": "Down"},
        limits={"cpu": "10"},
        remoteNamespaces={"pattern": "a-.*", "max": 3},
        podSecurityLevel="restricted",
        limitsEnforcement="Soft",
        resourceSliceClasses={"allowed": ["shared"], "default": "shared"},
        namespaceMappingStrategies=["DefaultName", "EnforceSameName"],
        storageClasses=[],
        ingressClasses=[{"ingressClassName": "nginx", "default": True}],
        nodeLabels={"region": "sicily"},
    )

    assert (policy.sharing.percent_of("cpu"), policy.sharing.percent_of("memory")) == (10, 0)
    assert policy.limits == resources.parse_resources({"cpu": "10"})
    assert (policy.allows_name("a-b"), policy.allows_name("ba-b")) == (True, False)
    assert policy.remote_namespaces.max == 3
    assert policy.pod_security_level == "restricted"
    assert policy.limits_enforcement == "Soft"
    assert [*map(policy.class_of, ("", "default", "gold"))] == ["shared", "shared", "gold"]
    assert policy.allows_class("")
    assert policy.allows_class("default")
    assert not policy.allows_class("gold")
    assert policy.allows_strategy("foo", "foo-rome", "rome")
    assert policy.allows_strategy("foo", "foo", "rome")
    assert not policy.allows_strategy("foo", "bar", "rome")
    assert (policy.storage_classes, policy.load_balancer_classes) == ((), None)
    assert policy.ingress_classes == (OfferedClass("nginx", is_default=True),)
    assert policy.node_labels == {"region": "sicily"}


def test_what_may_be_named_may_mean_another_class() -> None:
    policy = parsed(resourceSliceClasses={"allowed": ["default"], "default": "shared"})

    assert [*map(policy.allows_class, ("", "default", "shared"))] == [True, True, False]


def test_sharing_in_words() -> None:
    assert parsed().sharing.told() == "90% of what is free"
    more = parsed(sharing={"percentage": 50, "resources": {"x/gpu": 100, "cpu": 10}}).sharing
    assert more.told() == "50% of what is free (cpu 10%, x/gpu 100%)"


@factories.cases("spec, message")
def test_what_cannot_be_read_is_named(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"providerpolicy rome cannot be read: .*{message}"):
        parsed(**spec)


@pytest.mark.parametrize(
    ("local", "twin", "strategy"),
    [
        ("foo", "foo", MappingStrategy.ENFORCE_SAME_NAME),
        ("foo", "foo-rome", MappingStrategy.DEFAULT_NAME),
        ("foo", "bar", MappingStrategy.SELECTED_NAME),
    ],
)
def test_a_name_tells_its_strategy(local: str, twin: str, strategy: MappingStrategy) -> None:
    assert providerpolicy.strategy_of(local, twin, "rome") is strategy


def test_levels_are_ordered_and_any_is_stricter_than_none() -> None:
    assert providerpolicy.is_stricter("restricted", "baseline")
    assert providerpolicy.is_stricter("privileged", "")
    assert not providerpolicy.is_stricter("baseline", "restricted")
    assert not providerpolicy.is_stricter("baseline", "baseline")


def test_what_twins_repeat_has_a_bound() -> None:
    """Kubernetes allows 256 KiB of annotations in all."""
    many = [{"storageClassName": f"{'a' * 60}{number}"} for number in range(250)]

    with pytest.raises(ValueError, match=r"annotationDomains\} have \d+ characters, 16384 at most"):
        parsed(storageClasses=many)
    assert parsed(storageClasses=many[:100])
