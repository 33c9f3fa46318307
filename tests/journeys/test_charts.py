"""Objects of the shapes that charts have behave in an offloaded namespace as in any other.

``charts.yaml`` is applied to two namespaces of the consumer, of which one is offloaded. What
kubectl shows of both is compared. What differs is listed here, and with its reason in
docs/kubectl-on-virtual-nodes.md.
"""

import asyncio
import difflib
import json
import re
import secrets
import string
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from apis import keys, objects, placement
from apis.objects import Key, Object, named
from kube.cluster import Selection
from sandbox import pair
from tests.journeys import vk, world
from tests.journeys.kubectl import Kubectl
from tests.journeys.test_same_commands import REASONS, without_names

pytestmark = pytest.mark.journey

CHARTS: Final = Path(__file__).with_name("charts.yaml")
PARTS: Final = 40
"""ConfigMaps that an upgrade replaces together with the Deployment that reads two of them."""
PLAIN_CLASS: Final = "charts"
WEB: Final = "app.kubernetes.io/name=web"
LASTING: Final = "app.kubernetes.io/name in (controller,db,operator,queue,web)"
MOST_WEB: Final = 2
"""Pods of the web tier, which the autoscaler has no metrics to change."""
SHOWN: Final = "pods,deploy,rs,sts,ds,jobs,svc,ing,hpa,pdb,netpol,pvc,cm,secrets,sa"
DIFFERENT: Final = frozenset({"PersistentVolumeClaim events", "PersistentVolumeClaim wide"})
"""What differs of which kind: the row of ``get -o wide``, conditions, or Events."""
COMPARISONS: Final = 20
"""How often both are compared: some controllers look again every 15 s only."""
BY_CHANCE: Final = frozenset(
    {
        "Created", "Pulled", "Pulling", "Started",  # of a start that goes well within 10 s
        "FailedMount", "TaintManagerEviction", "Unhealthy", "WaitForPodScheduled",  # of a slow one
        "FailedComputeMetricsReplicas", "FailedGetResourceMetric",  # of an autoscaler's next look
        "NoPods",  # of a budget that is looked at before there are pods
    }
)  # fmt: skip
"""Reasons of Events that come or do not, as time has it; docs/kubectl-on-virtual-nodes.md."""
_RUNS: Final = (
    (r"\b(controller|operator|queue|web)-[0-9a-f]{8,10}\b", r"\1-HASH"),
    (r"\b(\w+-HASH|agent|migrate|shards-\d)-[0-9a-z]{5}\b", r"\1-SUFFIX"),
    (r"journey-[0-9a-f]{6}-\d\b", "VOLUME"),
    (r"pvc-ID", "VOLUME"),
)


@dataclass(frozen=True)
class Release:
    """The charts in one namespace of the consumer."""

    kubectl: Kubectl
    image: str
    storage_class: str

    async def apply(self, release: str) -> None:
        """Apply all objects, and the parts, as of ``release``."""
        text = string.Template(CHARTS.read_text(encoding="utf-8")).safe_substitute(
            image=self.image, storage_class=self.storage_class, release=release
        )
        parts = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"part-{number}"},
                "data": {"release": release},
            }
            for number in range(PARTS)
        ]
        items = [*parts, *yaml.safe_load_all(text)]
        manifest = {"apiVersion": "v1", "kind": "List", "items": items}
        await self.kubectl.out("apply", "-f", "-", stdin=json.dumps(manifest).encode())

    async def settled(self) -> None:
        """Wait as ``helm --wait`` does, and for both Jobs."""
        for name in ("web", "queue", "operator", "controller"):
            await self._wait("rollout", "status", f"deploy/{name}")
        for name in ("sts/db", "ds/agent"):
            await self._wait("rollout", "status", name)
        for job, condition in (("shards", "Complete"), ("migrate", "Failed")):
            await self._wait("wait", f"job/{job}", f"--for=condition={condition}")

    async def _wait(self, *args: str) -> None:
        done = await self.kubectl.run(*args, "--timeout=280s", patience_s=world.PATIENCE_S)
        assert done.code == 0, f"kubectl {' '.join(args)}: {done.err} {done.out!r:.500}"

    async def seen(self) -> Mapping[str, list[str]]:
        """Return what kubectl shows, by kind and view, without names that must differ."""
        listed = json.loads(await self.kubectl.out("get", SHOWN, "-o", "json"))["items"]
        found: dict[str, list[str]] = {}
        kinds = {}
        for one in listed:
            kind, name = one["kind"], one["metadata"]["name"]
            kinds[kind.lower(), name] = kind
            told = (one.get("status") or {}).get("conditions") or []
            said = sorted(f"{each['type']}={each['status']} {each.get('reason')}" for each in told)
            found.setdefault(f"{kind} conditions", []).append(f"{name}: {said}")
        for row in (await self.kubectl.out("get", SHOWN, "-o", "wide")).decode().splitlines():
            kind, _, name = row.split(" ")[0].partition("/")
            if name:
                found.setdefault(f"{kinds[kind.split('.')[0], name]} wide", []).append(row)
        events = json.loads(await self.kubectl.out("get", "events", "-o", "json"))["items"]
        for event in events:
            about = event["involvedObject"]
            line = f"{about['name']} {event['type']} {event['reason']}"
            if event["reason"] not in BY_CHANCE:
                found.setdefault(f"{about['kind']} events", []).append(line)
        return {view: sorted({comparable(row) for row in rows}) for view, rows in found.items()}

    async def names(self, selector: str) -> list[str]:
        """Return the pods that are not about to go."""
        found = json.loads(await self.kubectl.out("get", "pods", "-l", selector, "-o", "json"))
        return [
            one["metadata"]["name"] for one in found["items"] if not objects.is_terminating(one)
        ]

    async def uids(self) -> set[str]:
        """Return the UIDs of the pods of Deployments and StatefulSet."""
        found = json.loads(await self.kubectl.out("get", "pods", "-l", LASTING, "-o", "json"))
        return {objects.uid(one) for one in found["items"] if not objects.is_terminating(one)}

    async def answers(self) -> set[str]:
        """Return what the pods of the web tier serve."""
        asks = ("--", "cat", "/www/index.html")
        return {
            (await self.kubectl.out("exec", name, *asks)).decode().strip()
            for name in await self.names(WEB)
        }

    async def owners_hold(self) -> None:
        """Check that what each operator wrote is there, and owned by its Pod."""
        for name in ("operator", "controller"):
            made = json.loads(await self.kubectl.out("get", "cm", f"{name}-state", "-o", "json"))
            (pod,) = await self.names(f"app.kubernetes.io/name={name}")
            told = json.loads(await self.kubectl.out("get", "pod", pod, "-o", "json"))
            (owner,) = made["metadata"]["ownerReferences"]
            assert owner["uid"] == objects.uid(told)
            assert made["data"] == {"node": told["spec"]["nodeName"]}


def comparable(row: str) -> str:
    for pattern, name in _RUNS:
        row = re.sub(pattern, name, without_names(row))
    return row


@pytest.fixture
async def releases(
    both: world.Pair, namespace: str, kubeconfigs: Mapping[str, Path]
) -> AsyncIterator[list[Release]]:
    """Yield the charts in a namespace that stays and in one that is offloaded."""
    plain = f"journey-{secrets.token_hex(3)}"
    await both.rome.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", plain)))
    own = {**pair.storage_class(), "metadata": {"name": PLAIN_CLASS}}
    await both.rome.apply(keys.STORAGE_CLASS, own, manager="journeys")
    await both.milan.apply(keys.STORAGE_CLASS, pair.storage_class(), manager="journeys")
    volumes = [
        (cluster, volume(f"{space}-{number}", of))
        for cluster, space, of in (
            (both.rome, plain, PLAIN_CLASS), (both.milan, namespace, pair.STORAGE_CLASS),
        )
        for number in range(2)
    ]  # fmt: skip
    for cluster, made in volumes:
        await cluster.create(keys.PERSISTENT_VOLUME, made)
    classes = {plain: PLAIN_CLASS, namespace: keys.VIRTUAL_STORAGE_CLASS}
    async with vk.supporting_api_servers(both):
        await both.offload(namespace)
        yield [
            Release(Kubectl(kubeconfigs["rome"], space), both.image, class_)
            for space, class_ in classes.items()
        ]
    await world.remove(both.rome, keys.NAMESPACE, Key("", plain))
    for cluster, made in volumes:
        await world.remove(cluster, keys.PERSISTENT_VOLUME, objects.key_of(made))
    await world.remove(both.rome, keys.STORAGE_CLASS, Key("", PLAIN_CLASS))


def volume(name: str, class_: str) -> Object:
    spec = {
        "storageClassName": class_,
        "capacity": {"storage": "1536Mi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": f"/srv/{name}", "type": "DirectoryOrCreate"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    return named(keys.PERSISTENT_VOLUME, Key("", name), spec=spec)


async def test_charts_behave_as_on_real_nodes(
    both: world.Pair, releases: list[Release], kubeconfigs: Mapping[str, Path]
) -> None:
    plain, offloaded = releases
    await asyncio.gather(*(release.apply("first") for release in releases))
    await asyncio.gather(*(release.settled() for release in releases))
    await differs_as_documented(plain, offloaded)
    for release in releases:
        assert await release.answers() == {"first"}
        await release.owners_hold()
    await policies_are_told(both, offloaded.kubectl.namespace, kubeconfigs["rome"])

    await asyncio.gather(*(release.apply("second") for release in releases))
    await asyncio.gather(*(release.settled() for release in releases))
    for release in releases:
        assert await release.answers() == {"second"}, "what is new reads what is new"

    twin = both.twin(offloaded.kubectl.namespace)
    quarantined = (await offloaded.names(WEB))[0]
    await offloaded.kubectl.out("label", "pod", quarantined, "app.kubernetes.io/name-")
    for cluster, space in ((both.rome, offloaded.kubectl.namespace), (both.milan, twin)):
        await world.until(cluster, keys.ENDPOINT_SLICE, space, without(quarantined))
    await offloaded.settled()
    kept = await both.rome.get_live(keys.POD, Key(offloaded.kubectl.namespace, quarantined))
    assert kept, "the quarantined pod runs on"
    assert world.phase(kept) == "Running"
    await offloaded.kubectl.out("delete", "pod", quarantined)

    for release in releases:
        await release.kubectl.out("rollout", "undo", "deploy/web")
    await asyncio.gather(*(release.settled() for release in releases))

    await survives_a_drain(both, offloaded, Kubectl(kubeconfigs["milan"], twin))

    for release in releases:
        await release.kubectl.out("delete", "namespace", release.kubectl.namespace)
    assert await both.milan.get_live(keys.NAMESPACE, Key("", twin)) is None


async def differs_as_documented(plain: Release, offloaded: Release) -> None:
    """Compare both until they differ in what is documented: controllers look again in turn."""
    for _ in range(COMPARISONS):
        here, there = await plain.seen(), await offloaded.seen()
        views = sorted(here.keys() | there.keys())
        differing = {view for view in views if here.get(view) != there.get(view)}
        if differing == DIFFERENT:
            return
    for view in differing:
        diff = difflib.unified_diff(here.get(view, []), there.get(view, []), "plain", "offloaded")
        print(f"--- {view}", *diff, sep="\n")  # noqa: T201  # what the documentation lists
    assert differing == DIFFERENT


POLICIES: Final = "NetworkPolicy web, PodDisruptionBudget web"


async def policies_are_told(both: world.Pair, namespace: str, kubeconfig: Path) -> None:
    """Show who names what holds at the consumer only, and what of it would hold at the provider."""
    key = Key(namespace, keys.OFFLOADING_NAME)
    obj = await both.rome.get_live(keys.NAMESPACE_OFFLOADING, key)
    told = objects.find_condition(objects.status(obj).get("conditions"), "PoliciesReflected") or {}
    assert (told["status"], told["reason"]) == ("False", "HoldHereOnly")
    assert told["message"].endswith(f"only: {POLICIES}")

    again = await world.liqoctl(kubeconfig, "offload", "namespace", namespace)
    why = await world.liqoctl(kubeconfig, "why", "namespace", namespace)
    assert f"WARN  namespace {namespace}: {told['message']}" in again.err.splitlines()
    assert f"  {told['message']}" in why.out.splitlines()
    listed = await world.liqoctl(kubeconfig, "get", "reflections", "-n", namespace)
    lines = [" ".join(line.split()) for line in listed.out.splitlines()]
    for policy in POLICIES.split(", "):
        (line,) = [one for one in lines if f" {policy} " in one]
        assert "stays it holds in this cluster only" in line

    selector = {"matchLabels": {"app.kubernetes.io/name": "web"}}
    twin, kind = both.twin(namespace), keys.POD_DISRUPTION_BUDGET
    rules = {"by-scale": {"maxUnavailable": 1}, "by-number": {"minAvailable": 1}}
    for name, rule in rules.items():
        spec = {**rule, "selector": selector}
        await both.milan.create(kind, named(kind, Key(twin, name), spec=spec))
    budgets = await world.until(both.milan, kind, twin, are_counted)
    assert budgets[Key(twin, "by-scale")]["status"]["disruptionsAllowed"] == 0
    for name in rules:
        await world.remove(both.milan, kind, Key(twin, name))


def are_counted(budgets: world.World) -> bool:
    """Return whether the number allows an eviction, and the scale was asked for in vain."""
    by = {key.name: objects.status(found) for key, found in budgets.items()}
    failed = objects.find_condition(by["by-scale"].get("conditions"), "DisruptionAllowed") or {}
    allowed = by["by-number"].get("disruptionsAllowed") or 0
    return failed.get("reason") == "SyncFailed" and allowed > 0


def without(pod: str) -> Callable[[world.World], bool]:
    """Return whether slices of the web tier have endpoints, and none of them is ``pod``."""

    def holds(slices: world.World) -> bool:
        targets = [
            (endpoint.get("targetRef") or {}).get("name")
            for found in slices.values()
            if found["metadata"]["labels"].get(keys.SERVICE_NAME) == "web"
            for endpoint in found.get("endpoints") or []
            if endpoint["conditions"].get("ready")
        ]
        return len(targets) >= MOST_WEB and pod not in targets

    return holds


async def survives_a_drain(both: world.Pair, offloaded: Release, milan: Kubectl) -> None:
    """Drain the only node of the provider: the pods come back as the same local pods."""
    before = await offloaded.uids()
    nodes = (await both.milan.list(Selection(keys.NODE, Object))).items
    (node,) = (key.name for key, found in nodes.items() if not placement.is_virtual(found))
    try:
        await milan.out(
            "drain", node, f"--pod-selector={WEB}", "--delete-emptydir-data", "--timeout=60s"
        )
    finally:
        await milan.out("uncordon", node)
    await offloaded.settled()
    assert await offloaded.uids() == before
    for pod in (
        await both.rome.list(Selection(keys.POD, Object, offloaded.kubectl.namespace))
    ).items.values():
        found = objects.find_condition(pod["status"].get("conditions"), "DisruptionTarget")
        assert found is None or found["status"] != "True", objects.key_of(pod)


def test_each_difference_is_justified() -> None:
    text = REASONS.read_text(encoding="utf-8")
    for view in DIFFERENT:
        assert f"| `{view}` |" in text
