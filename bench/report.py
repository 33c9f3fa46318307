"""What a run found, told: tables on the terminal, JSON in a file."""

import datetime as dt
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from rich.console import Console
from rich.table import Table

from bench import costs, counters, phases, result, slow
from bench.figures import Spread
from bench.phases import Way
from bench.result import Block, Goal, Run
from bench.stage import OFF, PROVIDER
from bench.suites import admission, burst, idle, memory, offload, reflection

NOT_RUN: Final = "not run"
_WIDTH: Final = 140
_MISSING: Final = "-"
_FILE: Final = "%Y-%m-%dT%H-%M-%S"
_MARKS: Final = {True: "[green]met[/]", False: "[red]not met[/]", None: f"[dim]{NOT_RUN}[/]"}


def keep(run: Run, folder: Path) -> Path:
    """Write the run as JSON into ``folder`` and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = dt.datetime.now(dt.UTC).strftime(_FILE)  # names a file
    file = folder / f"{stamp}.json"
    file.write_bytes(result.dump(run))
    return file


def show(run: Run, file: Path, console: Console | None = None) -> None:
    """Print tables of arms, of costs over size and of goals."""
    out = console or Console(width=None if sys.stdout.isatty() else _WIDTH)
    for table in [*tables(run.blocks), goal_table(run.goals)]:
        if table.row_count:
            out.print(table)
    for line in remarks(run):
        out.print(line, highlight=False)
    out.print(f"The whole result: {file}", highlight=False)
    for violation in run.violations:
        out.print(f"[red]void:[/] {violation}", highlight=False)


def tables(blocks: Sequence[Block]) -> Iterable[Table]:
    """Yield a table for each suite that compares arms; "system" is pyliqo or Liqo."""
    yield _paired(blocks)
    yield from (_arms(blocks, *each) for each in _OF_ARMS)
    for ms in burst.delays(blocks):
        title = f"Burst up to all pods Ready, {ms} ms of round trip further away"
        yield _arms(blocks, title, burst.far(burst.SUITE, ms), _BURST)
        title = f"Deletion of the burst, {ms} ms of round trip further away"
        yield _arms(blocks, title, burst.far(burst.DELETION, ms), _BURST)
    yield memory_table(blocks)
    yield cost_table(blocks)
    yield rest_table(blocks)


def remarks(run: Run) -> Iterable[str]:
    """Yield what the reader of the tables has to know of this run."""
    repetitions = {
        f"{block.suite} {size:,}": len(result.chosen(run.blocks, block.suite, block.arm, size))
        for block in run.blocks
        for size in [block.size]
    }
    yield "Repetitions: " + ", ".join(f"{name} x {count}" for name, count in repetitions.items())
    yield from (f"Left out for want of time: {line}" for line in run.settings.get("left_out", []))
    yield from slowest(run.blocks)
    off = [one.figures[OFF] for one in run.blocks if OFF in one.figures]
    if off:
        yield (
            f"The audit logs of {len(off)} blocks and apiserver_request_total differ by at most "
            f"{max(off):.2f} % for any verb and resource of pods and ShadowPods."
        )


def slowest(blocks: Sequence[Block]) -> Iterable[str]:
    """Yield where the time went of the slowest write of each verb that had to be reflected."""
    for arm in (arm for arm in reflection.ARMS if arm != reflection.BARE):
        of = result.chosen(blocks, reflection.SUITE, arm)
        for verb in phases.VERBS:
            ways = [(phases.way_of_slowest(block.figures, verb), block) for block in of]
            found = [(way, block) for way, block in ways if way is not None]
            if found:
                yield _slowest(verb, *max(found, key=lambda each: each[0].whole))


def _slowest(verb: str, way: Way, block: Block) -> str:
    syncs = block.figures.get(f"{reflection.SLOW_SYNCS}{PROVIDER}", 0.0)
    return (
        f"Slowest {verb} of {block.arm}, in repetition {block.repetition + 1}: {way.whole:.1f} ms, "
        f"{way.asked:.1f} of them until the provider was asked, {way.there:.1f} in its API server, "
        f"{way.told:.1f} until it was seen; {syncs:.0f} syncs of its etcd took more than 16 ms"
    )


def memory_table(blocks: Sequence[Block]) -> Table:
    """Return what each component keeps at rest, all its processes in both clusters together."""
    table = Table("component", "processes", "MiB", title="Memory at rest by component")
    for block in result.chosen(blocks, memory.SUITE, memory.ARM, 0):
        for name, values in sorted(block.series.items()):
            processes = block.figures.get(f"{memory.PROCESSES}{name}", 0.0)
            table.add_row(name, f"{processes:.0f}", f"{statistics.median(values):,.1f}")
    return table


def cost_table(blocks: Sequence[Block]) -> Table:
    """Return what a burst costs, fitted over its sizes."""
    table = Table("arm", "cost", "fixed", "for each pod", title="Cost over size")
    for arm in burst.ARMS:
        for name, line in costs.of_a_pod(blocks, arm).items():
            if line is not None and (line.fixed or line.slope):
                table.add_row(arm, name, f"{line.fixed:,.1f}", f"{line.slope:,.4g}")
    return table


def rest_table(blocks: Sequence[Block]) -> Table:
    """Return what a virtual node costs at rest, fitted over their number."""
    table = Table("cost", "fixed", "for each virtual node", title="Cost at rest over virtual nodes")
    for name, line in costs.of_a_virtual_node(blocks).items():
        if line is not None:
            table.add_row(name, f"{line.fixed:,.2f}", f"{line.slope:,.4g}")
    return table


def goal_table(found: Sequence[Goal]) -> Table:
    """Return the rows of the goals."""
    table = Table("row", "goal", "to reach", "found (lowest to highest)", "", title="Goals")
    for goal in found:
        value = "" if goal.is_met is None else goal.value
        table.add_row(str(goal.row), goal.goal, goal.target, value, _MARKS[goal.is_met])
    return table


_Cell: TypeAlias = Callable[[list[Block]], str]
_Columns: TypeAlias = Mapping[str, _Cell]


def _arms(blocks: Sequence[Block], title: str, suite: str, columns: _Columns) -> Table:
    table = Table("arm", "size", *columns, title=title)
    arms = dict.fromkeys(block.arm for block in blocks if block.suite == suite)
    for arm in arms:
        for size in result.sizes(blocks, suite, arm):
            of = result.chosen(blocks, suite, arm, size)
            cells = [cell(of) for cell in columns.values()]
            if set(cells) != {_MISSING}:  # a result of before has not all figures
                table.add_row(arm, f"{size:,}", *cells)
    return table


def _paired(blocks: Sequence[Block]) -> Table:
    """Return what each arm takes where all take turns, pod by pod."""
    table = Table("arm", "P50 ms", "P99 ms", "webhook ms", title="Pod creates by turns, 1 client")
    of = result.chosen(blocks, admission.SUITE, admission.PAIRED)
    for arm in admission.ARMS:
        if any(arm in block.times for block in of):
            cells = (_time(arm, 50), _time(arm, 99), _figure(f"histogram_ms_{arm}"))
            table.add_row(arm, *(cell(of) for cell in cells))
    return table


def _figure(name: str) -> _Cell:
    return lambda of: _told(result.figure(of, name))


def _time(name: str, percent: int) -> _Cell:
    return lambda of: _told(result.time(of, name, percent))


def _cpu(*components: str) -> _Cell:
    return lambda of: _told(result.cpu(of, *components))


def _each(value: Callable[[Block], float]) -> _Cell:
    return lambda of: _told(Spread(*_sorted3([value(block) for block in of])))


def _sorted3(values: list[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[0], ordered[-1]


def _requests_a_pod(block: Block) -> float:
    return sum(one.count for one in block.requests) / block.size


def _told(spread: Spread | None) -> str:
    if spread is None:
        return _MISSING
    return f"{spread.median:,.2f} [dim]{spread.low:,.2f}-{spread.high:,.2f}[/]"


_BURST: Final[_Columns] = {
    "seconds": _figure("burst_s"),
    "pods/s": _figure("pods_per_s"),
    "writes a pod": _each(lambda b: costs.writes(b) / b.size),
    "requests a pod": _each(_requests_a_pod),
    "CPU servers s": _cpu(*counters.SERVERS),
    "CPU system s": _cpu(*counters.SYSTEM),
}
_STATUS: Final[_Columns] = {"P50 ms": _time("return", 50), "P99 ms": _time("return", 99)}
_MEMORY: Final[_Columns] = {"MiB": _figure("pss_mib"), "peak": _figure("pss_peak_mib")}
_OF_ARMS: Final[Sequence[tuple[str, str, _Columns]]] = (
    ("Pod creates, 32 clients", admission.LOAD, {
        "creates/s": _figure("creates_per_s"),
        "P50 ms": _time("create", 50),
        "P99 ms": _time("create", 99),
        "CPU system s": _cpu(*counters.SYSTEM),
    }),
    ("Admission reviews replayed", admission.REVIEWS, {
        "reviews/s": _figure("reviews_per_s"),
        "P50 ms": _time("review", 50),
        "P99 ms": _time("review", 99),
    }),
    (f"Pod creates one by one, {slow.CLIENTS} slow clients", admission.SLOW, {
        "P50 ms": _time("create", 50),
        "P99 ms": _time("create", 99),
        "slow clients held": _figure("slow_clients"),
    }),
    ("One pod after another", offload.SUITE, {
        "offload P50 ms": _time("offload", 50),
        "P99 ms": _time("offload", 99),
        "ready P50 ms": _time("ready", 50),
    }),
    ("One pod after another, each with a ConfigMap and a Secret", offload.READING, {
        "offload P50 ms": _time("offload", 50),
        "P99 ms": _time("offload", 99),
        "ready P50 ms": _time("ready", 50),
    }),
    ("Status return", offload.STATUS, _STATUS),
    (f"Status return at {offload.PER_S}/s", offload.STATUS_LOAD, _STATUS),
    ("Burst up to all pods Ready", burst.SUITE, _BURST),
    ("Deletion of the burst", burst.DELETION, _BURST),
    ("Objects one by one", reflection.SUITE, {
        "create P50 ms": _time("create", 50),
        "update P50 ms": _time("update", 50),
        "delete P50 ms": _time("delete", 50),
        "create P99 ms": _time("create", 99),
        "drift P99 ms": _time("drift", 99),
    }),
    ("The way of a write to the provider", reflection.SUITE, {
        **{f"{verb} there P99 ms": _time(f"{verb}-there", 99) for verb in phases.VERBS},
        "update asked P99 ms": _time("update-asked", 99),
        "update told P99 ms": _time("update-told", 99),
        "slow syncs": _figure(f"{reflection.SLOW_SYNCS}{PROVIDER}"),
    }),
    ("Many objects at once", reflection.BULK, {
        "seconds": _figure("bulk_s"),
        "writes each": _each(lambda b: costs.writes(b) / b.size),
    }),
    ("Memory of the system's processes", memory.SUITE, _MEMORY),
    ("Memory over reflected ConfigMaps", memory.OBJECTS, _MEMORY),
    ("Soak: pods that come and go, growth after the first tenth", memory.SOAK, {
        "minutes": _each(lambda b: b.seconds / 60),
        "pods": _figure("pods"),
        "MiB": _figure("pss_mib"),
        **{
            f"{name} +%": _figure(f"growth_percent_{name}")
            for name in (memory.ALL, *counters.OURS)
        },
    }),
    ("At rest, by virtual nodes", idle.SUITE, {
        "virtual kubelets": _figure("virtual_nodes"),
        "MiB": _figure("pss_mib"),
        "CPU system s": _cpu(*counters.SYSTEM),
        "requests/s": _each(costs.requests_a_second),
    }),
)  # fmt: skip
"""What is compared: by title, suite and columns."""
