"""What the documents name is there: files, commands, flags of commands."""

import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from apis import allowlist, nodeselector, podaffinity, providerpolicy
from certs import listener, requests
from kube import kubeconfig, slim
from kube.untrusted import decode, schemas
from kubelet import namespaces
from kubelet.api import usage
from kubelet.pods import apiserver
from liqoctl.options import cli
from reflector import informers
from webhook import app, worker
from webhook.rules import namespaceoffloadings, pods

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

ALL: Final = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
CODE: Final = "(?:apis|certs|controllers|kube|kubelet|liqoctl|reflector|sandbox|tests|webhook)"


def quoted(text: str) -> Iterator[str]:
    for found in re.finditer(r"`([^`\n]+)`|^ *(liqoctl [^#\n]*)", text, re.MULTILINE):
        yield (found[1] or found[2]).strip()


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


def is_in_tree(name: str) -> bool:
    if "/" in name:
        return any(ROOT.glob(name)) or ROOT.joinpath(f"{name}.py").exists()
    return any(ROOT.rglob(name)) if name.endswith(".py") else bool(pkgutil.resolve_name(name))


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_code_that_it_names_are_there(page: Path) -> None:
    dotted = "" if page.name == "values.md" else rf"|{CODE}(?:\.\w+)+"  # its keys look the same
    path = rf"(?:{CODE}|bench|charts|docs|manifests)/[\w./*-]+"
    named = re.findall(rf"`({path}|\w+\.py{dotted})(?:::\w+|\(\))?`", page.read_text("utf-8"))
    assert [name for name in named if not is_in_tree(name)] == []


def test_the_index_leads_to_each_page() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/guides").glob("*.md")]
    names = {str(page.relative_to(ROOT / "docs")) for page in pages} - {"README.md"}
    assert sorted(name for name in names if f"({name})" not in index) == []


def test_lines_of_prose_are_not_too_long() -> None:
    for page in PAGES:
        if page.name != "README.md":
            lines = page.read_text(encoding="utf-8").splitlines()
            assert not [line for line in lines if len(line) > 140 and line[0] not in "|`#"], page


BOUNDS: Final = {
    "items of a list": (schemas.MOST,),
    "objects and lists inside": (decode.MAX_PARTS,),
    "bytes of the metrics of its pods": (usage.MOST_BYTES,),
    "samples of metrics": (usage.MOST_OF_CONTAINER, usage.MOST_OF_POD),
    "what the virtual kubelet keeps": (namespaces.MOST_BYTES,),
    "what the reflector keeps": (informers.MOST_BYTES, slim.KEPT_WHOLE),
    "ResourceSlices, NamespaceMaps": tuple(providerpolicy.MAX_OBJECTS.values())[:3],
    "ShadowEndpointSlices, ShadowPods": tuple(providerpolicy.MAX_OBJECTS.values())[3:],
    "twins |": (providerpolicy.MAX_REMOTE_NAMESPACES,),
    "characters of annotations": (allowlist.MOST_CHARACTERS,),
    "namespaces of others": (podaffinity.MOST,),
    "requirements of": (nodeselector.MAX_REQUIREMENTS, nodeselector.MAX_IN_ALL),
    "terms, bytes": (
        namespaceoffloadings.MAX_TERMS,
        namespaceoffloadings.MAX_BYTES,
        pods.MAX_TERMS,
        pods.MAX_BYTES,
    ),
    "bytes of a review": (app.MAX_BODY,),
    "bytes of reviews": (worker.HELD, worker.LARGE),
    "tokens of": (apiserver.MAX_TOKENS,),
    "bytes of a kubeconfig": (kubeconfig.MAX_BYTES,),
    "bytes of a certificate": (requests.MAX_BYTES,),
    "virtual kubelet, metric agent": (*listener.ORDINARY, listener.ORDINARY.in_all // 2),
}
"""Rows of docs/bounds.md by what they begin with, and the constants that they tell."""


@pytest.mark.parametrize("row", BOUNDS)
def test_the_page_of_bounds_tells_the_numbers_of_the_code(row: str) -> None:
    page = (ROOT / "docs/bounds.md").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in page if line.startswith(f"| {row}")]
    numbers = re.findall(r"(\d[\d,]*)( [KM]iB)?", line)
    units = {"": 1, " KiB": 2**10, " MiB": 2**20}
    told = {int(number.replace(",", "") or 0) * units[unit] for number, unit in numbers}
    assert set(BOUNDS[row]) <= told, told
