"""Serving a dashboard until the user has seen enough."""

import asyncio
import webbrowser

import click

from kube.client import ClusterClient
from liqoctl import output
from liqoctl.options import Session
from liqoctl.output import Progress
from liqoctl.work import session
from liqoctl.work.dashboardserver import HOST, serving


def dashboard(who: Session, *, port: int, opens: bool) -> None:
    """Print the URL, open it where that is wanted, and serve until the process ends."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        await session.check_installed(cluster, who)
        try:
            async with serving(cluster, port) as url:
                output.echo(url)
                progress.info("the page follows the cluster; Ctrl+C ends it")
                if opens:
                    await asyncio.to_thread(webbrowser.open, url)
                await asyncio.Event().wait()
        except OSError as error:
            message = f"port {port} of {HOST} cannot be used: {error.strerror}"
            raise click.ClickException(f"{message}; choose another by --port") from error

    session.run(who, work)
