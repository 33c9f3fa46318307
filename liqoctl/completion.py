"""``kubectl_complete-liqo``: what may follow on a command line, for kubectl's completion.

Source: Kubernetes, "Extend kubectl with plugins", completion.
"""

import sys
from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import ShellComplete

from liqoctl.__main__ import cli

NO_FILES: Final = ":4"
"""The directive of cobra by which the shell offers no file names besides."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the candidates for the last word of ``argv``, one a line, and the directive."""
    words = list(sys.argv[1:] if argv is None else argv) or [""]
    completion = ShellComplete(cli, {}, "liqoctl", "_LIQOCTL_COMPLETE")
    for item in completion.get_completions(words[:-1], words[-1]):
        click.echo(item.value)
    click.echo(NO_FILES)
    return 0
