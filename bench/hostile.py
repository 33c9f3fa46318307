"""``python -m bench hostile``: how large a consumer grows while its provider attacks it."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

_TEST: Final = "tests/peering/test_under_attack.py"
_ROOT: Final = Path(__file__).parent.parent


def main(argv: Sequence[str]) -> int:
    """Run each attack and print a table; return 0 if no process grew too much."""
    parser = argparse.ArgumentParser(
        prog="python -m bench hostile",
        description="Attack a consumer of 20 namespaces and 200 pods by what its provider says.",
    )
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="of each attack (default: 600)"
    )
    seconds = parser.parse_args(argv).seconds
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        report.touch()
        own = {"PYLIQO_TEST_ATTACK_S": str(seconds), "PYLIQO_TEST_ATTACK_REPORT": str(report)}
        command = (sys.executable, "-m", "pytest", "-q", _TEST)
        done = subprocess.run(command, check=False, cwd=_ROOT, env={**os.environ, **own})
        lines = report.read_text(encoding="utf-8").splitlines()
        sys.stdout.write(table(map(json.loads, lines)))
    return done.returncode


def table(attacks: Iterable[dict[str, Any]]) -> str:
    """Return a table of resident MiB, before and at most: a row an attack.

    Beside is how long an honest peer waits meanwhile for a namespace that is offloaded to it.

    Shape: ``attacks`` as ``tests/peering/test_under_attack.py`` reports them.
    """
    rows = list(attacks)
    names = list(rows[0]["usual_mib"]) if rows else []
    head = ["attack", "seconds", "lies", "beside, s", *names]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        sizes = [f"{row['usual_mib'][name]:.0f} -> {row['most_mib'][name]:.0f}" for name in names]
        beside = " -> ".join(map(str, row["beside_s"]))
        counts = [f"{row['seconds']:.0f}", str(row["lies"]), beside]
        lines.append([row["attack"], *counts, *sizes])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
