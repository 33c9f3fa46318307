"""Every way to delete, every restart policy, every phase: ends are final, the living come back."""

import asyncio
from dataclasses import dataclass
from itertools import product
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Object
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
    "Always": ("Pending", "Running"),
    "OnFailure": ("Pending", "Running", "Succeeded"),
    "Never": ("Pending", "Running", "Succeeded", "Failed"),
}
ORDERS: Final = ("local", "force", "remote", "shadow")
"""What is deleted: the local pod (with grace or by force), the remote one, or the ShadowPod."""


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    order: str
    policy: str
    phase: str

    @property
    def name(self) -> str:
        """Return the name of its pod."""
        return f"{self.order}-{self.policy}-{self.phase}".lower()

    @property
    def is_over(self) -> bool:
        """Whether its work is done."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def stays(self) -> bool:
        """Whether the local pod is there afterwards."""
        return self.order in {"remote", "shadow"}

    @property
    def births(self) -> int:
        """Return how many remote pods it has in all."""
        return 2 if self.stays and not self.is_over else 1

    def pod(self, namespace: str, image: str) -> Object:
        """Return the pod to create."""
        from_where = NO_IMAGE if self.phase == "Pending" else image
        script = SCRIPTS[self.phase]
        return world.pod(namespace, self.name, from_where, script, restartPolicy=self.policy)


CASES: Final = [
    Case(order, policy, phase)
    for order, (policy, phases) in product(ORDERS, PHASES.items())
    for phase in phases
]


async def test_every_end(both: world.Pair, namespace: str) -> None:
    await both.offload(namespace)
    twin = both.twin(namespace)
    births = Births()
    recorder = asyncio.create_task(births.record(both, twin))
    await asyncio.sleep(0)
    made = await asyncio.gather(
        *(both.rome.create(keys.POD, case.pod(namespace, both.image)) for case in CASES)
    )
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in made}
    before = await world.until(both.milan, keys.POD, twin, all_begun, patience_s=300)
    await world.until(both.rome, keys.POD, namespace, all_begun, patience_s=300)

    await asyncio.gather(*(delete(both, case, namespace) for case in CASES))

    here = await world.until(both.rome, keys.POD, namespace, as_expected, patience_s=300)
    there = await world.until(
        both.milan, keys.POD, twin, lambda seen: come_back(seen, before), patience_s=300
    )
    await world.until(both.rome, keys.POD, namespace, as_expected)
    await births.has_all(there)
    recorder.cancel()

    assert {key.name: pod["metadata"]["uid"] for key, pod in here.items()} == {
        case.name: uids[case.name] for case in CASES if case.stays
    }
    counted = {case.name: len(births.uids[uids[case.name]]) for case in CASES}
    assert counted == {case.name: case.births for case in CASES}


def all_begun(seen: world.World) -> bool:
    phases = {key.name: world.phase(pod) for key, pod in seen.items()}
    return all(phases.get(case.name) == case.phase for case in CASES)


def as_expected(seen: world.World) -> bool:
    """Whether the pods at home are those that stay, each in its phase."""
    phases = {key.name: world.phase(pod) for key, pod in seen.items()}
    return phases == {case.name: case.phase for case in CASES if case.stays}


def come_back(seen: world.World, before: world.World) -> bool:
    """Whether the remote pods are those of the living, made anew, and of no one else."""
    old = {pod["metadata"]["uid"] for pod in before.values()}
    new = {
        key.name: world.phase(pod) for key, pod in seen.items() if pod["metadata"]["uid"] not in old
    }
    left = {key.name for key, pod in seen.items() if pod["metadata"]["uid"] in old}
    living = {case.name: case.phase for case in CASES if case.stays and not case.is_over}
    return new == living and not left


async def delete(both: world.Pair, case: Case, namespace: str) -> None:
    there = Key(both.twin(namespace), case.name)
    if case.order == "remote":
        await world.remove(both.milan, keys.POD, there)
    elif case.order == "shadow":
        await world.remove(both.milan, keys.SHADOW_POD, there)
    else:
        key = Key(namespace, case.name)
        found = await both.rome.get_live(keys.POD, key)
        assert found
        grace_s = 0 if case.order == "force" else None
        await both.rome.delete(keys.POD, key, uid=found["metadata"]["uid"], grace_s=grace_s)
