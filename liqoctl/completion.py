"""``liqoctl completion``, and ``kubectl_complete-liqo`` by which kubectl completes its plugins.

Source: Kubernetes, "Extend kubectl with plugins", completion.
"""

import sys
from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

from liqoctl import options
from liqoctl.options import Session, cli

SHELLS = ("bash", "zsh", "fish")


@cli.command(
    "completion",
    "liqoctl completion bash > /etc/bash_completion.d/liqoctl",
    "liqoctl completion zsh > ~/.zfunc/_liqoctl",
    "liqoctl completion fish > ~/.config/fish/completions/liqoctl.fish",
)
@click.argument("shell", type=click.Choice(SHELLS))
@options.global_flags
def completion(shell: str, session: Session) -> None:  # noqa: ARG001  # as every command
    """Print the script by which a shell completes liqoctl's commands, flags and names of objects.

    Names are asked of the cluster that the command line names, for two seconds at most.
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"there is no completion for {shell}")
    click.echo(found(cli, {}, "liqoctl", "_LIQOCTL_COMPLETE").source())


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
