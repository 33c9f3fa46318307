"""A server whose watch broke is asked for its version once, and believed no later one of its own.

What comes of it on a real server: ``tests/reflector/test_etcd.py``.
"""

import pytest

from apis import keys
from apis.objects import Object
from kube import behind
from kube.behind import Doubts
from kube.cluster import Selection


def test_it_is_in_doubt_from_the_loss_of_its_watch_until_the_server_was_asked() -> None:
    doubts, of = Doubts(), Selection(keys.CONFIG_MAP, Object, "default")
    assert of not in doubts

    doubts.lost(of)
    assert of in doubts
    assert Selection(keys.SECRET, Object, "default") not in doubts

    doubts.asked(of)
    assert of not in doubts


@pytest.mark.parametrize(
    ("version", "since", "expected"),
    [("9", "10", True), ("10", "10", False), ("11", "10", False), ("", "10", False),
     ("9", "", False), ("zz-9", "10", False), ("9", "1" * 5_000, False), ("\u0663", "10", False)],
)  # fmt: skip
def test_only_versions_that_are_numbers_are_compared(
    version: str, since: str, *, expected: bool
) -> None:
    assert behind.is_behind(version, since) is expected
