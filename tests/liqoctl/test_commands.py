"""The command line as users meet it, without a cluster."""

import asyncio
import importlib.metadata
import json
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from kube import errors
from liqoctl import __main__, clusters, completion, options, output
from liqoctl.clusters import Side
from liqoctl.options import cli
from liqoctl.output import Progress
from tests import factories

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: milan, cluster: {server: "http://127.0.0.1:%d"}}]
users: []
contexts: [{name: now, context: {cluster: milan}}]
current-context: now
"""
WRONG = factories.table("wrong_usage")
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
    liqo.io/remote-cluster-id: milan
  offloadingPatch:
    nodeSelector:
      pool: a
    runtimeClassName: kata
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
            OFFLOADING + "---\n" + OFFLOADING.replace("namespace: foo", "namespace: bar"),
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


@pytest.mark.parametrize(
    ("args", "says"),
    [(("kind",), "other cluster"), (("eks",), "--api-server-url says"),
     (("eks", "--api-server-url", "https://a.example"), "other cluster")],
)  # fmt: skip
def test_who_provides_the_cluster_may_be_named_as_for_liqo(
    args: tuple[str, ...], says: str
) -> None:
    line = ("--cluster-id", "rome", "-o", "yaml")
    result = run("install", *args, *line)

    assert result.exit_code == 0
    assert result.stdout == run("install", *args[1:], *line).stdout
    assert says in result.stderr
    assert ("docs/managed-clusters.md" in result.stderr) is (says == "--api-server-url says")


@pytest.mark.parametrize("strategy", ["DefaultName", "EnforceSameName", None])
def test_a_remote_name_is_not_written_where_it_is_ignored(strategy: str | None) -> None:
    chosen = ("--namespace-mapping-strategy", strategy) if strategy else ()

    result = run("offload", "ns", "foo", "--remote-namespace-name", "bar", *chosen, "-o", "yaml")

    assert result.stdout == OFFLOADING.replace("DefaultName", strategy or "DefaultName")
    assert "--remote-namespace-name is ignored without" in result.stderr
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


@pytest.mark.parametrize(("flags", "said"), [((), "true"), (("--no-virtual-node",), "false")])
def test_a_slice_says_whether_a_virtual_node_is_made_of_it(
    flags: tuple[str, ...], said: str
) -> None:
    """Without the annotation admission would say yes."""
    result = run("create", "rs", "pool", "--remote-cluster-id", "milan", *flags, "-o", "yaml")

    assert f"liqo.io/create-virtual-node: '{said}'\n" in result.stdout


def test_the_namespace_of_a_virtual_node_can_be_given() -> None:
    args = ("create", "vn", "m", "--remote-cluster-id", "m", "--kubeconfig-secret-name", "key")

    assert "namespace: elsewhere\n" in run(*args, "-n", "elsewhere", "-o", "yaml").stdout
    assert "namespace: elsewhere\n" in run("-n", "elsewhere", *args, "-o", "yaml").stdout


VN = ("create", "vn", "m", "--remote-cluster-id", "m")


@pytest.mark.parametrize(("line", "says"), WRONG)
def test_wrong_usage_is_status_2(line: str, says: str) -> None:
    result = run(*shlex.split(line))

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
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            yield from commands(inner, *path, name)


def command_at(path: tuple[str, ...]) -> click.Command:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name) or command
    return command


@pytest.mark.parametrize("path", list(commands(cli)), ids=" ".join)
def test_every_help_shows_examples(path: tuple[str, ...]) -> None:
    result = run(*path, "--help")

    assert result.exit_code == 0
    assert "\n  Examples:\n    liqoctl" in result.stdout


def test_several_objects_are_one_list_in_json() -> None:
    shown = json.loads(run("offload", "namespace", "foo", "bar", "-o", "json").stdout)

    assert (shown["apiVersion"], shown["kind"]) == ("v1", "List")
    assert [one["metadata"]["namespace"] for one in shown["items"]] == ["foo", "bar"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell: str) -> None:
    assert f"_LIQOCTL_COMPLETE={shell}_complete" in run("completion", shell).stdout


def test_the_version_is_data_too() -> None:
    version = importlib.metadata.version("pyliqo")

    assert json.loads(run("version", "--client", "-o", "json").stdout) == {"clientVersion": version}
    assert run("--version").stdout.endswith(f" {version}\n")


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
        ([], sorted(options.MODULES)),
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


def loaded(code: str) -> set[str]:
    """Return the modules that a new Python has loaded after ``code``."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('loaded', *sys.modules)"],
        capture_output=True,
        check=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    return set(done.stdout.rpartition("loaded ")[2].split())


@pytest.mark.parametrize("module", ["liqoctl.__main__", "liqoctl.completion"])
def test_help_and_completion_load_no_client(module: str) -> None:
    assert not {"kube", "aiohttp", "kubernetes", "rich", "yaml"} & loaded(f"import {module}")


def test_a_tab_and_a_help_load_the_module_of_their_command_and_no_client() -> None:
    everything = loaded("from liqoctl import completion; completion.main(['offload', ''])")
    ours = {name for name in everything if name.count(".") == 1 and name.startswith("liqoctl.")}

    names = ("clusters", "completion", "forge", "offload", "options", "output", "reflections")
    assert ours == {f"liqoctl.{name}" for name in names}

    code = "from liqoctl import __main__, completion\n"
    for path in commands(cli):
        code += f"completion.main([*{path}, '-']); __main__.main([*{path}, '--help'])\n"
    everything = loaded(code)
    heavy = {"kube.client", "kube.informer", "kube.peer", "aiohttp", "cryptography", "kubernetes"}
    heavy |= {"prometheus_client", "rich", "yaml", "flask"}
    assert "liqoctl.virtualnode" in everything
    assert not heavy & everything


def test_the_table_of_commands_names_the_modules_of_each() -> None:
    found: dict[str, set[str]] = {}
    for path in commands(cli):
        callback = command_at(path).callback
        if callback and callback.__module__ != options.__name__:
            found.setdefault(path[0], set()).add(callback.__module__)

    for name, modules in options.MODULES.items():
        assert found.pop(name) == {f"liqoctl.{each}" for each in modules}, name
    assert not found


def test_a_command_is_one_function(tmp_path: Path) -> None:
    """With its cluster, its flags, a time-out and one sentence for what goes wrong."""
    group = options.Group("liqoctl")

    @group.command("greet", "liqoctl greet web")
    @click.argument("name")
    @options.timeout("2m")
    @clusters.on_cluster("greeting {name}")
    async def greet(side: Side, name: str) -> None:
        """Greet."""
        if name == "nobody":
            raise errors.NotFoundError("nobody is there")
        if name == "late":
            await asyncio.Event().wait()
        output.echo(f"hello {name} from {side.cluster.access.server} in {side.namespace}")

    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG % 1)
    line = ("-n", "shop", "--kubeconfig", str(path), "--timeout", "50ms")
    done, missing, late, shown = (
        CliRunner().invoke(group, ["greet", name, *line])
        for name in ("web", "nobody", "late", "--help")
    )

    assert done.stdout == "hello web from http://127.0.0.1:1 in shop\n"
    assert missing.stderr == "Error: nobody is there\n"
    assert "greeting late: nothing has changed for 0.05s" in late.stderr
    assert [each.exit_code for each in (done, missing, late, shown)] == [0, 1, 1, 0]
    assert "--global-labels" in shown.stdout
    assert shown.stdout.endswith("  Examples:\n    liqoctl greet web\n")


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


def switches() -> Iterator[tuple[click.Command, click.Option]]:
    for path in commands(cli):
        command = command_at(path)
        for param in command.params:
            if isinstance(param, click.Option) and param.is_flag:
                yield command, param


def test_every_switch_takes_the_values_of_go() -> None:
    """``--wait=false``, as command lines of Liqo and kubectl have it."""
    every = list(switches())

    assert {"wait", "verbose", "create_resource_slice"} <= {option.name for _, option in every}
    for command, option in every:
        for value, expected in (("true", True), ("false", False)):
            line = [f"{option.opts[0]}={value}"]
            context = command.make_context("liqoctl", line, resilient_parsing=True)
            assert context.params.get(str(option.name), expected) is expected, line


@pytest.mark.parametrize(
    "args",
    [
        ("network",),
        ("network", "init", "--remote-kubeconfig", "milan"),
        ("test", "network", "--help"),
        ("create", "gatewayserver", "milan"),
        ("generate", "configuration"),
        ("delete", "publickey", "milan"),
    ],
)
def test_what_is_of_the_network_of_liqo_says_what_to_do_instead(args: tuple[str, ...]) -> None:
    result = run(*args)

    assert result.exit_code == 2
    told = " ".join(result.stderr.split())
    assert "is of Liqo's network between the clusters, and pyliqo has none" in told
    assert "run the controllers of both with --ip-fabric instead" in told


def test_completion_says_nothing_of_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.main(["network", ""]) == 0

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("cordon", "tenant", "rome"), "making tenant rome Cordoned"),
        (("activate", "tenant", "rome"), "making tenant rome Active"),
        (("drain", "tenant", "rome", "--skip-confirm"), "making tenant rome Drained"),
        (("uncordon", "tenant", "rome"), "uncordoning tenant rome"),
        (("drain", "rs", "x", "--remote-cluster-id", "a"), "draining resourceslice"),
        (("create", "nonce", "--remote-cluster-id", "rome"), "creating the nonce"),
        (("authenticate", "--remote-context", "now"), "authentication"),
    ],
)
def test_a_timeout_bounds_a_command_whose_cluster_is_silent(
    tmp_path: Path, args: tuple[str, ...], told: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections, and no more
        path = tmp_path / "kubeconfig"
        path.write_text(KUBECONFIG % silent.getsockname()[1])
        result = run(*args, "--kubeconfig", str(path), "--timeout", "50ms")

    assert result.exit_code == 1
    assert told in result.stderr
    assert "nothing has changed for 0.05s" in result.stderr


def test_what_is_not_said_of_the_provider_is_as_for_the_consumer() -> None:
    seen: list[options.Session] = []

    @click.command(cls=options.Command)
    @options.global_flags
    @options.remote_flags
    def show(session: options.Session, remote: Callable[[], options.Session]) -> None:
        seen.extend((session, remote()))

    lines = (
        "-n liqo2 --kubeconfig a --context b --cluster c --user d --remote-context e",
        "--remote-kubeconfig f --remote-namespace g",
        "--remote-cluster h --remote-user i",
    )
    for line in lines:
        assert CliRunner().invoke(show, line.split()).exit_code == 0

    assert seen == [
        options.Session(Path("a"), "b", "c", "d", "liqo2"),
        options.Session(Path("a"), "e", "", "", "liqo2"),
        options.Session(),
        options.Session(Path("f"), namespace="g"),
        options.Session(),
        options.Session(cluster="h", user="i"),
    ]


def test_each_command_has_its_place_in_the_docs() -> None:
    docs = Path(__file__).parents[2] / "docs"
    pages = {*docs.rglob("*.md")} - {docs / "parity.md"}
    text = " ".join(" ".join(page.read_text("utf-8") for page in pages).split())
    assert [path for path in commands(cli) if f"liqoctl {' '.join(path)}" not in text] == []
