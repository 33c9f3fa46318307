"""``liqoctl``, ``kubectl liqo``, ``python -m liqoctl``."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from liqoctl import options
from liqoctl.commands import identity, resourceslice, virtualnode
from liqoctl.commands.backup import backup, bundle
from liqoctl.commands.completion import completion
from liqoctl.commands.dashboard import dashboard
from liqoctl.commands.info import info
from liqoctl.commands.install import install, uninstall, version
from liqoctl.commands.move import move
from liqoctl.commands.offload import offload, unoffload
from liqoctl.commands.peer import authenticate, peer, unauthenticate, unpeer
from liqoctl.commands.provider import activate, cordon, drain, set_, uncordon
from liqoctl.commands.why import why
from liqoctl.options import Session, create, delete, force, generate, get

EXAMPLES = options.examples(
    "liqoctl install --cluster-id rome",
    "liqoctl peer --kubeconfig rome.kubeconfig --remote-kubeconfig milan.kubeconfig",
    "liqoctl offload namespace foo",
    "liqoctl unoffload namespace foo",
    "liqoctl why pod web-0 -n foo",
    "kubectl liqo offload namespace foo -l region=europe",
)


@click.group(cls=options.Group, context_settings=options.CONTEXT, epilog=EXAMPLES)
@click.version_option(package_name="pyliqo", message="%(prog)s %(version)s")
@options.global_flags
def cli(session: Session) -> None:
    """Extend this cluster over others: virtual nodes, offloaded namespaces.

    Data goes to stdout, progress to stderr. Exit status: 0 done, 1 not done, 2 wrong usage.
    """


COMMANDS = (
    activate, authenticate, backup, bundle, completion, cordon, create, dashboard, delete, drain,
    force, generate, get, info, install, move, offload, peer, set_, unauthenticate, uncordon,
    uninstall, unoffload, unpeer, version, why,
)  # fmt: skip
KINDS = (identity, resourceslice, virtualnode)
"""Modules whose commands belong to the groups create, delete, generate and get."""
for command in COMMANDS:
    cli.add_command(command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0 done, 1 not done, 2 wrong usage."""
    plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    name = "kubectl liqo" if plugin else "liqoctl"
    try:
        cli.main(args=None if argv is None else list(argv), prog_name=name)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
