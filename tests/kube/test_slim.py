"""What caches keep of objects is small, and comes out as it went in."""

from typing import Any

import msgspec
import pytest

from apis import keys
from apis.objects import Key, Object, named
from kube.slim import Packed, PackedState
from tests import factories


def config(size: int) -> Object:
    metadata = {"uid": "u-1", "resourceVersion": "7"}
    return named(keys.CONFIG_MAP, Key("shop", "web"), metadata=metadata, data={"ä": "x" * size})


@pytest.mark.parametrize("size", [0, 1000, 2**15, 2**20])
def test_whatever_its_size_an_object_is_what_it_was(size: int) -> None:
    packed = Packed.of(config(size))
    assert packed.whole() == config(size)
    assert msgspec.json.decode(packed.json(), type=dict[str, Any]) == config(size)
    assert (packed.metadata.uid, packed.metadata.resourceVersion) == ("u-1", "7")


def test_a_pod_is_kept_as_half_its_json_at_most_and_a_large_object_as_it_is() -> None:
    metadata = {"uid": "0b4cf1d0-6f0e-4b8a-9df0-62f2f1fb8a11", "resourceVersion": "123456"}
    condition = {"status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"}
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    status = {"phase": "Running", "conditions": [{"type": kind, **condition} for kind in kinds]}
    pod = factories.pod("shop", "web", metadata=metadata, status=status)
    for packed in (Packed.of(pod), PackedState.of(pod)):
        assert len(packed.packed) * 2 < len(packed.json())
    large = Packed.of(config(2**20))
    assert large.packed is large.json(), "milliseconds are not spent on it"
