"""When a peer does not come back. Source: docs/parity.md § 4.3 (2)."""

import pytest

from apis import keys, offloading
from apis.objects import Key, Object, named


def foreign_cluster(given_up: str | None, status: str | None) -> Object:
    annotations = {keys.PERMANENTLY_UNREACHABLE: given_up} if given_up is not None else {}
    found = named(keys.FOREIGN_CLUSTER, Key("", "milan"), metadata={"annotations": annotations})
    condition = {"type": "APIServerStatus", "status": status}
    return found | ({"status": {"conditions": [condition]}} if status else {})


@pytest.mark.parametrize(
    ("found", "is_gone"),
    [
        (None, False),
        (foreign_cluster(None, None), False),
        (foreign_cluster(None, "Error"), False),
        (foreign_cluster("true", None), True),
        (foreign_cluster("true", "Error"), True),
        (foreign_cluster("True", "Pending"), True),
        (foreign_cluster("true", "Established"), False),
        (foreign_cluster("false", "Error"), False),
        (foreign_cluster("", "Error"), False),
    ],
)
def test_a_peer_is_gone_when_an_administrator_says_so_and_it_is_silent(
    found: Object | None, *, is_gone: bool
) -> None:
    assert offloading.is_gone_for_good(found) is is_gone
