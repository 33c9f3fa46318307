"""What the command line asks for: suites, arms, sizes; the defaults take half an hour."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.plan import SHARES

SUITES: Final = tuple(SHARES)
DEFAULT: Final = "liqo-default"
"""Liqo's own binaries with the limits that their API clients have by default."""
UNLIMITED: Final = "liqo-unlimited"
LIQO: Final = (DEFAULT, UNLIMITED)
OWN: Final = (
    "vanilla", "bare", "const", "const-patch", "const-python", "plain", "floor", "ideal", "ours",
)  # fmt: skip
"""The arms that need nothing besides this tree."""
ARMS: Final = (*OWN, *LIQO)
LIQO_VARIABLE: Final = "PYLIQO_BENCH_LIQO_BIN"
"""Names the folder of Liqo's binaries; without it its arms are skipped."""
BLOCK_S: Final = 60.0
"""The longest that a block of load for a fixed time lasts."""
_REPETITIONS: Final = 5


@dataclass(frozen=True)
class Settings:
    """One run."""

    suites: tuple[str, ...] = SUITES
    arms: tuple[str, ...] = OWN
    sizes: tuple[int, ...] = (100, 1000)
    repetitions: int = _REPETITIONS
    virtual_nodes: tuple[int, ...] = (1, 10)
    soak_min: float = 2.0
    minutes: float = 32.0
    """After what no further repetition begins; each suite has its share."""
    output: Path = Path("bench/results")
    creates: int = 60
    """Pods of a block in which one follows another."""
    load_s: float = 8.0
    """Length of a block of steady load."""
    rest_s: float = 60.0
    """How long an idle system is watched."""
    objects: int = 100
    """ConfigMaps, and as many Secrets, of a block of reflection; a fifth as many Services."""

    kept: int = 1000
    """Reflected ConfigMaps of the suite memory."""

    delays: tuple[int, ...] = ()
    """Milliseconds of round trip between the clusters that bursts are repeated with."""

    install: bool = True
    """Whether the arm ``ours`` is this tree, installed anew where it changed."""
    liqo: Path | None = None
    """The folder of Liqo's binaries."""

    def has(self, arm: str) -> bool:
        """Whether ``arm`` is to be run."""
        return arm in self.arms

    @property
    def liqo_arms(self) -> tuple[str, ...]:
        """The arms that are Liqo's own binaries."""
        return tuple(arm for arm in LIQO if self.has(arm))


QUICK: Final = Settings(
    sizes=(20, 50), repetitions=2, creates=15, load_s=4.0, rest_s=15.0, objects=20,
    virtual_nodes=(1, 2), soak_min=1.0, kept=100,
)  # fmt: skip


def parse(argv: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return what ``argv`` asks for; what it leaves out is as usual, or as in a quick run.

    Liqo's arms are left out where ``environment`` does not say where its binaries are.
    """
    given = _parser().parse_args(argv)
    base = QUICK if given.quick else Settings()
    said = {
        name: value
        for name, value in vars(given).items()
        if name != "quick" and value is not None and value != []
    }
    if "suites" in said:
        said["suites"] = tuple(name for name in SUITES if name in said["suites"])
    folder = environment.get(LIQO_VARIABLE)
    possible = ARMS if folder else OWN
    said["arms"] = tuple(arm for arm in said.get("arms", possible) if arm in possible)
    return replace(base, **said, liqo=Path(folder).absolute() if folder else None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure pyliqo on two clusters of this machine. "
        "`python -m bench check` compares counts with bench/expectations.json instead.",
    )
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], metavar="SUITE",
                        help=f"of {', '.join(SUITES)} (default: all)")  # fmt: skip
    parser.add_argument("--arms", type=_words, help=f"of {','.join(ARMS)} (default: all)")
    parser.add_argument("--sizes", type=_numbers, help="pods of a burst (default: 100,1000)")
    parser.add_argument("--repetitions", type=int, help=f"default: {_REPETITIONS}")
    parser.add_argument("--delay", dest="delays", type=_numbers, metavar="MS",
                        help="bursts once more, with so much round trip added, such as 50 or "
                        "50,150")  # fmt: skip
    parser.add_argument("--virtual-nodes", type=_numbers, help="of the suite idle (default: 1,10)")
    parser.add_argument("--soak", dest="soak_min", type=float, metavar="MINUTES",
                        help="of churn in the suite memory (default: 2; 0: none)")  # fmt: skip
    parser.add_argument("--load-seconds", dest="load_s", type=_seconds, metavar="SECONDS",
                        help="a block of steady load (default: 8)")  # fmt: skip
    parser.add_argument("--objects", type=int, help="ConfigMaps of a block (default: 100)")
    parser.add_argument("--minutes", type=float,
                        help="when no further repetition begins (default: 32)")  # fmt: skip
    parser.add_argument("--kept", type=int, help="of the suite memory (default: 1000)")
    parser.add_argument("--output", type=Path, help="folder of JSON and plots")
    parser.add_argument("--no-install", dest="install", action="store_false", default=None,
                        help="measure the pyliqo that is installed, not this tree's")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a few minutes: small and few blocks")
    return parser


def _words(text: str) -> tuple[str, ...]:
    wanted = text.split(",")
    unknown = [word for word in wanted if word not in ARMS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no arm is called {', '.join(unknown)}")
    return tuple(arm for arm in ARMS if arm in wanted)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(word) for word in text.split(",")}))


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= BLOCK_S:
        raise argparse.ArgumentTypeError(f"a block lasts between 0 and {BLOCK_S:.0f} s")
    return seconds
