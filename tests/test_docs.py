"""What the documents name is there: files, commands, flags of commands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from liqoctl.__main__ import cli

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = sorted(
    [
        ROOT / "README.md",
        *(ROOT / "docs/runbooks").glob("*.md"),
        *(
            ROOT / f"docs/{name}.md"
            for name in ("faq", "glossary", "installing", "managed-clusters", "metrics",
                         "troubleshooting", "values")
        ),
    ]
)  # fmt: skip


def quoted(text: str) -> Iterator[str]:
    for found in re.finditer(r"`([^`\n]+)`|^ *(liqoctl [^#\n]*)", text, re.MULTILINE):
        yield (found[1] or found[2]).strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_it_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in quoted(text):
        if re.fullmatch(r"(docs|manifests|charts)/[\w./-]+", name):
            assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_it_names_are_there_with_their_flags(page: Path) -> None:
    for line in quoted(page.read_text(encoding="utf-8")):
        if line.startswith("liqoctl "):
            command: click.Command = cli
            rest = shlex.split(line.partition("|")[0], comments=True)[1:]
            while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
                found = command.get_command(click.Context(command), rest[0])
                if found is None and command.invoke_without_command:
                    break
                assert found is not None, line
                command, rest = found, rest[1:]
            flags = {name for each in command.params for name in each.opts}
            for word in rest:
                if word.startswith("-") and word != "-":
                    assert word.partition("=")[0] in flags, line


def test_lines_of_prose_are_not_too_long() -> None:
    for page in PAGES:
        if page.name != "README.md":
            lines = page.read_text(encoding="utf-8").splitlines()
            assert not [line for line in lines if len(line) > 140 and line[0] not in "|`#"], page
