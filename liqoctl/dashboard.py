"""``liqoctl dashboard``: what it shows, followed in one loop; ``dashboardserver`` has the page.

Nothing is written. Each kind has its own informer: a right that is missing leaves one panel empty.
"""

import asyncio
import base64
import binascii
import contextlib
import itertools
import webbrowser
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from apis import keys
from apis.objects import Key, Kind, Object
from kube import clock, errors
from kube.cluster import Cluster, Selection
from liqoctl import clusters, options, output, why
from liqoctl.clusters import Side
from liqoctl.forge import dashboard as forge
from liqoctl.forge import why as why_
from liqoctl.forge.dashboard import BoardState, Certificate
from liqoctl.options import cli

if TYPE_CHECKING:
    from kube.informer import Change, Informer


@cli.command(
    "dashboard",
    "liqoctl dashboard",
    "liqoctl dashboard --port 8001 --no-browser",
    "liqoctl dashboard --kubeconfig rome.kubeconfig",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on this machine.  [default: one that is free]",
)
@options.switch("--browser", default=True, help="Open the page in a browser.")
@clusters.on_cluster()
async def dashboard(side: Side, port: int, *, browser: bool) -> None:
    """Show peers, virtual nodes, namespaces, pods and quotas as a page that follows the cluster.

    Reads only, with the rights of the kubeconfig. The page is served to this machine only, at a URL
    that nobody can guess; it ends with Ctrl+C.
    """
    from liqoctl import dashboardserver as server

    await clusters.check_installed(side)
    async with contextlib.AsyncExitStack() as stack:
        try:
            url = await stack.enter_async_context(server.serving(side.cluster, port))
        except OSError as error:
            message = f"port {port} of {server.HOST} cannot be used: {error.strerror}"
            raise click.ClickException(f"{message}; choose another by --port") from error
        output.echo(url)
        side.info("the page follows the cluster; Ctrl+C ends it")
        if browser:
            page = stack.enter_context(server.redirecting(url))
            await asyncio.to_thread(webbrowser.open, page)
        await asyncio.Event().wait()


FOLLOWED: Final = (
    keys.FOREIGN_CLUSTER,
    keys.TENANT,
    keys.RESOURCE_SLICE,
    keys.QUOTA,
    keys.VIRTUAL_NODE,
    keys.NAMESPACE_OFFLOADING,
    keys.NODE,
)
_MAY_LACK: Final = (errors.NotFoundError, errors.ForbiddenError)
_AGAIN_S: Final = 1.0
_DUE_S: Final = 60.0
"""After which the time that certificates have left is told again."""


class Board:
    """One cluster, as it is now. All of it belongs to one loop."""

    def __init__(self, cluster: Cluster, tell: Callable[[Mapping[str, int]], None]) -> None:
        """``tell`` hears the versions of all panels whenever one of them has changed."""
        self._cluster, self._tell = cluster, tell
        self._informers = {kind: self._informer(kind) for kind in FOLLOWED}
        self._pods: dict[str, Informer[Object]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)
        self._versions = dict.fromkeys(forge.PANELS, 0)
        self._wanted = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers.values():
                tasks.create_task(informer.run(self._cluster))
            tasks.create_task(self._tell_all())
            tasks.create_task(self._look_at_clock())
            while True:
                self._wanted.clear()
                self._follow_pods(tasks)
                await self._wanted.wait()

    async def page(self, name: str, query: str, start: int) -> Object:
        """Return rows of one panel.

        Raises:
            KeyError: there is no such panel.
        """
        return forge.page(name, self._seen(), query, start)

    async def why(self, namespace: str, name: str) -> list[str]:
        answer = await (
            why.pod(self._cluster, Key(namespace, name))
            if name
            else why.namespace(self._cluster, namespace)
        )
        return why_.lines(answer)

    async def versions(self) -> dict[str, int]:
        return dict(self._versions)

    def _seen(self) -> BoardState:
        found: dict[Kind, list[Object]] = {
            kind: [informer.items()[key] for key in sorted(informer.items())]
            for kind, informer in self._informers.items()
        }
        found[keys.POD] = [
            pod for name in sorted(self._pods) for pod in self._pods[name].items().values()
        ]
        denied = [kind for kind, informer in self._informers.items() if informer.is_lacking]
        denied += [keys.POD] if any(each.is_lacking for each in self._pods.values()) else []
        return BoardState(clock.now(), found, frozenset(denied), tuple(_certificates(found)))

    def _informer(self, kind: Kind, namespace: str = "") -> "Informer[Object]":
        from kube.informer import Informer

        informer = Informer(Selection(kind, Object, namespace), may_lack=_MAY_LACK)
        panels = forge.panels_of(kind)

        def on_change(_: "Change[Any]") -> None:
            self._touch(panels)
            self._wanted.set()

        informer.subscribe(on_change)
        return informer

    def _touch(self, panels: Iterable[str]) -> None:
        number = next(self._numbers)
        self._versions.update(dict.fromkeys(panels, number))
        self._changed.set()

    def _follow_pods(self, tasks: asyncio.TaskGroup) -> None:
        """Follow the pods of the namespaces that are offloaded, and of no others."""
        wanted = forge.names(self._informers[keys.NAMESPACE_OFFLOADING].items().values())
        for name in self._pods.keys() - wanted:
            self._tasks.pop(name).cancel()
            del self._pods[name]
            self._touch(["pods"])
        for name in wanted - self._pods.keys():
            informer = self._pods[name] = self._informer(keys.POD, name)
            self._tasks[name] = tasks.create_task(informer.run(self._cluster))

    async def _tell_all(self) -> None:
        """Tell that panels have changed, of a burst once a second."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._tell(dict(self._versions))
            await asyncio.sleep(_AGAIN_S / 2)

    async def _look_at_clock(self) -> None:
        while True:
            await asyncio.sleep(_DUE_S)
            self._touch(["certificates"])


def _certificates(found: Mapping[Kind, list[Object]]) -> Iterable[Certificate]:
    from certs import pki

    for of, name, text in forge.signed(found):
        with contextlib.suppress(ValueError, binascii.Error):
            yield Certificate(of, name, pki.expiry(base64.b64decode(text)))
