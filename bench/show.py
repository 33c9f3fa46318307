"""``python -m bench show FILE``: tells a kept result again, as tables, as Markdown, as plots."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from bench import goals, plots, report, result
from bench.result import Run


def markdown(run: Run) -> str:
    """Return the tables of ``run`` for a document; pure."""
    found = [
        *report.tables(run.blocks),
        report.cost_table(run.blocks),
        report.goal_table(run.goals),
    ]
    return "\n".join(_table(table) for table in found if table.row_count)


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
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw them there")
    given = parser.parse_args(argv)
    kept = result.load(given.file.read_bytes())
    run = Run(kept.machine, kept.versions, kept.settings, kept.blocks, goals.judge(kept.blocks))
    if given.plots:
        plots.draw(run, given.plots)
    if given.markdown:
        sys.stdout.write(markdown(run))
    else:
        report.show(run, given.file)
    return 0
