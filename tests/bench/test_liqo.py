"""Liqo's own binaries as arms: what has to be there, and what each process is given."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from apis import keys
from bench import __main__ as command
from bench import costs, counters, goals, liqo, result, settings
from bench.result import Block, Request
from bench.settings import DEFAULT, LIQO, LIQO_VARIABLE, UNLIMITED
from bench.suites import burst, offload

ADDRESSES = {"rome": "10.0.0.2", "milan": "10.0.1.2"}
GROUPS = """\
kind: CustomResourceDefinition
metadata: {name: ips.ipam.liqo.io}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in counters.LIQO:
        (tmp_path / name).touch()
    (tmp_path / liqo.DEFINITIONS).mkdir()
    for group in liqo.REQUIRED:
        (tmp_path / liqo.DEFINITIONS / f"{group}_ips.yaml").write_text(GROUPS, encoding="utf-8")
    return tmp_path


def test_without_the_variable_its_arms_are_skipped() -> None:
    chosen = settings.parse(["--arms", f"ideal,ours,{DEFAULT}"], {})

    assert chosen.arms == ("ideal", "ours")
    assert chosen.liqo_arms == ()


def test_with_the_variable_its_arms_are_run_with_all_others(tmp_path: Path) -> None:
    chosen = settings.parse([], {LIQO_VARIABLE: str(tmp_path)})

    assert chosen.arms == settings.ARMS
    assert chosen.liqo_arms == LIQO
    assert chosen.liqo == tmp_path


def test_a_missing_binary_is_named_before_anything_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "crd-replicator").unlink()
    monkeypatch.setenv(LIQO_VARIABLE, str(folder))

    assert command.main(["--arms", DEFAULT]) == 2
    assert f"{folder}, which has no crd-replicator: put" in capsys.readouterr().err


def test_missing_definitions_are_named(folder: Path) -> None:
    assert liqo.complete(folder) == folder

    (folder / liqo.DEFINITIONS / "networking.liqo.io_ips.yaml").unlink()

    with pytest.raises(RuntimeError, match=r"no definitions of networking\.liqo\.io: copy"):
        liqo.complete(folder)


def test_pyliqo_cannot_stay_as_it_is_beside_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(LIQO_VARIABLE, str(folder))

    assert command.main(["--no-install", "--arms", DEFAULT]) == 2
    assert "--no-install" in capsys.readouterr().err


def test_the_commit_is_what_the_folder_says(folder: Path) -> None:
    assert liqo.commit(folder) == "unknown"

    (folder / liqo.COMMIT).write_text("557c199\n", encoding="utf-8")

    assert liqo.commit(folder) == "557c199"


def test_its_definitions_carry_the_mark_by_which_they_are_removed(folder: Path) -> None:
    found = liqo.definitions(folder)

    assert len(found) == len(liqo.REQUIRED)
    assert all("bench.pyliqo.io/part" in one["metadata"]["labels"] for one in found)


def test_both_clusters_get_their_processes_and_one_virtual_kubelet(tmp_path: Path) -> None:
    started = [*liqo.commands(DEFAULT, ADDRESSES, tmp_path),
               liqo.kubelet(DEFAULT, ADDRESSES, tmp_path)]  # fmt: skip

    assert sorted((one.cluster, one.binary) for one in started) == [
        ("milan", "crd-replicator"), ("milan", "liqo-controller-manager"), ("milan", "webhook"),
        ("rome", "crd-replicator"), ("rome", "liqo-controller-manager"),
        ("rome", "virtual-kubelet"), ("rome", "webhook"),
    ]  # fmt: skip
    assert {one.component for one in started} == set(counters.LIQO.values())


@pytest.mark.parametrize(("arm", "is_raised"), [(DEFAULT, False), (UNLIMITED, True)])
def test_only_the_unlimited_arm_raises_the_limits(
    arm: str, tmp_path: Path, *, is_raised: bool
) -> None:
    started = [*liqo.commands(arm, ADDRESSES, tmp_path), liqo.kubelet(arm, ADDRESSES, tmp_path)]

    assert {set(liqo.RAISED) <= set(one.arguments) for one in started} == {is_raised}


def test_networking_and_the_reflection_of_addresses_are_off(tmp_path: Path) -> None:
    managers = [
        one for one in liqo.commands(DEFAULT, ADDRESSES, tmp_path) if "manager" in one.binary
    ]
    kubelet = liqo.kubelet(DEFAULT, ADDRESSES, tmp_path)

    assert all("--networking-enabled=false" in one.arguments for one in managers)
    assert {"--node-check-network=false", "--disable-ip-reflection"} <= set(kubelet.arguments)


def test_its_webhook_finds_the_certificate_below_its_temporary_files(tmp_path: Path) -> None:
    webhook = next(iter(liqo.commands(DEFAULT, ADDRESSES, tmp_path)))

    assert liqo.certificates(tmp_path, "rome").is_relative_to(webhook.environment["TMPDIR"])


def test_its_webhook_is_asked_for_pods_of_offloaded_namespaces() -> None:
    made = liqo.webhooks("10.0.0.2", b"ca")[keys.MUTATING_WEBHOOKS]
    pods = made["webhooks"][0]

    assert pods["clientConfig"]["url"] == f"https://10.0.0.2:{liqo.PORT}/mutate/pod"
    assert pods["namespaceSelector"] == {"matchLabels": {keys.SCHEDULING_ENABLED: "true"}}


def test_the_deployment_of_its_virtual_node_starts_nothing() -> None:
    spec = liqo.virtual_node({"clusterID": "milan"})["spec"]

    assert spec["template"]["spec"]["replicas"] == 0
    assert spec["clusterID"] == "milan"


def test_its_requests_and_processes_count_as_those_of_the_system() -> None:
    asked = [Request("rome", agent, "patch", "pods/status", 10) for agent in counters.LIQO]
    block = Block(burst.SUITE, DEFAULT, 0, 10, requests=asked, cpu_s={"liqo-kubelet": 1.5})

    assert costs.writes(block) == 10 * len(counters.LIQO)
    assert costs.system_s(block) == 1.5


def test_bursts_are_compared_with_its_default_limits() -> None:
    blocks = [
        Block(burst.SUITE, arm, 0, 1000, figures={"burst_s": seconds})
        for arm, seconds in [("ours", 10.0), (DEFAULT, 50.0), (UNLIMITED, 20.0)]
    ]

    found = next(one for one in goals.judge(blocks) if one.goal == "burst of 1000 pods, over Liqo")

    assert (found.is_met, found.value) == (True, "0.2x (0.2 to 0.2)")


def test_without_it_the_comparisons_are_not_run() -> None:
    blocks = [Block(burst.SUITE, "ours", 0, 1000, figures={"burst_s": 10.0})]

    compared = [one for one in goals.judge(blocks) if one.goal.endswith("over Liqo")]

    assert len(compared) == 5
    assert {(one.value, one.is_met) for one in compared} == {("not run", None)}


@pytest.mark.journey
@pytest.mark.skipif(
    LIQO_VARIABLE not in os.environ,
    reason=f"{LIQO_VARIABLE} names no folder of Liqo's binaries, which this tree does not build",
)
@pytest.mark.usefixtures("kubeconfigs")
def test_a_small_run_of_all_arms_comes_to_its_end(tmp_path: Path) -> None:
    """Pyliqo leaves the clusters, Liqo's binaries come with both limits, and pyliqo returns."""
    words = ["offload", "burst", "--quick", "--sizes=5", "--repetitions=1", "--load-seconds=1"]
    chosen = ("ideal", "ours", *LIQO)

    run = subprocess.run(
        [sys.executable, "-m", "bench", *words, f"--arms={','.join(chosen)}", "--output", tmp_path],
        check=False, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip

    assert run.returncode == 0, run.stderr[-2000:]
    (file,) = tmp_path.glob("*.json")
    blocks = result.load(file.read_bytes()).blocks
    assert {(one.suite, one.arm) for one in blocks} == {
        (suite, arm)
        for suite in (offload.SUITE, offload.STATUS, offload.STATUS_LOAD, burst.SUITE,
                      burst.DELETION)
        for arm in chosen
    }  # fmt: skip
