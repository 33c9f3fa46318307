"""A cluster for a command, and its errors as one sentence."""

import asyncio
import contextlib
import importlib.metadata
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from kube import access, client, errors, peer
from kube.client import ClusterClient
from liqoctl.options import Session
from liqoctl.output import Progress

_HOME: Final = "~/.kube/config"
_KINDS: Final = "/apis/offloading.liqo.io"
"""Served, to everybody who is signed in, by a cluster that has our kinds."""
LOOK_S: Final = 5.0

Connect = Callable[..., contextlib.AbstractAsyncContextManager[ClusterClient]]


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
    return importlib.metadata.version("pyliqo")


def run(
    session: Session,
    work: Callable[[ClusterClient, Progress], Awaitable[None]],
    *,
    needs_install: bool = True,
) -> None:
    """Do ``work`` with the cluster of ``session``.

    Raises:
        click.ClickException: it could not be done; the message is for the user.
    """
    asyncio.run(_run(session, work, needs_install=needs_install))


async def _run(
    session: Session,
    work: Callable[[ClusterClient, Progress], Awaitable[None]],
    *,
    needs_install: bool,
) -> None:
    progress = Progress(verbose=session.verbose)
    with _explained():
        async with _connected(session) as cluster:
            progress.detail(f"using the API server {cluster.access.server}")
            cluster.on_warning(_each_once(progress.warning))
            async with _told_if_bare([(cluster, session)] if needs_install else []):
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
        there_ = _connected(remote, connect=peer.connect)
        async with _connected(local) as here, there_ as there:
            sides = Side(here, progress, "(local)   "), Side(there, progress, "(remote)  ")
            for side in sides:
                side.cluster.on_warning(_each_once(side.warning))
            async with _told_if_bare([(here, local), (there, remote)]):
                await work(*sides)


def _each_once(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return ``say`` for what was not said before, as kubectl prints each warning once."""
    said: set[str] = set()

    def warn(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    return warn


@contextlib.asynccontextmanager
async def _connected(
    session: Session, *, connect: Connect = client.connect
) -> AsyncIterator[ClusterClient]:
    """Open the client of a cluster; ``connect`` is that of ``kube.peer`` for another side."""
    who = await access.from_file(
        _kubeconfig(session), session.context, cluster=session.cluster, user=session.user
    )
    async with connect(who, user_agent=f"pyliqo-liqoctl/{version()}") as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def _told_if_bare(used: Sequence[tuple[ClusterClient, Session]]) -> AsyncIterator[None]:
    """Say of a command that failed that a cluster which it ``used`` lacks our kinds, if it does.

    Raises:
        click.ClickException: with the command that installs them.
    """
    try:
        yield
    except (errors.NotFoundError, click.ClickException) as error:
        if isinstance(error.__context__, TimeoutError):
            raise  # it took long enough already
        for cluster, session in used:
            await check_installed(cluster, session)
        raise


async def check_installed(cluster: ClusterClient, session: Session) -> None:
    """Fail in a cluster without our kinds; for commands that would not fail there by themselves.

    Raises:
        click.ClickException: with the command that installs them.
    """
    if await _is_bare(cluster):
        raise click.ClickException(
            f"pyliqo is not installed in the cluster {cluster.access.server}; "
            f"to install it: {installs(session)}"
        ) from None


async def _is_bare(cluster: ClusterClient) -> bool:
    try:
        async with asyncio.timeout(LOOK_S):
            await cluster.get_text(_KINDS)
    except errors.NotFoundError:
        return True
    except (errors.KubeError, TimeoutError):
        return False
    return False


def installs(session: Session) -> str:
    """Return the command that installs pyliqo in the cluster of ``session``."""
    given = {"kubeconfig": session.kubeconfig, "context": session.context}
    said = [f" --{name} {shlex.quote(str(value))}" for name, value in given.items() if value]
    return f"liqoctl install{''.join(said)} --cluster-id NAME"


def _kubeconfig(session: Session) -> Path:
    """Return the kubeconfig to use; ``$KUBECONFIG`` may name several, joined by colons."""
    said = os.environ.get("KUBECONFIG")
    path = session.kubeconfig or (Path(said) if said else Path(_HOME).expanduser())
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
