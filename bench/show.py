"""``python -m bench show FILE``: tells a kept result again, as tables, as Markdown, as plots."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from rich.table import Table
from rich.text import Text

from bench import goals, plots, report, result
from bench.result import Run

_BEGIN: Final = "<!-- figures of {}: written by `python -m bench show` -->"
_END: Final = "<!-- end of figures -->"
_SAID: Final = ("suites", "sizes", "repetitions", "virtual_nodes", "soak_min", "minutes", "fsync",
                "fsync_p99_ms", "took")  # fmt: skip


def markdown(run: Run, pictures: Sequence[str] = ()) -> str:
    """Return how ``run`` came about, its ``pictures`` and its tables, for a document; pure."""
    judged = [goal for goal in run.goals if goal.is_met is not None]
    found = [*report.tables(run.blocks), report.goal_table(judged)]
    parts = [
        _items([*circumstances(run), *report.remarks(run)]),
        "\n".join(f"![{Path(name).stem}]({name})" for name in pictures),
        *(_table(table) for table in found if table.row_count),
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def circumstances(run: Run) -> list[str]:
    """Return on what, of what and how ``run`` was measured; pure."""
    machine, said = run.machine, run.settings
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    checks = f"{len(run.violations)} broken: the run is void" if run.violations else "none broken"
    chosen = ", ".join(f"{name} {said[name]}" for name in _SAID if name in said)
    load = f"{said.get('load_before')} before and {said.get('load_after', 'unknown')} after"
    computer = ", ".join(str(machine.get(name)) for name in ("cpu", "cores", "memory", "kernel"))
    return [
        f"Machine (CPU, cores, memory, Linux): {computer}; load average {load}",
        f"Versions: {versions}",
        f"Settings: {chosen}",
        f"Correctness checks over {len(run.blocks)} blocks: {checks}",
    ]


def _items(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def written(document: str, name: str, text: str) -> str:
    """Return ``document`` with ``text`` between the marks of the result ``name``; pure.

    Raises:
        ValueError: it has no such marks.
    """
    mark = _BEGIN.format(name)
    before, begin, rest = document.partition(mark)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"the document lacks {mark} and {_END}")
    return f"{before}{begin}\n\n{text}\n{end}{after}"


def _table(table: Table) -> str:
    columns = [[str(column.header), *map(_plain, column.cells)] for column in table.columns]
    head, *rows = zip(*columns, strict=True)
    lines = [_row(head), _row(["---"] * len(head)), *map(_row, rows)]
    return f"### {table.title}\n\n" + "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(cell: object) -> str:
    return Text.from_markup(str(cell)).plain


def main(argv: Sequence[str]) -> int:
    """Tell the result, judged anew by the goals of today."""
    parser = argparse.ArgumentParser(prog="python -m bench show", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--markdown", action="store_true", help="for a document")
    parser.add_argument(
        "--into", type=Path, metavar="DOCUMENT", help="write them between its marks"
    )
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw them there")
    given = parser.parse_args(argv)
    kept = result.load(given.file.read_bytes())
    run = Run(kept.machine, kept.versions, kept.settings, kept.blocks, goals.judge(kept.blocks))
    drawn = plots.draw(run, given.plots) if given.plots else []
    if given.into:
        names = [os.path.relpath(file, given.into.parent) for file in drawn]
        document = given.into.read_text(encoding="utf-8")
        text = written(document, given.file.stem, markdown(run, names))
        given.into.write_text(text, encoding="utf-8")
    elif given.markdown:
        sys.stdout.write(markdown(run))
    else:
        report.show(run, given.file)
    return 0
