"""``liqoctl completion``."""

import click
from click.shell_completion import get_completion_class

from liqoctl import options
from liqoctl.options import Session

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = options.examples(
    "liqoctl completion bash > /etc/bash_completion.d/liqoctl",
    "liqoctl completion zsh > ~/.zfunc/_liqoctl",
    "liqoctl completion fish > ~/.config/fish/completions/liqoctl.fish",
)


@options.command(epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS))
@options.global_flags
@click.pass_context
def completion(context: click.Context, shell: str, session: Session) -> None:  # noqa: ARG001  # as every command
    """Print the script by which a shell completes liqoctl's commands, flags and names of objects.

    Names are asked of the cluster that the command line names, for two seconds at most.
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"there is no completion for {shell}")
    click.echo(found(context.find_root().command, {}, "liqoctl", "_LIQOCTL_COMPLETE").source())
