"""The Helm chart is made of the manifests, and makes what they are."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apis import keys, objects
from liqoctl import install
from liqoctl.forge import manifests
from sandbox import controlplane
from sandbox.controlplane import Plane
from sandbox.kubectl import Kubectl
from tests.helm import helm
from tests.manifests import chart, documents


def test_it_is_what_the_command_makes() -> None:
    for name, text in chart.files().items():
        assert (chart.CHART / name).read_text(encoding="utf-8") == text, name


def by_key(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {f"{obj['kind']} {objects.key_of(obj)}": obj for obj in found if obj}


def rendered(values: dict[str, Any], folder: Path, *more: str) -> dict[str, dict[str, Any]]:
    file = folder / "values.yaml"
    file.write_text(json.dumps(values), encoding="utf-8")
    flags = ("--namespace=default", f"--values={file}", "--kube-version=1.35.0")
    made = helm("template", "pyliqo", chart.CHART, *flags, *more)
    return by_key(list(yaml.safe_load_all(made)))


@pytest.mark.cluster
def test_by_default_it_makes_the_manifests(tmp_path: Path) -> None:
    found = rendered({"image": "pyliqo"}, tmp_path)

    assert found == by_key(documents.everything())

    served = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
    found = rendered({"image": "pyliqo"}, tmp_path, served)
    assert found == by_key(install.manifests(manifests.folders()))


@pytest.mark.cluster
def test_its_values_reach_the_deployments(tmp_path: Path) -> None:
    values = chart.defaults()
    values["clusterId"], values["imagePullSecrets"] = "rome", ["registry"]
    values["controllerManager"] |= {
        "replicas": 2,
        "args": ["--workers=4"],
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "high",
    }
    found = rendered(values, tmp_path)

    assert found["ConfigMap liqo/clusterid-configmap"]["data"] == {"CLUSTER_ID": "rome"}
    spec = found["Deployment liqo/liqo-controller-manager"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 2
    assert pod["containers"][0]["args"][-1] == "--workers=4"
    assert pod["nodeSelector"] == {"pool": "system"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "high"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Plane]:
    """Yield an API server without our kinds, and without nodes."""
    with controlplane.start(tmp_path) as plane:
        yield plane


@pytest.mark.cluster
def test_helm_installs_upgrades_and_removes_it(bare: Plane) -> None:
    where = {"KUBECONFIG": str(bare.kubeconfig)}
    kubectl = Kubectl(bare.kubeconfig)
    release = ("pyliqo", chart.CHART, "--namespace=default")

    helm("lint", chart.CHART)
    helm("install", *release, "--set=clusterId=rome", env=where)
    helm("upgrade", *release, "--reuse-values", "--set=webhook.replicas=3", env=where)
    deployment = kubectl.get("deployment", keys.WEBHOOK_SERVICE, "-n", keys.LIQO_NAMESPACE)
    named = kubectl.get("configmap", "clusterid-configmap", "-n", keys.LIQO_NAMESPACE)
    helm("uninstall", "pyliqo", "--namespace=default", env=where)

    assert deployment["spec"]["replicas"] == 3
    assert named["data"]["CLUSTER_ID"] == "rome"
    # After a conflict kube-apiserver finalizes a CRD when its informer resyncs, every five minutes.
    wait = ("wait", "--for=delete", "customresourcedefinitions", "--all", "--timeout=400s")
    kubectl.run(*wait, timeout_s=420)
    assert kubectl.items("customresourcedefinitions") == []


def test_forms_for_others_name_what_there_is() -> None:
    root = chart.CHART.parents[1]
    plugin = yaml.safe_load((root / "charts/krew/liqo.yaml").read_text())
    application = yaml.safe_load((root / "docs/examples/argocd-application.yaml").read_text())

    version = chart.files()["Chart.yaml"].split("version: ")[1].splitlines()[0]
    assert plugin["spec"]["version"] == f"v{version}"
    assert application["spec"]["source"]["path"] == "charts/pyliqo"
    assert application["spec"]["source"]["helm"]["valuesObject"].keys() <= chart.defaults().keys()
    kinds = {obj["kind"] for obj in documents.everything()}
    assert {each["kind"] for each in application["spec"]["ignoreDifferences"]} <= kinds
