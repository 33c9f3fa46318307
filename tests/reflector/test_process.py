"""The process itself, twice, on a real API server that is both clusters, and no other test's."""

import asyncio
import contextlib
import itertools
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from apis import keys
from apis.objects import Key, Kind, Object, named
from apis.offloading import ReflectionPolicy as Policy
from controllers.offloading.shadowendpointslice.forge import EndpointAddresses
from controllers.offloading.shadowendpointslice.reconciler import ShadowEndpointSliceReconciler
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from kube.events import EventRecorder
from reflector import __main__
from sandbox import audit
from sandbox.controlplane import Plane
from tests import factories, gomodules
from tests.conftest import CRD, definition, established, size_of
from tests.controllers.support import manager_of
from tests.journeys import world
from tests.reflector.mapped import offloaded_pairs
from tests.reflector.pairs import SIMPLE
from tests.reflector.test_on_servers import original
from tests.world import existing

ROOT = Path(__file__).parents[2]
WITHIN_S = 300
AT_ONCE = 20
REFLECTED = size_of("PYLIQO_TEST_REFLECTED", 200, 5000)
"""How many ConfigMaps and Secrets there are when it starts again."""
DRIFTS = 5
AGENT = "pyliqo-reflector"
KILLS = size_of("PYLIQO_TEST_KILLS", small=False, full=True)
"""Whether a leader is killed, too: the next one comes when its lease has run out."""


@contextlib.contextmanager
def process(plane: Plane, tenant: str, pod: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    args = {
        "nodename": "milan",
        "tenant-namespace": tenant,
        "home-cluster-id": "rome",
        "foreign-cluster-id": "milan",
        "foreign-kubeconfig-secret-name": "key",
        "kubeconfig": str(plane.kubeconfig),
        "health-port": "0",
    }
    command = [sys.executable, "-m", "reflector", *(f"--{name}={args[name]}" for name in args)]
    command += more
    running = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "POD_NAME": pod})
    try:
        yield running
    finally:
        running.kill()
        running.wait(WITHIN_S)


async def appears(cluster: Cluster, selection: Selection[Object], key: Key) -> Object:
    async with asyncio.timeout(WITHIN_S):
        return await _appears(cluster, selection, key)


async def _appears(cluster: Cluster, selection: Selection[Object], key: Key) -> Object:
    listing = await cluster.list(selection)
    if key in listing.items:
        return listing.items[key]
    async for event in cluster.watch(selection, listing.version):
        if event.key == key:
            return event.object
    raise AssertionError("the watch ended")


@pytest.fixture
def plane(own_plane: Plane) -> Plane:
    return own_plane


@pytest.fixture
def server(own_server: ClusterClient) -> ClusterClient:
    return own_server


@pytest.fixture
async def process_namespaces(server: ClusterClient, plane: Plane) -> tuple[str, str, str]:
    """Return a tenant namespace, an offloaded one and its twin, as if a peering had made them."""
    stem = f"test-{secrets.token_hex(4)}"
    identity = await offloaded_pairs(server, stem, kubeconfig=plane.kubeconfig.read_bytes())
    return identity.tenant_namespace, stem, f"{stem}-remote"


async def drift(server: ClusterClient, twin: Key) -> float:
    """Change a twin behind the reflector's back; return the seconds until it is as it was."""
    of = Selection(keys.CONFIG_MAP, Object, twin.namespace)
    listing = await server.list(of)
    was = listing.items[twin]["data"]
    await server.patch(keys.CONFIG_MAP, twin, {"data": {"a": "theirs"}})
    began, has_drifted = time.monotonic(), False
    async with asyncio.timeout(WITHIN_S):
        async for event in server.watch(of, listing.version):
            if event.key == twin:
                has_drifted = has_drifted or event.object["data"] != was
                if has_drifted and event.object["data"] == was:
                    return time.monotonic() - began
    raise AssertionError("the watch ended")


async def takeover(server: ClusterClient, local: str, remote: str, name: str) -> float:
    """Return the seconds until somebody reflects again."""
    began = time.monotonic()
    await server.create(keys.CONFIG_MAP, factories.config_map(local, name, a="1"))
    await appears(server, Selection(keys.CONFIG_MAP, Object, remote), Key(remote, name))
    return time.monotonic() - began


@pytest.mark.cluster
async def test_it_reflects_costs_nothing_when_idle_and_hands_over(
    server: ClusterClient, plane: Plane, process_namespaces: tuple[str, str, str]
) -> None:
    tenant, local, remote = process_namespaces
    lease = Key(tenant, "virtual-kubelet-leader-election")
    twins = Selection(keys.CONFIG_MAP, Object, remote)
    await server.create(keys.CONFIG_MAP, factories.config_map(local, "first", a="1"))

    log = audit.Log(plane.audit_log)
    with process(plane, tenant, "one") as one, process(plane, tenant, "two") as two:
        await appears(server, twins, Key(remote, "first"))
        await both_know_their_provider(log, tenant)
        log.settled(plane.api)
        async with asyncio.timeout(WITHIN_S):  # what else begins with a process ends some time
            for number in itertools.count():
                twin = Key(remote, f"second-{number}")
                await server.create(keys.CONFIG_MAP, factories.config_map(local, twin.name, a="1"))
                await appears(server, twins, twin)
                calls = log.settled(plane.api)
                if is_one_write([call for call in calls if call.agent.startswith(AGENT)]):
                    break

        repaired_s = [await drift(server, twin) for _ in range(DRIFTS)]

        found = await existing(server, keys.LEASE, lease)
        leader, other = (one, two) if found["spec"]["holderIdentity"] == "one" else (two, one)
        leader.send_signal(signal.SIGTERM)
        released_s = await takeover(server, local, remote, "third")
        assert leader.wait(WITHIN_S) == 0
        told = f"drift repaired in {max(repaired_s):.3f} s at most, released: {released_s:.1f} s"
        if KILLS:
            with process(plane, tenant, "three") as three:
                await server.create(keys.CONFIG_MAP, factories.config_map(local, "fourth", a="1"))
                await appears(server, twins, Key(remote, "fourth"))
                other.kill()
                told += f", killed: {await takeover(server, local, remote, 'fifth'):.1f} s"
                other = three
                other.send_signal(signal.SIGTERM)
                assert other.wait(WITHIN_S) == 0
        print(told)  # noqa: T201
        other.send_signal(signal.SIGTERM)
        assert other.wait(WITHIN_S) == 0

    released = await existing(server, keys.LEASE, lease)
    assert not released["spec"].get("holderIdentity")


def is_one_write(ours: list[audit.Call]) -> bool:
    """Whether the reflector asked for nothing but to write one ConfigMap."""
    written = [(call.verb, call.resource) for call in ours if call.is_write]
    return (
        not [call for call in ours if call.verb == "list"]
        and written.count(("patch", "configmaps")) == 1
        and {resource for _, resource in written} <= {"configmaps", "events", "leases"}
    )


async def both_know_their_provider(log: audit.Log, tenant: str) -> None:
    """Wait until who stands by has begun, too: each lists the Secret that leads there, and once."""
    lists = 0
    async with asyncio.timeout(WITHIN_S):
        while lists < 2:
            await asyncio.sleep(0.05)
            calls = [call for call in log.read() if call.agent.startswith(AGENT)]
            secrets_ = (call for call in calls if call.resource == "secrets")
            lists += sum((call.verb, call.namespace) == ("list", tenant) for call in secrets_)


@pytest.mark.cluster
async def test_a_namespaceoffloading_says_what_leaves_its_namespace(
    server: ClusterClient, plane: Plane, process_namespaces: tuple[str, str, str]
) -> None:
    tenant, local, remote = process_namespaces
    allowed = factories.config_map(local, "allowed", a="1")
    allowed["metadata"]["annotations"] = {keys.ALLOW_REFLECTION: "true"}
    await server.create(keys.CONFIG_MAP, allowed)
    await server.create(keys.CONFIG_MAP, factories.config_map(local, "settings", a="1"))

    def are(*wanted: str) -> Callable[[world.World], bool]:
        twins = {Key(remote, name) for name in ("allowed", "settings")}
        return lambda found: twins & set(found) == {Key(remote, name) for name in wanted}

    async def ask(policy: str | None) -> None:
        asked = {"metadata": {"annotations": {keys.REFLECTION_POLICY: policy}}}
        await server.patch(keys.NAMESPACE_OFFLOADING, Key(local, keys.OFFLOADING_NAME), asked)

    with process(plane, tenant, "one"):
        await world.until(server, keys.CONFIG_MAP, remote, are("allowed", "settings"))
        await ask("AllowList")
        await world.until(server, keys.CONFIG_MAP, remote, are("allowed"))
        await ask("Referenced")
        await world.until(server, keys.CONFIG_MAP, remote, are())
        await ask(None)
        await world.until(server, keys.CONFIG_MAP, remote, are("allowed", "settings"))


async def events_of_reason(server: ClusterClient, local: str, reason: str) -> list[Object]:
    """Return the Events that tell ``reason`` once there is one for each kind."""
    wanted = {kind.kind for kind in SIMPLE}

    def of(found: world.World) -> list[Object]:
        return [event for event in found.values() if event.get("reason") == reason]

    def all_are_there(found: world.World) -> bool:
        return {event["involvedObject"]["kind"] for event in of(found)} == wanted

    return of(await world.until(server, keys.EVENT, local, all_are_there))


@pytest.mark.cluster
async def test_namesakes_are_left_and_told_and_twins_come_by_themselves_when_they_go(
    server: ClusterClient, plane: Plane, process_namespaces: tuple[str, str, str]
) -> None:
    tenant, local, remote = process_namespaces
    there = Key(remote, "mine")
    taken: dict[Kind, Object] = {}
    for kind in SIMPLE:
        await server.create(kind, original(kind, local))
        taken[kind] = await server.create(kind, original(kind, remote))

    with process(plane, tenant, "one"):
        failed = await events_of_reason(server, local, keys.FAILED_REFLECTION)
        text = f"{there} exists on milan and is not ours"
        assert all(text in event["message"] for event in failed)
        of_milan = {keys.REMOTE_CLUSTER_ID: "milan"}
        assert all(event["metadata"]["labels"] == of_milan for event in failed)
        for kind, theirs in taken.items():
            assert await server.get_live(kind, there) == theirs
    await world.remove(server, keys.CONFIG_MAP, there)
    with process(plane, tenant, "one"):  # it knows from Events what it told before
        for kind in set(SIMPLE) - {keys.CONFIG_MAP}:
            await world.remove(server, kind, there)
        for kind in SIMPLE:
            await world.until_one(server, kind, there, is_paired)
        await events_of_reason(server, local, "SuccessfulReflection")


def is_paired(twin: Object) -> bool:
    labels = twin["metadata"].get("labels") or {}
    return (labels.get(keys.ORIGIN), labels.get(keys.DESTINATION)) == ("rome", "milan")


async def create_many(server: ClusterClient, kind: Kind, made: Iterable[Object]) -> None:
    waiting = asyncio.Semaphore(AT_ONCE)

    async def one(obj: Object) -> None:
        async with waiting:
            await server.create(kind, obj)

    await asyncio.gather(*map(one, made))


@pytest.mark.cluster
async def test_a_restart_with_many_objects_writes_nothing(
    server: ClusterClient, plane: Plane, process_namespaces: tuple[str, str, str]
) -> None:
    tenant, local, remote = process_namespaces
    services = min(REFLECTED // 20, 50)
    counts = {keys.CONFIG_MAP: REFLECTED // 2, keys.SECRET: REFLECTED // 2, keys.SERVICE: services}
    make: dict[Kind, Callable[..., Object]] = {
        keys.CONFIG_MAP: factories.config_map,
        keys.SECRET: factories.secret,
        keys.SERVICE: factories.service,
    }
    for kind, count in counts.items():
        await create_many(server, kind, (make[kind](local, f"n{one}") for one in range(count)))

    async def all_are_there(*more: str) -> None:
        for kind, count in counts.items():
            wanted = {Key(remote, name) for name in (*(f"n{one}" for one in range(count)), *more)}
            await world.until(server, kind, remote, lambda found: found.keys() >= wanted)  # noqa: B023  # awaited here

    with process(plane, tenant, "one") as first:
        await all_are_there()
        first.send_signal(signal.SIGTERM)
        assert first.wait(WITHIN_S) == 0
    log = audit.Log(plane.audit_log)
    log.settled(plane.api)
    with process(plane, tenant, "one") as second:
        for kind in counts:
            await server.create(kind, make[kind](local, "last"))
        await all_are_there("last")
        second.send_signal(signal.SIGTERM)
        assert second.wait(WITHIN_S) == 0

    ours = [
        call
        for call in log.settled(plane.api)
        if call.agent.startswith("pyliqo-reflector")
        and call.namespace in {local, remote}
        and call.resource in {kind.plural for kind in counts}  # Events come when they like
    ]
    assert sorted((call.verb, call.resource) for call in ours if call.is_write) == sorted(
        ("patch", kind.plural) for kind in counts
    )
    assert [call for call in ours if call.verb == "get"] == []


HTTP_ROUTE = Kind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
SERVICE_EXPORT = Kind("multicluster.x-k8s.io", "v1alpha1", "ServiceExport", "serviceexports")
OPTED_IN = (
    "--custom-resource=httproutes.gateway.networking.k8s.io/v1/HTTPRoute",
    "--custom-resource=serviceexports.multicluster.x-k8s.io/v1alpha1/ServiceExport/AllowList",
    "--custom-resource=unknowns.nowhere.example/v1/Unknown",
    "--custom-resource=networkpolicies.networking.k8s.io/v1/NetworkPolicy",
    "--custom-resource=poddisruptionbudgets.policy/v1/PodDisruptionBudget",
)
SELECTOR: Object = {"matchLabels": {"app": "web"}}
POLICIES: Sequence[tuple[Kind, str, Object, bool]] = (
    (keys.NETWORK_POLICY, "deny", {"podSelector": SELECTOR, "policyTypes": ["Ingress"]}, True),
    (
        keys.NETWORK_POLICY,
        "from-shops",
        {"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": SELECTOR}]}]},
        False,
    ),
    (keys.POD_DISRUPTION_BUDGET, "two", {"selector": SELECTOR, "minAvailable": 2}, True),
    (keys.POD_DISRUPTION_BUDGET, "half", {"selector": SELECTOR, "minAvailable": "50%"}, False),
)
"""Kind, name, spec, and whether it means the same at the provider."""
DEFINITIONS = {
    HTTP_ROUTE: "sigs.k8s.io/gateway-api@v1.4.1 config/crd/standard",
    SERVICE_EXPORT: "sigs.k8s.io/mcs-api@v0.3.0 config/crd",
}
"""Where the projects of these kinds define them."""
ROUTE: Object = {
    "hostnames": ["shop.example"],
    "parentRefs": [{"name": "gateway", "sectionName": "https"}],
    "rules": [
        {
            "matches": [{"path": {"value": "/cart"}, "headers": [{"name": "new", "value": "y"}]}],
            "filters": [
                {
                    "type": "RequestHeaderModifier",
                    "requestHeaderModifier": {"set": [{"name": "x-shop", "value": "1"}]},
                }
            ],
            "backendRefs": [{"name": "web", "port": 80, "weight": 9}, {"name": "new", "port": 80}],
            "timeouts": {"request": "10s"},
        },
        {
            "filters": [
                {
                    "type": "RequestRedirect",
                    "requestRedirect": {"scheme": "https", "statusCode": 301},
                }
            ]
        },
    ],
}


async def define(server: ClusterClient, kind: Kind) -> None:
    """Install a kind with the schema that its own project gives it."""
    module, folder = DEFINITIONS[kind].split()
    path = gomodules.fetched(module) / folder / f"{kind.group}_{kind.plural}.yaml"
    await server.apply(CRD, yaml.safe_load(path.read_text()), manager="tests")
    await established(server, Key("", kind.resource))


def judged_by_gate(type_: str, generation: int) -> Object:
    return {
        "type": type_,
        "status": "True",
        "reason": type_,
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def routed(generation: int) -> Object:
    """Return the status of a route that was accepted there, all fields with their defaults."""
    parent = {"group": HTTP_ROUTE.group, "kind": "Gateway", **ROUTE["parentRefs"][0]}
    who = {"parentRef": parent, "controllerName": "theirs.example/gateway"}
    return {"parents": [{**who, "conditions": [judged_by_gate("Accepted", generation)]}]}


@pytest.mark.cluster
async def test_custom_resources_that_were_asked_for_go_and_their_status_comes_back(
    server: ClusterClient, plane: Plane, process_namespaces: tuple[str, str, str]
) -> None:
    tenant, local, remote = process_namespaces
    for kind in DEFINITIONS:
        await define(server, kind)
    here, there = Key(local, "shop"), Key(remote, "shop")
    allowed = {"annotations": {keys.ALLOW_REFLECTION: "true"}}
    exported = {"exportedLabels": {"tier": "front"}}
    made = await server.create(HTTP_ROUTE, named(HTTP_ROUTE, here, spec=ROUTE))
    export = named(SERVICE_EXPORT, here, metadata=allowed, spec=exported)
    await server.create(SERVICE_EXPORT, export)
    await server.create(SERVICE_EXPORT, named(SERVICE_EXPORT, Key(local, "other")))
    taken, theirs = Key(remote, "taken"), {"hostnames": ["theirs.example"]}
    await server.create(HTTP_ROUTE, named(HTTP_ROUTE, Key(local, taken.name), spec=ROUTE))
    their_own = await server.create(HTTP_ROUTE, named(HTTP_ROUTE, taken, spec=theirs))
    for kind, name, spec, _ in POLICIES:
        await server.create(kind, named(kind, Key(local, name), spec=spec))

    with process(plane, tenant, "one", *OPTED_IN):
        twin = await appears(server, Selection(SERVICE_EXPORT, Object, remote), there)
        assert twin["spec"] == exported
        twin = await appears(server, Selection(HTTP_ROUTE, Object, remote), there)
        assert twin["spec"] == made["spec"]
        assert made["spec"]["rules"][0]["timeouts"] == {"request": "10s"}

        await server.patch(HTTP_ROUTE, there, {"spec": {"hostnames": ["theirs.example"]}})
        twin = await world.until_one(
            server, HTTP_ROUTE, there, lambda found: generation(found) == 3 and is_as(found, made)
        )
        await server.patch_status(HTTP_ROUTE, there, routed(generation(twin)))
        valid = {"conditions": [judged_by_gate("Valid", 1)]}
        await server.patch_status(SERVICE_EXPORT, there, valid)
        told, of_one = routed(generation(made)), (server, HTTP_ROUTE, here)
        await world.until_one(*of_one, lambda found: found.get("status") == told)
        of_one = (server, SERVICE_EXPORT, here)
        await world.until_one(*of_one, lambda found: found.get("status") == valid)
        await world.remove(server, HTTP_ROUTE, here)
        await world.until_gone(server, HTTP_ROUTE, there)
        await world.until(server, keys.EVENT, local, lambda found: is_told(found, taken))
        await only_policies_that_mean_the_same_go(server, local, remote)
        assert await server.get_live(HTTP_ROUTE, taken) == their_own

    assert await server.get_live(SERVICE_EXPORT, Key(remote, "other")) is None


async def only_policies_that_mean_the_same_go(
    server: ClusterClient, local: str, remote: str
) -> None:
    for kind, name, _, goes in POLICIES:
        if goes:
            twin = await appears(server, Selection(kind, Object, remote), Key(remote, name))
            original = await existing(server, kind, Key(local, name))
            assert twin["spec"] == original["spec"]
    stay = {name for _, name, _, goes in POLICIES if not goes}

    def are_told(events: world.World) -> bool:
        disabled = (one for one in events.values() if one["reason"] == keys.REFLECTION_DISABLED)
        return stay <= {one["involvedObject"]["name"] for one in disabled}

    await world.until(server, keys.EVENT, local, are_told)
    for kind, name, _, goes in POLICIES:
        assert goes or await server.get_live(kind, Key(remote, name)) is None


def is_told(events: world.World, twin: Key) -> bool:
    text = f"{twin} exists on milan and is not ours"
    return any(
        event["reason"] == keys.FAILED_REFLECTION and text in event["message"]
        for event in events.values()
    )


def generation(found: Object) -> int:
    return int(found["metadata"]["generation"])


def is_as(found: Object, other: Object) -> bool:
    return bool(found["spec"] == other["spec"])


FABRIC = "--local-podcidr=10.66.0.0/16"
PODS = [{"addresses": ["10.66.0.7"], "targetRef": {"kind": "Pod", "name": one}} for one in "ab"]
"""Two pods by one address, as those of a node's own network have."""


@pytest.mark.cluster
async def test_endpoints_wait_for_the_ip_that_tells_how_they_are_reached(
    server: ClusterClient, plane: Plane, process_namespaces: tuple[str, str, str]
) -> None:
    tenant, local, remote = process_namespaces
    await server.apply(CRD, definition(keys.IP), manager="tests")
    await established(server, Key("", keys.IP.resource))
    here, there = Key(local, "web-1"), Key(remote, "web-1")
    elsewhere = {"addresses": ["192.0.2.7"]}
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    body = {"addressType": "IPv4", "endpoints": [*PODS, elsewhere], "ports": ports}
    await server.create(keys.ENDPOINT_SLICE, named(keys.ENDPOINT_SLICE, here, **body))

    with process(plane, tenant, "one", FABRIC):
        found = await world.until(server, keys.EVENT, local, lambda found: len(found) == 1)
        (warning,) = found.values()
        assert warning["reason"] == keys.FAILED_REFLECTION
        assert "192.0.2.7" in warning["message"]
        ip = Key(local, "db")
        await server.create(keys.IP, named(keys.IP, ip, spec={"ip": "192.0.2.7"}))
        await server.patch_status(keys.IP, ip, {"ip": "10.70.0.7"})
        await appears(server, Selection(keys.SHADOW_ENDPOINT_SLICE, Object, remote), there)

    events = EventRecorder(server, "tests", "milan")
    provider = ShadowEndpointSliceReconciler(manager_of(server, events=events))
    provider.consumer, provider.reach = (lambda _: "rome"), (lambda _: EndpointAddresses())
    await provider.reconcile(there)
    made = await existing(server, keys.ENDPOINT_SLICE, there)
    assert [(one["addresses"], one.get("targetRef")) for one in made["endpoints"]] == [
        (["10.66.0.7"], {"kind": "RemotePod", "name": "a"}),
        (["10.66.0.7"], {"kind": "RemotePod", "name": "b"}),
        (["10.70.0.7"], None),
    ]


MANDATORY = (
    "--nodename", "milan", "--tenant-namespace", "liqo-tenant-milan", "--home-cluster-id", "rome",
    "--foreign-cluster-id", "milan", "--foreign-kubeconfig-secret-name", "key",
)  # fmt: skip


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "--nodename"),
        ((*MANDATORY, "--secret-reflection-type", "Everything"), "not one of DenyList"),
        ((*MANDATORY, "--service-reflection-type", "Referenced"), "not one of DenyList"),
        ((*MANDATORY, "--secret-reflection-workers", "-1"), "no count"),
        ((*MANDATORY, "--enable-load-balancer=maybe"), "neither true nor false"),
        ((*MANDATORY, "--custom-resource=routes/v1"), "is not PLURAL.GROUP/VERSION/KIND"),
        ((*MANDATORY, "--custom-resource=a.b/v1/A/Referenced"), "not one of DenyList"),
        (
            (*MANDATORY, "--custom-resource=limitranges/v1/LimitRange"),
            "limitranges cannot be reflected as a custom resource: kinds of the core group are not",
        ),
    ],
)
def test_wrong_flags_are_refused(
    args: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        __main__.main(args)

    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_flags_say_what_is_reflected_and_how() -> None:
    chosen = __main__.parse(
        [
            *MANDATORY, "--secret-reflection-workers=0", "--configmap-reflection-type=AllowList",
            "--labels-not-reflected=a,b", "--labels-not-reflected=c",
            "--annotations-not-reflected", "d", "--enable-load-balancer",
            "--remote-real-load-balancer-class-name=theirs",
        ],
        instance="vk-milan-0",
    )  # fmt: skip

    assert (chosen.tenant_namespace, chosen.kubeconfig_secret) == ("liqo-tenant-milan", "key")
    assert chosen.instance == "vk-milan-0"
    assert chosen.workers["configmap"] == 10
    assert chosen.workers["secret"] == 0
    assert chosen.policies["configmap"] is Policy.ALLOW_LIST
    assert chosen.policies["secret"] is Policy.DENY_LIST
    assert chosen.remote_objects.hidden.labels_not_reflected == {"a", "b", "c"}
    assert chosen.remote_objects.hidden.annotations_not_reflected == {"d"}
    assert chosen.remote_objects.load_balancer_class == "theirs"
