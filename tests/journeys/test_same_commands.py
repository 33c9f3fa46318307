"""The same kubectl commands on a real node and on the virtual one say the same.

What differs is listed here with its reason, and in docs/kubectl-on-virtual-nodes.md.
"""

import asyncio
import difflib
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from apis import keys
from apis.objects import Key, Object, named
from reflector.kinds import events
from tests.journeys import world
from tests.journeys.kubectl import Done, Kubectl
from tests.world import is_ready

pytestmark = pytest.mark.journey

SCRIPT = (
    "echo first; echo second; echo hello > /index.html; httpd -p 8080 -h /; " + world.sleeping()
)
MAIN = ("-c", "main")
RESTARTED: Final = "restarted"
"""A container ended and was started again. That it waits, a kubelet says for a moment only."""


@dataclass(frozen=True)
class Place:
    """kubectl towards one of the two pods, both called ``web``."""

    kubectl: Kubectl
    image: str
    folder: Path

    async def run(self, *args: str, stdin: bytes | None = None) -> Done:
        return await self.kubectl.run(*args, stdin=stdin)


Command = Callable[[Place], Awaitable[Done]]


def plain(*args: str, stdin: bytes | None = None) -> Command:
    async def run(place: Place) -> Done:
        return await place.run(*args, stdin=stdin)

    return run


async def copy_there(place: Place) -> Done:
    path = place.folder / "there"
    path.write_bytes(b"copied\n" * 1000)
    return await place.run("cp", *MAIN, str(path), "web:copied")


async def copy_back(place: Place) -> Done:
    path = place.folder / "back"
    done = await place.run("cp", *MAIN, "web:copied", str(path))
    return Done(done.code, path.read_bytes(), done.err)


async def port_forward(place: Place) -> Done:
    async with place.kubectl.started("port-forward", "pod/web", ":8080") as process:
        assert process.stdout
        async with asyncio.timeout(300):
            line = (await process.stdout.readline()).decode()
        port = re.search(r":(\d+) ->", line)
        assert port, line
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port[1]}/index.html") as answer,
        ):
            return Done(answer.status, await answer.read(), line.replace(port[1], "PORT"))


async def attach(place: Place) -> Done:
    async with place.kubectl.started(
        "attach", "-i", "web", "-c", "side", stdin=asyncio.subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"word\n")
        async with asyncio.timeout(300):
            return Done(0, await process.stdout.readuntil(b"heard word\n"), "")


async def debug(place: Place) -> Done:
    container = ("--image", place.image, "--container=dbg", "--image-pull-policy=IfNotPresent")
    asked = (*container, "--profile=baseline")  # what any provider takes
    return await place.run("debug", "web", *asked, "--", "sh", "-c", "echo from debug")


async def debug_log(place: Place) -> Done:
    async with asyncio.timeout(300):
        while True:
            done = await place.run("logs", "web", "-c", "dbg")
            if done.out:
                return done
            await asyncio.sleep(0.5)


def field(path: str) -> Command:
    return plain("get", "pod", "web", "-o", f"jsonpath={path}")


COMMANDS: Final[dict[str, Command]] = {
    "get": plain("get", "pod", "web", "--no-headers"),
    "get -o wide": plain("get", "pod", "web", "-o", "wide", "--no-headers"),
    "get -o name by label": plain("get", "pods", "-l", "app=web", "-o", "name"),
    "get -o name by phase": plain(
        "get", "pods", "--field-selector=status.phase=Running", "-o", "name"
    ),
    "get phase and class": field("{.status.phase} {.status.qosClass}"),
    "get conditions": field("{range .status.conditions[*]}{.type}={.status} {end}"),
    "get containers": field(
        "{range .status.containerStatuses[*]}{.name}={.ready},{.started} {end}"
    ),
    "get spec of containers": field("{.spec.containers[*].command}"),
    "describe": plain("describe", "pod", "web"),
    "wait": plain("wait", "--for=condition=Ready", "pod/web", "--timeout=60s"),
    "logs": plain("logs", "web", *MAIN),
    "logs --tail": plain("logs", "web", *MAIN, "--tail=1"),
    "logs --tail=0": plain("logs", "web", *MAIN, "--tail=0"),
    "logs --timestamps": plain("logs", "web", *MAIN, "--timestamps"),
    "logs --since": plain("logs", "web", *MAIN, "--since=1h"),
    "logs --since-time": plain("logs", "web", *MAIN, "--since-time=2020-01-01T00:00:00Z"),
    "logs --limit-bytes": plain("logs", "web", *MAIN, "--limit-bytes=3"),
    "logs --previous": plain("logs", "web", *MAIN, "--previous"),
    "logs of no container": plain("logs", "web", "-c", "nowhere"),
    "logs of all": plain("logs", "-l", "app=web", "--all-containers", "--prefix"),
    "exec": plain("exec", "web", *MAIN, "--", "sh", "-c", "echo out; echo err >&2"),
    "exec that fails": plain("exec", "web", *MAIN, "--", "sh", "-c", "exit 42"),
    "exec -i": plain("exec", "-i", "web", *MAIN, "--", "cat", stdin=b"in\n" * 9999),
    "exec of no program": plain("exec", "web", *MAIN, "--", "no-such-program"),
    "exec in no container": plain("exec", "web", "-c", "nowhere", "--", "ls"),
    "exec hostname": plain("exec", "web", *MAIN, "--", "hostname"),
    "exec env": plain("exec", "web", *MAIN, "--", "sh", "-c", "env | cut -d= -f1 | sort"),
    "cp there": copy_there,
    "cp back": copy_back,
    "port-forward": port_forward,
    "attach": attach,
    "debug": debug,
    "logs of debug": debug_log,
    "label": plain("label", "pod", "web", "colour=blue"),
    "annotate": plain("annotate", "pod", "web", "example.com/note=yes"),
    "delete": plain("delete", "pod", "web", "--timeout=60s"),
}  # fmt: skip
DIFFERENT: Final[Mapping[str, str]] = {
    "describe": "labels, annotations, toleration and events are those of an offloaded pod"
}
REASONS: Final = Path(__file__).parents[2] / "docs" / "kubectl-on-virtual-nodes.md"

FIELDS: Final[Mapping[str, str]] = {
    "metadata.annotations": "how admission placed the pod, and which Pod of the provider runs it",
    "metadata.labels": "that it is offloaded, and the region that the virtual node has",
    "spec.affinity": "the virtual nodes that the namespace's strategy selects",
    "spec.tolerations": "that of virtual nodes",
}
"""What differs in the JSON of a pod; names, addresses, times and IDs aside."""
NEWER: Final[Mapping[str, str]] = {
    "status.allocatedResources": "resources of a whole pod are refused",
    "status.resources": "resources of a whole pod are refused",
}
"""What differs besides where kubelets write it, as those of Kubernetes 1.37 do."""
COUNTED: Final = frozenset({"metadata.managedFields", "metadata.resourceVersion"})

_RUNS: Final = (
    (r"journey-[0-9a-f]{6}(-rome)?", "NAMESPACE"),
    (r"\b(rome|milan)-1\b|\bmilan\b", "NODE"),
    (r"\b\d{1,3}(\.\d{1,3}){3}\b", "ADDRESS"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "TIME"),
    (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
    (r"kube-api-access-[0-9a-z]{5}", "TOKENS"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{64}", "ID"),
    (r"\b(\d+[dhms])+\b", "AGE"),
    (r" +", " "),
)


def normalised(done: Done) -> str:
    """Return what a command did, without names that must differ."""
    return without_names(f"{done.code}\n{done.out.decode('utf-8', 'replace')}\n{done.err}")


def without_names(text: str) -> str:
    for pattern, name in _RUNS:
        text = re.sub(pattern, name, text)
    return text


def web(namespace: str, image: str) -> Object:
    made = world.pod(namespace, "web", image, SCRIPT)
    made["metadata"]["labels"] = {"app": "web"}
    side = {**made["spec"]["containers"][0], "name": "side", "stdin": True}
    side["command"] = ["sh", "-c", "while read line; do echo heard $line; done"]
    made["spec"]["containers"].append(side)
    return made


async def test_thirty_commands_say_the_same_on_both_nodes(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path], tmp_path: Path
) -> None:
    assert len(COMMANDS) >= 30
    here = f"journey-{secrets.token_hex(3)}"
    await both.offload(namespace)
    await both.rome.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", here)))
    try:
        places = []
        for space in (here, namespace):
            await both.rome.create(keys.POD, web(space, both.image))
            await world.until_one(both.rome, keys.POD, Key(space, "web"), is_ready)
            folder = tmp_path / space
            folder.mkdir()
            places.append(Place(Kubectl(kubeconfigs["rome"], space), both.image, folder))
        told = {
            name: [normalised(await run(place)) for place in places]
            for name, run in COMMANDS.items()
        }
    finally:
        await world.remove(both.rome, keys.NAMESPACE, Key("", here))

    different = {name: said for name, said in told.items() if said[0] != said[1]}
    for name, (real, virtual) in different.items():
        diff = difflib.unified_diff(real.splitlines(), virtual.splitlines(), "real", "virtual", n=0)
        print(f"--- {name}", *diff, sep="\n")  # noqa: T201  # what the documentation lists
    assert set(different) == set(DIFFERENT)


def lives(namespace: str, image: str) -> Sequence[tuple[str, Object]]:
    """Return pods with what becomes of them, which they stay."""
    runs = web(namespace, image)
    (main, _side) = runs["spec"]["containers"]
    plain = {name: main[name] for name in ("image", "imagePullPolicy", "resources")}
    sidecar = {**plain, "name": "sidecar", "restartPolicy": "Always", "command": main["command"]}
    runs["spec"]["initContainers"] = [
        sidecar,
        {**plain, "name": "prepare", "command": ["sh", "-c", "true"]},
    ]
    told = "echo why > /dev/termination-log; exit 3"
    no_image = world.pod(namespace, "no-image", "localhost/nowhere:none")
    no_image["spec"]["containers"][0]["imagePullPolicy"] = "Never"
    ended = world.pod(namespace, "ended", image, told, restartPolicy="Never")
    ended["spec"]["initContainers"] = asks_nothing(runs["spec"]["initContainers"])
    never = world.pod(namespace, "unprepared", image, restartPolicy="Never")
    again = world.pod(namespace, "unprepared-again", image)
    for one in (never, again):
        prepare = {**plain, "name": "prepare", "command": ["sh", "-c", told]}
        one["spec"]["initContainers"] = asks_nothing([prepare])
    return [
        ("Ready", runs),
        ("Failed", ended),
        ("Failed", never),
        (RESTARTED, world.pod(namespace, "loops", image, told)),
        (RESTARTED, again),
        ("ErrImageNeverPull", no_image),
    ]


def asks_nothing(containers: Sequence[Object]) -> list[Object]:
    """Return them without requests: their statuses have resources none the less, empty ones."""
    return [{name: one[name] for name in one if name != "resources"} for one in containers]


def is_in(life: str, pod: Object) -> bool:
    """Whether ``pod`` is Ready, of that phase, or one of its containers waits for that reason."""
    status = pod.get("status", {})
    fields = ("initContainerStatuses", "containerStatuses")
    statuses = [one for field in fields for one in status.get(field) or []]
    if life == RESTARTED:
        return any(one["restartCount"] for one in statuses)
    waits = {one["state"].get("waiting", {}).get("reason") for one in statuses}
    return is_ready(pod) if life == "Ready" else life in {world.phase(pod), *waits}


def fields(pod: Object) -> Mapping[str, str]:
    """Return what a pod says, by field, without names that must differ and without order."""
    told = {}
    for part in ("metadata", "spec", "status"):
        for name, value in pod[part].items():
            told[f"{part}.{name}"] = without_names(json.dumps(in_order(name, value)))
    return {name: text for name, text in told.items() if name not in COUNTED}


def in_order(name: str, value: Any) -> Any:
    """Return ``value``, conditions sorted, and of restarts only whether there were any."""
    if name == "conditions":
        return sorted(value, key=lambda one: str(one["type"]))
    if name in ("initContainerStatuses", "containerStatuses"):
        return [{**one, "restartCount": bool(one["restartCount"])} for one in value]
    return value


async def until_same(both: world.Pair, life: str, keys_: Sequence[Key]) -> None:
    """Wait until both pods are in that state, and differ as documented and not else."""
    told: set[str] = set()
    try:
        async with asyncio.timeout(world.PATIENCE_S):
            while told - NEWER.keys() != FIELDS.keys():
                pods = [await both.rome.get_live(keys.POD, key) for key in keys_]
                if all(pod and is_in(life, pod) for pod in pods):
                    real, virtual = (fields(pod) for pod in pods if pod)
                    names = real.keys() | virtual.keys()
                    told = {name for name in names if real.get(name) != virtual.get(name)}
                await asyncio.sleep(0.5)
    except TimeoutError as error:
        raise AssertionError(f"{life}: {sorted(told)} of {pods}") from error


async def test_the_whole_pod_says_the_same_on_both_nodes(both: world.Pair, namespace: str) -> None:
    here = f"journey-{secrets.token_hex(3)}"
    await both.offload(namespace)
    await both.rome.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", here)))
    try:
        for space in (here, namespace):
            for _, pod in lives(space, both.image):
                await both.rome.create(keys.POD, pod)
        for life, pod in lives(here, both.image):
            name = str(pod["metadata"]["name"])
            await until_same(both, life, [Key(here, name), Key(namespace, name)])
    finally:
        await world.remove(both.rome, keys.NAMESPACE, Key("", here))


def troubled(namespace: str, image: str) -> Mapping[str, tuple[Object, frozenset[str]]]:
    """Return pods by name, with reasons of Events that a real node has about each."""
    killed = world.pod(namespace, "killed", image)
    fails = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    killed["spec"]["containers"][0]["livenessProbe"] = fails
    pods = (
        (killed, {"Unhealthy", "Killing", "Started"}),
        (world.pod(namespace, "crashes", image, "exit 3"), {"Created", "Started", "BackOff"}),
        (world.pod(namespace, "waits", "localhost/nowhere:none"), {"Pulling", "Failed", "BackOff"}),
    )
    return {pod["metadata"]["name"]: (pod, frozenset(reasons)) for pod, reasons in pods}


async def test_a_pod_in_trouble_is_described_as_on_a_real_node(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path]
) -> None:
    here = f"journey-{secrets.token_hex(3)}"
    await both.offload(namespace)
    await both.rome.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", here)))
    calm = Key(namespace, "calm")
    try:
        await both.rome.create(keys.POD, world.pod(*calm, both.image))
        for space in (here, namespace):
            for pod, _ in troubled(space, both.image).values():
                await both.rome.create(keys.POD, pod)
        for space in (here, namespace):
            kubectl = Kubectl(kubeconfigs["rome"], space)
            for name, (_, wanted) in troubled(space, both.image).items():
                await until_described(kubectl, name, wanted)
                assert await is_selected_by_source(kubectl, name)
        pod = await world.until_one(both.rome, keys.POD, calm, is_ready)
        told = await reasons_of(Kubectl(kubeconfigs["rome"], namespace), "calm")
    finally:
        await world.remove(both.rome, keys.NAMESPACE, Key("", here))

    started_well = {"Pulling", "Pulled", "Created", "Started"}
    assert not told & started_well or ready_after(pod) > events.PROMPT


async def until_described(kubectl: Kubectl, name: str, wanted: frozenset[str]) -> None:
    """Wait until ``kubectl describe`` shows Events of these reasons."""
    told: set[str] = set()
    try:
        async with asyncio.timeout(world.PATIENCE_S):
            while not wanted <= told:
                told = await reasons_of(kubectl, name)
                await asyncio.sleep(1)
    except TimeoutError as error:
        raise AssertionError(f"{name}: {sorted(wanted - told)} not among {sorted(told)}") from error


async def is_selected_by_source(kubectl: Kubectl, name: str) -> bool:
    """Whether the Events of a kubelet are found as the tests of Kubernetes look for them."""
    of = f"source=kubelet,involvedObject.kind=Pod,involvedObject.name={name}"
    return bool((await kubectl.run("get", "events", "--field-selector", of, "-o", "name")).out)


async def reasons_of(kubectl: Kubectl, name: str) -> set[str]:
    """Return the reasons of the Events that ``kubectl describe pod`` shows."""
    said = (await kubectl.run("describe", "pod", name)).out.decode()
    rows = said.partition("\nEvents:")[2].splitlines()
    return {row.split()[1] for row in rows if row.split()[:1] in (["Normal"], ["Warning"])}


def ready_after(pod: Object) -> timedelta:
    """Return how long it took from the start of ``pod`` until it was Ready."""
    status = pod["status"]
    since = next(one for one in status["conditions"] if one["type"] == "Ready")
    return datetime.fromisoformat(since["lastTransitionTime"]) - datetime.fromisoformat(
        status["startTime"]
    )


def test_each_difference_is_justified() -> None:
    text = REASONS.read_text(encoding="utf-8")
    for name in (*DIFFERENT, *FIELDS, *NEWER):
        assert f"| `{name}` |" in text
