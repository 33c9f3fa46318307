"""A cluster for a command, and its errors as one sentence."""

import asyncio
import contextlib
import importlib.metadata
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import click

from kube import access, client, errors
from kube.client import ClusterClient
from liqoctl.options import Session
from liqoctl.output import Progress

_HOME: Final = "~/.kube/config"


def version() -> str:
    """Return the version of this program."""
    return importlib.metadata.version("pyliqo")


def run(session: Session, work: Callable[[ClusterClient, Progress], Awaitable[None]]) -> None:
    """Do ``work`` with the cluster of ``session``.

    Raises:
        click.ClickException: it could not be done; the message is for the user.
    """
    asyncio.run(_run(session, work))


async def _run(
    session: Session, work: Callable[[ClusterClient, Progress], Awaitable[None]]
) -> None:
    progress = Progress(verbose=session.verbose)
    with _explained():
        async with _connected(session) as cluster:
            progress.detail(f"using the API server {cluster.access.server}")
            await work(cluster, progress)


@contextlib.asynccontextmanager
async def _connected(session: Session) -> AsyncIterator[ClusterClient]:
    who = await access.from_file(_kubeconfig(session), session.context)
    async with client.connect(who, user_agent=f"pyliqo-liqoctl/{version()}") as cluster:
        yield cluster


def _kubeconfig(session: Session) -> Path:
    """Return the kubeconfig to use; ``$KUBECONFIG`` may name several, joined by colons."""
    path = session.kubeconfig or Path(os.environ.get("KUBECONFIG") or _HOME).expanduser()
    if not any(Path(part).exists() for part in str(path).split(os.pathsep)):
        hint = "give --kubeconfig, or set KUBECONFIG"
        raise click.ClickException(f"kubeconfig {path} does not exist: {hint}")
    return path


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except errors.KubeError as error:
        raise click.ClickException(str(error)) from error
