"""One API server as a ``Cluster``: raw JSON over aiohttp, nothing modelled, everything bounded."""

import asyncio
import builtins
import contextlib
import functools
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
import yarl
from prometheus_client import Counter, Histogram

from apis import keys
from apis.objects import Key, Kind, Object, key_of
from kube import access as access_
from kube import behind, errors, metrics, pulse, remotecommand, wire
from kube.access import Access
from kube.behind import Doubts
from kube.cluster import Event, Listing, Selection
from kube.connection import Connection, in_words
from kube.pulse import Pulse
from kube.reach import Reach
from kube.remotecommand import Command

T = TypeVar("T")
logger = logging.getLogger(__name__)

PAGE: Final = 500
MAX_LISTING: Final = 2**30
CALL_S: Final = 30.0
LIST_S: Final = 300.0
CONNECT_S: Final = 5.0
PROBE_S: Final = 3.0
BULK_AT_ONCE: Final = 32
"""Requests in flight; leases and nodes do not wait for their turn behind these."""

_RETRIES: Final = 3
_WAIT_HERE_S: Final = 5.0
_RESTARTS: Final = 3
_LOOK_AGAIN_S: Final = 10.0
_SPREAD_S: Final = 0.5
_FIRST: Final = frozenset({"leases", "nodes"})
_SUCCESS: Final = range(200, 300)
_UNAUTHORIZED, _TOO_MANY, _UNAVAILABLE = 401, 429, 503
_JSON: Final = {"Content-Type": "application/json"}
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_STRATEGIC: Final = {"Content-Type": "application/strategic-merge-patch+json"}
_APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}  # JSON is YAML


@contextlib.asynccontextmanager
async def connect(
    access: Access | Path | None, *, user_agent: str = "pyliqo"
) -> AsyncIterator["ClusterClient"]:
    """Open a client for ``access``: an identity, a kubeconfig file, or None for this pod's own."""
    who = access if isinstance(access, Access) else await access_.discover(access)
    client = ClusterClient(who, user_agent=user_agent)
    try:
        yield client
    finally:
        await client.close()


class ClusterClient:
    """One API server, in the name of ``access``; fulfils ``Cluster``."""

    def __init__(self, access: Access, *, user_agent: str) -> None:
        self.user_agent = user_agent
        self._connection = Connection(access, user_agent)
        self._retiring: set[asyncio.Task[None]] = set()
        self._bulk = asyncio.Semaphore(BULK_AT_ONCE)
        self._renewing = asyncio.Lock()
        self._looked = time.monotonic()
        self._doubts = Doubts()
        self.reach = Reach(self._probe, self._start_anew)
        """Whether it answers at all; after an outage all connections are new."""

    @property
    def access(self) -> Access:
        """Return who we are now."""
        return self._connection.access

    async def close(self) -> None:
        """Close all connections now."""
        await self.reach.close()
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        await self._connection.close()

    def replace(self, access: Access) -> None:
        """Go on as ``access``: watches open anew, other requests finish as who they began."""
        old = self._connection
        self._connection = Connection(access, self.user_agent)
        task = asyncio.get_running_loop().create_task(old.retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _start_anew(self) -> None:
        # What was sent meanwhile on the old ones may wait for minutes for TCP to try again.
        self.replace(self.access)

    async def _probe(self) -> bool:
        connection = Connection(self.access, self.user_agent)
        try:
            async with (
                asyncio.timeout(PROBE_S),
                connection.request("GET", wire.url(self.access.server, "/livez", None)),
            ):
                return True  # whatever it says
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False
        finally:
            await connection.close()

    async def reload(self) -> bool:
        """Read our identity again from where it came; return whether it is another now."""
        async with self._renewing:
            return await self._reload()

    async def get(self, kind: Kind, key: Key) -> Object | None:
        try:
            return await self._call("get", kind, "GET", wire.path(kind, key))
        except errors.NotFoundError:
            return None

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        return await self.get(kind, key)

    async def list(self, of: Selection[T]) -> Listing[T]:
        await self._wait_for_return(f"list {of.kind.resource}")
        for _ in range(_RESTARTS):
            with contextlib.suppress(errors.ExpiredError):  # the token of a page: from the start
                async with _deadline(LIST_S, f"list {of.kind.resource}"):
                    return await self._list(of)
        raise errors.ExpiredError(f"the pages of {of.kind.resource} expire faster than we read")

    async def watch(self, of: Selection[T], since: str) -> AsyncGenerator[Event[T], None]:
        await self._wait_for_return(f"watch {of.kind.resource}")
        await self._check_store(of, since)
        shaped = wire.Shaped(of)
        seconds = _watch_s()
        within = aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_read=int(seconds) + 30)
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": seconds}
        query |= {"resourceVersion": since, **wire.query(of)}
        path = wire.path(of.kind, Key(of.namespace, ""))
        who = self.access
        try:
            async with self._answer(
                "watch", of.kind.plural, "GET", path, query=query, timeout=within, is_watch=True
            ) as answer:
                async for line in wire.lines(answer.content):
                    yield shaped.event(line)
        except errors.NotReachableError:
            self._doubts.lost(of)
            if self.access is who:
                raise
            # Ended for another identity: no failure, and whoever follows goes on at once.

    async def create(self, kind: Kind, obj: Object) -> Object:
        path = wire.path(kind, Key(obj["metadata"].get("namespace") or "", ""))
        return await self._call("create", kind, "POST", path, wire.typed(kind, obj))

    async def apply(self, kind: Kind, obj: Object, *, manager: str) -> Object:
        query = {"fieldManager": manager, "force": "true"}
        body = wire.typed(kind, obj)
        path = wire.path(kind, key_of(obj))
        return await self._call("apply", kind, "PATCH", path, body, query=query, headers=_APPLY)

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        path = wire.path(kind, key, subresource)
        is_shared = kind == keys.POD and subresource == "status"
        headers = _STRATEGIC if is_shared else _MERGE
        try:
            return await self._call("patch", kind, "PATCH", path, changes, headers=headers)
        except errors.InvalidError as error:
            if "uid" not in changes.get("metadata", {}) or "metadata.uid" not in str(error):
                raise
            # A UID that is sent means: only if it is this one. The server calls it immutable.
            raise errors.ConflictError(f"{kind} {key} is another object now") from error

    async def patch_status(
        self, kind: Kind, key: Key, status: Object, *, metadata: Object | None = None
    ) -> Object:
        changes: Object = {"status": status}
        if metadata:
            changes["metadata"] = metadata
        return await self.patch(kind, key, changes, subresource="status")

    async def delete(self, kind: Kind, key: Key, *, uid: str, grace_s: int | None = None) -> None:
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        body["propagationPolicy"] = "Background"
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        try:
            await self._call("delete", kind, "DELETE", wire.path(kind, key), body)
        except errors.NotFoundError:
            return
        except errors.ConflictError:
            await self._check_is_another(kind, key, uid)

    async def post(self, kind: Kind, key: Key, subresource: str, body: Object) -> Object:
        return await self._call("post", kind, "POST", wire.path(kind, key, subresource), body)

    @contextlib.asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        idle_s: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a raw request, such as a log; the caller reads and bounds the answer.

        Units: ``idle_s`` without a byte end it; None waits for ever, as ``logs -f`` must.

        Raises:
            KubeError: the server refused.
        """
        within = aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_read=idle_s)
        async with self._answer(
            "stream", "", method, path, query=dict(query or {}), timeout=within, is_lasting=True
        ) as answer:
            yield answer

    @contextlib.asynccontextmanager
    async def execute(
        self, pod: Key, container: str, command: Sequence[str], *, has_input: bool = False
    ) -> AsyncIterator[Command]:
        """Run ``command`` in a container of ``pod``; whoever leaves early ends the connection.

        Raises:
            KubeError: the server refused, or the connection was lost.
        """
        path = wire.path(keys.POD, pod, "exec")
        flags = {"container": container, "stdout": "1", "stderr": "1"}
        flags |= {"stdin": "1"} if has_input else {}
        query = [*flags.items(), *(("command", part) for part in command)]
        url = yarl.URL(self.access.server + path, encoded=True).with_query(query)
        connection = await self._current()
        what, protocols = f"exec in {pod}", remotecommand.PROTOCOLS
        with _translated(what, self.reach):
            async with connection.websocket(what, url, protocols=protocols) as socket:
                yield Command(socket)

    @contextlib.asynccontextmanager
    async def pulse(self, of: Selection[Any]) -> AsyncIterator[Pulse]:
        """Watch, by a WebSocket, what is there for its pings; whoever leaves ends it.

        Raises:
            KubeError: the server refused, or the connection was lost.
        """
        what = f"watch {of.kind.resource} by WebSocket"
        await self._wait_for_return(what)
        connection = await self._current()
        server, path = connection.access.server, wire.path(of.kind, Key(of.namespace, ""))
        url = wire.url(server, path, {"watch": "1", "timeoutSeconds": _watch_s(), **wire.query(of)})
        with _translated(what, self.reach):
            async with connection.websocket(
                what, url, origin=server, within_s=CONNECT_S, **pulse.OPTIONS
            ) as socket:
                yield Pulse(socket, lambda: connection is self._connection)

    async def get_text(self, path: str) -> str:
        """Return what the server says at ``path``, such as ``/livez``."""
        return (await self._bytes("get", "", "GET", path)).decode("utf-8", "replace")

    async def version(self) -> Object:
        """Return the server's version: ``gitVersion``, ``major``, ``minor``, ..."""
        return wire.decoded(await self._bytes("get", "", "GET", "/version"))

    async def _list(self, of: Selection[T]) -> Listing[T]:
        shaped = wire.Shaped(of)
        items: dict[Key, T] = {}
        size, token = 0, ""
        while True:
            raw = await self._page(of, PAGE, token)
            size += len(raw)
            page, token_before = shaped.page(raw), token
            items.update(page.items)
            token = page.token
            if not token or (of.most and len(items) >= of.most):
                self._doubts.asked(of)
                return Listing(items, page.version)
            if size > MAX_LISTING or token == token_before:
                raise errors.NotReachableError(f"the list of {of.kind.resource} has no end")
            await asyncio.sleep(0)

    async def _page(self, of: Selection[Any], limit: int, token: str = "") -> bytes:
        query = {"limit": str(limit), **wire.query(of)} | ({"continue": token} if token else {})
        path = wire.path(of.kind, Key(of.namespace, ""))
        return await self._bytes("list", of.kind.plural, "GET", path, query=query)

    async def _check_store(self, of: Selection[Any], since: str) -> None:
        """Ask the server for its version, before a watch that broke goes on from ``since``."""
        if of not in self._doubts:
            return
        version = wire.Shaped(of).page(await self._page(of, 1)).version
        self._doubts.asked(of)
        if behind.is_behind(version, since):
            message = f"{of.kind.resource}: the server is at version {version}, behind {since}"
            raise errors.refusal(HTTPStatus.GATEWAY_TIMEOUT, {"message": message})

    async def _wait_for_return(self, what: str) -> None:
        """Let lists and watches, which follow for ever, go on the moment the server is back."""
        if self.reach.is_lost and await self.reach.wait(CALL_S):
            await asyncio.sleep(secrets.SystemRandom().uniform(0, _SPREAD_S))
        self._check_reach(what)

    def _check_reach(self, what: str) -> None:
        if self.reach.is_lost:
            seconds = f"{self.reach.lost_s():.0f} s"
            raise errors.NotReachableError(f"{what}: {self.access.server} is silent for {seconds}")

    async def _check_is_another(self, kind: Kind, key: Key, uid: str) -> None:
        there = await self.get(kind, key)
        if there is not None and there["metadata"].get("uid") == uid:
            raise errors.ConflictError(f"{kind} {key} changed while it was deleted")

    async def _call(
        self, verb: str, kind: Kind, method: str, path: str, body: Object | None = None, **rest: Any
    ) -> Object:
        rest.setdefault("headers", _JSON)
        data = None if body is None else msgspec.json.encode(body)
        return wire.decoded(await self._bytes(verb, kind.plural, method, path, data=data, **rest))

    async def _bytes(self, verb: str, resource: str, method: str, path: str, **rest: Any) -> bytes:
        turn = contextlib.nullcontext() if resource in _FIRST else self._bulk
        self._check_reach(f"{method} {path}")
        async with _deadline(CALL_S + _RETRIES * _WAIT_HERE_S, f"{method} {path}"), turn:
            for attempt in range(_RETRIES + 1):
                try:
                    return await self._once(verb, resource, method, path, **rest)
                except errors.BusyError as error:
                    if attempt == _RETRIES or not _is_worth_waiting(error, method):
                        raise
                    await asyncio.sleep(error.retry_after_s)
        raise AssertionError  # pragma: no cover  # the last attempt raises

    async def _once(self, verb: str, resource: str, method: str, path: str, **rest: Any) -> bytes:
        within = aiohttp.ClientTimeout(total=CALL_S, connect=CONNECT_S, sock_connect=CONNECT_S)
        async with self._answer(verb, resource, method, path, timeout=within, **rest) as answer:
            return await wire.whole(answer)

    @contextlib.asynccontextmanager
    async def _answer(
        self, verb: str, resource: str, method: str, path: str, **rest: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        what = f"{method} {self.access.server}{path}"
        async with contextlib.AsyncExitStack() as stack:
            with _translated(what, self.reach):
                with _measured(verb, resource) as codes:
                    answer = await self._open(stack, method, path, **rest)
                    codes.append(answer.status)
                if answer.status not in _SUCCESS:
                    raise await wire.refusal(answer)
                yield answer

    async def _open(
        self,
        stack: contextlib.AsyncExitStack,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        **rest: Any,
    ) -> aiohttp.ClientResponse:
        connection = await self._current()
        who = connection.access
        answer = await stack.enter_async_context(
            connection.request(method, wire.url(connection.access.server, path, query), **rest)
        )
        if answer.status != _UNAUTHORIZED or not await self._reload_after(who):
            return answer
        answer.close()
        connection = self._connection
        return await stack.enter_async_context(
            connection.request(method, wire.url(connection.access.server, path, query), **rest)
        )

    async def _current(self) -> Connection:
        now = time.monotonic()
        if now - self._looked > _LOOK_AGAIN_S:
            self._looked = now
            if self.access.is_outdated():
                await self.reload()
        return self._connection

    async def _reload_after(self, refused: Access) -> bool:
        async with self._renewing:  # one reload for all that were refused together
            return self.access is not refused or await self._reload()

    async def _reload(self) -> bool:
        old = self.access
        if old.renew is None:
            return False
        try:
            new = await old.renew()
        except (errors.KubeError, ValueError, OSError) as error:
            logger.warning("kept credentials that may be outdated", extra={"error": str(error)})
            return False
        if new.digest != old.digest:
            self.replace(new)
        else:
            self._connection.access = new
        return (new.digest, new.authorization) != (old.digest, old.authorization)


def _watch_s() -> str:
    """Return after how many seconds a server shall end a watch: not all at once."""
    return str(300 + secrets.randbelow(300))


def _is_worth_waiting(error: errors.BusyError, method: str) -> bool:
    # 429 was not processed, whatever it was; of the rest only a read may be sent again.
    is_safe = error.status == _TOO_MANY or (method == "GET" and error.status == _UNAVAILABLE)
    return is_safe and error.retry_after_s <= _WAIT_HERE_S


@contextlib.asynccontextmanager
async def _deadline(seconds: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise errors.NotReachableError(f"{what}: no answer in {seconds:.0f} s") from error


@contextlib.contextmanager
def _translated(what: str, reach: Reach) -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reach.doubt()
        raise errors.NotReachableError(f"{what}: {in_words(error)}") from error


@contextlib.contextmanager
def _measured(verb: str, resource: str) -> Iterator[builtins.list[int]]:
    began, codes = time.monotonic(), [0]
    try:
        yield codes
    finally:
        _metrics_of(verb, resource, codes[-1]).inc()
        _seconds_of(verb).observe(time.monotonic() - began)


@functools.cache
def _metrics_of(verb: str, resource: str, code: int) -> Counter:
    return metrics.REQUESTS.labels(verb, resource, str(code))


@functools.cache
def _seconds_of(verb: str) -> Histogram:
    return metrics.REQUEST_SECONDS.labels(verb)
