"""Clusters for commands: errors as one sentence, objects made and removed, each step printed.

Every step may be done again: what is there already is left, and what differs is changed.
"""

import asyncio
import contextlib
import functools
import importlib.metadata
import os
import shlex
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
)
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from click.shell_completion import CompletionItem

from apis import keys, objects
from apis.objects import Key, Kind, Object
from kube import errors
from kube.cluster import Cluster, Selection
from kube.errors import AlreadyExistsError, KubeError
from liqoctl import options
from liqoctl.forge import manifests
from liqoctl.options import Session
from liqoctl.output import Progress

if TYPE_CHECKING:
    from kube.client import ClusterClient

_HOME: Final = "~/.kube/config"
_KINDS: Final = "/apis/offloading.liqo.io"
"""Served, to everybody who is signed in, by a cluster that has our kinds."""
LOOK_S: Final = 5.0
READ_S: Final = 60.0
"""The bound of what has no ``--timeout``."""


@dataclass(frozen=True)
class Side:
    """A cluster of a command; steps in one of two are printed with its name in front."""

    cluster: "ClusterClient"
    progress: Progress
    prefix: str = ""
    session: Session = field(default_factory=Session)

    @property
    def namespace(self) -> str:
        """The namespace to work in, of kinds of which a command means one there."""
        return self.session.namespace or self.cluster.access.namespace or "default"

    def info(self, message: str) -> None:
        self.progress.info(f"{self.prefix}{message}")

    def warning(self, message: str) -> None:
        self.progress.warning(f"{self.prefix}{message}")


def version() -> str:
    return importlib.metadata.version("pyliqo")


def run(
    session: Session,
    work: Callable[[Side], Awaitable[object]],
    what: str = "",
    timeout_s: float = READ_S,
    *,
    needs_install: bool = True,
) -> None:
    """Do ``work`` with the cluster of ``session``; ``timeout_s`` bounds it where ``what`` is given.

    Raises:
        click.ClickException: it could not be done; the message is for the user.
    """

    async def bounded() -> None:
        async with _opened((session, ""), needs_install=needs_install) as (side,):
            side.progress.detail(f"using the API server {side.cluster.access.server}")
            async with within(timeout_s, what) if what else contextlib.nullcontext():
                await work(side)

    asyncio.run(bounded())


def run_both(
    local: Session,
    remote: Session,
    work: Callable[[Side, Side], Awaitable[object]],
    what: str,
    timeout_s: float,
) -> None:
    """Do ``work`` with the clusters of both sessions, as ``run`` does."""

    async def bounded() -> None:
        used = (local, "(local)   "), (remote, "(remote)  ")
        async with _opened(*used) as sides, within(timeout_s, what):
            await work(*sides)

    asyncio.run(bounded())


@asynccontextmanager
async def _opened(
    *used: tuple[Session, str], needs_install: bool = True
) -> AsyncIterator[list[Side]]:
    """Open the clusters of sessions; the second is another's, and answers as ``kube.peer`` lets."""
    from kube import client, credentials, peer

    sides: list[Side] = []
    progress = Progress(verbose=used[0][0].verbose)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_explained())
        for session, prefix in used:
            connect: Any = peer.connect if sides else client.connect
            who = await credentials.from_file(
                _kubeconfig(session), session.context, cluster=session.cluster, user=session.user
            )
            connecting = connect(who, user_agent=f"pyliqo-liqoctl/{version()}")
            cluster = await stack.enter_async_context(connecting)
            sides.append(Side(cluster, progress, prefix, session))
            cluster.on_warning(functools.cache(sides[-1].warning))  # each once, as kubectl
        if needs_install:
            await stack.enter_async_context(_told_if_bare(sides))
        yield sides


@asynccontextmanager
async def _told_if_bare(sides: Iterable[Side]) -> AsyncIterator[None]:
    """Say of a command that failed that one of its clusters lacks our kinds, if it does.

    Raises:
        click.ClickException: with the command that installs them.
    """
    try:
        yield
    except (errors.NotFoundError, click.ClickException) as error:
        if isinstance(error.__context__, TimeoutError):
            raise  # it took long enough already
        for side in sides:
            await check_installed(side)
        raise


async def check_installed(side: Side) -> None:
    """Fail in a cluster without our kinds; for commands that would not fail there by themselves.

    Raises:
        click.ClickException: with the command that installs them.
    """
    if await _is_bare(side.cluster):
        raise click.ClickException(
            f"pyliqo is not installed in the cluster {side.cluster.access.server}; "
            f"to install it: {installs(side.session)}"
        ) from None


async def _is_bare(cluster: "ClusterClient") -> bool:
    try:
        async with asyncio.timeout(LOOK_S):
            await cluster.get_text(_KINDS)
    except errors.NotFoundError:
        return True
    except (errors.KubeError, TimeoutError):
        return False
    return False


def installs(session: Session) -> str:
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


# How a command comes to its cluster, and a shell to the names of objects there --------------------

Work = Callable[..., Awaitable[object]]


def on_cluster(
    what: str = "", *, asks: str = "", needs_install: bool = True
) -> Callable[[Work], Callable[..., None]]:
    """Add the global flags, and hand the cluster to the command as ``side``.

    ``--timeout``, or else a minute, bounds a command that says ``what`` it does (``draining
    {name}``); one that does not bounds itself. A no to what it ``asks`` first ends it. Both texts
    may name arguments of the command; ``key`` is its ``name`` in the namespace of ``-n``.
    """

    def decorate(work: Work) -> Callable[..., None]:
        @functools.wraps(work)
        def with_side(session: Session, **given: Any) -> None:
            words = {**given, "key": Key(session.namespace, given.get("name", ""))}
            if asks:
                session.confirm(asks.format(**words))
            bound = {"timeout_s": given.pop("timeout_s")} if what and "timeout_s" in given else {}
            doing = functools.partial(work, **given)
            run(session, doing, what.format(**words), needs_install=needs_install, **bound)

        return options.global_flags(with_side)

    return decorate


PATIENCE_S: Final = 2.0
MOST: Final = 100
_OF_NAMESPACE: Final = (keys.POD, keys.PERSISTENT_VOLUME_CLAIM)
"""Kinds of which a command means one in the namespace it works in."""
_OF_PEERS: Final = (keys.TENANT, keys.FOREIGN_CLUSTER)
"""Kinds whose objects are called like the cluster that they are about."""


class _Named(msgspec.Struct):
    metadata: objects.Meta


def named(argument: str, kind: Kind, **rest: Any) -> Callable[..., Any]:
    """Return an argument that a shell completes by the names of ``kind``, at most a hundred.

    A cluster that is slow, does not answer, or refuses, has none: a shell gets no error.
    """

    def complete(
        context: click.Context, param: click.Parameter, typed: str
    ) -> list[CompletionItem]:
        found: set[str] = set()
        who = options.session_of(context)

        async def look(side: Side) -> None:
            where = side.namespace if kind in _OF_NAMESPACE else who.namespace
            async with asyncio.timeout(PATIENCE_S):
                of = Selection(kind, _Named, where if kind.namespaced else "")
                found.update(key.name for key in (await side.cluster.list(of)).items)

        with contextlib.suppress(click.ClickException, TimeoutError, OSError, ValueError):
            run(who, look, needs_install=False)
        taken = context.params.get(param.name or "") or ()
        first = sorted(name for name in found if name.startswith(typed))[:MOST]
        return [CompletionItem(name) for name in first if name not in taken]

    if kind in _OF_PEERS:
        rest = {"type": options.CLUSTER_ID, **rest}
    return click.argument(argument, shell_complete=complete, **rest)


# Objects that a command makes or removes in one of two clusters, each step told -------------------

_advance: ContextVar[Callable[[], None]] = ContextVar("_advance", default=lambda: None)
"""Begins the time anew in which nothing of a command may change."""


@asynccontextmanager
async def within(timeout_s: float, what: str) -> AsyncIterator[None]:
    """Bound the time in which no step of the command ends, and nothing that goes changes.

    Raises:
        click.ClickException: it took longer; the same command goes on from there.
    """
    try:
        async with asyncio.timeout(timeout_s) as bound:
            time = asyncio.get_running_loop().time
            before = _advance.set(lambda: bound.reschedule(time() + timeout_s))
            try:
                yield
            finally:
                _advance.reset(before)
    except TimeoutError:
        stuck = f"nothing has changed for {timeout_s:g}s"
        message = f"{what}: {stuck}; the same command goes on from here"
        raise click.ClickException(message) from None


async def keep(
    side: Side,
    kind: Kind,
    wanted: Object,
    *,
    new: Object | None = None,
    whole: Collection[str] = (),
) -> Object:
    """Return the object as it is, once it says what is ``wanted``; all else stays as it is.

    Where there is none it is made as ``new``, or else as ``wanted``; ``whole`` is as of
    ``manifests.changes``.
    """
    key = objects.key_of(wanted)
    found = await side.cluster.get_live(kind, key)
    if found is None:
        try:
            made = await side.cluster.create(kind, new or wanted)
        except AlreadyExistsError:
            return await keep(side, kind, wanted, new=new, whole=whole)
        side.info(f"{kind} {key}: created")
        return made
    changes = manifests.changes(found, wanted, whole)
    if not changes:
        side.info(f"{kind} {key}: is as it should be")
        return found
    changed = await side.cluster.patch(kind, key, changes)
    side.info(f"{kind} {key}: updated")
    return changed


Condition = Callable[[Object | None], bool]
Reason = Callable[[Object | None], str]
Left = tuple[str, Hashable]
"""What is left to do, as the user is told, and that of which any change is progress."""
Look = Callable[[], Awaitable[Left]]


async def until(  # noqa: PLR0913  # what to wait for, and how to tell of it
    side: Side, kind: Kind, key: Key, is_done: Condition, *, what: str, why: Reason = lambda _: ""
) -> Object | None:
    """Return the object once ``is_done``; what a time-out interrupted is told, and ``why``."""
    with side.progress.waiting(f"{side.prefix}{what}"):
        try:
            found = await reached(side.cluster, kind, key, is_done)
        except asyncio.CancelledError:
            side.warning(f"still waiting for {what}{await _reason(side, kind, key, why)}")
            raise
    _advance.get()()
    return found


async def reached(cluster: Cluster, kind: Kind, key: Key, is_done: Condition) -> Object | None:
    """Return the object once ``is_done``, and tell nothing of the wait."""
    from kube import informer

    return await informer.until(cluster, kind, key, is_done)


def is_gone(uid: str) -> Condition:
    return lambda found: found is None or objects.uid(found) != uid


@asynccontextmanager
async def while_moving(side: Side, timeout_s: float, look: Look) -> AsyncIterator[None]:
    """Bound the time in which nothing of what ``look`` finds changes, and tell what is left.

    Raises:
        TimeoutError: nothing has changed for ``timeout_s``.
    """
    from kube import informer

    async def left() -> informer.Left:
        return informer.Left(*await look())

    async with informer.while_moving(timeout_s, left, side.info):
        yield


async def _reason(side: Side, kind: Kind, key: Key, why: Reason) -> str:
    try:
        async with asyncio.timeout(2):
            said = why(await side.cluster.get_live(kind, key))
    except (KubeError, TimeoutError):
        return ": the cluster does not answer"
    return f": {said}" if said else ""


async def listed(
    cluster: Cluster, kind: Kind, namespace: str = "", fields: str = "", labels: str = ""
) -> list[Object]:
    """Return the objects of ``kind``; an empty ``namespace`` means those of all."""
    of = Selection(kind, Object, namespace, labels=labels, fields=fields)
    return list((await cluster.list(of)).items.values())


async def called(cluster: Cluster, kind: Kind, key: Key) -> list[Object]:
    """Return what is called as ``key`` says; an empty namespace means wherever it is."""
    return await listed(cluster, kind, key.namespace, f"metadata.name={key.name}")


async def remove(side: Side, kind: Kind, key: Key, *, why: str = "", waits: bool = True) -> bool:
    """Delete the object if it is there, and wait until it is gone; return whether it was."""
    found = await side.cluster.get_live(kind, key)
    if found is None:
        return False
    uid = objects.uid(found)
    await side.cluster.delete(kind, key, uid=uid)
    if waits:
        await until_gone(side, kind, [key], uids={uid}, why=why)
    side.info(f"{kind} {key}: {'deleted' if waits else 'is being deleted'}")
    return True


async def until_gone(
    side: Side, kind: Kind, keys: Iterable[Key], *, uids: set[str] | None = None, why: str = ""
) -> None:
    """Wait until nothing is under ``keys`` any more, or something else than ``uids`` is."""

    def is_gone(found: Object | None) -> bool:
        _advance.get()()  # it is asked at each change
        return found is None or (uids is not None and objects.uid(found) not in uids)

    for key in keys:
        what = f"{kind} {key} to go"
        await until(side, kind, key, is_gone, what=what, why=lambda _: why)
