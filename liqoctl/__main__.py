"""``liqoctl``, ``kubectl liqo``, ``python -m liqoctl``."""

import sys
from collections.abc import Sequence
from pathlib import Path

from liqoctl.options import cli


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
