"""``python3 -m webhook``: the admission webhook of one cluster."""

import sys
from collections.abc import Sequence

from kube import logs, memory
from webhook import serving


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM; return the exit status."""
    given = serving.parse_options(argv)
    logs.setup(json=given.json_logs)
    memory.take_all_descriptors()
    server = serving.GunicornServer(given, lambda: _load(given))
    try:
        server.run()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def _load(given: serving.WebhookOptions) -> object:
    from webhook import service  # noqa: PLC0415  # the process that forks stays small without

    return service.load(given)


if __name__ == "__main__":
    sys.exit(main())
