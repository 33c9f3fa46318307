"""The commands of the page on peering, typed."""

import re
from pathlib import Path

from tests import pages
from tests.peering.world import World

DOCUMENT = Path(__file__).parents[2] / "docs" / "peering.md"


def typed_blocks() -> list[list[tuple[str, str]]]:
    """Return what the document has typed on one side or the other: blocks of (cluster, command)."""
    found = pages.blocks(DOCUMENT)
    lines = [re.findall(r"^(rome|milan)\$ +(.+)$", block, re.MULTILINE) for block in found]
    return [block for block in lines if block]


def type_in(both: World, block: list[tuple[str, str]], directory: Path) -> None:
    """Run the commands, each as its cluster's administrator; NONCE is what the last one printed."""
    said = ""
    for name, command in block:
        typed = command.replace("NONCE", said.strip())
        config = both[name].plane.kubeconfig
        said = pages.shell(typed, directory, answer="y\n", KUBECONFIG=config)
