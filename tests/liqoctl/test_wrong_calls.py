"""Sixty wrong calls, and what each is answered: status 2, what is wrong, and what to do."""

import shlex

import pytest
from click.testing import CliRunner

from liqoctl import reflections
from liqoctl.__main__ import cli
from liqoctl.forge.reflections import Line

NOWHERE = {"KUBECONFIG": "/nonexistent/kubeconfig", "HOME": "/nonexistent"}
_RS = "create rs pool --remote-cluster-id milan"
_VN = "create virtualnode milan --remote-cluster-id milan"
_ON = "offload namespace foo"
_QUANTITY = "is not a quantity: write for example 100m, 2 or 1.5Gi"
_CLUSTER = "'Milan_' is not a cluster ID: use 1 to 63 lower-case letters, digits and '-'"
_DURATION = "is not a duration such as 20s or 2m"
_SPACE = "is no name of a namespace: use lower-case letters, digits and '-', at most 63"
_OBJECT = "is no name of an object: use lower-case letters, digits, '-' and '.'"
_NETWORK = "is of Liqo's network between the clusters, and pyliqo has none"
_PROVIDER = "say where the provider is: --remote-kubeconfig or --remote-context"

CALLS = [
    ("--foo", "No such option '--foo'"),
    ("offlod namespace foo", "Did you mean one of: 'offload', 'unoffload'?"),
    ("get reflecton", "Did you mean 'reflections'?"),
    ("network init", _NETWORK),
    ("test network", _NETWORK),
    ("create gatewayserver x", _NETWORK),
    ("generate publickey", _NETWORK),
    ("offload namespace", "name a namespace, or give --ns-selector"),
    ("offload namespace Foo_", _SPACE),
    ("offload namespace Foo_ -o yaml", _SPACE),
    ("offload pod web", "No such command 'pod'"),
    (f"{_ON} -o xml", "'xml' is not one of 'yaml', 'json'"),
    (f"{_ON} -o wide", "'wide' is not one of 'yaml', 'json'"),
    (f"{_ON} --pod-offloading-strategy Remot", "is not one of 'LocalAndRemote', 'Local', 'Remote'"),
    (f"{_ON} --namespace-mapping-strategy Same", "is not one of 'DefaultName', 'EnforceSameName'"),
    (f"{_ON} --namespace-mapping-strategy SelectedName", "needs --remote-namespace-name"),
    (f"{_ON} -l 'region in europe' -o yaml", "is not a label selector"),
    (f"{_ON} -l '=x' -o yaml", "is not a label selector"),
    (f"{_ON} --timeout soon", f"'soon' {_DURATION}"),
    (f"{_ON} --timeout 5x", f"'5x' {_DURATION}"),
    (f"{_ON} --global-labels team -o yaml", "'team' is not key=value"),
    (f"{_ON} --skip-confirm=maybe", "maybe"),
    ("unoffload namespace", "name a namespace, or give --ns-selector"),
    ("unoffload namespace Foo_ --skip-confirm", _SPACE),
    ("create rs pool", "Missing option '--remote-cluster-id'"),
    ("create rs --remote-cluster-id milan", "Missing argument 'NAME'"),
    ("create rs Pool_ --remote-cluster-id milan -o yaml", _OBJECT),
    ("create rs pool --remote-cluster-id Milan_ -o yaml", _CLUSTER),
    (f"{_RS} --cpu lots", f"'lots' {_QUANTITY}"),
    (f"{_RS} --memory 4Gb", f"'4Gb' {_QUANTITY}"),
    (f"{_RS} --pods many", f"'many' {_QUANTITY}"),
    (f"{_RS} --cpu -1", "is below 0"),
    (f"{_RS} --resource gpu", "'gpu' is not key=value"),
    (f"{_RS} --resource nvidia.com/gpu=x", f"nvidia.com/gpu: 'x' {_QUANTITY}"),
    (f"{_RS} --resource '!=1'", "is no name of a resource"),
    (_VN, "give either --kubeconfig-secret-name or --resource-slice-name"),
    (f"{_VN} --kubeconfig-secret-name a --resource-slice-name b", "give either"),
    ("create virtualnode milan --kubeconfig-secret-name a", "Missing option '--remote-cluster-id'"),
    ("create nonce --remote-cluster-id Milan_", _CLUSTER),
    ("get nonce", "Missing option '--remote-cluster-id'"),
    ("get tenant Milan_", _CLUSTER),
    ("get tenant -o table", "'table' is not one of 'wide', 'yaml', 'json'"),
    ("get kubeconfig", "Missing option '--remote-cluster-id'"),
    ("get values -o text", "'text' is not one of 'yaml', 'json'"),
    ("generate tenant --nonce x", "Missing option '--remote-cluster-id'"),
    ("generate peering-user", "Missing option '--consumer-cluster-id'"),
    ("generate peering-user --consumer-cluster-id Milan_", _CLUSTER),
    ("delete tenant Milan_ --skip-confirm", _CLUSTER),
    ("cordon tenant", "Missing argument 'NAME'"),
    ("cordon tenant Milan_", _CLUSTER),
    ("drain tenant Milan_ --skip-confirm", _CLUSTER),
    ("force unpeer", "Missing argument 'CLUSTER_ID'"),
    ("force unpeer Milan_", _CLUSTER),
    ("info peer Milan_", _CLUSTER),
    ("info -o xml", "'xml' is not one of 'text', 'json', 'yaml'"),
    ("why pod", "Missing argument 'NAME'"),
    ("why pod web -o wide", "'wide' is not one of 'text', 'json', 'yaml'"),
    ("peer", _PROVIDER),
    ("unpeer", _PROVIDER),
    ("peer --remote-kubeconfig milan --cpu x", f"'x' {_QUANTITY}"),
    ("set sharing", "say what to set: --sharing-percentage, --resource, --limits or"),
    ("set sharing --sharing-percentage 101", "101 is not in the range 0<=x<=100"),
    ("move volume data", "Missing option '--target-node'"),
    ("install -n foo", "pyliqo is installed in namespace liqo: omit -n"),
    ("install --cluster-id Rome", "'Rome' cannot be a cluster ID: use 1 to 63 lower-case letters"),
    ("install --cluster-labels eu", "'eu' is not key=value"),
    ("install --sharing-percentage half", "'half' is not a valid integer range"),
    ("install --values /nonexistent", "'/nonexistent': No such file or directory"),
    ("install --api-server-url http://x", "is not an https:// URL of a host"),
    ("completion powershell", "'powershell' is not one of 'bash', 'zsh', 'fish'"),
    ("version -o xml", "'xml' is not one of 'text', 'json', 'yaml'"),
]


def test_there_are_sixty() -> None:
    assert len({line for line, _ in CALLS}) >= 60


@pytest.mark.parametrize(("line", "expected"), CALLS, ids=[line for line, _ in CALLS])
def test_a_wrong_call_is_told_what_is_wrong(line: str, expected: str) -> None:
    done = CliRunner().invoke(cli, shlex.split(line), env=NOWHERE)

    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert expected in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_reflections_as_data_have_a_field_a_column() -> None:
    line = Line("milan", "foo-rome", "ConfigMap", "web", "reflected", "")

    assert reflections.told([line]) == {
        "items": [
            {
                "cluster": "milan", "remote-namespace": "foo-rome", "kind": "ConfigMap",
                "name": "web", "state": "reflected", "reason": "",
            }
        ]
    }  # fmt: skip
