"""``liqoctl dashboard``."""

import asyncio
import contextlib
import webbrowser

import click

from liqoctl import lazy, options
from liqoctl.lazy import Side

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
@options.on_cluster()
async def dashboard(side: Side, port: int, *, browser: bool) -> None:
    """Show peers, virtual nodes, namespaces, pods and quotas as a page that follows the cluster.

    Reads only, with the rights of the kubeconfig. The page is served to this machine only, at a URL
    that nobody can guess; it ends with Ctrl+C.
    """
    await lazy.clusters.check_installed(side)
    server = lazy.dashboard
    async with contextlib.AsyncExitStack() as stack:
        try:
            url = await stack.enter_async_context(server.serving(side.cluster, port))
        except OSError as error:
            message = f"port {port} of {server.HOST} cannot be used: {error.strerror}"
            raise click.ClickException(f"{message}; choose another by --port") from error
        lazy.output.echo(url)
        side.info("the page follows the cluster; Ctrl+C ends it")
        if browser:
            page = stack.enter_context(server.redirecting(url))
            await asyncio.to_thread(webbrowser.open, page)
        await asyncio.Event().wait()
