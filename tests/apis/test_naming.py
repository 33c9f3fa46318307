"""Names: the vectors of the documents, and the limits of Kubernetes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis import naming
from certs import pki
from tests import factories

dns_labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,100}[a-z0-9])?", fullmatch=True)


@factories.cases("consumer, suffix")
def test_quota_name(consumer: str, suffix: str) -> None:
    assert naming.quota_name("mypool", consumer) == f"mypool-{suffix}"


@pytest.mark.parametrize("length", [16, 17, 50, 51, 52, 53, 63])
def test_long_names_are_still_names_of_certificates(length: int) -> None:
    long = "x" * length
    user = naming.quota_name(long, "rome")

    assert naming.is_label_value(user)
    assert user.endswith(naming.quota_name("", "rome")), "no slice of another consumer has it"
    assert naming.peering_user(long, "f" * 32).endswith(f"-{'f' * 32}")
    for name in (user, naming.peering_user(long, "f" * 32), naming.serving_name(long)):
        assert len(name) <= 64
        pki.new_csr(pki.new_key(), common_name=name)
    assert user != naming.quota_name(f"{long[:-1]}y", "rome")
    assert naming.serving_name(long) != naming.serving_name(f"{long[:-1]}y")


@factories.cases("consumer, name")
def test_root_ca_config_map(consumer: str, name: str) -> None:
    assert naming.root_ca_config_map(consumer) == name


def test_token_key() -> None:
    assert naming.token_key("kube-api-access-x", "token") == "kube-api-access-x-3c469e"
    assert naming.token_key("v", "vault-token").endswith("-1be23b")


def test_names_that_follow_from_others() -> None:
    assert naming.default_remote_namespace("foo", "rome") == "foo-rome"
    assert naming.tenant_namespace("milan") == "liqo-tenant-milan"
    assert naming.vk_deployment("mypool") == "vk-mypool"


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        ("n" * 58, "n" * 58 + "-rome"),  # 63 characters: as it is
        ("n" * 59, "n" * 52 + "-2d29a47080"),
        ("n" * 50 + "-" + "n" * 12, "n" * 50 + "-n-dcb6f3dbee"),
        ("n" * 51 + "-" + "n" * 11, "n" * 51 + "-3a5bbf5e69"),
    ],
)
def test_a_twin_with_a_long_name_is_called_the_same_for_ever(namespace: str, name: str) -> None:
    """Its first 52 characters, a dash at their end cut, and 10 of the SHA-256 of the whole."""
    found = naming.default_remote_namespace(namespace, "rome")

    assert found == name
    assert naming.is_dns_label(found)


@given(dns_labels)
def test_a_tenant_namespace_is_legal_for_every_cluster_id(cluster_id: str) -> None:
    name = naming.tenant_namespace(cluster_id)

    assert naming.is_dns_label(name)
    assert len(name) > 50 or name == f"liqo-tenant-{cluster_id}"


@given(st.lists(dns_labels, min_size=2, max_size=2, unique=True))
def test_different_names_stay_different(names: list[str]) -> None:
    one, two = (naming.shorten(name) for name in names)

    assert one != two
    assert naming.is_dns_label(one)
    assert naming.is_dns_label(two)


@given(dns_labels, st.integers(min_value=20, max_value=253))
def test_shortening_twice_is_shortening_once(name: str, limit: int) -> None:
    once = naming.shorten(name, limit)

    assert len(once) <= limit
    assert naming.shorten(once, limit) == once


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("a", "label subdomain value key"),
        ("a-b", "label subdomain value key"),
        ("a.b", "subdomain value key"),
        ("A", "value key"),
        ("a_b", "value key"),
        ("a..b", "value key"),
        ("", "value"),
        ("-a", ""),
        ("a-", ""),
        ("a/b", "key"),
        ("A.x/b", ""),
        ("a/b/c", ""),
        ("a\n", ""),
        ("é", ""),
        ("a" * 63, "label subdomain value key"),
        ("a" * 64, "subdomain"),
        ("a" * 254, ""),
        ("a" * 253 + "/b", "key"),
    ],
)
def test_what_a_name_may_be(name: str, rules: str) -> None:
    met = {
        "label": naming.is_dns_label(name),
        "subdomain": naming.is_dns_subdomain(name),
        "value": naming.is_label_value(name),
        "key": naming.is_qualified_name(name),
    }

    assert {rule for rule, holds in met.items() if holds} == set(rules.split())
