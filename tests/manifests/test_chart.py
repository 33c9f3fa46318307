"""The Helm chart is made of the manifests, and makes what they are."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from apis import objects
from tests.manifests import chart, documents

_RENDER: Final = """
package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"text/template"
)

// Renders as Helm does: JSON is YAML, so toYaml may write it.
func main() {
	values := map[string]any{}
	if err := json.Unmarshal([]byte(os.Args[1]), &values); err != nil {
		panic(err)
	}
	functions := template.FuncMap{
		"toYaml": func(v any) string { b, _ := json.Marshal(v); return string(b) },
		"quote":  func(v string) string { return strconv.Quote(v) },
		"nindent": func(n int, s string) string { return "\\n" + strings.Repeat(" ", n) + s },
	}
	for _, path := range os.Args[2:] {
		text, _ := os.ReadFile(path)
		made := template.Must(template.New(path).Funcs(functions).Parse(string(text)))
		os.Stdout.WriteString("---\\n")
		if err := made.Execute(os.Stdout, map[string]any{"Values": values}); err != nil {
			panic(err)
		}
	}
}
"""


def test_it_is_what_the_command_makes() -> None:
    for name, text in chart.files().items():
        assert (chart.CHART / name).read_text(encoding="utf-8") == text, name


def by_key(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {f"{obj['kind']} {objects.key_of(obj)}": obj for obj in found if obj}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    if not go:
        pytest.skip("Go is not on this machine, which renders the templates")
    folder = tmp_path_factory.mktemp("render")
    (folder / "main.go").write_text(_RENDER, encoding="utf-8")
    subprocess.run([go, "build", "-o", "render", "main.go"], cwd=folder, check=True)
    return folder / "render"


def rendered(program: Path, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    paths = [str(chart.CHART / name) for name in chart.files() if name.startswith("templates/")]
    done = subprocess.run(
        [program, json.dumps(values), *paths], check=True, capture_output=True, text=True
    )
    return by_key(list(yaml.safe_load_all(done.stdout)))


@pytest.mark.cluster
def test_by_default_it_makes_the_manifests(program: Path) -> None:
    found = rendered(program, {**chart.defaults(), "image": "pyliqo"})

    assert found == by_key(documents.everything())


@pytest.mark.cluster
def test_its_values_reach_the_deployments(program: Path) -> None:
    values = chart.defaults()
    values["clusterId"], values["imagePullSecrets"] = "rome", ["registry"]
    values["controllerManager"] |= {
        "replicas": 2,
        "args": ["--workers=4"],
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "high",
    }
    found = rendered(program, values)

    assert found["ConfigMap liqo/clusterid-configmap"]["data"] == {"CLUSTER_ID": "rome"}
    spec = found["Deployment liqo/liqo-controller-manager"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 2
    assert pod["containers"][0]["args"][-1] == "--workers=4"
    assert pod["nodeSelector"] == {"pool": "system"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "high"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]


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
