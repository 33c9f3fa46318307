"""What is wrong is said on the object that the user touched, with what to do.

Each case is prepared as a user makes it; the refusal, a condition or an Event of the object has to
name cause and cure. How soon it does is printed. Source: bench/goals.py row 12.
"""

import asyncio
import contextlib
import secrets
import sys
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from apis import keys, naming
from apis.objects import Key, Kind, Object, named
from kube import errors
from kube.cluster import Selection
from tests import factories
from tests.journeys import world

pytestmark = pytest.mark.journey

PATIENCE_S: Final = 120
AT_ONCE: Final = 6


class Case(NamedTuple):
    """A mistake, and words of what has to be said of it."""

    name: str
    kind: Kind
    obj: Object
    words: tuple[str, ...]
    """All of them in what is said, whatever their case."""
    before: tuple[tuple[Kind, Object], ...] = ()
    change: Object | None = None
    """Merged into the object once it is there: that is the mistake."""
    offloads: bool = True
    """Whether the namespace is offloaded before."""


def cases(image: str) -> Iterator[Case]:
    """Yield them; ``NS`` stands for the namespace of each."""
    yield from offloadings()
    yield from pods(image)
    yield from others()


def offloadings() -> Iterator[Case]:
    def one(name: str, *words: str, of: str = keys.OFFLOADING_NAME, **spec: Any) -> Case:
        obj = named(keys.NAMESPACE_OFFLOADING, Key("NS", of), spec=spec)
        return Case(name, keys.NAMESPACE_OFFLOADING, obj, words, offloads=False)

    yield one("another name", "offloading", of="mine")
    yield one("a strategy that is not there", "Remot", podOffloadingStrategy="Remot")
    yield one("no name", "remoteNamespaceName", namespaceMappingStrategy="SelectedName")
    nobody = {"key": "region", "operator": "In", "values": ["nowhere"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [nobody]}]}
    yield one("nobody is selected", "not selected", clusterSelector=selector)
    odd = {"key": "region", "operator": "Near", "values": ["x"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [odd]}]}
    yield one("an operator that is not there", "Near", clusterSelector=selector)
    moved = {"spec": {"namespaceMappingStrategy": "EnforceSameName"}}
    yield one("the mapping changes", "namespaceMappingStrategy")._replace(change=moved)


def pods(image: str) -> Iterator[Case]:
    def one(name: str, *words: str, **spec: Any) -> Case:
        obj = world.pod("NS", "web", image, **spec)
        return Case(name, keys.POD, obj, words)

    def container(name: str, *words: str, **changes: Any) -> Case:
        case = one(name, *words)
        case.obj["spec"]["containers"][0] |= changes
        return case

    host = {"name": "host", "hostPath": {"path": "/"}}
    yield one("a host path", "hostPath", "leave it out", volumes=[host])
    yield container(
        "privileged", "privileged", "ProviderPolicy", securityContext={"privileged": True}
    )
    yield container(
        "a host port", "hostPort", "leave it out", ports=[{"containerPort": 80, "hostPort": 80}]
    )
    yield container("no such image", "image", image="nowhere.invalid/none:1")
    missing = {"configMapRef": {"name": "none"}}
    yield container("no such ConfigMap", "none", "not found", envFrom=[missing])
    missing = {"secretRef": {"name": "none"}}
    yield container("no such Secret", "none", "not found", envFrom=[missing])
    yield container("no such command", "no such file", command=["/none"])
    lots = {"requests": {"memory": "1Pi"}}
    yield container("too much memory", "memory", resources=lots)
    yield one("a node that is not there", "node", nodeSelector={"region": "nowhere"})
    data = {"name": "data", "persistentVolumeClaim": {"claimName": "none"}}
    yield one("no such claim", "none", "not found", volumes=[data])


def others() -> Iterator[Case]:
    service = factories.service("NS", "front", type="LoadBalancer", ports=[{"port": 80}])
    yield Case("a load balancer", keys.SERVICE, service, ("ClusterIP", "ProviderPolicy"))
    ingress = factories.ingress("NS")
    snippet = "nginx.ingress.kubernetes.io/configuration-snippet"
    ingress["metadata"]["annotations"] = {snippet: "deny all;"}
    yield Case("a snippet of nginx", keys.INGRESS, ingress, ("snippet", "ProviderPolicy"))
    node = named(
        keys.VIRTUAL_NODE,
        Key(naming.tenant_namespace("milan"), "NS"),
        spec={
            "clusterID": "milan",
            "kubeconfigSecretRef": {"name": "kubeconfig-resourceslice-milan"},
            "vkOptionsTemplateRef": {"name": "none", "namespace": "liqo"},
            "createNode": False,
        },
    )
    yield Case(
        "no such template", keys.VIRTUAL_NODE, node, ("liqo/none", "create it"), offloads=False
    )


async def test_what_is_wrong_is_said_with_what_to_do(both: world.Pair) -> None:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case) -> tuple[Case, str, float]:
        async with turn:
            said, seconds = await told(both, case)
            return case, said, seconds

    results = await asyncio.gather(*map(one, cases(both.image)))
    silent = []
    for case, said, seconds in results:
        is_told = all(word.lower() in said.lower() for word in case.words)
        sys.stdout.write(f"{case.name}: {seconds:.1f} s: {said[:400]!r}\n")
        if not is_told:
            silent.append(case.name)
    assert silent == []


async def told(both: world.Pair, case: Case) -> tuple[str, float]:
    """Make the mistake in a namespace of its own; return what is said of it, and after how long."""
    space = f"journey-{secrets.token_hex(3)}"
    await both.rome.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", space)))
    if case.offloads:
        await both.offload(space)
    said = await _told(both, case, space)
    await world.remove(both.rome, keys.NAMESPACE, Key("", space))
    return said


async def _told(both: world.Pair, case: Case, space: str) -> tuple[str, float]:
    obj = _placed(case.obj, space)
    key = Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
    began = time.monotonic()
    try:
        await both.rome.create(case.kind, obj)
        if case.change:
            await both.rome.patch(case.kind, key, case.change)
    except errors.KubeError as error:
        return str(error), time.monotonic() - began
    said = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while not all(word.lower() in said.lower() for word in case.words):
                await asyncio.sleep(0.1)
                said = await _said(both, case.kind, key)
    return said, time.monotonic() - began


async def _said(both: world.Pair, kind: Kind, key: Key) -> str:
    """Return what stands on the object and on its Events."""
    found = await both.rome.get_live(kind, key) or {}
    status = found.get("status") or {}
    texts = [str(status.get("message", "")), str(status.get("conditions", ""))]
    texts.append(str(status.get("remoteNamespacesConditions", "")))
    texts += [str(one.get("state")) for one in status.get("containerStatuses") or []]
    events = (await both.rome.list(Selection(keys.EVENT, dict, key.namespace))).items
    for event in events.values():
        if event["involvedObject"].get("name") == key.name:
            texts.append(f"{event['reason']}: {event['message']}")
    return " ".join(texts)


def _placed(obj: Object, space: str) -> Object:
    metadata = {
        name: value.replace("NS", space) if isinstance(value, str) else value
        for name, value in obj["metadata"].items()
    }
    return {**obj, "metadata": metadata}
