"""Every flag that the documents of Liqo name is there, with its default.

Source: docs/parity.md § 7.1 to 7.8.
"""

from typing import Any, Final

import click
import pytest
import yaml
from click.testing import CliRunner

from liqoctl.options import cli

GLOBAL: Final[dict[str, Any]] = dict.fromkeys(
    ("--kubeconfig", "--context", "--cluster", "--user", "--namespace", "-n",
     "--global-labels", "--global-annotations", "--skip-confirm", "--verbose", "-v")
)  # fmt: skip
"""None: the documents name no default."""
REMOTE: Final[dict[str, Any]] = dict.fromkeys(
    ("--remote-kubeconfig", "--remote-context", "--remote-cluster", "--remote-user",
     "--remote-namespace")
)  # fmt: skip
AMOUNTS: Final[dict[str, Any]] = {"--cpu": "", "--memory": "", "--pods": "", "--resource": None}
OF_PEER: Final = {"--remote-cluster-id": None}
PRINTED: Final = {"--output": None, "-o": None}
FOR_2M: Final = {"--timeout": "2m"}
WITHOUT_A_WORD: Final = {
    "--namespace-mapping-strategy": "DefaultName",
    "--pod-offloading-strategy": "LocalAndRemote",
    "--selector": "every cluster",
}
"""What the parameters of an offloading are where no flag and no object says them.

A flag that is left out keeps what the object has, so click itself knows no default of these.
"""

FLAGS: Final[dict[str, dict[str, Any]]] = {
    "offload namespace": {
        **PRINTED, **dict.fromkeys(WITHOUT_A_WORD), "--remote-namespace-name": "", "-l": None,
        "--ns-selector": None, "--timeout": "20s",
    },
    "unoffload namespace": {**FOR_2M, "--ns-selector": None},
    "authenticate": {
        **REMOTE, **FOR_2M, "--in-band": False, "--proxy-url": "", "--wait": True,
    },
    "unauthenticate": {**REMOTE, **FOR_2M, "--wait": True},
    "peer": {
        **REMOTE, **AMOUNTS, "--timeout": "10m", "--resource-slice-class": "",
        "--create-resource-slice": True, "--create-virtual-node": True,
        "--networking-disabled": False, "--in-band": False, "--skip-validation": False,
        "--proxy-url": "",
    },
    "unpeer": {
        **REMOTE, **FOR_2M, "--wait": True, "--delete-namespaces": False, "--force": False,
    },
    "force unpeer": FOR_2M,
    "create resourceslice": {
        **OF_PEER, **AMOUNTS, **PRINTED, "--class": "default", "--no-virtual-node": False,
    },
    "create virtualnode": {
        **OF_PEER, **PRINTED, "--resource-slice-name": None, "--kubeconfig-secret-name": None,
        "--create-node": True, "--disable-network-check": False, "--vk-options-template": None,
        "--cpu": "2", "--memory": "4Gi", "--pods": "110", "--resource": None,
        "--storage-classes": None, "--ingress-classes": None, "--load-balancer-classes": None,
        "--labels": None, "--node-selector": None, "--runtime-class-name": None,
    },
    "delete virtualnode": {},
    "create nonce": OF_PEER,
    "get nonce": OF_PEER,
    "generate tenant": {
        **OF_PEER, **PRINTED, "--nonce": None, "--remote-tenant-namespace": None,
        "--proxy-url": None,
    },
    "generate identity": {**OF_PEER, **PRINTED, "--remote-tenant-namespace": None},
    "get kubeconfig": OF_PEER,
    "generate peering-user": {
        "--consumer-cluster-id": None, "--tls-compatibility-mode": "auto",
    },
    "delete peering-user": {"--consumer-cluster-id": None},
    "cordon tenant": FOR_2M,
    "uncordon tenant": FOR_2M,
    "drain tenant": FOR_2M,
    "activate tenant": FOR_2M,
    "cordon resourceslice": {**FOR_2M, **OF_PEER},
    "uncordon resourceslice": {**FOR_2M, **OF_PEER},
    "info": {**PRINTED, "--get": None},
    "info peer": {**PRINTED, "--get": None},
    "install": {
        **PRINTED, "--cluster-id": "", "--cluster-labels": None, "--sharing-percentage": None,
        "--enable-resource-enforcement": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("command", FLAGS)
def test_every_flag_of_the_documents_is_there_with_its_default(command: str) -> None:
    found = {name: option.default for option in options(command) for name in option.opts}
    wanted = {**GLOBAL, **FLAGS[command]}

    assert wanted.keys() - found.keys() == set()
    defaults = {name: value for name, value in wanted.items() if value is not None}
    assert {name: found[name] for name in defaults} == defaults


@pytest.mark.parametrize("command", FLAGS)
def test_help_names_every_flag_that_is_not_hidden(command: str) -> None:
    shown = CliRunner().invoke(cli, [*command.split(), "--help"])

    assert shown.exit_code == 0
    words = set(shown.output.replace(",", " ").split())
    assert {*GLOBAL, *FLAGS[command]} - words == set()


def test_what_an_offloading_is_without_a_word_is_in_its_object_and_in_the_help() -> None:
    printed = CliRunner().invoke(cli, ["offload", "namespace", "foo", "-o", "yaml"])
    made = next(yaml.safe_load_all(printed.stdout))
    told = {
        name: option.help or ""
        for option in options("offload namespace")
        for name in option.opts
        if name in WITHOUT_A_WORD
    }

    assert made["spec"] == {
        "namespaceMappingStrategy": WITHOUT_A_WORD["--namespace-mapping-strategy"],
        "podOffloadingStrategy": WITHOUT_A_WORD["--pod-offloading-strategy"],
    }, "without a selector every cluster is meant"
    for name, default in WITHOUT_A_WORD.items():
        assert told[name].endswith(f"[default: {default}]")


def options(command: str) -> list[click.Option]:
    """Return the options of ``command``, such as ``create virtualnode``."""
    found: click.Command = cli
    for name in command.split():
        assert isinstance(found, click.Group)
        found = found.commands[name]
    return [param for param in found.params if isinstance(param, click.Option)]
