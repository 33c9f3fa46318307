"""What a run leaves: blocks with their counters, the machine, the goals. JSON in and out; pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bench import figures
from bench.figures import Spread


class Request(msgspec.Struct, array_like=True, frozen=True):
    """How often an agent asked a cluster for something, in one block; an array in JSON."""

    cluster: str
    agent: str
    verb: str
    resource: str
    count: int


@dataclass(frozen=True)
class Block:
    """One arm doing one thing once.

    Units: ``times`` are milliseconds, percentiles 0 to 100; ``cpu_s`` seconds, ``pss_mib`` MiB at
    the end and ``wire`` bytes, each by component or interface.
    """

    suite: str
    arm: str
    repetition: int
    size: int
    seconds: float = 0.0
    times: dict[str, list[float]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    series: dict[str, list[float]] = field(default_factory=dict)
    """What was sampled at equal distances over the block."""
    requests: list[Request] = field(default_factory=list)
    cpu_s: dict[str, float] = field(default_factory=dict)
    pss_mib: dict[str, float] = field(default_factory=dict)
    wire: dict[str, float] = field(default_factory=dict)
    no_ops: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Goal:
    """A row of the table of goals; ``is_met`` is None where it was not run."""

    row: int
    goal: str
    target: str
    value: str = "not run"
    is_met: bool | None = None


@dataclass(frozen=True)
class Run:
    """Everything that one call of the command measured."""

    machine: dict[str, Any]
    versions: dict[str, str]
    settings: dict[str, Any]
    blocks: list[Block] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)

    @property
    def violations(self) -> list[str]:
        """What was not right; a run with any is void."""
        return [
            f"{block.suite}, {block.arm}, size {block.size}, repetition {block.repetition}: {what}"
            for block in self.blocks
            for what in block.violations
        ]


def dump(run: Run) -> bytes:
    """Return ``run`` as JSON, one block a line, so that a diff can be read."""
    whole = msgspec.to_builtins(run)
    blocks = [msgspec.json.encode(block).decode() for block in whole.pop("blocks")]
    head = msgspec.json.format(msgspec.json.encode(whole), indent=1).decode().rstrip()
    listed = ",\n  ".join(blocks)
    return f'{head.removesuffix("}").rstrip()},\n "blocks": [\n  {listed}\n ]\n}}\n'.encode()


def load(text: bytes) -> Run:
    """Return the run that ``dump`` wrote.

    Raises:
        msgspec.DecodeError: it is no such JSON.
    """
    return msgspec.json.decode(text, type=Run)


def chosen(blocks: Iterable[Block], suite: str, arm: str, size: int | None = None) -> list[Block]:
    """Return the repetitions of an arm, of one size or of all."""
    return [
        block
        for block in blocks
        if (block.suite, block.arm) == (suite, arm) and size in (None, block.size)
    ]


def sizes(blocks: Iterable[Block], suite: str, arm: str) -> list[int]:
    """Return the sizes that an arm was run with."""
    return sorted({block.size for block in chosen(blocks, suite, arm)})


def figure(blocks: Iterable[Block], name: str) -> Spread | None:
    """Return a figure over the blocks that have it."""
    values = [block.figures[name] for block in blocks if name in block.figures]
    return figures.spread(values) if values else None


def time(blocks: Iterable[Block], name: str, percent: int) -> Spread | None:
    """Return a percentile of a time, in milliseconds, over the blocks that have it."""
    values = [kept[percent] for block in blocks if (kept := block.times.get(name))]
    return figures.spread(values) if values else None


def cpu(blocks: Iterable[Block], *components: str) -> Spread | None:
    """Return the CPU-seconds of ``components`` together."""
    values = [sum(block.cpu_s.get(name, 0.0) for name in components) for block in blocks]
    return figures.spread(values) if values else None
