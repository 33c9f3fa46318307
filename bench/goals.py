"""The table of goals: what each row found, and whether it was met in all repetitions; pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from bench import costs, figures, result
from bench.figures import Spread
from bench.result import Block, Goal
from bench.settings import DEFAULT
from bench.suites import admission, burst, idle, memory, offload, reflection

BURST: Final = 1000
"""Pods of the burst that rows 4, 5 and 9 speak of; without it the largest one is shown."""
GROWTH: Final = f"growth_percent_{memory.ALL}"
_LARGE: Final = 5000
_OBJECTS: Final = 5000
_MS: Final = 1000.0
_KIB: Final = 1024.0
_MEDIAN, _LATE = 50, 99
Blocks = Sequence[Block]


@dataclass(frozen=True)
class Found:
    """A figure that a goal is judged by, with what it is called in."""

    spread: Spread
    unit: str = ""

    def __str__(self) -> str:
        low, high = _short(self.spread.low), _short(self.spread.high)
        return f"{_short(self.spread.median)}{self.unit} ({low} to {high})"


def judge(blocks: Blocks) -> list[Goal]:
    """Return every row that this command judges, run or not."""
    size = _burst_size(blocks)
    return [
        *_admission(blocks), *_latency(blocks), *_burst(blocks, size), *_far(blocks, size),
        *_economy(blocks, size),
        *_status(blocks), *_reflection(blocks), *_memory(blocks), *_cpu(blocks, size),
        *_beside_liqo(blocks, size),
    ]  # fmt: skip


def _admission(blocks: Blocks) -> list[Goal]:
    loaded = result.chosen(blocks, admission.LOAD, "ours")
    cpu = [costs.system_s(block) / block.figures["creates"] * _MS for block in loaded]
    reviews = [
        block.figures["reviews"] / max(block.cpu_s.get("webhook", 0.0), 1e-3)
        for block in result.chosen(blocks, admission.REVIEWS, "ours", admission.REVIEW_BYTES[0])
    ]
    native = "const-patch"
    paired = _all_paired(blocks, "ours", native)
    added = [_added(block, "ours") / max(_added(block, native), 1e-6) for block in paired]
    rates = _rates(blocks, "ours", native)
    return [
        *_bystanders(blocks),
        _most(1, "added P50 of a pod create, over const-patch", 1.5, added, "x"),
        _least(1, "creates/s at 32 clients, over const-patch", 0.8, rates, "x"),
        _most(1, "CPU of our processes a create", 1.2, cpu, " ms"),
        _least(2, "reviews of 5 kB per CPU-second of the webhook", 2200, reviews),
    ]


def _bystanders(blocks: Blocks) -> list[Goal]:
    """Return what pods pay of a namespace that nobody offloads."""
    plain = admission.PLAIN
    added = [_added(block, plain) for block in _all_paired(blocks, plain)]
    calls = [
        block.figures["webhook_calls"] for block in result.chosen(blocks, admission.LOAD, plain)
    ]
    return [
        _most(1, "bystanders: calls of our webhooks", 0, calls),
        _most(1, "bystanders: added P50 of a pod create", 0.3, added, " ms"),
        _least(1, "bystanders: creates/s at 32 clients, over bare", 0.97,
               _rates(blocks, plain, "bare"), "x"),
    ]  # fmt: skip


def _all_paired(blocks: Blocks, *chosen: str) -> list[Block]:
    paired = result.chosen(blocks, admission.SUITE, admission.PAIRED)
    return [block for block in paired if {"bare", *chosen} <= block.times.keys()]


def _rates(blocks: Blocks, ours: str, other: str) -> list[float]:
    return _ratios(
        result.chosen(blocks, admission.LOAD, ours), result.chosen(blocks, admission.LOAD, other),
        lambda block: block.figures["creates_per_s"],
    )  # fmt: skip


def _latency(blocks: Blocks) -> list[Goal]:
    ours = _timed(blocks, offload.SUITE, "ours", "offload")
    ideal = _timed(blocks, offload.SUITE, "ideal", "offload")
    ratios = _ratios(ours, ideal, _time("offload", _MEDIAN))
    late = [_time("offload", _LATE)(block) for block in ours]
    return [
        _most(3, "offload latency P50, over ideal", 1.4, ratios, "x"),
        _most(3, "offload latency P99", 40, late, " ms"),
    ]


def _burst(blocks: Blocks, size: int) -> list[Goal]:
    def ratios(of: int) -> list[float]:
        return _ratios(
            result.chosen(blocks, burst.SUITE, "ours", of),
            result.chosen(blocks, burst.SUITE, "ideal", of),
            lambda block: block.figures["burst_s"],
        )

    return [
        _most(4, f"burst of {size} pods, over ideal", 1.3, ratios(size), "x"),
        _most(4, f"burst of {_LARGE} pods, over ideal", 1.4, ratios(_LARGE), "x"),
    ]


def _far(blocks: Blocks, size: int) -> list[Goal]:
    """Return what the distance between the clusters costs, where it was asked for."""
    near = result.chosen(blocks, burst.SUITE, "ours", size)
    return [
        _most(
            4, f"burst of {size} pods {ms} ms of round trip further away, over without", 1.3,
            _ratios(
                result.chosen(blocks, burst.far(burst.SUITE, ms), "ours", size), near,
                lambda block: block.figures["burst_s"],
            ), "x",
        )
        for ms in burst.delays(blocks)
    ]  # fmt: skip


def _economy(blocks: Blocks, size: int) -> list[Goal]:
    made = result.chosen(blocks, burst.SUITE, "ours", size)
    deleted = result.chosen(blocks, burst.DELETION, "ours", size)
    resting = result.chosen(blocks, idle.SUITE, idle.ARM)
    ours = [block for block in blocks if block.arm == "ours"]
    return [
        _most(5, "writes of ours a pod up to Running, Events included", 5,
              [costs.writes(block) / block.size for block in made]),
        _most(5, "writes of ours to delete a pod", 2.1,
              [costs.writes(block) / block.size for block in deleted]),
        _most(5, "writes that change nothing", 0, [float(len(block.no_ops)) for block in ours]),
        _most(5, "LISTs in steady state", 0, [float(costs.lists(block)) for block in resting]),
    ]  # fmt: skip


def _status(blocks: Blocks) -> list[Goal]:
    ours = _timed(blocks, offload.STATUS, "ours", "return")
    ideal = _timed(blocks, offload.STATUS, "ideal", "return")
    ratios = _ratios(ours, ideal, _time("return", _MEDIAN))
    loaded = _timed(blocks, offload.STATUS_LOAD, "ours", "return")
    return [
        _most(6, "status return P50, over ideal", 1.5, ratios, "x"),
        _most(6, "status return P99", 40, [_time("return", _LATE)(block) for block in ours], " ms"),
        _most(6, f"status return P99 at {offload.PER_S} changes/s", 300,
              [_time("return", _LATE)(block) for block in loaded], " ms"),
    ]  # fmt: skip


def _reflection(blocks: Blocks) -> list[Goal]:
    ours = _timed(blocks, reflection.SUITE, "ours", "create")
    bare = _timed(blocks, reflection.SUITE, "bare", "create")
    over = [
        _time(verb, _LATE)(mine) - 2 * _time(f"{verb}-write", _LATE)(theirs)
        for mine, theirs in _pairs(ours, bare)
        for verb in ("create", "update", "delete")
    ]
    bulk = result.chosen(blocks, reflection.BULK, "ours")
    ratios = _ratios(
        bulk, result.chosen(blocks, reflection.BULK, "bare"), lambda block: block.figures["bulk_s"]
    )
    drifts = [block.times["drift"][_LATE] for block in ours if "drift" in block.times]
    each = [costs.writes(block) / block.size for block in bulk]
    return [
        _most(7, "reflection P99 beyond twice a bare remote write", 10, over, " ms"),
        _most(7, "many objects at once, over bare creates", 1.3, ratios, "x"),
        _most(7, "repair of drift P99", _MS, drifts, " ms"),
        _most(7, "writes of ours a reflected object", 1, each),
    ]


def _memory(blocks: Blocks) -> list[Goal]:
    of_suite = result.chosen(blocks, memory.SUITE, memory.ARM)
    resting = [block.figures["pss_mib"] for block in of_suite if block.size == 0]
    line = figures.fit([(block.size, block.figures["pss_mib"]) for block in of_suite])
    slopes = [line.slope * _KIB] if line else []
    kept = result.chosen(blocks, memory.OBJECTS, memory.ARM)
    of_objects = figures.fit([(block.size, block.figures["pss_mib"]) for block in kept])
    added = [of_objects.slope * _OBJECTS] if of_objects else []
    growth = [
        block.figures[GROWTH]
        for block in result.chosen(blocks, memory.SOAK, memory.ARM)
        if GROWTH in block.figures
    ]
    return [
        _most(8, "PSS of all our processes at rest", 160, resting, " MiB"),
        _most(8, "PSS a pod", 8, slopes, " KiB"),
        _most(8, f"PSS of {_OBJECTS} reflected ConfigMaps, scaled", 60, added, " MiB"),
        _most(8, "growth in a soak after the first 10 %", 2, growth, " %"),
    ]


def _cpu(blocks: Blocks, size: int) -> list[Goal]:
    ours = result.chosen(blocks, burst.SUITE, "ours", size)
    servers = _ratios(ours, result.chosen(blocks, burst.SUITE, "ideal", size), costs.servers_s)
    resting = result.chosen(blocks, idle.SUITE, idle.ARM)
    core = [costs.system_s(block) / block.seconds * 100 for block in resting]
    rate = [
        costs.requests_a_second(block) / max(block.figures.get("virtual_nodes", 1.0), 1.0)
        for block in resting
    ]
    per_thousand = [costs.system_s(block) * BURST / block.size for block in ours]
    return [
        _most(9, "CPU of our processes per 1,000 pods", 13, per_thousand, " s"),
        _most(9, "CPU of API servers and etcds, over ideal", 1.4, servers, "x"),
        _most(9, "CPU of our processes at rest", 1, core, " % of a core"),
        _most(9, "requests of ours at rest a virtual node", 0.5, rate, "/s"),
    ]


def _beside_liqo(blocks: Blocks, size: int) -> list[Goal]:
    """Return the comparisons with Liqo as it is by default; its other arm is in the tables."""

    def of(suite: str, arm: str) -> list[Block]:
        return result.chosen(blocks, suite, arm, size)

    pairs = [
        (paired, other)
        for paired, other in _pairs(
            result.chosen(blocks, admission.SUITE, admission.paired("ours")),
            result.chosen(blocks, admission.SUITE, admission.paired(DEFAULT)),
        )
        if {"bare", "ours"} <= paired.times.keys() and {"bare", DEFAULT} <= other.times.keys()
    ]
    added = [_added(one, "ours") / max(_added(other, DEFAULT), 1e-6) for one, other in pairs]
    latency = _ratios(
        _timed(blocks, offload.SUITE, "ours", "offload"),
        _timed(blocks, offload.SUITE, DEFAULT, "offload"),
        _time("offload", _MEDIAN),
    )
    burst_s = _ratios(
        of(burst.SUITE, "ours"), of(burst.SUITE, DEFAULT), lambda block: block.figures["burst_s"]
    )
    memory_of = _ratios(
        of(memory.SUITE, "ours"), of(memory.SUITE, DEFAULT), lambda block: block.figures["pss_mib"]
    )
    cpu = _ratios(of(burst.SUITE, "ours"), of(burst.SUITE, DEFAULT), costs.system_s)
    return [
        _most(1, "added P50 of a pod create, over Liqo", 0.4, added, "x"),
        _most(3, "offload latency P50, over Liqo", 0.6, latency, "x"),
        _most(4, f"burst of {size} pods, over Liqo", 0.25, burst_s, "x"),
        _most(8, f"PSS at {size} pods, over Liqo", 0.5, memory_of, "x"),
        _most(9, f"CPU of the system for {size} pods, over Liqo", 0.4, cpu, "x"),
    ]


def _most(row: int, goal: str, limit: float, values: Sequence[float], unit: str = "") -> Goal:
    target = f"<= {_short(limit)}{unit}"
    if not values:
        return Goal(row, goal, target)
    found = figures.spread(values)
    return Goal(row, goal, target, str(Found(found, unit)), found.high <= limit)


def _least(row: int, goal: str, limit: float, values: Sequence[float], unit: str = "") -> Goal:
    target = f">= {_short(limit)}{unit}"
    if not values:
        return Goal(row, goal, target)
    found = figures.spread(values)
    return Goal(row, goal, target, str(Found(found, unit)), found.low >= limit)


def _ratios(
    ours: Iterable[Block], theirs: Iterable[Block], of: Callable[[Block], float]
) -> list[float]:
    """Return the ratio in each repetition that both have."""
    return [of(mine) / other for mine, its in _pairs(ours, theirs) if (other := of(its))]


def _pairs(ours: Iterable[Block], theirs: Iterable[Block]) -> list[tuple[Block, Block]]:
    other = {block.repetition: block for block in theirs}
    return [(mine, other[mine.repetition]) for mine in ours if mine.repetition in other]


def _timed(blocks: Blocks, suite: str, arm: str, name: str) -> list[Block]:
    return [block for block in result.chosen(blocks, suite, arm) if block.times.get(name)]


def _time(name: str, percent: int) -> Callable[[Block], float]:
    return lambda block: figures.at(block.times.get(name, []), percent)


def _added(block: Block, arm: str) -> float:
    return block.times[arm][_MEDIAN] - block.times["bare"][_MEDIAN]


def _burst_size(blocks: Blocks) -> int:
    sizes = result.sizes(blocks, burst.SUITE, "ours")
    return BURST if BURST in sizes or not sizes else max(sizes)


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < _MS else f"{value:,.0f}"
