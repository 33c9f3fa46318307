"""Every way to delete, every restart policy, every phase: ends are final, the living come back.

``PYLIQO_TEST_ENDS=all`` has besides one deletion follow the other, in each order.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from itertools import permutations, product
from typing import Final, TypeAlias

import pytest

from apis import keys
from apis.objects import Key, Object
from kube import errors
from tests.conftest import size_of
from tests.journeys import world
from tests.journeys.births import Births

pytestmark = pytest.mark.journey

NO_IMAGE: Final = "localhost/nowhere:none"
SCRIPTS: Final = {
    "Pending": world.sleeping(),
    "Running": world.sleeping(),
    "Succeeded": "exit 0",
    "Failed": "exit 3",
}
PHASES: Final = {
    "Always": ("Pending", "Running", "Failed"),
    "OnFailure": ("Pending", "Running", "Succeeded", "Failed"),
    "Never": ("Pending", "Running", "Succeeded", "Failed"),
}
"""All there are: a pod that is always restarted never succeeds, and fails by its deadline alone."""
DEADLINE_S: Final = 2

Order: TypeAlias = tuple[str, ...]
SINGLY: Final[list[Order]] = [("local",), ("force",), ("remote",), ("shadow",)]
"""What is deleted: the local pod (with grace or by force), the remote one, or the ShadowPod."""
TOGETHER: Final[list[Order]] = [
    order for count in (2, 3) for order in permutations(("local", "remote", "shadow"), count)
]
MORE: Final = TOGETHER if size_of("PYLIQO_TEST_ENDS", small=False, full=True) else []
_ALL: Final = [*SINGLY, *MORE]
TABLES: Final = [_ALL[first : first + 4] for first in range(0, len(_ALL), 4)]
"""As many pods as a node takes at once."""


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    order: Order
    policy: str
    phase: str

    @property
    def name(self) -> str:
        """Return the name of its pod."""
        return f"{'-'.join(self.order)}-{self.policy}-{self.phase}".lower()

    @property
    def is_over(self) -> bool:
        """Whether its work is done."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def stays(self) -> bool:
        """Whether the local pod is there afterwards."""
        return not {"local", "force"} & set(self.order)

    @property
    def births(self) -> range:
        """Return how many remote pods it may have in all: at most one more for each that went."""
        again = 0 if self.is_over else len({"remote", "shadow"} & set(self.order))
        return range(2 if self.stays and again else 1, 2 + again)

    def pod(self, namespace: str, image: str) -> Object:
        """Return the pod to create."""
        from_where = NO_IMAGE if self.phase == "Pending" else image
        is_late = self.phase == "Failed" and self.policy != "Never"
        script = SCRIPTS["Running" if is_late else self.phase]
        deadline = {"activeDeadlineSeconds": DEADLINE_S} if is_late else {}
        return world.pod(
            namespace, self.name, from_where, script, restartPolicy=self.policy, **deadline
        )


@pytest.mark.parametrize("orders", TABLES, ids=lambda orders: "+".join(map("-".join, orders)))
async def test_every_end(both: world.Pair, namespace: str, orders: list[Order]) -> None:
    cases = [
        Case(order, policy, phase)
        for order, (policy, phases) in product(orders, PHASES.items())
        for phase in phases
    ]
    await both.offload(namespace)
    twin = both.twin(namespace)
    births = Births()
    recorder = asyncio.create_task(births.record(both, twin))
    await asyncio.sleep(0)
    made = await asyncio.gather(
        *(both.rome.create(keys.POD, case.pod(namespace, both.image)) for case in cases)
    )
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in made}
    begun = {case.name: case.phase for case in cases}
    before = await world.until(
        both.milan, keys.POD, twin, lambda seen: phases_of(seen) == begun, patience_s=300
    )
    await world.until(
        both.rome, keys.POD, namespace, lambda seen: phases_of(seen) == begun, patience_s=300
    )

    await asyncio.gather(*(delete(both, case, namespace) for case in cases))

    kept = {case.name: case.phase for case in cases if case.stays}
    living = {case.name: case.phase for case in cases if case.stays and not case.is_over}
    await world.until(
        both.rome, keys.POD, namespace, lambda seen: phases_of(seen) == kept, patience_s=300
    )
    there = await world.until(
        both.milan, keys.POD, twin, lambda seen: have_come_back(seen, before, living)
    )
    here = await world.until(both.rome, keys.POD, namespace, lambda seen: phases_of(seen) == kept)
    await births.has_all(there)
    recorder.cancel()

    assert {key.name: pod["metadata"]["uid"] for key, pod in here.items()} == {
        case.name: uids[case.name] for case in cases if case.stays
    }
    counted = {case.name: len(births.uids[uids[case.name]]) for case in cases}
    assert {case.name: counted[case.name] for case in cases if not is_so(case, counted)} == {}


def is_so(case: Case, counted: dict[str, int]) -> bool:
    return counted[case.name] in case.births


def phases_of(seen: world.World) -> dict[str, str]:
    return {key.name: world.phase(pod) for key, pod in seen.items()}


def have_come_back(seen: world.World, before: world.World, living: dict[str, str]) -> bool:
    """Whether the remote pods are those of the living, made again, and of no one else."""
    old = {pod["metadata"]["uid"] for pod in before.values()}
    is_new = old.isdisjoint(pod["metadata"]["uid"] for pod in seen.values())
    return is_new and phases_of(seen) == living


async def delete(both: world.Pair, case: Case, namespace: str) -> None:
    """Delete one after the other; what went meanwhile needs no deletion."""
    for what in case.order:
        with contextlib.suppress(errors.NotFoundError, errors.ConflictError):
            await DELETIONS[what](both, case.name, namespace)


async def _local(both: world.Pair, name: str, namespace: str) -> None:
    await world.remove(both.rome, keys.POD, Key(namespace, name))


async def _force(both: world.Pair, name: str, namespace: str) -> None:
    key = Key(namespace, name)
    found = await both.rome.get_live(keys.POD, key)
    assert found
    await both.rome.delete(keys.POD, key, uid=found["metadata"]["uid"], grace_s=0)


async def _remote(both: world.Pair, name: str, namespace: str) -> None:
    await world.remove(both.milan, keys.POD, Key(both.twin(namespace), name))


async def _shadow(both: world.Pair, name: str, namespace: str) -> None:
    await world.remove(both.milan, keys.SHADOW_POD, Key(both.twin(namespace), name))


DELETIONS: Final = {"local": _local, "force": _force, "remote": _remote, "shadow": _shadow}
