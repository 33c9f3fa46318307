"""What README.md shows holds in the order in which it is read."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from typing import Final

import yaml

from apis import nodeselector
from apis.offloading import NamespaceOffloading
from tests import parity

README: Final = (parity.ROOT / "README.md").read_text(encoding="utf-8")


def fenced_blocks(language: str) -> Iterator[str]:
    """Yield the fenced blocks in ``language``."""
    for found in re.finditer(
        rf"^( *)```{language}\n(.*?)^\1```$", README, re.DOTALL | re.MULTILINE
    ):
        yield textwrap.dedent(found[2])


def typed(*start: str) -> Iterator[list[str]]:
    """Yield the commands that begin with the words ``start``."""
    for block in fenced_blocks("sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[: len(start)] == list(start):
                yield words


def test_the_cluster_that_its_manifest_selects_was_labelled_by_an_earlier_step() -> None:
    (manifest,) = fenced_blocks("yaml")
    provider = next(words for words in typed("liqoctl", "install") if "milan" in words)
    given = provider[provider.index("--cluster-labels") + 1]
    labels = dict(pair.split("=") for pair in given.split(","))

    terms = NamespaceOffloading.parse(yaml.safe_load(manifest)).cluster_selector

    assert terms
    assert nodeselector.matches(terms, labels, "milan")
    assert README.index(given) < README.index("nodeSelectorTerms")
