"""What is wrong is said on the object that the user touched, with what to do.

Each case is prepared as a user makes it; the refusal, a condition or an Event of the object has to
name cause and cure. How soon it does is printed. Source: bench/goals.py row 12.
"""

import asyncio
import contextlib
import json
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from apis import keys, naming, objects
from apis.objects import Key, Kind, Object, named
from kube.client import ClusterClient
from kube.cluster import Selection
from tests import factories
from tests.journeys import world
from tests.journeys.kubectl import Kubectl

pytestmark = pytest.mark.journey

PATIENCE_S: Final = 120
AT_ONCE: Final = 6
UNANSWERED: Final = "failed calling webhook"
"""What the API server says if the webhook takes too long on a busy machine: users try again."""


class Case(NamedTuple):
    """A mistake, and words of what has to be said of it."""

    name: str
    kind: Kind
    obj: Object
    words: tuple[str, ...]
    """All of them in what is said, whatever their case."""
    change: Object | None = None
    """Merged into the object once it is there: that is the mistake."""
    offloads: bool = True
    """Whether the namespace is offloaded before."""
    cluster: str = "rome"
    """Where the mistake is made."""


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
    yield one("a name that counts for nothing", "no effect", remoteNamespaceName="shop")
    chosen = {"namespaceMappingStrategy": "SelectedName"}
    yield one(
        "no name of a namespace", "must be a namespace name", remoteNamespaceName="A_", **chosen
    )
    yield one("a name of the system", "reserved", remoteNamespaceName="kube-system", **chosen)
    yield one(
        "a name that is taken", "exists", "choose", namespaceMappingStrategy="EnforceSameName"
    )
    other = one("a policy of reflection that is not there", "Mine", "DenyList")
    other.obj["metadata"]["annotations"] = {keys.REFLECTION_POLICY: "Mine"}
    yield other
    system = one("a namespace of the system", "system", "offload another")
    system.obj["metadata"]["namespace"] = "kube-system"
    yield system
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
    yield one("the node's network", "hostNetwork", hostNetwork=True)
    yield one("the node's processes", "hostPID", hostPID=True)
    yield one("a user namespace", "hostUsers", "leave it out", hostUsers=False)
    yield one("no such service account", "none", "not found", serviceAccountName="none")
    yield container("no such amount", "quantities", resources={"requests": {"cpu": "much"}})
    yield container(
        "a capability", "SYS_ADMIN", "ProviderPolicy",
        securityContext={"capabilities": {"add": ["SYS_ADMIN"]}},
    )  # fmt: skip
    csi = {"name": "data", "csi": {"driver": "none"}}
    yield one("a volume of a driver", "csi", volumes=[csi])
    forced = one("a runtime class alone", "NamespaceOffloading", runtimeClassName="liqo")
    yield forced._replace(offloads=False)
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
    yield from peerings()


def peerings() -> Iterator[Case]:
    space = naming.tenant_namespace("milan")

    def one(name: str, kind: Kind, *words: str, **spec: Any) -> Case:
        return Case(name, kind, named(kind, Key(space, "NS"), spec=spec), words, offloads=False)

    slices: Object = {"class": "default", "providerClusterID": "milan"}
    yield elsewhere(
        one("a slice elsewhere", keys.RESOURCE_SLICE, "tenant namespace of no peer", **slices)
    )
    other = {"class": "default", "providerClusterID": "paris"}
    yield one("a slice for another", keys.RESOURCE_SLICE, "paris", "create it in", **other)
    lots: Object = {**slices, "resources": {"cpu": "lots"}}
    yield one("a slice of no amount", keys.RESOURCE_SLICE, "lots", **lots)
    gold = {"class": "gold", "providerClusterID": "milan"}
    yield one("a class that nobody grants", keys.RESOURCE_SLICE, "gold", **gold)
    node: Object = {"clusterID": "milan", "createNode": False}
    secret: Object = {"kubeconfigSecretRef": {"name": "none"}}
    yield one("a node without a secret", keys.VIRTUAL_NODE, "none", "secret", **node, **secret)
    amounts: Object = {"resourceQuota": {"hard": {"cpu": "-1"}}}
    yield one("a node of less than nothing", keys.VIRTUAL_NODE, "cpu", **node, **amounts)
    yield elsewhere(one("a node elsewhere", keys.VIRTUAL_NODE, "tenant namespace of", **node))
    tenant = one("a tenant elsewhere", keys.TENANT, "in its tenant namespace", clusterID="paris")
    yield elsewhere(tenant)._replace(cluster="milan")


def elsewhere(case: Case) -> Case:
    """Return ``case`` with its object in a namespace of users."""
    case.obj["metadata"]["namespace"] = "NS"
    return case


async def test_what_is_wrong_is_said_with_what_to_do(
    both: world.Pair, kubeconfigs: Mapping[str, Path]
) -> None:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case) -> tuple[Case, str, float]:
        async with turn:
            said, seconds = await told(both, kubeconfigs[case.cluster], case)
            return case, said, seconds

    results = await asyncio.gather(*map(one, cases(both.image)))
    for case, said, seconds in results:
        sys.stdout.write(f"{case.name}: {seconds:.1f} s: {said[:700]!r}\n")
    assert [case.name for case, said, _ in results if not _is_told(case, said)] == []


async def told(both: world.Pair, kubeconfig: Path, case: Case) -> tuple[str, float]:
    """Make the mistake in a namespace of its own; return what is said of it, and after how long.

    Both clusters have such a namespace.
    """
    space = f"journey-{secrets.token_hex(3)}"
    cluster = both.rome if case.cluster == "rome" else both.milan
    for one in (both.rome, both.milan):
        await one.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", space)))
    if case.offloads:
        await both.offload(space)
    obj = _placed(case.obj, space)
    kubectl = Kubectl(kubeconfig, obj["metadata"]["namespace"])
    began = time.monotonic()
    at_once = said = await _made(kubectl, case, obj)
    key = objects.key_of(obj)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while not _is_told(case, said):
                await asyncio.sleep(0.1)
                if UNANSWERED in at_once:
                    at_once = await _made(kubectl, case, obj)
                said = at_once + await _said(cluster, case.kind, key)
    seconds = time.monotonic() - began
    await world.remove(cluster, case.kind, key)
    for one in (both.rome, both.milan):
        await world.remove(one, keys.NAMESPACE, Key("", space))
    return said, seconds


async def _made(kubectl: Kubectl, case: Case, obj: Object) -> str:
    """Make the mistake as a user does; return the errors and warnings that kubectl prints."""
    done = await kubectl.run("create", "-f", "-", stdin=json.dumps(obj).encode())
    if not case.change or done.code:
        return done.err
    kind, name = obj["kind"], obj["metadata"]["name"]
    merged = ("--type=merge", "--patch", json.dumps(case.change))
    return (await kubectl.run("patch", kind, name, *merged)).err


def _is_told(case: Case, said: str) -> bool:
    return all(word.lower() in said.lower() for word in case.words)


async def _said(cluster: ClusterClient, kind: Kind, key: Key) -> str:
    """Return what stands on the object and on its Events."""
    found = await cluster.get_live(kind, key) or {}
    status = found.get("status") or {}
    texts = [str(status.get("message", "")), str(status.get("conditions", ""))]
    texts.append(str(status.get("remoteNamespacesConditions", "")))
    texts += [str(one.get("state")) for one in status.get("containerStatuses") or []]
    events = (await cluster.list(Selection(keys.EVENT, dict, key.namespace))).items
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
