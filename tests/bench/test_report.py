"""A run is kept, judged, told and drawn."""

import io
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from apis import keys
from apis.objects import Key
from bench import costs, figures, goals, hostile, observe, phases, plots, report, result, show
from bench.figures import Line, Spread
from bench.observe import GONE, NUMBERED, READY, Seen, Sighting, Story
from bench.phases import Way, Written
from bench.result import Block, Goal, Request, Run
from bench.stage import Draft
from bench.suites import burst, idle, memory, offload, reflection
from kube.informer import Change
from sandbox.audit import Call
from tests.bench.test_counters import call

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


# The arithmetic of figures.


SAMPLES = st.lists(st.floats(0, 1e6), min_size=1, max_size=300)


@given(SAMPLES)
def test_percentiles_stay_within_the_samples_and_rise(samples: list[float]) -> None:
    kept = figures.quantiles(samples)

    assert len(kept) == 101
    assert kept == sorted(kept)
    assert kept[0] == pytest.approx(min(samples), abs=0.01)
    assert kept[100] == pytest.approx(max(samples), abs=0.01)


def test_a_percentile_lies_between_its_neighbours() -> None:
    assert figures.percentile([10, 20], 50) == 15
    assert figures.percentile([10, 20, 30], 100) == 30


def test_no_samples_have_no_percentile() -> None:
    assert figures.quantiles([]) == []
    with pytest.raises(ValueError, match="no samples"):
        figures.percentile([], 50)
    with pytest.raises(ValueError, match="no samples"):
        figures.at([], 50)


def test_a_spread_is_median_and_range() -> None:
    assert figures.spread([3, 1, 2]) == Spread(2, 1, 3)
    assert figures.spread([3, 1, 2]) / 2 == Spread(1, 0.5, 1.5)


def test_a_line_is_found_in_its_points() -> None:
    line = figures.fit([(size, 5 + 0.25 * size) for size in (100, 1000, 5000)])

    assert line
    assert line == pytest.approx(Line(5, 0.25))
    assert line.at(400) == pytest.approx(105)


def test_one_size_makes_no_line() -> None:
    assert figures.fit([(100, 1.0), (100, 2.0)]) is None


def test_growth_leaves_the_warm_up_out() -> None:
    warm_up, level = [50.0] * 10, [100.0] * 90

    assert figures.growth(warm_up + level) == 0
    assert figures.growth(warm_up + [100.0] * 45 + [110.0] * 45) == pytest.approx(0.1)


def test_few_samples_tell_no_growth() -> None:
    with pytest.raises(ValueError, match="too few"):
        figures.growth([1.0, 2.0])


def test_counters_grow_from_what_they_were() -> None:
    assert figures.added({"old": 5.0, "new": 2.0}, {"old": 3.0}) == {"old": 2.0, "new": 2.0}


def test_arms_go_forwards_and_backwards() -> None:
    order = [arm for _, arm in figures.zigzag(["a", "b", "c"], 3)]

    assert order == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]


def test_a_histogram_tells_the_bound_of_a_quantile() -> None:
    buckets = [("0.001", 90.0), ("0.002", 98.0), ("0.004", 100.0), ("+Inf", 100.0)]

    assert figures.histogram(buckets, 0.5) == 0.001
    assert figures.histogram(buckets, 0.99) == 0.004


# Where the time of a reflected write goes, by the times of the provider's audit log.


BEGAN = 1767225600.0
"""2026-01-01T00:00:00Z."""


def logged(
    verb: str, received: float, completed: float, code: int = 200, name: str = "one"
) -> Call:
    times = {"received": at(received), "completed": at(completed)}
    return call(verb=verb, resource="configmaps", name=name, code=code, **times)


def at(seconds: float) -> str:
    return f"2026-01-01T00:00:{seconds:09.6f}Z"


def written(verb: str, done: float, seen: float, name: str = "one") -> Written:
    return Written(verb, "configmaps", name, BEGAN + done, BEGAN + seen)


def told(way: Way | None) -> list[float]:
    return [round(part * 1000, 3) for part in way or ()]


def test_the_parts_add_up_to_the_whole() -> None:
    log = [logged("patch", 1.003, 1.011, 201)]

    way = phases.way(written("create", 1.0, 1.012), log)

    assert told(way) == [3.0, 8.0, 1.0]
    assert way
    assert way.whole == pytest.approx(0.012, abs=1e-5)


def test_of_several_writes_it_is_the_last_before_it_was_seen() -> None:
    log = [
        logged("patch", 1.0, 1.1),
        logged("patch", 2.0, 2.1),
        logged("patch", 2.05, 2.06, 409),
        logged("patch", 2.06, 2.07, name="another"),
        logged("delete", 2.08, 2.09),
        logged("patch", 3.0, 3.1),
    ]

    assert told(phases.way(written("update", 1.9, 2.2), log)) == [100.0, 100.0, 100.0]


def test_who_is_seen_before_the_answer_was_not_told_later() -> None:
    log = [logged("delete", 1.0, 1.2)]

    assert told(phases.way(written("delete", 1.0, 1.1), log)) == [0.0, 100.0, 0.0]


def test_what_the_log_lacks_has_no_way() -> None:
    assert phases.ways([written("create", 1.0, 2.0)], []) == {}


def test_the_slowest_is_told_with_its_parts() -> None:
    writes = [written("update", 1.0, 1.01, "quick"), written("update", 2.0, 2.045)]
    log = [logged("patch", 1.001, 1.009, name="quick"), logged("patch", 2.004, 2.043)]
    found = phases.ways(writes, log)
    assert phases.times(found)["update-there"] == pytest.approx([0.008, 0.039], abs=1e-5)

    figures = phases.slowest(found) | {"slow_syncs_milan": 2.0}
    block = Block(reflection.SUITE, "ours", 3, 90, figures=figures)

    (line,) = report.slowest([block, Block(reflection.SUITE, "bare", 3, 90, figures=figures)])
    assert line.startswith("Slowest update of ours, in repetition 4: 45.0 ms, 4.0 of them until")
    assert "39.0 in its API server, 2.0 until it was seen; 2 syncs" in line


# The table of ``bench hostile``; what it measures is ``tests/peering/test_under_attack.py``.


def test_the_table_has_a_row_an_attack() -> None:
    told = {
        "attack": "answers without end",
        "seconds": 60.0,
        "lies": 7,
        "beside_s": [0.2, 0.3],
        "usual_mib": {"kubelet": 75.3, "reflector": 85.3},
        "most_mib": {"kubelet": 78.0, "reflector": 90.6},
    }
    assert hostile.table([told]) == (
        "| attack | seconds | lies | beside, s | kubelet | reflector |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| answers without end | 60 | 7 | 0.2 -> 0.3 | 75 -> 78 | 85 -> 91 |\n"
    )
    assert hostile.table([]) == (
        "| attack | seconds | lies | beside, s |\n| --- | --- | --- | --- |\n"
    )


def test_each_attack_of_a_consumer_has_a_row_that_says_whether_it_was_tried() -> None:
    what, before, test = hostile.ROWS[-1]
    file, _, name = test.partition("::")
    case = ET.Element("testcase", file=file, name=f"{name}[a]", time="2.04")
    ET.SubElement(case, "property", name="MiB at most:", value="61")

    lines = hostile.consumers([case]).splitlines()

    assert len(lines) == 2 + len(hostile.ROWS)
    assert lines[-1] == f"| {what} | {before} | holds, MiB at most: 61 | 2.0 |"
    assert all("| not shown |" in line for line in lines[2:-1])


def test_each_row_names_a_test_that_is_there() -> None:
    for _, _, test in hostile.ROWS:
        file, _, name = test.partition("::")
        assert f"def {name}(" in Path(file).read_text(), test


# What the observer sees becomes a story of lives.


def seen(t: float, state: str = "", **more: str) -> Sighting:
    fields = {"uid": "1", "node": "", "sequence": "", **more}
    return Sighting(
        t, "rome", "Pod", "demo", "web", fields["uid"], fields["node"], state, fields["sequence"]
    )


def folded(sightings: Sequence[Sighting]) -> Story:
    story = Story()
    for sighting in sightings:
        story.fold(sighting)
    return story


def test_a_life_has_its_first_times() -> None:
    story = folded([
        seen(1.0, "Pending"),
        seen(2.0, "Pending", node="milan"),
        seen(3.0, READY, node="milan"),
        seen(4.0, READY, node="milan"),
        seen(5.0, GONE),
    ])  # fmt: skip

    life = story.of("rome", keys.POD, "demo")["web"]

    assert (life.created, life.bound, life.ready, life.gone) == (1.0, 2.0, 3.0, 5.0)


def test_sequences_have_the_time_of_their_first_sight() -> None:
    story = folded([seen(1, sequence="1"), seen(2, sequence="2"), seen(3, sequence="2")])

    life = story.of("rome", keys.POD, "demo")["web"]

    assert life.sequences == {"1": 1, "2": 2}
    assert (life.latest, life.changed) == ("2", 2)


def test_a_second_object_of_a_name_is_a_double_unless_the_first_was_gone() -> None:
    assert folded([seen(1), seen(2, uid="2")]).doubles
    assert not folded([seen(1), seen(2, GONE), seen(3, uid="2")]).doubles


def test_what_is_over_is_forgotten() -> None:
    story = folded([seen(1), seen(2, GONE)])

    story.forget()

    assert story.lives == {}


def test_a_pod_is_ready_by_its_condition_and_numbered_by_another() -> None:
    pod = {
        "metadata": {"name": "web", "namespace": "demo", "uid": "1"},
        "spec": {"nodeName": "milan"},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": NUMBERED, "status": "True", "message": "7"},
            ],
        },
    }
    new = msgspec.convert(pod, Seen)

    said = observe.sighting(1.0, "rome", "Pod", Change(Key("demo", "web"), None, new))

    assert (said.state, said.node, said.sequence) == (READY, "milan", "7")


def test_an_object_is_numbered_by_its_data_and_goes() -> None:
    item = {"metadata": {"name": "one", "namespace": "demo"}, "data": {"sequence": "3"}}
    old = msgspec.convert(item, Seen)
    key = Key("demo", "one")

    assert observe.sighting(1.0, "rome", "ConfigMap", Change(key, None, old)).sequence == "3"
    assert observe.sighting(1.0, "rome", "ConfigMap", Change(key, old, None)).state == GONE
