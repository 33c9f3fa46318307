"""The page of a dashboard, for one user on one machine: Flask on the loopback interface.

Who has the token of the URL reads what the kubeconfig may read, so nobody else may have it: it is
in no log, no referrer, and no page of another origin gets an answer.
Source: CSP level 3; "DNS rebinding", which the Host header tells.
"""

import asyncio
import contextlib
import hmac
import json
import logging
import os
import secrets
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from flask import Flask, Response, abort, request, send_from_directory
from werkzeug.serving import make_server

from kube import errors
from kube.cluster import Cluster
from liqoctl.dashboard import Board
from liqoctl.forge.tables import printable

T = TypeVar("T")
HOST: Final = "127.0.0.1"
PATIENCE_S: Final = 30.0
_PING_S: Final = 15.0
_FILES: Final = Path(__file__).parent / "page"
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PanelUpdates:
    """The versions of panels, from the loop that follows the cluster to threads that wait."""

    def __init__(self) -> None:
        self._versions: Mapping[str, int] = {}
        self._changed = threading.Condition()
        self._is_over = False

    def tell(self, versions: Mapping[str, int]) -> None:
        """Let all who wait have ``versions``."""
        with self._changed:
            self._versions = versions
            self._changed.notify_all()

    def end(self) -> None:
        """Let nobody wait any longer."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def after(self, known: Mapping[str, int] | None, within_s: float) -> Mapping[str, int] | None:
        """Return versions other than ``known``, those again after a while; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._versions != known, within_s)
            return None if self._is_over else self._versions


class Site:
    """What each URL answers; ``board`` belongs to ``loop``, requests to threads."""

    def __init__(self, board: Board, loop: asyncio.AbstractEventLoop, news: PanelUpdates) -> None:
        self._board, self._loop, self._news = board, loop, news

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result(PATIENCE_S)

    def file(self, name: str = "index.html") -> Response:
        return send_from_directory(_FILES, name)

    def panels(self) -> Any:
        return {"panels": list(self._ask(self._board.versions()))}

    def panel(self, name: str) -> Any:
        start = request.args.get("start", 0, type=int)
        try:
            return self._ask(self._board.page(name, request.args.get("q", ""), start))
        except KeyError:
            abort(404)

    def why(self, namespace: str, name: str = "") -> Any:
        """Return the lines of ``liqoctl why``, or the error that it ends with."""
        try:
            return {"lines": self._ask(self._board.why(namespace, name))}
        except (click.ClickException, errors.KubeError, TimeoutError) as error:
            return {"lines": [printable(str(error))]}

    def events(self) -> Response:
        """Return the versions of panels for as long as anybody reads them."""
        return Response(_events(self._news), mimetype="text/event-stream")


def application(site: Site, token: str, port: int) -> Flask:
    """Return the application: all URLs begin with ``token``, on ``port`` of this machine."""
    app = Flask(__name__, static_folder=None)
    hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    @app.before_request
    def guard() -> None:
        given = (request.view_args or {}).pop("token", "")
        is_known = hmac.compare_digest(str(given).encode(), token.encode())
        if request.host not in hosts or not is_known:
            abort(404)

    @app.after_request
    def armoured(response: Response) -> Response:
        response.headers.update(_HEADERS)
        return response

    for path, view in (
        ("", site.file),
        ("<any('page.js', 'page.css'):name>", site.file),
        ("panels", site.panels),
        ("panels/<name>", site.panel),
        ("why/<namespace>", site.why),
        ("why/<namespace>/<name>", site.why),
        ("events", site.events),
    ):
        app.add_url_rule(f"/<token>/{path}", endpoint=path or "page", view_func=view)
    return app


def _events(news: PanelUpdates) -> Iterator[str]:
    known: Mapping[str, int] | None = None
    while (versions := news.after(known, _PING_S)) is not None:
        yield f"data: {json.dumps(versions)}\n\n" if versions != known else ": still here\n\n"
        known = versions


@contextlib.contextmanager
def redirecting(url: str) -> Iterator[str]:
    """Yield the URL of a file that leads to ``url``, and goes at the end; only its owner reads it.

    The arguments of a browser's process are shown to every user of the machine.
    """
    page = f'<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">The dashboard</a>\n'
    with tempfile.NamedTemporaryFile("w", prefix="liqoctl-", suffix=".html") as file:
        file.write(page)
        file.flush()
        yield Path(file.name).as_uri()


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        cure = "choose another with --port, or leave it out"
        why = os.strerror(error.errno or 0).lower()
        raise click.ClickException(f"port {port} of {HOST}: {why}: {cure}") from error


@contextlib.asynccontextmanager
async def serving(cluster: Cluster, port: int = 0) -> AsyncIterator[str]:
    """Serve a dashboard of ``cluster`` while inside; yield its URL, the token in it.

    Raises:
        click.ClickException: ``port`` is taken.
    """
    news, token = PanelUpdates(), secrets.token_urlsafe(32)
    board = Board(cluster, news.tell)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it would log the token
    loop = asyncio.get_running_loop()
    with _listener(port) as listener:  # werkzeug would end the program if the port is taken
        server = make_server(HOST, port, Flask(__name__), threaded=True, fd=listener.fileno())
    server.app = application(Site(board, loop, news), token, server.port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    following = asyncio.create_task(board.run())
    thread.start()
    try:
        yield f"http://{HOST}:{server.port}/{token}/"
    finally:
        news.end()
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
