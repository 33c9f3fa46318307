"""``liqoctl install`` and ``uninstall`` on an API server of their own. Controllers are played."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
import yaml
from click.testing import CliRunner, Result

from apis import keys, objects
from apis.objects import Key, Kind, Object
from controllers.authentication.tenantrights import forge as tenantrights
from kube import client, informer
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.errors import KubeError
from liqoctl import install
from liqoctl.options import cli
from sandbox import api, controlplane
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests import factories
from tests.manifests import documents

pytestmark = pytest.mark.cluster
IMAGE = "registry.example/pyliqo:1"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with controlplane.start(tmp_path_factory.mktemp("empty")) as plane:
        plane.start_namespaces()
        yield plane


def invoke_on(plane: Plane, *args: str) -> Result:
    return CliRunner().invoke(cli, ["--kubeconfig", str(plane.kubeconfig), *args])


@contextlib.contextmanager
def controllers(plane: Plane, *, binds: bool = False) -> Iterator[None]:
    """Roll out every Deployment, as Kubernetes would, and bind in tenant namespaces, as ours."""
    ready, stop = threading.Event(), threading.Event()
    with ThreadPoolExecutor() as pool:
        playing = pool.submit(lambda: asyncio.run(_play(plane, ready, stop, binds=binds)))
        try:
            ready.wait(300)  # reading a kubeconfig is not for two threads at once
            yield
        finally:
            stop.set()
            playing.result()


async def _play(
    plane: Plane, ready: threading.Event, stop: threading.Event, *, binds: bool
) -> None:
    async with client.connect(plane.kubeconfig, user_agent="tests") as server:
        ready.set()
        while not stop.is_set():
            with contextlib.suppress(KubeError):  # what goes meanwhile
                await _roll_out(server)
                if binds:
                    await _bind(server)
            await asyncio.sleep(0.1)


async def _roll_out(server: ClusterClient) -> None:
    for key, found in (await server.list(Selection(keys.DEPLOYMENT, Object))).items.items():
        counts = ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")
        status = dict.fromkeys(counts, found["spec"]["replicas"])
        status["observedGeneration"] = found["metadata"]["generation"]
        await server.patch_status(keys.DEPLOYMENT, key, status)


async def _bind(server: ClusterClient) -> None:
    tenants = Selection(keys.NAMESPACE, Object, labels=f"{keys.TENANT_NAMESPACE}=true")
    for space in (await server.list(tenants)).items.values():
        if not objects.is_terminating(space):
            account = Key(keys.LIQO_NAMESPACE, keys.CONTROLLER_MANAGER)
            binding = tenantrights.binding(space, account)
            await server.apply(keys.ROLE_BINDING, binding, manager="tests")


def versions(plane: Plane, *kinds: str) -> dict[str, str]:
    found = Kubectl(plane.kubeconfig).items(",".join(kinds), "-A")
    return {f"{o['kind']} {objects.key_of(o)}": o["metadata"]["resourceVersion"] for o in found}


_NOT_KEPT = ("componentstatuses", "events", "events.events.k8s.io", "leases.coordination.k8s.io")


def names_of_kinds(plane: Plane, kinds: list[str]) -> set[str]:
    """Return what there is of ``kinds``, whatever its labels; not what API servers keep again."""
    return set(versions(plane, *(kind for kind in kinds if kind not in _NOT_KEPT)))


def printed(plane: Plane, *flags: str) -> str:
    result = invoke_on(plane, "install", "-o", "yaml", *flags)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def rehearsed(plane: Plane, *flags: str) -> dict[str, set[str]]:
    """Return which objects would become what."""
    result = invoke_on(plane, "install", "--dry-run=server", *flags)
    assert result.exit_code == 0, result.stderr
    found: dict[str, set[str]] = {}
    for line in result.stdout.splitlines():
        name, outcome = line.removesuffix(" (server dry run)").split()
        found.setdefault(outcome, set()).add(name)
    return found


@factories.cases("line")
def test_a_cluster_without_pyliqo_is_told_with_the_command_that_installs_it(
    empty: Plane, line: str
) -> None:
    done = invoke_on(empty, *line.split(), "--skip-confirm")

    assert done.exit_code == 1, done.stderr
    said = f"pyliqo is not installed in the cluster {empty.server}"
    assert said in done.stderr
    assert f"liqoctl install --kubeconfig {empty.kubeconfig} --cluster-id NAME" in done.stderr


LIMITED: Final = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AdmissionConfiguration",
    "plugins": [
        {
            "name": "ResourceQuota",
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "ResourceQuotaConfiguration",
                "limitedResources": [
                    {
                        "resource": "pods",
                        "matchScopes": [
                            {
                                "scopeName": "PriorityClass",
                                "operator": "In",
                                "values": ["system-node-critical", "system-cluster-critical"],
                            }
                        ],
                    }
                ],
            },
        }
    ],
}
"""Source: Kubernetes, "Limit Priority Class consumption by default"; so are clusters of GKE."""


async def test_pods_of_the_webhook_come_where_critical_classes_are_limited(tmp_path: Path) -> None:
    config = tmp_path / "admission.json"
    config.write_text(json.dumps(LIMITED))
    where, name = Key("", keys.LIQO_NAMESPACE), "liqo-webhook"
    quota = documents.named("ResourceQuota", "liqo-critical-pods", where.name)
    made = documents.named("Deployment", name, where.name)
    flags = [f"--admission-control-config-file={config}"]
    with controlplane.start(tmp_path / "plane", flags=flags) as plane:
        plane.start_deployments()
        async with client.connect(plane.kubeconfig, user_agent="tests") as server:
            await server.create(keys.NAMESPACE, objects.named(keys.NAMESPACE, where))
            await server.create(keys.DEPLOYMENT, made)

            def is_refused(found: Object | None) -> bool:
                told = objects.status(found).get("conditions")
                return objects.is_condition_true(told, "ReplicaFailure")

            key = objects.key_of(made)
            async with asyncio.timeout(120):
                await informer.until(server, keys.DEPLOYMENT, key, is_refused)
            said = await install.obstacles(server)
            assert f"deployment {name} gets no pods" in said
            assert "insufficient quota" in said

            await server.create(Kind("", "v1", "ResourceQuota", "resourcequotas"), quota)
            async with asyncio.timeout(120):
                await informer.until(
                    server,
                    keys.DEPLOYMENT,
                    key,
                    lambda found: objects.status(found).get("replicas") == made["spec"]["replicas"],
                )


def test_it_is_what_kustomize_makes(empty: Plane) -> None:
    built = Kubectl(empty.kubeconfig).run("kustomize", str(documents.ROOT))

    def by_key(text: str) -> dict[str, Object]:
        found = list(yaml.safe_load_all(text))
        # It doubles some line ends in folded text, which is CEL and means the same.
        found = json.loads(json.dumps(found).replace(r"\n\n", r"\n"))
        return {f"{obj['kind']} {objects.key_of(obj)}": obj for obj in found if obj}

    assert by_key(printed(empty, "--image", "pyliqo")) == by_key(built)


def test_install_again_and_uninstall(empty: Plane, tmp_path: Path) -> None:
    kubectl = Kubectl(empty.kubeconfig)
    kinds_before = kubectl.run("api-resources", "--verbs=list", "-o", "name").split()
    there_before = names_of_kinds(empty, kinds_before)
    flags = ("--cluster-id", "rome", "--image", IMAGE)
    assert rehearsed(empty, *flags).keys() == {"created"}
    assert names_of_kinds(empty, kinds_before) == there_before
    late = invoke_on(empty, "install", *flags, "--timeout", "2s")
    assert late.exit_code == 1
    assert "pyliqo is not available after 2s: see the pods of namespace liqo" in late.stderr

    with controllers(empty):
        done = invoke_on(empty, "install", *flags, "--sharing-percentage", "70")
    assert done.exit_code == 0, done.stderr
    assert "kinds among them" in done.stderr
    number = len(documents.of_kind("Deployment"))
    assert f"INFO  {number} Deployments are available, with image {IMAGE}" in done.stderr
    assert "INFO  this cluster is called rome" in done.stderr
    assert done.stdout == ""
    kubectl.run(
        "diff", "--server-side", "--force-conflicts", "-f", "-", stdin=printed(empty, *flags)
    )

    policies = "mutatingadmissionpolicies.admissionregistration.k8s.io"
    if policies in kinds_before:  # from Kubernetes 1.36 on
        assert versions(empty, policies)

    a_hook_of_an_older_version_goes(empty)
    objects_of_an_older_version_go(empty)

    rights_of_an_older_version_last_until_the_new_one_runs(empty)

    kinds = ("crd", "deployments", "clusterroles", "mutatingwebhookconfigurations", "configmaps")
    before = versions(empty, *kinds)
    again = invoke_on(empty, "install", "--cluster-labels", "region=europe")
    assert again.exit_code == 0, again.stderr
    assert versions(empty, *kinds) == before, "what no flag names stays, the image too"
    policy = kubectl.get("providerpolicies.pyliqo.io", "default")
    assert policy["spec"]["sharing"]["percentage"] == 70
    assert policy["spec"]["nodeLabels"] == {"region": "europe"}

    a_rehearsal_stores_nothing(empty, tmp_path / "values.yaml")
    settings_last(empty)

    renamed = invoke_on(empty, "install", "--cluster-id", "milan")
    assert renamed.exit_code == 1
    assert "this cluster is called rome already" in renamed.stderr

    refused_while_in_use(empty)

    told_where_the_api_server_is(empty)
    with controllers(empty):
        gone = invoke_on(empty, "uninstall", "--skip-confirm", "--timeout", "300s")
    assert gone.exit_code == 0, gone.stderr
    assert "left for you to delete: kubectl delete namespace liqo-tenant-milan" in gone.stderr
    assert versions(empty, "crd") == {}
    kubectl.run("delete", "namespace", "liqo-tenant-milan")  # which nothing holds
    api.wait_until(  # an API server takes back its own APIServices of kinds that are gone
        lambda: names_of_kinds(empty, kinds_before) <= there_before, "end of it all", timeout_s=300
    )
    assert "nothing to do" in invoke_on(empty, "uninstall", "--skip-confirm").stderr


def a_rehearsal_stores_nothing(empty: Plane, settings: Path) -> None:
    """``--dry-run=server`` says what would change, and what the API server refuses."""
    before = versions(empty, "deployments", "configmaps", "crd")
    found = rehearsed(empty)
    assert found.keys() == {"unchanged"}, found
    settings.write_text("webhook: {replicas: 3}", encoding="utf-8")
    found = rehearsed(empty, "--values", str(settings))
    assert found["configured"] == {"deployment.apps/liqo-webhook"}
    assert found["created"] == {"configmap/liqo-values"}
    settings.write_text("webhook: {tolerations: [{operator: Sometimes}]}", encoding="utf-8")
    refused = invoke_on(empty, "install", "--dry-run=server", "--values", str(settings))
    assert refused.exit_code == 1
    assert "deployment.apps/liqo-webhook refused" in refused.stderr
    assert "Sometimes" in refused.stderr
    assert versions(empty, "deployments", "configmaps", "crd") == before


def settings_last(empty: Plane) -> None:
    """An installation without the file keeps what an earlier one said, until it is taken back."""
    kubectl, where = Kubectl(empty.kubeconfig), ("deployment", "liqo-webhook", "-n", "liqo")
    usual = kubectl.get(*where)["spec"]
    said = "webhook: {replicas: 3, nodeSelector: {pool: system}, args: [--drain-seconds=11]}"
    for given in (("-f", "-"), ()):
        with controllers(empty):
            done = CliRunner().invoke(
                cli, ["--kubeconfig", str(empty.kubeconfig), "install", *given], input=said
            )
        assert done.exit_code == 0, done.stderr
        spec = kubectl.get(*where)["spec"]
        assert spec["replicas"] == 3
        assert spec["template"]["spec"]["nodeSelector"] == {"pool": "system"}
        [container] = spec["template"]["spec"]["containers"]
        assert container["args"][-1] == "--drain-seconds=11"
        assert container["image"] == IMAGE
    shown = invoke_on(empty, "get", "values")
    assert yaml.safe_load(shown.stdout) == yaml.safe_load(said)
    with controllers(empty):
        taken = CliRunner().invoke(
            cli,
            ["--kubeconfig", str(empty.kubeconfig), "install", "-f", "-"],
            input="webhook: null",
        )
    assert taken.exit_code == 0, taken.stderr
    assert kubectl.get(*where)["spec"] == usual
    assert yaml.safe_load(invoke_on(empty, "get", "values").stdout) == {}


def told_where_the_api_server_is(empty: Plane) -> None:
    """It is kept, and goes with the installation."""
    pem = "-----BEGIN CERTIFICATE-----\\nMA==\\n-----END CERTIFICATE-----\\n"
    said = f'apiServer: {{url: "https://rome.example", ca: "{pem}"}}'
    with controllers(empty):
        done = CliRunner().invoke(
            cli, ["--kubeconfig", str(empty.kubeconfig), "install", "-f", "-"], input=said
        )
    assert done.exit_code == 0, done.stderr
    kubectl = Kubectl(empty.kubeconfig)
    spec = kubectl.get("deployment", keys.CONTROLLER_MANAGER, "-n", "liqo")["spec"]
    [container] = spec["template"]["spec"]["containers"]
    assert "--api-server-address-override=https://rome.example" in container["args"]
    assert "BEGIN" in kubectl.get("configmap", "liqo-api-server-ca", "-n", "liqo")["data"]["ca.crt"]


def a_hook_of_an_older_version_goes(empty: Plane) -> None:
    kubectl, kind = Kubectl(empty.kubeconfig), "mutatingwebhookconfigurations"
    found = kubectl.get(kind, keys.WEBHOOK_CONFIGURATION)
    ours, old = found["webhooks"], {**found["webhooks"][0], "name": "old.mutate.liqo.io"}
    key = Key("", keys.WEBHOOK_CONFIGURATION)
    with_old = objects.named(keys.MUTATING_WEBHOOKS, key, webhooks=[*ours, old])
    trust = {"clientConfig": {"caBundle": "Y2E="}}
    injected = [{"name": hook["name"], **trust} for hook in (*ours, old)]
    for manager, hooks in (("liqoctl", with_old["webhooks"]), ("liqo-injection", injected)):
        kubectl.run(
            "apply", "--server-side", "--force-conflicts", f"--field-manager={manager}", "-f", "-",
            stdin=json.dumps({**with_old, "webhooks": hooks}),
        )  # fmt: skip

    done = invoke_on(empty, "install")

    assert done.exit_code == 0, done.stderr
    names = [hook["name"] for hook in kubectl.get(kind, keys.WEBHOOK_CONFIGURATION)["webhooks"]]
    assert names == [hook["name"] for hook in ours]


def objects_of_an_older_version_go(empty: Plane) -> None:
    """What was applied by this program, that is; of others nothing goes, whatever its labels."""
    kubectl = Kubectl(empty.kubeconfig)
    labels = {"labels": {"app.kubernetes.io/part-of": "liqo"}}
    role = Key("", "liqo-old")
    old = [
        objects.named(keys.CLUSTER_ROLE, role, metadata=labels, rules=[]),
        objects.named(keys.SERVICE_ACCOUNT, Key(keys.LIQO_NAMESPACE, "liqo-old"), metadata=labels),
        objects.named(keys.NAMESPACE, Key("", "liqo-old"), metadata=labels),
    ]
    theirs = objects.named(keys.CLUSTER_ROLE, Key("", "of-helm"), metadata=labels, rules=[])
    for manager, objs in (("liqoctl", old), ("helm", [theirs])):
        for obj in objs:
            kubectl.run(
                "apply", "--server-side", f"--field-manager={manager}", "-f", "-",
                stdin=json.dumps(obj),
            )  # fmt: skip

    said = [invoke_on(empty, "install").stderr for _ in range(2)]

    for line in (
        "clusterrole liqo-old of an older version removed",
        "serviceaccount liqo/liqo-old of an older version removed",
    ):
        assert [line in one for one in said] == [True, False], said
    assert "namespace liqo-old is of an older version: delete it" in said[1]
    left = kubectl.items("clusterroles", "-l", "app.kubernetes.io/part-of=liqo")
    assert {"of-helm", "liqo-old"} & {one["metadata"]["name"] for one in left} == {"of-helm"}
    kubectl.run("delete", "clusterrole", "of-helm")


def rights_of_an_older_version_last_until_the_new_one_runs(empty: Plane) -> None:
    """Its controllers need them until those of the new version lead, and have bound themselves."""
    kubectl, role = Kubectl(empty.kubeconfig), ("clusterrole", keys.CONTROLLER_MANAGER)
    old = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    rules = kubectl.get(*role)["rules"]
    space = factories.tenant_namespace("liqo-tenant-milan", "milan")
    patch = json.dumps([{"op": "add", "path": "/rules/-", "value": old}])
    kubectl.run("patch", *role, "--type=json", "-p", patch)
    kubectl.apply([space])

    late = invoke_on(empty, "install", "--image", f"{IMAGE}-new", "--timeout", "2s")

    assert late.exit_code == 1, late.stderr
    assert old in kubectl.get(*role)["rules"]
    with controllers(empty, binds=True):
        done = invoke_on(empty, "install", "--image", IMAGE)
    assert done.exit_code == 0, done.stderr
    assert f"clusterrole {keys.CONTROLLER_MANAGER}: rights of an older version" in done.stderr
    assert kubectl.get(*role)["rules"] == rules
    bound = kubectl.get("rolebinding", keys.CONTROLLER_MANAGER, "-n", "liqo-tenant-milan")
    assert objects.finalizers(bound) == [keys.TENANT_RIGHTS_FINALIZER], "for which it waited"


def refused_while_in_use(empty: Plane) -> None:
    kubectl = Kubectl(empty.kubeconfig)
    # No webhook runs here, and no controller takes its finalizers away.
    kubectl.run("delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all")
    offloading = objects.named(keys.NAMESPACE_OFFLOADING, Key("default", "offloading"), spec={})
    node = objects.named(
        keys.VIRTUAL_NODE,
        Key("liqo-tenant-milan", "milan"),
        spec={"clusterID": "milan", "kubeconfigSecretRef": {"name": "x"}},
    )
    kubectl.apply([offloading, node])
    before = versions(empty, "crd", "deployments")

    refused = invoke_on(empty, "uninstall", "--skip-confirm")

    assert refused.exit_code == 1
    assert "namespaces are offloaded: default (liqoctl unoffload namespace default)" in (
        refused.stderr
    )
    assert "milan is a peer: 1 virtualnode (liqoctl unpeer" in refused.stderr
    assert versions(empty, "crd", "deployments") == before
    kubectl.run("delete", "namespaceoffloadings,virtualnodes", "--all", "-A")
