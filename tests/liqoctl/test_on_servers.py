"""Whole command lines against a real API server, as a user types them."""

import asyncio
import json
import secrets
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from apis import keys, objects
from apis.objects import Key, Kind, Object, named
from kube import client
from kube.client import ClusterClient
from liqoctl import completion
from liqoctl.options import cli
from sandbox import audit
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests import factories
from tests.journeys import world

T = TypeVar("T")
pytestmark = pytest.mark.cluster


class Server:
    """The API server, for tests that are not async because a command runs its own loop."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self.kubeconfig = plane.kubeconfig

    def liqoctl(self, *args: str, answer: str = "") -> Result:
        flags = ("--kubeconfig", str(self._plane.kubeconfig))
        return CliRunner().invoke(cli, [*flags, *args], input=answer)

    def do(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        async def connected() -> T:
            async with client.connect(self._plane.kubeconfig, user_agent="tests") as server:
                return await work(server)

        return asyncio.run(connected())

    def get(self, kind: Kind, key: Key) -> Object | None:
        return self.do(lambda server: server.get_live(kind, key))

    def writes_of_liqoctl(self, log: audit.Log) -> list[audit.Call]:
        calls = log.settled(self._plane.api)
        return [c for c in calls if c.is_write and c.agent.startswith("pyliqo-liqoctl/")]


@pytest.fixture
def server(plane: Plane, crds: None) -> Server:
    return Server(plane)


@pytest.fixture
def name(server: Server) -> str:
    """Return a namespace of this test's own, on a server whose slow first writes are over."""
    name = f"test-{secrets.token_hex(4)}"
    key = Key(name, "offloading")

    async def prepare(s: ClusterClient) -> None:
        await s.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", name)))
        first = named(keys.NAMESPACE_OFFLOADING, key, spec={})
        made = await s.create(keys.NAMESPACE_OFFLOADING, first)
        await s.delete(keys.NAMESPACE_OFFLOADING, key, uid=made["metadata"]["uid"])

    server.do(prepare)
    return name


def settle(server: Server, key: Key, phase: str) -> None:
    """Write the status that controllers would."""
    found = server.get(keys.NAMESPACE_OFFLOADING, key)
    assert found
    condition = {
        "type": "Ready",
        "status": "True" if phase == "Ready" else "False",
        "reason": "Whatever",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {
        "observedGeneration": found["metadata"]["generation"],
        "offloadingPhase": phase,
        "remoteNamespaceName": f"{key.namespace}-rome",
        "remoteNamespacesConditions": {"milan": [condition]},
    }
    server.do(lambda s: s.patch_status(keys.NAMESPACE_OFFLOADING, key, status))


def test_offload_and_unoffload(server: Server, name: str) -> None:
    key = Key(name, "offloading")

    early = server.liqoctl("offload", "namespace", name, "--timeout", "10s")
    assert early.exit_code == 1
    assert f"Error: namespace {name} is not offloaded after 10s" in early.stderr
    asked = server.get(keys.NAMESPACE_OFFLOADING, key)
    assert asked
    assert asked["spec"]["namespaceMappingStrategy"] == "DefaultName"
    assert asked["spec"]["podOffloadingStrategy"] == "LocalAndRemote"
    settle(server, key, "Ready")
    done = server.liqoctl("offload", "namespace", name)
    assert done.exit_code == 0
    assert f"INFO  namespace {name}: offloaded as {name}-rome" in done.stderr
    assert done.stdout == ""

    refused = server.liqoctl("unoffload", "namespace", name, answer="n\n")
    assert refused.exit_code == 1
    dry = server.liqoctl("unoffload", "namespace", name, "--dry-run")
    assert dry.exit_code == 0
    assert f"WARN  namespace {name}-rome on milan goes, with everything in it" in dry.stderr
    assert server.get(keys.NAMESPACE_OFFLOADING, key)
    gone = server.liqoctl("unoffload", "namespace", name, answer="y\n")
    assert gone.exit_code == 0
    assert server.get(keys.NAMESPACE_OFFLOADING, key) is None


def test_printing_writes_nothing(server: Server, plane: Plane, name: str) -> None:
    log = audit.Log(plane.audit_log)
    labels = {"metadata": {"labels": {"team": name}}}
    server.do(lambda s: s.patch(keys.NAMESPACE, Key("", name), labels))
    log.settled(plane.api)

    result = server.liqoctl("offload", "ns", "--ns-selector", f"team={name}", "-o", "yaml")

    assert result.exit_code == 0
    assert f"namespace: {name}\n" in result.stdout
    assert server.writes_of_liqoctl(log) == []
    assert server.get(keys.NAMESPACE_OFFLOADING, Key(name, "offloading")) is None


async def offloaded_to(s: ClusterClient, name: str, peer: str) -> None:
    """Make what says that ``name`` is offloaded to ``peer``, and three objects in it."""
    template = Key(name, "template")
    flags = dict.fromkeys(("createNode", "disableNetworkCheck", "metricsEnabled"), False)
    off = {"service": {"workers": 0}}
    spec: Object = {"containerImage": "x", **flags, "reflectorsConfig": off}
    await s.create(keys.VK_OPTIONS_TEMPLATE, named(keys.VK_OPTIONS_TEMPLATE, template, spec=spec))
    ref = {"name": template.name, "namespace": template.namespace}
    virtual = {"clusterID": peer, "vkOptionsTemplateRef": ref}
    await s.create(keys.VIRTUAL_NODE, named(keys.VIRTUAL_NODE, Key(name, peer), spec=virtual))
    labels = {keys.REMOTE_CLUSTER_ID: peer, keys.REPLICATION: "true"}
    where, desired = Key(name, peer), {"desiredMapping": {name: f"{name}-there"}}
    made = named(keys.NAMESPACE_MAP, where, metadata={"labels": labels}, spec=desired)
    await s.create(keys.NAMESPACE_MAP, made)
    current = {name: {"remoteNamespace": f"{name}-there", "phase": "Accepted"}}
    await s.patch_status(keys.NAMESPACE_MAP, where, {"currentMapping": current})
    skip = {"annotations": {keys.SKIP_REFLECTION: "true"}}
    for kind in (keys.CONFIG_MAP, keys.SECRET, keys.SERVICE):
        metadata = skip if kind == keys.SECRET else {}
        body = {"spec": {"ports": [{"port": 80}]}} if kind == keys.SERVICE else {}
        await s.create(kind, named(kind, Key(name, "mine"), metadata=metadata, **body))


async def known_as(s: ClusterClient, name: str, cluster_id: str) -> None:
    """Say in ``name`` what this cluster is called."""
    metadata = {"labels": {keys.APP_NAME: keys.CLUSTER_ID_CONFIG_MAP}}
    data = {keys.CLUSTER_ID_KEY: cluster_id}
    where = Key(name, "own")
    await s.create(keys.CONFIG_MAP, named(keys.CONFIG_MAP, where, metadata=metadata, data=data))


async def taken(s: ClusterClient, name: str, peer: str) -> None:
    """Tell, as the reflector towards ``peer`` does, that the ConfigMap is taken there."""
    found = await s.get_live(keys.CONFIG_MAP, Key(name, "mine"))
    assert found
    about = {"kind": "ConfigMap", "name": "mine", "namespace": name, "uid": objects.uid(found)}
    event = named(
        keys.EVENT,
        Key(name, "mine.1"),
        metadata={"labels": {keys.REMOTE_CLUSTER_ID: peer}},
        involvedObject=about,
        reason=keys.FAILED_REFLECTION,
        message="is not ours",
        reportingComponent="liqo-configmap-reflection",
        reportingInstance="vk-0",
        lastTimestamp="2026-01-01T00:00:00Z",
    )
    await s.create(keys.EVENT, event)


def mine(table: str) -> dict[str, list[str]]:
    """Return by kind what the lines of the table about ``mine`` say; nobody else's count."""
    lines = [line.split(maxsplit=5) for line in table.splitlines()]
    return {line[2]: [*line[:2], *line[4:]] for line in lines if line[3:4] == ["mine"]}


def test_what_is_reflected_and_what_would_be_is_told_and_nothing_written(
    server: Server, plane: Plane, name: str
) -> None:
    peer, node = f"milan{name[-4:]}", Key("", f"milan-{name[-4:]}")
    labels = {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE, keys.REMOTE_CLUSTER_ID: peer, "zone": name}
    metadata = {"labels": labels}
    log = audit.Log(plane.audit_log)
    server.do(lambda s: offloaded_to(s, name, peer))
    server.do(lambda s: taken(s, name, peer))
    server.do(lambda s: known_as(s, name, "rome"))
    server.do(lambda s: s.create(keys.NODE, named(keys.NODE, node, metadata=metadata)))
    log.settled(plane.api)
    named_so = ("--namespace-mapping-strategy", "SelectedName", "--remote-namespace-name", "theirs")

    try:
        is_ = server.liqoctl("get", "reflections", "-n", name)
        would = server.liqoctl(
            "offload", "namespace", name, "--dry-run", "-l", f"zone={name}", *named_so
        )
        at_home = server.liqoctl("get", "reflections", "-n", "default")
    finally:
        server.do(lambda s: world.remove(s, keys.NODE, node))
        server.do(lambda s: world.remove(s, keys.CONFIG_MAP, Key(name, "own")))

    assert (is_.exit_code, would.exit_code) == (0, 0), is_.stderr + would.stderr
    there = [peer, f"{name}-there"]
    assert mine(is_.stdout) == {
        "ConfigMap": [*there, "failed", "is not ours"],
        "Secret": [*there, "stays", f"reflection disabled by annotation {keys.SKIP_REFLECTION}"],
        "Service": [*there, "off", "service has 0 workers"],
    }
    told = {kind: line[:3] for kind, line in mine(would.stdout).items()}
    states = {"ConfigMap": "failed", "Secret": "stays", "Service": "off"}
    assert told == {kind: [peer, "theirs", state] for kind, state in states.items()}
    assert "would be reflected, nothing is changed" in would.stderr
    assert at_home.exit_code == 1
    assert "namespace default is nowhere else" in at_home.stderr
    asked = [c for c in log.settled(plane.api) if c.agent.startswith("pyliqo-liqoctl/")]
    assert ("list", "secrets", name) in {(c.verb, c.resource, c.namespace) for c in asked}
    assert [c for c in asked if c.is_write] == []
    assert server.get(keys.NAMESPACE_OFFLOADING, Key(name, "offloading")) is None


def test_a_remote_name_that_means_nothing_is_not_written(server: Server, name: str) -> None:
    key, named_so = Key(name, "offloading"), ("--remote-namespace-name", "other")
    server.liqoctl("offload", "namespace", name, *named_so, "--timeout", "5s")
    settle(server, key, "Ready")

    for mapping in ((), ("--namespace-mapping-strategy", "DefaultName")):
        again = server.liqoctl("offload", "namespace", name, *named_so, *mapping)

        assert again.exit_code == 0, again.stderr
        assert "offloading is as asked for already" in again.stderr
        assert "WARN  --remote-namespace-name is ignored without" in again.stderr
    found = server.get(keys.NAMESPACE_OFFLOADING, key)
    assert found
    assert "remoteNamespaceName" not in found["spec"]


def test_a_strategy_that_may_not_change_is_one_sentence(server: Server, name: str) -> None:
    server.liqoctl("offload", "namespace", name, "--timeout", "10s")

    result = server.liqoctl(
        "offload", "namespace", name, "--namespace-mapping-strategy", "EnforceSameName"
    )

    assert result.exit_code == 1
    assert "namespaceMappingStrategy" in result.stderr
    assert "Traceback" not in result.stderr


def test_what_is_not_there_is_one_sentence(server: Server, name: str) -> None:
    missing = server.liqoctl("offload", "namespace", f"{name}-typo")
    unknown = server.liqoctl("unoffload", "namespace", f"{name}-typo")
    no_node = server.liqoctl("delete", "virtualnode", name, "--skip-confirm")

    assert (missing.exit_code, unknown.exit_code, no_node.exit_code) == (1, 1, 1)
    assert f"{name}-typo" in missing.stderr
    assert unknown.stderr == f"Error: namespace {name}-typo does not exist\n"
    assert no_node.stderr == f"Error: virtual node {name} does not exist\n"
    nowhere = server.liqoctl("offload", "namespace", "nowhere")
    assert nowhere.exit_code == 1
    told = "namespace nowhere does not exist: create it first: kubectl create namespace nowhere"
    assert told in " ".join(nowhere.stderr.split())


def test_create_and_delete_a_virtual_node(server: Server, name: str) -> None:
    data = {"kubeconfig": "eA=="}
    where = Key(name, "key")
    server.do(lambda s: s.create(keys.SECRET, named(keys.SECRET, where, data=data)))
    args = ("--remote-cluster-id", "milan", "--kubeconfig-secret-name", "key", "--no-create-node")

    made = server.liqoctl("create", "virtualnode", name, "-n", name, *args)
    assert made.exit_code == 0, made.stderr
    assert made.stderr == f"INFO  virtual node {name}/{name}: created\n"
    stored = server.get(keys.VIRTUAL_NODE, Key(name, name))
    assert stored
    assert stored["metadata"]["labels"][keys.REMOTE_CLUSTER_ID] == "milan"
    assert stored["spec"] == {
        "clusterID": "milan",
        "createNode": False,
        "kubeconfigSecretRef": {"name": "key"},
        "disableNetworkCheck": False,
        "labels": {keys.REMOTE_CLUSTER_ID: "milan"},
        "resourceQuota": {"hard": {"cpu": "2", "memory": "4Gi", "pods": "110"}},
    }
    gone = server.liqoctl("delete", "vn", name, "--skip-confirm")
    assert gone.exit_code == 0
    assert server.get(keys.VIRTUAL_NODE, Key(name, name)) is None


def test_versions(server: Server) -> None:
    result = server.liqoctl("version")

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Client version: ")
    assert lines[1] == "Server version: not installed in liqo"
    assert lines[2].startswith("Kubernetes version: v1.")


def test_a_context_that_is_not_there(server: Server) -> None:
    result = server.liqoctl("--context", "nowhere", "offload", "ns", "foo")

    assert result.exit_code == 1
    assert "nowhere" in result.stderr


def test_why_a_pod_is_not_there_and_why_it_waits(server: Server, plane: Plane, name: str) -> None:
    log = audit.Log(plane.audit_log)
    refusal = named(
        keys.EVENT,
        Key(name, "web-5d9c.1"),
        involvedObject={"kind": "ReplicaSet", "name": "web-5d9c", "namespace": name},
        reason="FailedCreate",
        message='Error creating: admission webhook "a.b.c" denied the request: do this',
        type="Warning",
        lastTimestamp="2026-01-01T00:00:00Z",
    )
    container = {"name": "app", "image": "app"}
    gates = [{"name": "tests/never"}]
    waits = named(
        keys.POD, Key(name, "gated"), spec={"containers": [container], "schedulingGates": gates}
    )
    account = named(keys.SERVICE_ACCOUNT, Key(name, "default"))

    async def prepare(s: ClusterClient) -> None:
        await s.create(keys.EVENT, refusal)
        await s.apply(keys.SERVICE_ACCOUNT, account, manager="tests")
        await s.create(keys.POD, waits)

    server.do(prepare)
    log.settled(plane.api)

    refused = server.liqoctl("why", "pod", "web-5d9c-x2x8z", "-n", name)
    gated = server.liqoctl("why", "pod", "gated", "-n", name, "-o", "json")
    absent = server.liqoctl("why", "pod", "gate", "-n", name)
    space = server.liqoctl("why", "namespace", name, "-o", "yaml")

    assert refused.exit_code == 0, refused.stderr
    assert refused.stdout.startswith(f"pod {name}/web-5d9c-x2x8z was refused because do this\n")
    verdict = f"pod {name}/gated waits because it has scheduling gates: tests/never"
    assert json.loads(gated.stdout)["verdict"] == verdict
    assert absent.exit_code == 1
    assert "did you mean gated?" in absent.stderr
    assert f"name: {name}\noutcome: AtHome\n" in space.stdout
    assert server.writes_of_liqoctl(log) == []


def install(server: Server, name: str) -> None:
    """Make what ``info`` reads of an installation in the namespace ``name``."""
    container = {"name": "controllers", "image": "registry.example/pyliqo:0.1.0"}
    app = {"app": "x"}
    pod = {"metadata": {"labels": app}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": app}, "template": pod}
    deployment = named(keys.DEPLOYMENT, Key(name, "liqo-controller-manager"), spec=spec)
    config = Key(name, keys.CLUSTER_ID_CONFIG_MAP)
    data = {keys.CLUSTER_ID_KEY: "rome"}

    async def make(s: ClusterClient) -> None:
        await s.create(keys.DEPLOYMENT, deployment)
        await s.create(keys.CONFIG_MAP, named(keys.CONFIG_MAP, config, data=data))

    server.do(make)


def test_info_of_what_is_there(server: Server, name: str) -> None:
    absent = server.liqoctl("info", "-n", name)
    assert absent.exit_code == 1
    assert f"pyliqo is not installed in namespace {name}: liqoctl install" in absent.stderr
    peer = f"milan{name[-4:]}"
    labels = {"metadata": {"labels": {keys.REMOTE_CLUSTER_ID: peer}}}
    slice_spec = {"consumerClusterID": "rome", "providerClusterID": peer}

    async def make(s: ClusterClient) -> None:
        fc = named(keys.FOREIGN_CLUSTER, Key("", peer), spec={"clusterID": peer}, **labels)
        await s.create(keys.FOREIGN_CLUSTER, fc)
        modules: Object = {"networking": {"enabled": False}, "authentication": {"enabled": False}}
        ready = {"type": "OffloadingNodeStatus", "status": "Ready"}
        modules["offloading"] = {"enabled": True, "conditions": [ready]}
        status = {"role": "Provider", "modules": modules, "kubernetesVersion": "v1.35.4"}
        await s.patch_status(keys.FOREIGN_CLUSTER, Key("", peer), status)
        await s.create(
            keys.RESOURCE_SLICE, named(keys.RESOURCE_SLICE, Key(name, "pool"), spec=slice_spec)
        )

    server.do(make)
    install(server, name)

    told = yaml.safe_load(server.liqoctl("info", "-n", name, "-o", "yaml").stdout.strip("-\n"))
    assert told["local"]["clusterID"] == "rome"
    assert told["local"]["version"] == "0.1.0"
    assert peer in [one["clusterID"] for one in told["peerings"]["peers"]]
    assert server.liqoctl("info", "-n", name, "--get", "clusterid").stdout == "rome\n"
    assert server.liqoctl("info", "-n", name, "--get", "health.healthy").stdout == "false\n"
    text = server.liqoctl("info", "peer", peer).stdout
    assert "      pool\n        Action: Consuming\n        Accepted: no\n" in text
    about = json.loads(server.liqoctl("info", "peer", peer, "-o", "json").stdout)
    assert about[peer]["info"]["kubernetesVersion"] == "v1.35.4"
    field = server.liqoctl("info", "peer", peer, "--get", "offloading.status")
    assert field.stdout == "Healthy\n"
    unknown = server.liqoctl("info", "peer", "nobody")
    assert unknown.exit_code == 1
    assert "no peer is called nobody: there are " in unknown.stderr
    wrong = server.liqoctl("info", "peer", peer, "--get", "offloading.x")
    assert "no field 'x': there are status, alerts, virtualNodes" in wrong.stderr


def candidates(server: Server, *words: str) -> list[str]:
    """Return what a shell offers for the last of ``words``."""
    flags = ["--kubeconfig", str(server.kubeconfig)]
    found = ShellComplete(cli, {}, "liqoctl", "_X").get_completions(
        [*flags, *words[:-1]], words[-1]
    )
    return [item.value for item in found]


def test_a_shell_offers_names_of_objects(server: Server, name: str) -> None:
    assert name in candidates(server, "offload", "namespace", name[:-1])
    assert name in candidates(server, "why", "namespace", name[:-1])
    assert name not in candidates(server, "offload", "namespace", name, name[:-1]), "said already"
    pod = factories.pod(name, "web", spec=factories.pod_spec())
    server.do(lambda cluster: cluster.create(keys.POD, pod))
    assert candidates(server, "why", "pod", "-n", name, "w") == ["web"]
    assert candidates(server, "why", "pod", "-n", "default", "w") == []


@pytest.mark.parametrize("file", ["none.kubeconfig", "broken.kubeconfig"])
def test_a_cluster_that_does_not_answer_has_no_names(
    tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.kubeconfig").write_text("clusters: [")
    assert completion.main(["--kubeconfig", str(tmp_path / file), "why", "namespace", ""]) == 0
    assert capsys.readouterr().out.splitlines() == [":4"]


def test_it_acts_on_the_cluster_of_kubectl_with_no_more_rights(
    server: Server, name: str, tmp_path: Path
) -> None:
    """Several files, of which the first counts; ``as``; and a login that fails."""
    said = yaml.safe_load(server.kubeconfig.read_text())
    elsewhere = json.loads(json.dumps(said).replace(said["current-context"], "elsewhere"))
    elsewhere["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "elsewhere").write_text(yaml.safe_dump(elsewhere))

    def liqoctl(*args: str, **user: object) -> Result:
        mine = {**said, "users": [{**said["users"][0], "user": user or said["users"][0]["user"]}]}
        (tmp_path / "mine").write_text(yaml.safe_dump(mine))
        kubeconfigs = f"{tmp_path / 'none'}:{tmp_path / 'mine'}:{tmp_path / 'elsewhere'}"
        return CliRunner().invoke(cli, args, env={"KUBECONFIG": kubeconfigs})

    done = liqoctl("offload", "namespace", name, "--timeout", "1ms")
    assert f"namespace {name} is not offloaded after" in done.stderr
    assert server.get(keys.NAMESPACE_OFFLOADING, Key(name, "offloading"))

    nobody = liqoctl("unoffload", "namespace", name, **said["users"][0]["user"], **{"as": "nobody"})
    assert nobody.exit_code == 1
    assert 'User "nobody" cannot' in " ".join(nobody.stderr.split())

    login = {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-login",
        "interactiveMode": "Never", "installHint": "Install it first.",
    }  # fmt: skip
    lost = liqoctl("unoffload", "namespace", name, exec=login)
    assert lost.exit_code == 1
    assert "cannot run 'no-such-login': No such file or directory" in " ".join(lost.stderr.split())
    assert lost.stderr.rstrip().endswith("Install it first.")
    assert "anonymous" not in lost.stderr


def test_the_patch_that_info_prints_keeps_a_daemon_set_off_virtual_nodes(
    server: Server, plane: Plane, name: str
) -> None:
    expression = {"key": "disk", "operator": "Exists"}
    template = factories.pod_spec(
        tolerations=[{"operator": "Exists"}],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [expression]}]
                }
            }
        },
    )
    labels = {"app": "agent"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": template},
    }
    key = Key(name, "agent")
    install(server, name)
    server.do(lambda s: s.create(keys.DAEMON_SET, named(keys.DAEMON_SET, key, spec=spec)))

    def named_by_info() -> list[str]:
        done = server.liqoctl("info", "-n", name, "-o", "json")
        assert done.exit_code == 0, done.stderr
        found = json.loads(done.stdout)["daemonSetsOnVirtualNodes"]
        return [one["patch"] for one in found if one["name"] == str(key)]

    (patch,) = named_by_info()
    kubectl, *arguments = shlex.split(patch)
    assert kubectl == "kubectl"
    Kubectl(plane.kubeconfig).run(*arguments)

    assert named_by_info() == []
    patched = server.get(keys.DAEMON_SET, key)
    assert patched
    affinity = patched["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    virtual = {"key": keys.NODE_TYPE, "operator": "NotIn", "values": [keys.VIRTUAL_NODE_TYPE]}
    assert term == {"matchExpressions": [expression, virtual]}
