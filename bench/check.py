"""The guard against regressions: what a few pods and objects cost, in calls, against what is known.

``python -m bench check`` runs a small scenario that is always the same on the real pair of clusters
and fails when a process of ours asks an API server for more than ``expectations.json`` allows: one
write more for each pod or object, or one read more besides what depends on who is faster. Counts,
never times. ``--write`` makes what was counted the new expectation where that is more, ``--lower``
with it also where that is less.
"""

import argparse
import asyncio
import contextlib
import json
import math
import secrets
import sys
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Final, TypeVar

from apis import keys, naming
from apis.objects import Key, Kind, Object, named
from bench import counters, load, waiting
from kube import client
from kube.client import ClusterClient
from kube.cluster import Selection
from reflector.kinds.events import PROMPT
from sandbox import audit, images, pair

T = TypeVar("T")
EXPECTATIONS: Final = Path(__file__).with_name("expectations.json")
AGENT: Final = "bench-check"
ITEMS: Final = 20
PODS: Final = ITEMS
CONFIG_MAPS: Final = ITEMS
EVENTS: Final = "Events of all phases"
SOON_S: Final = PROMPT.total_seconds() / 2
"""Events of a pod's start wait for twice that, and then say nothing more than its status."""
_READS_MORE: Final = 0.25
_LOOK_S: Final = 0.1
_CALM_S: Final = 2.0
_IGNORED: Final = frozenset({"leases", "nodes", "nodes/status"})
Counts = Mapping[str, int]
"""``agent verb resource`` -> calls."""


@dataclass(frozen=True)
class Scene:
    """Both clusters, their audit logs, and an offloaded namespace."""

    rome: ClusterClient
    milan: ClusterClient
    logs: Sequence[audit.Log]
    namespace: str
    image: str
    late: set[str] = field(default_factory=set)
    """Pods that were not Ready soon: their Events tell why, and depend on the machine."""

    @property
    def twin(self) -> str:
        """The namespace in milan."""
        return naming.default_remote_namespace(self.namespace, pair.CONSUMER)


def excess(counted: Mapping[str, Counts], expected: Mapping[str, Counts]) -> list[str]:
    """Return a line for each call that a phase makes more often than expected; pure."""
    return [
        f"{phase}: {what}: {count} calls, {limit} expected"
        for phase, counts in counted.items()
        for what, count in sorted(counts.items())
        for limit in [expected.get(phase, {}).get(what, 0)]
        if count > tolerated(what, limit)
    ]


def tolerated(what: str, expected: int) -> int:
    """Return how many calls pass where so many are ``expected``; pure.

    A pod that becomes Ready in three steps instead of two costs a write more, a lost race a second
    try: that happens to some pods on a busy machine, a regression happens to all of them. How often
    something is read depends on who is faster, for every pod.
    """
    return expected + (ITEMS // 2 if _is_write(what) else ITEMS + ITEMS // 2)


def allowance(counted: Mapping[str, Counts], before: Mapping[str, Counts]) -> dict[str, Counts]:
    """Return the expectations that ``counted`` and what was allowed before both meet; pure."""
    return {
        phase: dict(sorted((_raised(counts) | _kept(counts, before.get(phase, {}))).items()))
        for phase, counts in counted.items()
    }


def ceiling(what: str, count: int) -> int:
    """Return the limit for what was seen ``count`` times: whole calls for each pod or object.

    How often something is read depends on who is faster, so reads get a quarter more.
    """
    if _is_write(what):
        return round(count / ITEMS) * ITEMS
    return math.ceil(count * (1 + _READS_MORE) / ITEMS) * ITEMS


def _is_event(what: str) -> bool:
    return what.endswith(" events")


def _is_write(what: str) -> bool:
    return what.split()[1] in audit.WRITES


def _raised(counts: Counts) -> dict[str, int]:
    limits = {what: ceiling(what, count) for what, count in counts.items()}
    return {what: limit for what, limit in limits.items() if limit}


def _kept(counts: Counts, before: Counts) -> dict[str, int]:
    return {what: limit for what, limit in before.items() if limit >= counts.get(what, 0)}


def ready_s(pod: Object) -> float | None:
    """Return after how many seconds the pod was Ready, None if it is not; pure."""
    status = pod.get("status", {})
    conditions: list[Object] = status.get("conditions", [])
    ready = next((one for one in conditions if one["type"] == "Ready"), {})
    if ready.get("status") != "True":
        return None
    since, began = ready["lastTransitionTime"], status["startTime"]
    return (datetime.fromisoformat(since) - datetime.fromisoformat(began)).total_seconds()


def counts(
    calls: Iterable[audit.Call], namespaces: Iterable[str], late: Collection[str] = ()
) -> dict[str, int]:
    """Return the calls of our processes in ``namespaces``; pure.

    Watches are not counted, nor Events of pods that were ``late``.
    """
    places = frozenset(namespaces)
    found = Counter(
        f"{counters.agent(call.agent)} {call.verb} {call.resource}"
        for call in calls
        if call.is_ours
        and call.namespace in places
        and call.verb != "watch"
        and call.resource not in _IGNORED
        and not (call.resource == "events" and call.name.split(".")[0] in late)
    )
    return dict(sorted(found.items()))


def read() -> dict[str, dict[str, int]]:
    """Return what is expected of each phase."""
    if not EXPECTATIONS.exists():
        return {}
    return dict(json.loads(EXPECTATIONS.read_text(encoding="utf-8")))


async def count(kubeconfigs: Mapping[str, Path]) -> dict[str, Counts]:
    """Run the scenario and return the calls of each phase."""
    async with _scene(kubeconfigs) as scene:
        counted = {
            name: await _phase(scene, run)
            for name, run in {
                f"{PODS} pods up to Running": _pods,
                f"{PODS} pods deleted": _no_pods,
                f"{CONFIG_MAPS} ConfigMaps created": _config_maps,
                f"{CONFIG_MAPS} ConfigMaps changed": _changes,
                f"{CONFIG_MAPS} ConfigMaps deleted": _no_config_maps,
            }.items()
        }
    return apart(counted)


def apart(counted: Mapping[str, Counts]) -> dict[str, Counts]:
    """Return the phases without Events, which have one of their own; pure.

    What is said again of an object is written 10 s after the first time: in which phase that is,
    and whether it is still seen, depends on how fast the phases are.
    """
    events: Counter[str] = Counter()
    phases: dict[str, Counts] = {}
    for phase, of_phase in counted.items():
        events.update({what: count for what, count in of_phase.items() if _is_event(what)})
        phases[phase] = {what: count for what, count in of_phase.items() if not _is_event(what)}
    return {**phases, EVENTS: dict(sorted(events.items()))}


async def _phase(scene: Scene, run: Callable[[Scene], Awaitable[None]]) -> dict[str, int]:
    for log in scene.logs:
        log.read()
    await run(scene)
    calls = await _until_calm(scene)
    return counts(calls, (scene.namespace, scene.twin), scene.late)


async def _until_calm(scene: Scene) -> list[audit.Call]:
    """Return the calls of a phase once nothing of ours has come for a while."""
    calls: list[audit.Call] = []
    places = (scene.namespace, scene.twin)
    last = monotonic()
    while monotonic() - last < _CALM_S:
        new = [call for log in scene.logs for call in log.read()]
        calls += new
        if counts(new, places):
            last = monotonic()
        await asyncio.sleep(_LOOK_S)
    return calls


async def _pods(scene: Scene) -> None:
    script = "trap 'exit 0' TERM; while :; do sleep 1; done"
    deployment = load.deployment(scene.namespace, "web", PODS)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container |= {
        "image": scene.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
    }
    await scene.rome.create(keys.DEPLOYMENT, deployment)
    await _until(
        lambda: scene.rome.get_live(keys.DEPLOYMENT, Key(scene.namespace, "web")),
        lambda found: (found or {}).get("status", {}).get("readyReplicas") == PODS,
    )
    pods = (await scene.rome.list(Selection(keys.POD, dict, scene.namespace))).items
    scene.late.update(key.name for key, pod in pods.items() if (ready_s(pod) or 0) > SOON_S)


async def _no_pods(scene: Scene) -> None:
    await _delete(scene, keys.DEPLOYMENT, "web")
    await _until(lambda: _names(scene.rome, keys.POD, scene.namespace), _is_empty)
    await _until(lambda: _names(scene.milan, keys.POD, scene.twin), _is_empty)


async def _config_maps(scene: Scene) -> None:
    for number in range(CONFIG_MAPS):
        made = load.item(keys.CONFIG_MAP, scene.namespace, f"item-{number}", 1)
        await scene.rome.create(keys.CONFIG_MAP, made)
    await _until(lambda: _states(scene), lambda states: states == ["1"] * CONFIG_MAPS)


async def _changes(scene: Scene) -> None:
    for number in range(CONFIG_MAPS):
        key = Key(scene.namespace, f"item-{number}")
        await scene.rome.patch(keys.CONFIG_MAP, key, load.changed(keys.CONFIG_MAP, 2))
    await _until(lambda: _states(scene), lambda states: states == ["2"] * CONFIG_MAPS)


async def _no_config_maps(scene: Scene) -> None:
    for number in range(CONFIG_MAPS):
        await _delete(scene, keys.CONFIG_MAP, f"item-{number}")
    await _until(lambda: _states(scene), lambda states: states == [])


async def _states(scene: Scene) -> list[str]:
    found = await scene.milan.list(Selection(keys.CONFIG_MAP, dict, scene.twin))
    return [item["data"]["sequence"] for key, item in found.items.items() if "item-" in key.name]


async def _names(cluster: ClusterClient, kind: Kind, namespace: str) -> list[Key]:
    return list((await cluster.list(Selection(kind, dict, namespace))).items)


def _is_empty(left: list[Key]) -> bool:
    return not left


async def _delete(scene: Scene, kind: Kind, name: str) -> None:
    key = Key(scene.namespace, name)
    found = await scene.rome.get_live(kind, key)
    if found:
        await scene.rome.delete(kind, key, uid=found["metadata"]["uid"])


async def _until(look: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> None:
    await waiting.until(look, holds, what="a phase of the scenario")


@contextlib.asynccontextmanager
async def _scene(kubeconfigs: Mapping[str, Path]) -> AsyncIterator[Scene]:
    name = f"check-{secrets.token_hex(3)}"
    logs = [audit.Log(path.with_name(name_) / "audit.log") for name_, path in kubeconfigs.items()]
    async with (
        client.connect(kubeconfigs[pair.CONSUMER], user_agent=AGENT) as rome,
        client.connect(kubeconfigs[pair.PROVIDER], user_agent=AGENT) as milan,
    ):
        scene = Scene(rome, milan, logs, name, images.workload_name())
        await rome.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
        try:
            await _offload(scene)
            yield scene
        finally:
            await _take_back(scene)


async def _offload(scene: Scene) -> None:
    key = Key(scene.namespace, keys.OFFLOADING_NAME)
    spec = {"podOffloadingStrategy": "Remote"}
    kind = keys.NAMESPACE_OFFLOADING
    await scene.rome.create(kind, named(kind, key, spec=spec))
    await _until(
        lambda: scene.rome.get_live(kind, key),
        lambda found: (found or {}).get("status", {}).get("offloadingPhase") == "Ready",
    )
    await _until(lambda: _names(scene.milan, keys.CONFIG_MAP, scene.twin), bool)
    await _until_calm(scene)


async def _take_back(scene: Scene) -> None:
    kind, key = keys.NAMESPACE_OFFLOADING, Key(scene.namespace, keys.OFFLOADING_NAME)
    await _delete(scene, keys.DEPLOYMENT, "web")
    await _delete(scene, kind, key.name)
    await _until(lambda: scene.rome.get_live(kind, key), lambda found: found is None)
    namespace = await scene.rome.get_live(keys.NAMESPACE, Key("", scene.namespace))
    if namespace:
        uid = namespace["metadata"]["uid"]
        await scene.rome.delete(keys.NAMESPACE, Key("", scene.namespace), uid=uid)


def main(argv: Sequence[str]) -> int:
    """Compare, tell each call that grew, and return 1 if one did."""
    parser = argparse.ArgumentParser(prog="python -m bench check", description=__doc__)
    parser.add_argument("--write", action="store_true", help="allow what was counted")
    parser.add_argument("--lower", action="store_true", help="and with --write, no more than that")
    given = parser.parse_args(argv)
    counted = asyncio.run(count(pair.ensure()))
    if given.write:
        before = {} if given.lower else read()
        text = json.dumps(allowance(counted, before), indent=1) + "\n"
        EXPECTATIONS.write_text(text, encoding="utf-8")
    grown = excess(counted, read())
    for phase, of_phase in counted.items():
        sys.stdout.write(f"{phase}: {sum(of_phase.values())} calls\n")
    for line in grown:
        sys.stdout.write(f"more than expected: {line}\n")
    return 1 if grown else 0
