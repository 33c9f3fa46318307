"""A cluster for a command, and its errors as one sentence."""

import asyncio
import contextlib
import importlib.metadata
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from kube import access, client, errors
from kube.client import ClusterClient
from liqoctl.options import Session
from liqoctl.output import Progress

_HOME: Final = "~/.kube/config"


@dataclass(frozen=True)
class Side:
    """One of two clusters, whose steps are told with its name in front."""

    cluster: ClusterClient
    progress: Progress
    prefix: str = ""

    def info(self, message: str) -> None:
        """Say that a step is done."""
        self.progress.info(f"{self.prefix}{message}")

    def warning(self, message: str) -> None:
        """Say that it went on, and that somebody should look."""
        self.progress.warning(f"{self.prefix}{message}")


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


def run_both(
    local: Session, remote: Session, work: Callable[[Side, Side], Awaitable[None]]
) -> None:
    """Do ``work`` with the clusters of both sessions.

    Raises:
        click.ClickException: it could not be done; the message is for the user.
    """
    asyncio.run(_run_both(local, remote, work))


async def _run_both(
    local: Session, remote: Session, work: Callable[[Side, Side], Awaitable[None]]
) -> None:
    progress = Progress(verbose=local.verbose)
    with _explained():
        async with _connected(local) as here, _connected(remote) as there:
            await work(Side(here, progress, "(local)   "), Side(there, progress, "(remote)  "))


@contextlib.asynccontextmanager
async def _connected(session: Session) -> AsyncIterator[ClusterClient]:
    who = await access.from_file(
        _kubeconfig(session), session.context, cluster=session.cluster, user=session.user
    )
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
