"""What a command says: data on stdout, progress on stderr; colour on a terminal only."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from apis.objects import Kind, Object
from kube import clock
from liqoctl.forge import tables
from liqoctl.forge.tables import one_line, printable
from liqoctl.options import Shown

if TYPE_CHECKING:
    from rich.text import Text

_STYLES: Final = {"INFO": "cyan", "WARN": "yellow"}


class Progress:
    """One line a step, on stderr; rich knows when colour is not wanted (``NO_COLOR``, a pipe)."""

    def __init__(self, *, verbose: bool = False) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._verbose = verbose

    def info(self, message: str) -> None:
        self._say("INFO", message)

    def warning(self, message: str) -> None:
        """Say that it went on, and that somebody should look."""
        self._say("WARN", message)

    def detail(self, message: str) -> None:
        """Say what only ``--verbose`` wants to know."""
        if self._verbose:
            self._say("INFO", message)

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show on a terminal, and nowhere else, that ``what`` is waited for."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(_text(f"waiting for {one_line(what)}")):
            yield

    def _say(self, prefix: str, message: str) -> None:
        self._console.print(_text((prefix, _STYLES[prefix]), "  ", one_line(message)))


def _text(*parts: str | tuple[str, str]) -> "Text":
    from rich.text import Text

    return Text.assemble(*parts)


def echo(text: str = "", *, ends_line: bool = True) -> None:
    """Print ``text`` on stdout, no matter who wrote it."""
    click.echo(printable(text), nl=ends_line)


def dump(objects: Iterable[Object], form: str, *, is_list: bool = False) -> None:
    """Print ``objects`` as ``yaml``, with ``---`` between documents, or as ``json``.

    In JSON several objects are a List, as kubectl prints them; one alone is too if ``is_list``.
    """
    found = list(objects)
    if form == "json":
        is_one = len(found) == 1 and not is_list
        shown = found[0] if is_one else {"apiVersion": "v1", "kind": "List", "items": found}
        echo(json.dumps(shown, indent=2))
        return
    for index, obj in enumerate(found):
        if index:
            echo("---")
        echo(as_yaml(obj, sort_keys=False), ends_line=False)


def as_yaml(value: Any, *, sort_keys: bool = True) -> str:
    import yaml

    return str(yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=sort_keys))


def show(kind: Kind, found: Sequence[Object], how: Shown, *, is_list: bool) -> None:
    if how.form in {"yaml", "json"}:
        dump(found, how.form, is_list=is_list)
        return
    if how.form == "name":  # as kubectl takes it
        for obj in found:
            echo(f"{kind}.{kind.group}/{obj['metadata']['name']}")
        return
    now = clock.now()
    rows = tables.rows(kind, found, now, is_wide=how.form == "wide", in_all=how.in_all)
    table(rows if how.has_head else rows[1:])


def plain(value: object) -> str:
    """Return one value as scripts read it: ``true``, not ``True``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def table(rows: Sequence[Sequence[str]], between: str = "   ") -> None:
    """Print ``rows`` in columns, the header first, as kubectl does; a cell is in one line."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        echo(between.join(padded).rstrip())
