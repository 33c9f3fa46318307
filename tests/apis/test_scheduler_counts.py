"""What a Quota counts for a pod, and what the scheduler counts. Source: docs/parity.md SEC-A13.

Each row is a PodSpec. A node that has exactly what we count takes its pod, and one that has one
unit less of any resource does not: so the scheduler counts the same.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest

from apis import keys, objects, quotas, resources
from apis.objects import Key, Object, named
from apis.quotas import Demand
from apis.resources import NANO, Quantity, Resources
from kube import client
from kube.client import ClusterClient
from kube.errors import KubeError
from sandbox.controlplane import Plane
from tests import factories
from tests.journeys import world
from tests.kube.running import some_at_once
from tests.scheduling import keep

SPACE: Final = "counted"
HEAVY: Final = {"cpu": "250m", "memory": "64Mi"}
GPU: Final = "example.com/gpu"
PAGES: Final = "hugepages-2Mi"
DISK: Final = "ephemeral-storage"
UNITS: Final = {"cpu": NANO // 1000}
"""What the scheduler counts in; all else in whole pieces."""


def has(requests: Object | None = None, limits: Object | None = None, **rest: Any) -> Object:
    said = {"requests": requests, "limits": limits}
    return {"resources": {name: amounts for name, amounts in said.items() if amounts}, **rest}


def sidecar(requests: Object) -> Object:
    """Return a sidecar: an init container that is always restarted."""
    return has(requests, restartPolicy="Always")


def spec(*containers: Object, init: tuple[Object, ...] = (), **rest: Any) -> Object:
    """Return a PodSpec whose containers have names and an image."""
    named_ = [{"name": f"c{at}", "image": "nginx", **one} for at, one in enumerate(containers)]
    first = [{"name": f"i{at}", "image": "nginx", **one} for at, one in enumerate(init)]
    return {
        "containers": named_ or [{"name": "c0", "image": "nginx"}],
        "initContainers": first,
        "automountServiceAccountToken": False,
        **rest,
    }


def cpu(amount: Any) -> Object:
    return {"cpu": amount}


def memory(amount: Any) -> Object:
    return {"memory": amount}


def whole(requests: Object | None = None, limits: Object | None = None) -> Object:
    return has(requests, limits)["resources"]  # type: ignore[no-any-return]  # JSON


HEAVIER: Final[dict[str, Any]] = {"runtimeClassName": "heavy"}
ROWS: Final[Mapping[str, Object]] = {
    "nothing at all": spec(),
    "a request": spec(has(cpu("100m"))),
    "a number": spec(has({"cpu": 2, "memory": 1048576})),
    "a limit alone is a request": spec(has(None, {"cpu": "300m", "memory": "5Mi"})),
    "a limit far above its request": spec(has(cpu("1m"), cpu("1k"))),
    "a limit beside another's request": spec(has(cpu("20m"), {"cpu": "1", "memory": "9Mi"})),
    "zero": spec(has({"cpu": "0", "memory": "0Gi"})),
    "zero with a limit": spec(has(cpu("0"), cpu("2"))),
    "three ways to write a half": spec(has(cpu("500m")), has(cpu("0.5")), has(cpu("5e-1"))),
    "binary beside decimal": spec(has(memory("1Gi")), has(memory("1G")), has(memory("1"))),
    "a binary fraction": spec(has(memory("1.5Gi")), has(memory("0.1Ki"))),
    "an exponent": spec(has({"cpu": "1e1", "memory": "12E6"})),
    "the suffix E": spec(has(memory("1E"))),
    "a plus": spec(has(cpu("+1"))),
    "a point at the end": spec(has(cpu("3."))),
    "a point at the start": spec(has(cpu(".25"))),
    "three thousandths": spec(*[has(cpu("1m"))] * 3),
    "tenths that no float can hold": spec(*[has(cpu("0.1"))] * 3),
    "less than a thousandth": spec(has(cpu("1n"))),
    "half a thousandth twice": spec(has(cpu("500u")), has(cpu("500u"))),
    "half a thousandth thrice": spec(*[has(cpu("500u"))] * 3),
    "less than anything": spec(has(cpu("0.0000000001"))),
    "forty digits": spec(has(cpu("0." + "123456789" * 4 + "1234"))),
    "forty digits of zero": spec(has(cpu("0" * 40 + "1"))),
    "thousandths of a byte": spec(has(memory("100m")), has(memory("1500m"))),
    "many bytes": spec(has(memory("1099511627777"))),
    "an init container below": spec(has(cpu("2")), init=(has(cpu("1")),)),
    "an init container above": spec(has(cpu("1")), init=(has(cpu("2")),)),
    "the larger of two init containers": spec(init=(has(cpu("300m")), has(cpu("700m")))),
    "an init container of another resource": spec(has(cpu("1")), init=(has(memory("7Mi")),)),
    "an init container above in one": spec(
        has({"cpu": "1", "memory": "9Mi"}), init=(has({"cpu": "2", "memory": "8Mi"}),)
    ),
    "an init container with a limit alone": spec(init=(has(None, cpu("900m")),)),
    "a sidecar": spec(has(cpu("1")), init=(sidecar(cpu("200m")),)),
    "two sidecars": spec(has(cpu("1")), init=(sidecar(cpu("200m")), sidecar(cpu("30m")))),
    "a sidecar that asks for nothing": spec(has(cpu("1")), init=(sidecar({}),)),
    "a sidecar before a large init container": spec(
        has(cpu("1")), init=(sidecar(cpu("200m")), has(cpu("3")))
    ),
    "a sidecar after a large init container": spec(
        has(cpu("1")), init=(has(cpu("3")), sidecar(cpu("200m")))
    ),
    "an init container between sidecars": spec(
        has(cpu("1")), init=(sidecar(cpu("1")), has(cpu("2")), sidecar(cpu("1500m")))
    ),
    "sidecars that start beside each other": spec(
        has(cpu("1m")), init=(sidecar(cpu("400m")), sidecar(cpu("500m")), has(cpu("50m")))
    ),
    "a sidecar of another resource": spec(has(cpu("1")), init=(sidecar(memory("3Mi")),)),
    "overhead alone": spec(**HEAVIER),
    "overhead on top": spec(has({"cpu": "1", "memory": "1Mi"}), **HEAVIER),
    "overhead on top of an init container": spec(has(cpu("1")), init=(has(cpu("4")),), **HEAVIER),
    "overhead on top of a sidecar": spec(has(cpu("1")), init=(sidecar(cpu("4")),), **HEAVIER),
    "overhead on top of the pod": spec(has(cpu("1")), resources=whole(cpu("2")), **HEAVIER),
    "the pod as a whole": spec(has(cpu("100m")), resources=whole({"cpu": "1", "memory": "9Mi"})),
    "the pod's limit alone": spec(has(), resources=whole(None, cpu("800m"))),
    "the pod's limit above a request": spec(has(cpu("100m")), resources=whole(None, cpu("800m"))),
    "the pod and a container of another": spec(has(memory("5Mi")), resources=whole(cpu("1"))),
    "the pod above an init container": spec(
        has(cpu("1")), init=(has(cpu("2")),), resources=whole(cpu("3"))
    ),
    "the pod above sidecars": spec(
        has(cpu("1")), init=(sidecar(cpu("1")),), resources=whole(cpu("2500m"), cpu("5"))
    ),
    "a device": spec(has({GPU: "1"}, {GPU: "1"})),
    "a device by its limit": spec(has(None, {GPU: 2})),
    "devices of two containers": spec(has(None, {GPU: 2}), has(None, {GPU: 3})),
    "a device of an init container": spec(has(None, {GPU: 1}), init=(has(None, {GPU: 4}),)),
    "a device beside cores": spec(has({"cpu": "1"}, {GPU: "1"})),
    "devices beside the pod as a whole": spec(has(None, {GPU: 2}), resources=whole(cpu("1"))),
    "huge pages": spec(has({"cpu": "1"}, {PAGES: "4Mi"})),
    "huge pages of two containers": spec(
        has(cpu("1"), {PAGES: "4Mi"}), has(cpu("0"), {PAGES: "2Mi"})
    ),
    "scratch space": spec(has({DISK: "1Gi"}, {DISK: "2Gi"})),
    "scratch space by its limit": spec(has(None, {DISK: "3G"}), has({DISK: "1"})),
    "everything": spec(
        has({"cpu": "1", "memory": "1Gi", DISK: "1Gi"}, {GPU: 1}),
        has({"cpu": "1500m", "memory": "1G"}),
        init=(sidecar({"cpu": "10m", "memory": "10Mi"}), has({"cpu": "5", "memory": "1Mi"})),
        **HEAVIER,
    ),
}
NOT_AMOUNTS: Final = (
    "-1", "-0.1n", "NaN", "Inf", "", "1 1", "1 m", "1.5.0", "1gi", "1GI", "1ki", "0x10", "1e",
    "1_0", "\uff11", "1,5", "--1", "1Kii",
)  # fmt: skip
"""What both sides refuse; an exponent of nine digits is not sent to an API server.

An API server takes spaces around an amount, and ``e3`` for nothing; here both are refused.
"""


def test_there_are_rows_enough() -> None:
    assert len(ROWS) >= 60


class Node(NamedTuple):
    """A node made for one pod, and of what it has too little ("" for nothing)."""

    row: str
    short: str
    room: Resources


def nodes_for(row: str, usage: Resources) -> Iterator[Node]:
    """Yield the node that has just enough, and those that lack one unit of something."""
    yield Node(row, "", usage)
    for name, amount in usage.items():
        unit = UNITS.get(name, NANO)
        counted = -(-amount.nanos // unit) * unit
        if counted:
            yield Node(row, name, {**usage, name: Quantity(counted - unit)})


async def stored_pod(cluster: ClusterClient, pod_spec: Object, name: str) -> Object:
    """Return the PodSpec as the API server completes it; the pod waits for a node named so."""
    pinned = {**pod_spec, "nodeSelector": {"for": name}}
    made = await cluster.create(keys.POD, factories.pod(SPACE, name, spec=pinned))
    found: Object = made["spec"]
    return found


async def make_node(cluster: ClusterClient, name: str, room: Resources) -> None:
    node = named(keys.NODE, Key("", name), metadata={"labels": {"for": name}})
    await keep(cluster, node, resources.to_json(room))


async def all_are_seen(cluster: ClusterClient) -> None:
    """Return once the scheduler knows each node with its room: it learns of them in order."""
    room = {name: resources.parse_quantity(1) for name in ("cpu", "memory", quotas.PODS)}
    await make_node(cluster, "last", room)
    await stored_pod(cluster, spec(), "last")
    key = Key(SPACE, "last")
    await world.until_one(cluster, keys.POD, key, lambda pod: bool(pod["spec"].get("nodeName")))


def verdict(pod: Object) -> str:
    """Return why the scheduler has not bound ``pod``; "" while it has not said so."""
    found = objects.find_condition(pod.get("status", {}).get("conditions"), "PodScheduled") or {}
    return str(found.get("message") or "")


@pytest.mark.cluster
async def test_the_scheduler_counts_what_we_count(scheduled_cluster: ClusterClient) -> None:
    cluster = scheduled_cluster
    await cluster.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", SPACE)))
    overhead = {"podFixed": HEAVY}
    heavy = named(keys.RUNTIME_CLASSES, Key("", "heavy"), handler="heavy", overhead=overhead)
    await cluster.create(keys.RUNTIME_CLASSES, heavy)
    rows = dict(zip((f"r{at}" for at in range(len(ROWS))), ROWS.items(), strict=True))
    made = {row: await stored_pod(cluster, sent, row) for row, (_, sent) in rows.items()}
    usage = {row: Demand.of(found).usage for row, found in made.items()}

    for row, (said, sent) in rows.items():
        before = resources.total(
            [Demand.of(sent).usage, resources.parse_resources(made[row].get("overhead"))]
        )
        assert before == usage[row], said
        assert usage[row][quotas.PODS] == resources.parse_quantity(1)

    nodes = [node for row in rows for node in nodes_for(row, usage[row])]
    names = {f"{node.row}-{at}": node for at, node in enumerate(nodes)}
    await some_at_once(make_node(cluster, name, node.room) for name, node in names.items())
    await all_are_seen(cluster)
    await some_at_once(stored_pod(cluster, rows[node.row][1], name) for name, node in names.items())

    def are_judged(pods: Mapping[Key, Object]) -> bool:
        judged = [pods.get(Key(SPACE, name)) for name in names]
        return all(pod and (pod["spec"].get("nodeName") or verdict(pod)) for pod in judged)

    found = await world.until(cluster, keys.POD, SPACE, are_judged, patience_s=600)
    for name, node in names.items():
        pod = found[Key(SPACE, name)]
        shown = (rows[node.row][0], node.short, verdict(pod))
        assert bool(pod["spec"].get("nodeName")) == (not node.short), shown
        if node.short:
            missing = "Too many pods" if node.short == quotas.PODS else f"Insufficient {node.short}"
            assert missing in verdict(pod), shown


@pytest.mark.cluster
@pytest.mark.parametrize("amount", NOT_AMOUNTS)
async def test_both_refuse_what_is_no_amount(plane: Plane, amount: str) -> None:
    asked = spec(has(cpu(amount)))
    pod = factories.pod("default", "wrong", spec=asked)
    async with client.connect(plane.kubeconfig) as cluster:
        with pytest.raises(KubeError):
            await cluster.create(keys.POD, pod)
    with pytest.raises(ValueError, match=r"requests\.cpu"):
        Demand.of(asked)


def test_a_limit_below_zero_is_refused_like_a_request() -> None:
    with pytest.raises(ValueError, match=r"limits\.memory is below zero"):
        Demand.of(spec(has(None, memory("-1Mi"))))
