"""Pods that fail over there, and how soon that is told at home.

``PYLIQO_TEST_FAILURES=10`` has so many fail in each way.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from apis import keys
from apis.objects import Key, Object
from kube.client import ClusterClient
from tests.conftest import size_of
from tests.journeys import world

FAILURES: Final = size_of("PYLIQO_TEST_FAILURES", 1, 10)


@dataclass(frozen=True)
class Wrong:
    """A pod that fails over there, and what is told of it here."""

    container: Object
    """What is said of its container."""
    is_told: Callable[[Object], bool]
    """Whether the status of a pod, here or there, tells it."""
    reason: str
    """Of the Event at home."""
    text: str
    is_made: bool = True
    """Whether there is a Pod over there; what is refused counts from its binding here."""


async def until_told(both: world.Pair, key: Key, reason: str, text: str) -> None:
    """Return once an Event of that reason about a pod says ``text``."""

    def says(event: Object) -> bool:
        is_about = event["involvedObject"].get("name") == key.name and event["reason"] == reason
        return bool(is_about and text in event["message"])

    await world.until(
        both.rome, keys.EVENT, key.namespace, lambda seen: any(map(says, seen.values()))
    )


async def fails(both: world.Pair, namespace: str, kind: str, wrong: Wrong) -> str:
    """Have a pod fail; return how long after its failure there status and Event told it here."""
    key = Key(namespace, f"{kind}-{secrets.token_hex(3)}")
    pod = world.pod(namespace, key.name, both.image)
    pod["spec"]["containers"][0] |= wrong.container

    async def at(cluster: ClusterClient, namespace: str, holds: Callable[[Object], bool]) -> float:
        await world.until_one(cluster, keys.POD, Key(namespace, key.name), holds)
        return time.monotonic()

    async def event() -> float:
        await until_told(both, key, wrong.reason, wrong.text)
        return time.monotonic()

    failure = (
        at(both.milan, both.twin(namespace), wrong.is_told)
        if wrong.is_made
        else at(both.rome, namespace, lambda found: bool(found["spec"].get("nodeName")))
    )
    begun = asyncio.gather(failure, at(both.rome, namespace, wrong.is_told), event())
    await both.rome.create(keys.POD, pod)
    began, status, said = await begun
    await world.remove(both.rome, keys.POD, key)
    await world.until_gone(both.rome, keys.POD, key)
    return f"{kind} {status - began:.2f} s, Event {said - began:.2f} s"
