"""``liqoctl dashboard``."""

import click

from liqoctl import late, options
from liqoctl.options import Session

EXAMPLES = options.examples(
    "liqoctl dashboard",
    "liqoctl dashboard --port 8001 --no-browser",
    "liqoctl dashboard --kubeconfig rome.kubeconfig",
)


@options.command(name="dashboard", epilog=EXAMPLES)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on this machine.  [default: one that is free]",
)
@options.switch("--browser", default=True, help="Open the page in a browser.")
@options.global_flags
def dashboard(session: Session, port: int, *, browser: bool) -> None:
    """Show peers, virtual nodes, namespaces, pods and quotas as a page that follows the cluster.

    Reads only, with the rights of the kubeconfig. The page is served to this machine only, at a URL
    that nobody can guess; it ends with Ctrl+C.
    """
    late.dashboardcli.dashboard(session, port=port, opens=browser)
