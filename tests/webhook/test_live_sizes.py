"""Pods and cluster selectors of any size beside ordinary reviews, on a real API server.

``PYLIQO_SIZES`` pods are tried, of random sizes. Source: docs/parity.md H8.
"""

import random
import threading
import time
from typing import Any, Final

import pytest

from apis import keys
from apis.objects import Key, Object, named
from tests.conftest import size_of
from tests.factories import pod, pod_spec
from tests.webhook import reviews
from tests.webhook.installed import Installed, path_of
from tests.webhook.reviews import wait_until

pytestmark = pytest.mark.cluster

TRIED: Final = size_of("PYLIQO_SIZES", 20, 10_000)
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
DRY: Final[dict[str, Any]] = {"dryRun": "All"}


def expressions(count: int, name: str) -> Object:
    return {
        "matchExpressions": [{"key": f"{name}-{i}", "operator": "Exists"} for i in range(count)]
    }


def stored_before(live: Installed, terms: int, each: int) -> str:
    """Offload a namespace by a selector that was stored while nobody judged its size."""
    space = live.space({keys.SCHEDULING_ENABLED: "true", "judged": "no"})
    listed = [expressions(each, f"t{number}") for number in range(terms)]
    obj = reviews.offloading(space, clusterSelector={"nodeSelectorTerms": listed})
    assert live.create(keys.NAMESPACE_OFFLOADING, obj).is_done
    label = {"metadata": {"labels": {"judged": live.run}}}
    path = path_of(keys.NAMESPACE, named(keys.NAMESPACE, Key("", space)))
    assert live.send("PATCH", path, label, form="merge-patch+json").is_done
    wait_until(lambda: "shorten it" in live.create(keys.POD, pod(space), **DRY).message)
    return space


def large(live: Installed, space: str, terms: int, each: int) -> str:
    """Try a pod of that size; return what is said, empty if it is admitted."""
    listed = [expressions(each, f"own{number}") for number in range(terms)]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": listed}}}
    found = live.create(keys.POD, pod(space, spec=pod_spec(affinity=affinity)), **DRY)
    assert found.status in (201, 403, 413), found
    return found.message


def test_a_selector_that_is_too_large_is_not_stored(live: Installed) -> None:
    space = live.space()
    listed = [expressions(250, f"t{number}") for number in range(98)]
    obj = reviews.offloading(space, clusterSelector={"nodeSelectorTerms": listed})

    found = live.create(keys.NAMESPACE_OFFLOADING, obj)

    assert found.status == 422, found
    assert "250 requirements, 100 are possible" in found.message


def test_pods_of_any_size_leave_the_webhook_to_others(live: Installed) -> None:
    """The two inputs of H8 and random ones are answered; so is each ordinary pod meanwhile."""
    before = stored_before(live, 98, 250)
    many = live.offloaded(
        podOffloadingStrategy="Remote",
        clusterSelector={"nodeSelectorTerms": [expressions(1, f"t{i}") for i in range(98)]},
    )
    other = live.offloaded(podOffloadingStrategy="Remote")
    seconds: list[float] = []
    refused: list[str] = []
    over = threading.Event()

    def ordinary() -> None:
        while not over.is_set():
            began = time.monotonic()
            found = live.create(keys.POD, pod(other), **DRY)
            seconds.append(time.monotonic() - began)
            refused.extend([found.message] if not found.is_done else [])

    beside = threading.Thread(target=ordinary)
    beside.start()
    dice = random.Random(24)  # noqa: S311 - sizes, no secrets
    try:
        assert "shorten it" in large(live, before, 1, 7_000)
        assert "20000 requirements, 100 are possible" in large(live, many, 1, 20_000)
        for _ in range(TRIED):
            large(
                live, dice.choice((before, many, other)), dice.randint(1, 120), dice.randint(1, 60)
            )
    finally:
        over.set()
        beside.join()

    print(f"{len(seconds)} ordinary reviews, the slowest {max(seconds) * 1000:.0f} ms")  # noqa: T201 - a figure
    assert refused == []
    assert len(seconds) > TRIED  # none of them waited for a large one that takes its time
