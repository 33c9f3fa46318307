"""``python3 -m tests.manifests.chart``: write charts/pyliqo, a Helm chart of the manifests."""

import importlib.metadata
import re
from pathlib import Path
from typing import Any, Final

import yaml

from liqoctl import install
from liqoctl.forge import manifests
from tests.manifests import documents

CHART: Final = Path(__file__).parents[2] / "charts/pyliqo"
_FIELDS: Final = {
    "liqo-webhook": "webhook",
    "liqo-controller-manager": "controllerManager",
    "liqo-certs": "certs",
    "liqo-metric-agent": "metricAgent",
}
_PLACED: Final = ("nodeSelector", "tolerations", "affinity", "priorityClassName")


def files() -> dict[str, str]:
    """Return the text of each file of the chart, by its path in it."""
    return {
        "Chart.yaml": _yaml(_about()),
        "values.yaml": _HEAD + _yaml(defaults()),
        "templates/pyliqo.yaml": "---\n".join(_template(obj) for obj in documents.everything()),
        "templates/annotations.yaml": _MUTATING + "---\n".join(map(_template, _mutating())) + _END,
        "templates/cluster-id.yaml": _CLUSTER_ID,
    }


def _mutating() -> list[dict[str, Any]]:
    return [obj for obj in install.manifests(manifests.folders()) if obj not in install.manifests()]


def defaults() -> dict[str, Any]:
    """Return the values of the chart: what the manifests say."""
    made: dict[str, Any] = {"clusterId": "", "image": _image(), "imagePullSecrets": []}
    for name, field in _FIELDS.items():
        spec = documents.named("Deployment", name, "liqo")["spec"]
        pod = spec["template"]["spec"]
        made[field] = {
            "replicas": spec["replicas"],
            "args": [],
            "resources": pod["containers"][0]["resources"],
            "nodeSelector": {},
            "tolerations": [],
            "affinity": pod.get("affinity", {}),
            "priorityClassName": pod.get("priorityClassName", ""),
        }
    return made


def _about() -> dict[str, Any]:
    version = importlib.metadata.version("pyliqo")
    least = ".".join(map(str, manifests.LEAST))
    return {
        "apiVersion": "v2",
        "name": "pyliqo",
        "description": importlib.metadata.metadata("pyliqo")["Summary"],
        "type": "application",
        "version": version,
        "appVersion": version,
        "kubeVersion": f">={least}.0-0",
        "maintainers": [{"name": "pyliqo maintainers"}],
    }


def _image() -> str:
    return f"pyliqo:{importlib.metadata.version('pyliqo')}"


def _yaml(found: Any) -> str:
    return yaml.dump(found, Dumper=yaml.SafeDumper, sort_keys=False, width=4096)


def _template(obj: dict[str, Any]) -> str:
    field = _FIELDS.get(obj["metadata"]["name"]) if obj["kind"] == "Deployment" else None
    if field is None:
        return _yaml(obj).replace("{{", '{{ "{{" }}')
    return _deployment(obj, field)


def _deployment(obj: dict[str, Any], field: str) -> str:
    spec = obj["spec"]
    pod = {name: value for name, value in spec["template"]["spec"].items() if name not in _PLACED}
    first, *others = pod["containers"]
    container = {**first, "image": "@image@", "args": [*first["args"], "@args@"]}
    container["resources"] = "@resources@"
    pod = {"@placed@": "", **pod, "containers": [container, *others]}
    template = {**spec["template"], "spec": pod}
    text = _yaml({**obj, "spec": {**spec, "replicas": "@replicas@", "template": template}})
    for mark, made in _marks(field).items():
        indents = set(re.findall(rf"^( *){mark}$", text, re.MULTILINE))
        for indent in indents:
            text = text.replace(f"\n{indent}{mark}\n", f"\n{made(indent)}")
    return text


def _marks(field: str) -> dict[str, Any]:
    own = f".Values.{field}"

    def placed(indent: str) -> str:
        names = [(f"{field}.{name}", name) for name in _PLACED]
        pairs = [*names, ("pullSecrets", "imagePullSecrets")]
        return "".join(_given(path, name, indent) for path, name in pairs)

    def args(indent: str) -> str:
        lines = (f"{{{{- range {own}.args }}}}", "- {{ . | quote }}", "{{- end }}")
        return "".join(f"{indent}{line}\n" for line in lines)

    def resources(indent: str) -> str:
        return f"{indent}resources: {{{{- toYaml {own}.resources | nindent {len(indent) + 2} }}}}\n"

    return {
        "'@placed@': ''": placed,
        "- '@args@'": args,
        "resources: '@resources@'": resources,
        "image: '@image@'": lambda indent: f"{indent}image: {{{{ .Values.image | quote }}}}\n",
        "replicas: '@replicas@'": lambda indent: f"{indent}replicas: {{{{ {own}.replicas }}}}\n",
    }


def _given(path: str, name: str, indent: str) -> str:
    if name == "imagePullSecrets":
        return (
            f"{indent}{{{{- with .Values.{name} }}}}\n{indent}{name}:\n"
            f"{indent}{{{{- range . }}}}\n{indent}- name: {{{{ . }}}}\n{indent}{{{{- end }}}}\n"
            f"{indent}{{{{- end }}}}\n"
        )
    value = (
        "{{ . }}"
        if name == "priorityClassName"
        else f"{{{{- toYaml . | nindent {len(indent) + 2} }}}}"
    )
    return (
        f"{indent}{{{{- with .Values.{path} }}}}\n{indent}{name}: {value}\n{indent}{{{{- end }}}}\n"
    )


_HEAD: Final = """\
# Made by: python3 -m tests.manifests.chart. The names are those of docs/values.md.
"""
_MUTATING: Final = (
    '{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"'
    " }}\n"
)
_END: Final = "{{- end }}\n"
_CLUSTER_ID: Final = """\
{{- if .Values.clusterId }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: clusterid-configmap
  namespace: liqo
  labels:
    app.kubernetes.io/name: clusterid-configmap
    app.kubernetes.io/part-of: liqo
data:
  CLUSTER_ID: {{ .Values.clusterId | quote }}
{{- end }}
"""


def write() -> None:
    for name, text in files().items():
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
