"""The flags of the kubelet (docs/parity.md § 5.1)."""

import pytest

from kubelet import options

MUST = [
    "--home-cluster-id=rome",
    "--foreign-cluster-id=milan",
    "--foreign-kubeconfig-secret-name=kubeconfig",
]


def test_defaults() -> None:
    chosen = options.parse(MUST)
    assert (chosen.node_name, chosen.listen_port, chosen.lease_s) == ("virtual-kubelet", 10250, 40)
    assert (chosen.ping_interval_s, chosen.ping_timeout_s, chosen.workers) == (10, 1, 32)
    assert chosen.create_node


def test_as_go_writes_them() -> None:
    chosen = options.parse(
        [
            *MUST,
            "--create-node=false",
            "--node-check-network=False",
            "--node-ping-interval=1m30s",
            "--node-ping-timeout=500ms",
            "--node-extra-labels=a=1,b=x=y",
            "--node-extra-annotations=",
            "--node-ip=10.0.0.1",
        ]
    )
    assert not chosen.create_node
    assert (chosen.ping_interval_s, chosen.ping_timeout_s) == (90, 0.5)
    assert chosen.extra_labels == {"a": "1", "b": "x=y"}
    assert chosen.extra_annotations == {}


@pytest.mark.parametrize(
    "flag",
    ["--create-node=maybe", "--node-ping-interval=10", "--node-ip=here", "--node-extra-labels=a"],
)
def test_nonsense_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse([*MUST, flag])
    assert ended.value.code == 2
    assert flag.partition("=")[0] in capsys.readouterr().err


def test_what_is_mandatory(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse([])
    assert "--home-cluster-id" in capsys.readouterr().err
