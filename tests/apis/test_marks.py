"""What of a user's labels and annotations goes to a provider."""

from apis import allowlist, keys


def test_the_domains_in_which_names_mean_something() -> None:
    ours = ("liqo.io/a", "pyliqo.io/a", "offloading.liqo.io/a", "a.b.pyliqo.io/a")
    others = ("a", "notliqo.io/a", "liqo.io", "liqo.io.example/a", "a/liqo.io/b", "xliqo.io/a")

    assert all(map(allowlist.is_ours, ours))
    assert not any(map(allowlist.is_ours, others))


def test_annotations_of_a_replica_leave_room_for_those_of_its_provider() -> None:
    """X1, X2: what is too much stays at the consumer, our own marks never."""
    noted = {
        "long": "x" * allowlist.MOST_CHARACTERS,
        "b": "y" * 100,
        keys.CREATE_VIRTUAL_NODE: "true",
    }

    kept = allowlist.annotations_of_replica({**noted, keys.LAST_APPLIED: "{}"})

    assert kept == {name: value for name, value in noted.items() if name != "long"}


def test_what_a_provider_refuses_stays_at_the_consumer() -> None:
    noted = {keys.CREATE_VIRTUAL_NODE: "true", keys.CORDON: "true", "odd.liqo.io/x": "y", "a": "b"}
    labels = {keys.REMOTE_ID: "milan", keys.OWNERSHIP: "x", keys.TENANT_NAMESPACE: "true", "a": "b"}
    users = {keys.REPLICATED: "true", keys.ORIGIN: "turin", "liqo.io/x": "y", "a": "b"}

    kept = {keys.CREATE_VIRTUAL_NODE: "true", "a": "b"}
    assert allowlist.annotations_of_replica(noted) == kept
    assert allowlist.labels_of_replica(labels) == {keys.REMOTE_ID: "milan", "a": "b"}
    assert allowlist.labels_of_shadow(users) == {"liqo.io/x": "y", "a": "b"}
