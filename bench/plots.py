"""The pictures of a run: latency distributions, burst curves, memory over pods; SVG."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import result
from bench.counters import OURS
from bench.result import Block, Run
from bench.suites import burst, idle, memory, offload

PERCENT: Final = range(101)
_COLOURS: Final = {
    "vanilla": "0.6", "bare": "0.6", "const": "tab:green", "floor": "tab:olive",
    "ideal": "tab:blue", "ours": "tab:red", "liqo-default": "tab:purple",
    "liqo-unlimited": "tab:brown",
}  # fmt: skip
_SIZE: Final = (6.4, 3.6)
_SETTINGS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pyliqo",
    "font.size": 9,
}
_S: Final = 1000.0


def draw(run: Run, folder: Path) -> list[Path]:
    """Draw what the run has figures for into ``folder``; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, draws in _PLOTS.items():
        with mpl.rc_context(_SETTINGS):
            figure = Figure(figsize=_SIZE, layout="constrained")
            axes = figure.subplots()
            draws(axes, run.blocks)
            if axes.has_data():
                file = folder / f"{name}.svg"
                _save(figure, file)
                drawn.append(file)
    return drawn


def _save(figure: Figure, file: Path) -> None:
    figure.axes[0].grid(visible=True, alpha=0.3)
    figure.axes[0].legend(frameon=False)
    figure.savefig(file, metadata={"Date": None})


def _latencies(axes: Axes, blocks: Sequence[Block]) -> None:
    _distributions(axes, blocks, offload.SUITE, "offload")
    axes.set(title="From bound to remote pod, one pod after another")


def _status(axes: Axes, blocks: Sequence[Block]) -> None:
    _distributions(axes, blocks, offload.STATUS, "return")
    axes.set(title="From remote status written to local status seen")


def _distributions(axes: Axes, blocks: Sequence[Block], suite: str, name: str) -> None:
    for arm, colour in _COLOURS.items():
        for number, block in enumerate(result.chosen(blocks, suite, arm)):
            if block.times.get(name):
                label = arm if number == 0 else None
                axes.plot(block.times[name], PERCENT, color=colour, label=label, lw=1)
    axes.set(xlabel="ms", ylabel="percent of pods", xscale="log")


def _bursts(axes: Axes, blocks: Sequence[Block]) -> None:
    largest = max((block.size for block in blocks if block.suite == burst.SUITE), default=0)
    for arm, colour in _COLOURS.items():
        for number, block in enumerate(result.chosen(blocks, burst.SUITE, arm, largest)):
            seconds = [ms / _S for ms in block.times["ready"]]
            pods = [percent / 100 * largest for percent in PERCENT]
            label = arm if number == 0 else None
            axes.plot(seconds, pods, color=colour, label=label, lw=1)
    axes.set(xlabel="s after the first create", ylabel="pods ready", title=f"{largest:,} pods")


def _memory(axes: Axes, blocks: Sequence[Block]) -> None:
    of_suite = sorted(result.chosen(blocks, memory.SUITE, memory.ARM), key=lambda block: block.size)
    names = sorted({name for block in of_suite for name in block.pss_mib} & set(OURS))
    for name in names:
        axes.plot(
            [block.size for block in of_suite],
            [block.pss_mib.get(name, 0.0) for block in of_suite],
            marker="o", label=name,
        )  # fmt: skip
    axes.set(xlabel="pods", ylabel="PSS, MiB", title="Memory of our processes", ylim=(0, None))


def _soak(axes: Axes, blocks: Sequence[Block]) -> None:
    for block in result.chosen(blocks, memory.SOAK, memory.ARM):
        for name, values in block.series.items():
            minutes = [number * block.seconds / len(values) / 60 for number in range(len(values))]
            axes.plot(minutes, values, label=name, lw=1)
    axes.set(xlabel="minutes", ylabel="PSS, MiB", title="Pods that come and go", ylim=(0, None))


def _rest(axes: Axes, blocks: Sequence[Block]) -> None:
    of_suite = result.chosen(blocks, idle.SUITE, idle.ARM)
    nodes = [block.figures["virtual_nodes"] for block in of_suite]
    for name in sorted({name for block in of_suite for name in block.series}):
        levels = [statistics.median(block.series.get(name, [0.0])) for block in of_suite]
        axes.plot(nodes, levels, marker="o", label=name)
    axes.set(xlabel="virtual nodes", ylabel="PSS, MiB", title="At rest", ylim=(0, None))


_PLOTS: Final[dict[str, Callable[[Axes, Sequence[Block]], None]]] = {
    "offload": _latencies,
    "status": _status,
    "burst": _bursts,
    "memory": _memory,
    "soak": _soak,
    "idle": _rest,
}
