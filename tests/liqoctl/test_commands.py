"""The command line as users meet it, without a cluster."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from liqoctl import __main__, completion
from liqoctl.__main__ import cli
from liqoctl.output import Progress

NOWHERE = {"KUBECONFIG": "/nonexistent/kubeconfig", "HOME": "/nonexistent"}


def run(*args: str, **env: str) -> Result:
    return CliRunner().invoke(cli, args, env={**NOWHERE, **env})


OFFLOADING = """\
apiVersion: offloading.liqo.io/v1beta1
kind: NamespaceOffloading
metadata:
  name: offloading
  namespace: foo
spec:
  namespaceMappingStrategy: DefaultName
  podOffloadingStrategy: LocalAndRemote
---
"""
SELECTED = """\
apiVersion: offloading.liqo.io/v1beta1
kind: NamespaceOffloading
metadata:
  name: offloading
  namespace: foo
  labels:
    team: web
spec:
  namespaceMappingStrategy: SelectedName
  podOffloadingStrategy: Remote
  remoteNamespaceName: bar
  clusterSelector:
    nodeSelectorTerms:
    - matchExpressions:
      - key: region
        operator: In
        values:
        - europe
        - us-west
      - key: staging
        operator: DoesNotExist
---
"""
VIRTUAL_NODE = """\
apiVersion: offloading.liqo.io/v1beta1
kind: VirtualNode
metadata:
  name: milan
  namespace: liqo-tenant-milan
  labels:
    liqo.io/remote-cluster-id: milan
spec:
  clusterID: milan
  createNode: true
  disableNetworkCheck: false
  kubeconfigSecretRef:
    name: key
  vkOptionsTemplateRef:
    name: other
    namespace: liqo
  resourceQuota:
    hard:
      cpu: '8'
      memory: 4Gi
      pods: '110'
      nvidia.com/gpu: '2'
  storageClasses:
  - storageClassName: fast
    default: true
  - storageClassName: slow
  loadBalancerClasses:
  - loadBalancerClassName: theirs
    default: true
  labels:
    region: europe
  offloadingPatch:
    nodeSelector:
      pool: a
    runtimeClassName: kata
---
"""
VIRTUAL_NODE_ARGS = (
    "create", "virtualnode", "milan", "--remote-cluster-id", "milan", "--kubeconfig-secret-name",
    "key", "--cpu", "8", "--resource", "nvidia.com/gpu=2", "--storage-classes", "fast,slow",
    "--load-balancer-classes", "theirs", "--vk-options-template", "liqo/other", "--labels",
    "region=europe", "--node-selector", "pool=a", "--runtime-class-name", "kata", "-o", "yaml",
)  # fmt: skip
SELECTED_ARGS = (
    "offload", "namespace", "foo", "--namespace-mapping-strategy", "SelectedName",
    "--remote-namespace-name", "bar", "--pod-offloading-strategy", "Remote",
    "--selector", "region in (europe,us-west), !staging", "--global-labels", "team=web",
    "-o", "yaml",
)  # fmt: skip


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("offload", "namespace", "foo", "-o", "yaml"), OFFLOADING),
        (("offload", "ns", "foo", "-o", "yaml"), OFFLOADING),
        (("offload", "namespaces", "foo", "foo", "-o", "yaml"), OFFLOADING),
        (
            ("offload", "ns", "foo", "bar", "-o", "yaml"),
            OFFLOADING + OFFLOADING.replace("namespace: foo", "namespace: bar"),
        ),
        (SELECTED_ARGS, SELECTED),
        (VIRTUAL_NODE_ARGS, VIRTUAL_NODE),
    ],
    ids=["namespace", "ns", "once", "two", "selected", "virtualnode"],
)
def test_yaml_is_printed_without_a_cluster(args: tuple[str, ...], expected: str) -> None:
    result = run(*args)

    assert result.stdout == expected
    assert result.stderr == ""
    assert result.exit_code == 0


def test_json_says_the_same() -> None:
    result = run("offload", "namespace", "foo", "-o", "json")

    assert json.loads(result.stdout) == {
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "NamespaceOffloading",
        "metadata": {"name": "offloading", "namespace": "foo"},
        "spec": {
            "namespaceMappingStrategy": "DefaultName",
            "podOffloadingStrategy": "LocalAndRemote",
        },
    }


def test_the_namespace_of_a_virtual_node_can_be_given() -> None:
    args = ("create", "vn", "m", "--remote-cluster-id", "m", "--kubeconfig-secret-name", "key")

    assert "namespace: elsewhere\n" in run(*args, "-n", "elsewhere", "-o", "yaml").stdout
    assert "namespace: elsewhere\n" in run("-n", "elsewhere", *args, "-o", "yaml").stdout


VN = ("create", "vn", "m", "--remote-cluster-id", "m")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("offload", "namespace"), "name a namespace"),
        (("unoffload", "namespace"), "name a namespace"),
        (("offload", "ns", "foo", "-l", "a in"), "label selector"),
        (("offload", "ns", "foo", "--timeout", "soon"), "not a duration"),
        (("offload", "ns", "foo", "--pod-offloading-strategy", "Nowhere"), "LocalAndRemote"),
        (("offload", "ns", "foo", "--namespace-mapping-strategy", "SelectedName"), "needs"),
        (VN, "either"),
        ((*VN, "--kubeconfig-secret-name", "a", "--resource-slice-name", "b"), "either"),
        ((*VN, "--kubeconfig-secret-name", "a", "--labels", "b"), "not key=value"),
        (
            (*VN, "--kubeconfig-secret-name", "a", "--vk-options-template", "b"),
            "not NAMESPACE/NAME",
        ),
        (("nonsense",), "No such command"),
    ],
)
def test_wrong_usage_is_status_2(args: tuple[str, ...], says: str) -> None:
    result = run(*args)

    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""


PEERING_USER = ("generate", "peering-user", "--consumer-cluster-id", "rome")


@pytest.mark.parametrize(
    "args",
    [
        ("offload", "ns", "foo"),
        ("unoffload", "ns", "foo"),
        ("delete", "vn", "foo"),
        ("version",),
        ("why", "po", "web", "-n", "foo"),
        ("why", "ns", "foo", "-o", "json"),
        (*VN, "--kubeconfig-secret-name", "a"),
        ("peer", "--remote-kubeconfig", "b", "--networking-disabled", "--skip-validation"),
        (*PEERING_USER, "--tls-compatibility-mode", "true"),
        ("offload", "ns", "--ns-selector", "a=b", "-o", "yaml"),
    ],
)
def test_without_a_cluster_one_sentence_says_what_to_do(args: tuple[str, ...]) -> None:
    result = run(*args)

    assert result.exit_code == 1
    assert result.stderr == (
        "Error: kubeconfig /nonexistent/kubeconfig does not exist: "
        "give --kubeconfig, or set KUBECONFIG\n"
    )


def commands(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, *path, name)


@pytest.mark.parametrize("path", list(commands(cli)), ids=" ".join)
def test_every_help_shows_examples(path: tuple[str, ...]) -> None:
    result = run(*path, "--help")

    assert result.exit_code == 0
    assert "\n  Examples:\n    liqoctl" in result.stdout


def test_the_version_of_the_client_needs_no_cluster() -> None:
    result = run("version", "--client")

    assert result.stdout.startswith("Client version: ")
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        (["off"], ["offload"]),
        (["offload", "na"], ["namespace"]),
        (["offload", "namespace", "--pod-offloading-strategy", "L"], ["LocalAndRemote", "Local"]),
        (["create", "virtualnode", "--kubeconfig-s"], ["--kubeconfig-secret-name"]),
        ([], sorted(cli.commands)),
    ],
)
def test_completion(
    words: list[str], candidates: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert completion.main(words) == 0

    assert capsys.readouterr().out.splitlines() == [*candidates, ":4"]


def test_main_returns_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["offload", "ns", "foo", "-o", "yaml"]) == 0
    assert __main__.main(["offload", "ns"]) == 2
    assert capsys.readouterr().out == OFFLOADING


@pytest.mark.parametrize("module", ["liqoctl.__main__", "liqoctl.completion"])
def test_help_and_completion_load_no_client(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )

    assert not {"kube", "aiohttp", "kubernetes", "rich", "yaml"} & set(done.stdout.split())


@pytest.mark.parametrize(("name", "is_coloured"), [("FORCE_COLOR", True), ("NO_COLOR", False)])
def test_colour_is_for_those_who_want_it(
    *,
    name: str,
    is_coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for variable in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, "1")

    Progress().info("done [bold]as said[/bold]")

    said = capsys.readouterr().err
    assert ("\x1b[" in said) is is_coloured
    assert "done [bold]as said[/bold]" in said
