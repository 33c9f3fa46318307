"""Our processes: hardened, probed, bounded, and named as the code expects."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from apis import keys
from tests.manifests import documents
from webhook import app, serving
from webhook.admission import WebhookHandler, named

ENFORCED: Final = "--enable-resource-enforcement"
HEALTH: Final = "--health-port=8081"
METRICS: Final = "--metrics-address=:8082"
PROCESSES: Final = {
    "liqo-webhook": ("webhook", ["--tls-dir=/etc/liqo/tls", "--port=9443", ENFORCED], 2),
    "liqo-controller-manager": ("controllers", [HEALTH, METRICS, ENFORCED], 1),
    "liqo-certs": ("certs", [HEALTH, METRICS], 1),
    "liqo-metric-agent": ("controllers.metricagent", ["--port=8443", HEALTH, METRICS], 1),
}


def process_deployment(name: str) -> dict[str, Any]:
    return documents.named("Deployment", name, keys.LIQO_NAMESPACE)["spec"]  # type: ignore[no-any-return]  # YAML


def test_there_is_a_deployment_for_each_process() -> None:
    names = {found["metadata"]["name"] for found in documents.of_kind("Deployment")}

    assert names == set(PROCESSES)


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_is_started_as_its_module_expects(name: str) -> None:
    module, args, replicas = PROCESSES[name]
    spec = process_deployment(name)
    (container,) = spec["template"]["spec"]["containers"]

    assert container["command"] == ["python3", "-m", module]
    assert container["args"] == args
    assert spec["replicas"] == replicas
    assert spec["template"]["spec"]["serviceAccountName"] == name
    assert documents.named("ServiceAccount", name, keys.LIQO_NAMESPACE)
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    fields = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}
    assert fields == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_has_no_right_on_its_node(name: str) -> None:
    spec = process_deployment(name)["template"]["spec"]
    (container,) = spec["containers"]

    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(spec)
    assert all("hostPath" not in volume for volume in spec.get("volumes", []))


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_is_probed_and_bounded(name: str) -> None:
    (container,) = process_deployment(name)["template"]["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}

    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    assert container["image"] == "pyliqo"
    assert container["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize("name", ["liqo-webhook", keys.METRIC_AGENT])
def test_a_node_can_be_drained_whatever_the_number_of_replicas(name: str) -> None:
    budget = documents.named("PodDisruptionBudget", name, keys.LIQO_NAMESPACE)["spec"]
    chosen = budget.pop("selector")["matchLabels"]

    assert budget == {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    assert chosen.items() <= process_deployment(name)["template"]["metadata"]["labels"].items()


def test_the_webhook_stays_up() -> None:
    spec = process_deployment("liqo-webhook")["template"]["spec"]
    (container,) = spec["containers"]
    service = documents.named("Service", keys.WEBHOOK_SERVICE, keys.LIQO_NAMESPACE)

    assert spec["priorityClassName"] == "system-cluster-critical"
    assert "podAntiAffinity" in spec["affinity"]
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"  # a certificate is loaded
    assert serving.DRAIN_S == 10
    assert spec["terminationGracePeriodSeconds"] > serving.DRAIN_S + serving.BEGUN_S
    assert spec["volumes"][0]["secret"]["secretName"] == keys.WEBHOOK_CERTS_SECRET
    assert service["spec"]["ports"][0]["port"] == keys.WEBHOOK_PORT


def webhooks() -> list[dict[str, Any]]:
    found = documents.of_kind("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    return [webhook for configuration in found for webhook in configuration["webhooks"]]


def test_webhook_configurations_are_found_by_name_and_label() -> None:
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        found = documents.named(kind, keys.WEBHOOK_CONFIGURATION)
        assert found["metadata"]["labels"][keys.WEBHOOK_LABEL] == "true"


def test_the_paths_called_are_the_paths_served() -> None:
    assert {path_of(webhook) for webhook in webhooks()} == set(served_paths())


def path_of(webhook: dict[str, Any]) -> str:
    """Return where it is called, but for the last segment that liqo-certs applies to one."""
    service = webhook["clientConfig"]["service"]
    if webhook["name"] == keys.LABELLING_WEBHOOK:
        assert "path" not in service
        return keys.LABELLING_PATH
    return str(service["path"])


def served_paths() -> Mapping[str, WebhookHandler]:
    return app.webhook_handlers(None, lambda *_: None)  # type: ignore[arg-type]  # not asked


@pytest.mark.parametrize("webhook", webhooks(), ids=lambda webhook: str(webhook["name"]))
def test_a_webhook_is_registered_with_care(webhook: dict[str, Any]) -> None:
    service = webhook["clientConfig"]["service"]

    assert (service["namespace"], service["name"]) == (keys.LIQO_NAMESPACE, keys.WEBHOOK_SERVICE)
    assert service["port"] == keys.WEBHOOK_PORT
    assert "caBundle" not in webhook["clientConfig"]
    is_labelling = webhook["name"] == keys.LABELLING_WEBHOOK
    assert webhook["sideEffects"] == ("NoneOnDryRun" if is_labelling else "None")
    assert webhook["matchPolicy"] == "Equivalent"
    assert webhook["admissionReviewVersions"] == ["v1"]
    assert webhook["timeoutSeconds"] <= (3 if ".mutate." in webhook["name"] else 5)
    judged = {resource for rule in webhook["rules"] for resource in rule["resources"]}
    theirs = ("configmaps", "daemonsets", "persistentvolumeclaims", "pods", "secrets")
    is_ours = not any(resource.partition("/")[0] in theirs for resource in judged)
    must_be_asked = (is_ours and not is_labelling) or webhook["name"] in {
        "pod.mutate.liqo.io",
        "pod-connection.validate.liqo.io",
    }
    assert webhook["failurePolicy"] == ("Fail" if must_be_asked else "Ignore")
    assert all("DELETE" not in rule["operations"] for rule in webhook["rules"])
    assert not any(resource.endswith("/status") for resource in judged)


def test_what_a_webhook_is_asked_for_is_what_it_judges() -> None:
    judges = served_paths()
    for webhook in webhooks():
        (rule,) = webhook["rules"]
        judge = judges[path_of(webhook)]
        assert rule["resources"] == [named(judge.kind.plural, part) for part in judge.subresources]
        assert rule["apiGroups"] == [judge.kind.group]
        assert rule["apiVersions"] == [judge.kind.version]
        assert set(rule["operations"]) == judge.operations
        assert rule["scope"] == ("Namespaced" if judge.kind.namespaced else "Cluster")


@pytest.mark.parametrize(
    ("name", "label"), [("pod.mutate.liqo.io", "true"), ("pod-local.mutate.liqo.io", "false")]
)
def test_system_pods_are_never_asked_about(name: str, label: str) -> None:
    (webhook,) = (webhook for webhook in webhooks() if webhook["name"] == name)
    rules = {rule["key"]: rule for rule in webhook["namespaceSelector"]["matchExpressions"]}

    excluded = rules["kubernetes.io/metadata.name"]
    assert excluded["operator"] == "NotIn"
    assert {"kube-system", keys.NODE_LEASE_NAMESPACE, keys.LIQO_NAMESPACE} <= set(
        excluded["values"]
    )
    chosen = rules[keys.SCHEDULING_ENABLED]
    assert (chosen["operator"], chosen["values"]) == ("In", [label])
    assert webhook["reinvocationPolicy"] == "IfNeeded"


def test_the_runtime_class_leads_to_virtual_nodes() -> None:
    found = documents.named("RuntimeClass", keys.RUNTIME_CLASS)

    assert found["handler"] == "liqo"
    assert found["scheduling"] == {
        "nodeSelector": {keys.NODE_TYPE: keys.VIRTUAL_NODE_TYPE},
        "tolerations": [
            {
                "key": keys.VIRTUAL_NODE_TAINT,
                "operator": "Exists",
                "effect": keys.VIRTUAL_NODE_TAINT_EFFECT,
            }
        ],
    }
