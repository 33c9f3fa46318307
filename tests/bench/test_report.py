"""A run is kept, judged, told and drawn."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from bench import costs, figures, goals, plots, report, result, show
from bench.result import Block, Goal, Request, Run
from bench.stage import Draft
from bench.suites import burst, idle, memory, offload

PODS = 1000


def burst_block(arm: str, seconds: float, repetition: int = 0, size: int = PODS) -> Block:
    writes = Request("rome", "pyliqo-kubelet", "patch", "pods/status", 4 * size)
    return Block(
        burst.SUITE, arm, repetition, size, seconds,
        times={"ready": figures.quantiles([seconds * part for part in range(1000)])},
        figures={"burst_s": seconds, "pods_per_s": size / seconds},
        requests=[writes] if arm == "ours" else [],
        cpu_s={"kube-apiserver": 0.02 * size, "etcd": 0.01 * size, "kubelet": 0.001 * size},
    )  # fmt: skip


def run(*blocks: Block) -> Run:
    return Run({"cores": 2}, {"pyliqo": "0"}, {"fsync": True}, list(blocks), goals.judge(blocks))


def goal(blocks: list[Block], text: str) -> Goal:
    return next(found for found in goals.judge(blocks) if text in found.goal)


def test_a_run_is_read_as_it_was_written() -> None:
    whole = run(burst_block("ideal", 10.0), burst_block("ours", 12.0))

    assert result.load(result.dump(whole)) == whole


def test_what_was_not_run_is_neither_met_nor_missed() -> None:
    assert {found.is_met for found in goals.judge([])} == {None}


def test_a_goal_is_met_only_in_all_repetitions() -> None:
    ideal = [burst_block("ideal", 10.0, number) for number in range(2)]
    good = [burst_block("ours", 12.0, number) for number in range(2)]
    mixed = [burst_block("ours", 12.0, 0), burst_block("ours", 14.0, 1)]

    assert goal([*ideal, *good], "burst of 1000").is_met is True
    assert goal([*ideal, *mixed], "burst of 1000").is_met is False


def test_writes_a_pod_are_those_of_our_processes() -> None:
    found = goal([burst_block("ours", 12.0)], "up to Running")

    assert found.is_met is True
    assert found.value.startswith("4")


def test_lists_at_rest_miss_a_goal() -> None:
    lists = [Request("rome", "pyliqo-kubelet", "list", "pods", 1)]
    resting = Block(idle.SUITE, "ours", 0, 1, 60.0, requests=lists)

    assert goal([resting], "LISTs").is_met is False


def test_memory_a_pod_is_the_slope() -> None:
    blocks = [
        Block(memory.SUITE, "ours", 0, size, figures={"pss_mib": 100 + size / 1024 * 4})
        for size in (0, 100, 1000)
    ]

    assert goal(blocks, "PSS a pod").value.startswith("4 KiB")


def test_the_cost_of_a_virtual_node_is_fitted_over_their_number() -> None:
    asked = [Request("rome", "pyliqo-kubelet", "get", "pods", 120)]
    blocks = [
        Block(
            idle.SUITE, "ours", 0, nodes, 60.0,
            figures={"virtual_nodes": nodes + 1, "pss_mib": 400 + 100 * nodes},
            cpu_s={"kubelet": 0.6 * nodes}, requests=asked * nodes,
        )
        for nodes in (1, 10)
    ]  # fmt: skip

    memory_of, cpu, rate = costs.of_a_virtual_node(blocks).values()

    assert memory_of is not None
    assert round(memory_of.slope) == 100
    assert cpu is not None
    assert round(cpu.slope, 3) == 1.0
    assert rate is not None
    assert round(rate.slope, 3) == 2.0


def test_growth_in_a_soak_is_judged_for_all_processes_together() -> None:
    figures_of = {goals.GROWTH: 1.5, "growth_percent_kubelet": 30.0}
    soak = Block(memory.SOAK, "ours", 0, memory.CHURNED, 600.0, figures=figures_of)

    assert goal([soak], "growth in a soak").is_met is True


def test_samples_are_kept_by_component_and_all_together() -> None:
    draft = Draft(memory.SUITE, "ours", 0, 100)

    memory.note(draft, [{"kubelet": 50.0}, {"kubelet": 60.0, "webhook": 40.0}])

    assert draft.series == {
        memory.ALL: [50.0, 100.0], "kubelet": [50.0, 60.0], "webhook": [0.0, 40.0],
    }  # fmt: skip
    assert draft.figures["pss_peak_mib"] == 100.0


def test_figures_are_written_between_the_marks_of_a_document() -> None:
    whole = run(burst_block("ideal", 10.0), burst_block("ours", 12.0))
    begin = "<!-- figures of one: written by `python -m bench show` -->"
    document = f"before\n{begin}\nold\n<!-- end of figures -->\nafter\n"

    once = show.written(document, "one", show.markdown(whole, ["performance/burst.svg"]))

    assert once.startswith("before\n")
    assert once.endswith("<!-- end of figures -->\nafter\n")
    assert "old" not in once
    assert "![burst](performance/burst.svg)" in once
    assert show.written(once, "one", show.markdown(whole, ["performance/burst.svg"])) == once


def test_a_document_without_marks_is_left_alone() -> None:
    with pytest.raises(ValueError, match="lacks"):
        show.written("nothing", "one", "figures")


def test_what_was_left_out_is_told() -> None:
    cut = Run({}, {}, {"left_out": ["burst of 1000 pods: 3 of 5 repetitions"]}, [], [])

    assert any("3 of 5" in line for line in report.remarks(cut))


def test_a_cost_is_fitted_over_sizes() -> None:
    blocks = [burst_block("ours", 1.0, size=size) for size in (100, 1000)]

    line = costs.of_a_pod(blocks, "ours")["CPU-seconds of the servers"]

    assert line
    assert round(line.slope, 6) == 0.03


def test_violations_void_a_run_and_name_the_block() -> None:
    block = Block(offload.SUITE, "ours", 0, 5, violations=["lost"])

    assert run(block).violations == ["offload, ours, size 5, repetition 0: lost"]


def test_tables_and_plots_show_what_there_is(tmp_path: Path) -> None:
    latency = Block(offload.SUITE, "ideal", 0, 5, times={"offload": figures.quantiles([1.0, 2.0])})
    whole = run(burst_block("ideal", 10.0), burst_block("ours", 12.0), latency)
    text = io.StringIO()

    report.show(whole, report.keep(whole, tmp_path), Console(file=text, width=140))
    drawn = plots.draw(whole, tmp_path)

    assert "Burst up to all pods Ready" in text.getvalue()
    assert "not run" in text.getvalue()
    assert [file.name for file in drawn] == ["offload.svg", "burst.svg"]
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_a_document_gets_tables_without_markup() -> None:
    text = show.markdown(run(burst_block("ideal", 10.0), burst_block("ours", 12.0)))

    assert "| ours | 1,000 |" in text
    assert "[dim]" not in text
    assert "### Goals" in text
