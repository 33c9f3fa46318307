"""One API server as a ``Cluster``: raw JSON over aiohttp, nothing modelled, everything bounded."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from apis import keys
from apis.objects import Key, Kind, Object, key_of
from kube import cluster, credentials, errors, reachability, remotecommand, transport, wire
from kube.cluster import SHARED, Event, Listing, ListQuota, RollbackDetector, Selection
from kube.credentials import Access
from kube.http2 import Http2Answer
from kube.reachability import PingMonitor
from kube.remotecommand import RemoteCommand
from kube.transport import Transport
from kube.untrusted.decode import Decoder
from kube.wire import UntrustedBytes

T = TypeVar("T")

PAGE: Final = 500
_OUTLINED: Final = 4 * 2**20
"""Bytes of a page of objects that are kept in outline: two of the largest that there are."""
MAX_LISTING: Final = 2**30
MAX_PING: Final = 2**16
"""Bytes of an answer at ``/livez``, which is ``ok``."""
LIST_S: Final = 300.0
WATCH_S: Final = 300
"""A server ends a watch after that long at the earliest, and twice that at the latest."""

_RESTARTS: Final = 3
_SMALLER: Final = 8
"""By how much fewer objects are asked for at once after a page that was too large or too slow."""
_LARGER: Final = 2
"""By how much more after a page that took less than a ``_LITTLE`` part of what it may."""
_LITTLE: Final = 4
_JSON: Final = {"Content-Type": "application/json"}
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_STRATEGIC: Final = {"Content-Type": "application/strategic-merge-patch+json"}
_APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}  # JSON is YAML


@contextlib.asynccontextmanager
async def connect(
    access: Access | Path | None, *, user_agent: str = "pyliqo"
) -> AsyncIterator["ClusterClient"]:
    """Open a client for ``access``: an identity, a kubeconfig file, or None for this pod's own.

    Of this cluster, or of one whose administrator asks; a peer is connected to by ``kube.peer``.
    """
    who = access if isinstance(access, Access) else await credentials.discover(access)
    client = ClusterClient(who, user_agent=user_agent)
    try:
        yield client
    finally:
        await client.close()


class ClusterClient:
    """One API server, in the name of ``access``; fulfils ``Cluster``."""

    _most_answer, _most_event = wire.MAX_ANSWER, wire.MAX_EVENT
    """Bytes of a page of a list, and of one object, such as a line of a watch."""

    def __init__(self, access: Access, *, user_agent: str, decoder: Decoder | None = None) -> None:
        """``decoder`` reads what the server says; by default it is believed as it is."""
        self.user_agent = user_agent
        self._decoder = decoder or Decoder()
        self._turn = wire.Turn() if self._decoder.is_of_peer else None
        self._transport = Transport(access, user_agent, most=self._most_answer, turn=self._turn)
        self._doubts = RollbackDetector()
        self._limits: WeakKeyDictionary[Selection[Any], int] = WeakKeyDictionary()
        """How many objects are asked for at once, where ``PAGE`` are too large or too slow."""
        self.reach = self._transport.reach
        self.reach.subscribe_to_loss(self._doubts.all_lost)
        """Whether it answers at all; after an outage all connections are new."""

    @property
    def access(self) -> Access:
        return self._transport.identity.access

    def on_warning(self, handle: Callable[[str], None]) -> None:
        """Hand the server's warnings, which kubectl prints, to ``handle``; else nobody has them."""
        self._transport.on_warning = handle

    async def close(self) -> None:
        await self._transport.close()

    def replace(self, access: Access) -> None:
        self._transport.identity.replace(access)

    async def get(self, kind: Kind, key: Key) -> Object | None:
        if not wire.is_key(kind, key):
            return None  # an empty name would be that of all
        try:
            return await self._call("get", kind, "GET", wire.path(kind, key))
        except errors.NotFoundError:
            return None

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        return await self.get(kind, key)

    async def list(self, of: Selection[T]) -> Listing[T]:
        await self._transport.wait_for_return(f"list {of.kind.resource}")
        for _ in range(_RESTARTS):
            with contextlib.suppress(errors.ExpiredError):  # the token of a page: from the start
                async with transport.deadline(LIST_S, f"list {of.kind.resource}"):
                    return await self._list(of)
        raise errors.ExpiredError(f"the pages of {of.kind.resource} expire faster than we read")

    async def watch(self, of: Selection[T], since: str) -> AsyncGenerator[Event[T], None]:
        await self._transport.wait_for_return(f"watch {of.kind.resource}")
        await self._check_store(of, since)
        reader = self._decoder.reader(of)
        seconds = _watch_s()
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": seconds}
        query |= {"resourceVersion": since, **wire.query(of)}
        path = wire.collection(of.kind, of.namespace)
        who, is_over, began = self.access, False, time.monotonic()
        try:
            async with self._transport.lasting(
                "watch", of.kind.plural, "GET", path,
                query=query, idle_s=int(seconds) + 30, is_watch=True,
            ) as answer:  # fmt: skip
                async for line in wire.lines(
                    answer.content, most=self._most_event, turn=self._turn
                ):
                    event = reader.event(line)
                    del line  # a watch that waits for the next line keeps none, of many watches
                    if event is not None:
                        yield event
                    del event
            # A server that ends a watch before its time goes: another may come in its place.
            is_over = time.monotonic() - began >= int(seconds) - 1
        except errors.NotReachableError:
            if self.access is who:
                raise
            # Ended for another identity: no failure, and anybody who follows goes on at once.
        finally:
            (self._doubts.asked if is_over else self._doubts.lost)(of)

    async def create(self, kind: Kind, obj: Object) -> Object:
        path = wire.collection(kind, obj["metadata"].get("namespace") or "")
        return await self._call("create", kind, "POST", path, wire.typed(kind, obj))

    async def apply(self, kind: Kind, obj: Object, *, manager: str, is_dry: bool = False) -> Object:
        """Server-side apply, forced; with ``is_dry`` it is validated, answered, and not stored."""
        query = {"fieldManager": manager, "force": "true", **({"dryRun": "All"} if is_dry else {})}
        body = wire.typed(kind, obj)
        key = key_of(obj)
        path = wire.path(kind, key)
        with _meant(kind, key, obj):
            return await self._call("apply", kind, "PATCH", path, body, query=query, headers=_APPLY)

    async def patch(
        self, kind: Kind, key: Key, changes: Object, *, subresource: str = ""
    ) -> Object:
        path = wire.path(kind, key, subresource)
        is_shared = kind in SHARED and subresource == "status"
        headers = _STRATEGIC if is_shared else _MERGE
        with _meant(kind, key, changes):
            return await self._call("patch", kind, "PATCH", path, changes, headers=headers)

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
    ) -> AsyncIterator[wire.HttpAnswer]:
        """Open a raw request, such as a log; the caller reads and bounds the answer.

        Units: ``idle_s`` without a byte end it; None waits for ever, as ``logs -f`` must.

        Raises:
            KubeError: the server refused.
        """
        async with self._transport.lasting(
            "stream", "", method, path, query=query, idle_s=idle_s, is_lasting=True
        ) as answer:
            yield answer

    @contextlib.asynccontextmanager
    async def execute(
        self, pod: Key, container: str, command: Sequence[str], *, has_input: bool = False
    ) -> AsyncIterator[RemoteCommand]:
        """Run ``command`` in a container of ``pod``; anybody who leaves early ends the connection.

        Raises:
            KubeError: the server refused, or the connection was lost.
        """
        path = wire.path(keys.POD, pod, "exec")
        flags = {"container": container, "stdout": "1", "stderr": "1"}
        flags |= {"stdin": "1"} if has_input else {}
        query = [*flags.items(), *(("command", part) for part in command)]
        async with self._transport.websocket(
            f"exec in {pod}",
            path,
            query,
            most=remotecommand.MAX_MESSAGE,
            protocols=remotecommand.PROTOCOLS,
        ) as (socket, _):
            yield RemoteCommand(socket)

    @contextlib.asynccontextmanager
    async def pulse(self, of: Selection[Any]) -> AsyncIterator[PingMonitor]:
        """Watch what is there for its pings; anybody who leaves ends it.

        They are PINGs of HTTP/2 where the API server itself answers these, else of a WebSocket.

        Raises:
            KubeError: the server refused, or the connection was lost.
        """
        what = f"watch {of.kind.resource} with pings"
        await self._transport.wait_for_return(what)
        path = wire.collection(of.kind, of.namespace)
        query = {"watch": "1", "timeoutSeconds": _watch_s(), **wire.query(of)}
        identity = self._transport.identity
        if (await identity.current()).has_pings:
            async with transport.deadline(transport.CONNECT_S, what):
                await self.ping()  # tells whether the server speaks HTTP/2
        if identity.connection.has_pings:
            async with self._transport.lasting(
                "watch", of.kind.resource, "GET", path, query=query, idle_s=None, is_watch=True
            ) as answer:
                if isinstance(answer, Http2Answer):
                    asked = identity.connection
                    yield PingMonitor(
                        answer.ping, answer.signs_of_life(), lambda: asked is identity.connection
                    )
                    return
        async with self._transport.websocket(
            what,
            path,
            query,
            most=reachability.MAX_MESSAGE,
            origin=self.access.server,
            within_s=transport.CONNECT_S,
            **reachability.OPTIONS,
        ) as (socket, connection):
            yield PingMonitor(socket.ping, socket, lambda: connection is identity.connection)

    async def ping(self) -> str:
        """Ask at ``/livez``; return what the answer says of the time, in its header ``Date``.

        It queues behind no other request.

        Raises:
            KubeError: no answer, a refusal, or an answer without an end.
        """
        async with self.stream("GET", "/livez") as answer:
            await wire.whole(answer, most=MAX_PING)
            return answer.headers.get("Date", "")

    async def get_text(self, path: str, *, most: int = wire.MAX_ANSWER) -> str:
        """Return what the server says at ``path``, of at most ``most`` bytes."""
        said = await self._transport.request("get", "", "GET", path, most=most)
        return self._decoder.text(said)

    async def version(self) -> Object:
        """Return the server's version: ``gitVersion``, ``major``, ``minor``, ..."""
        said = await self._transport.request("get", "", "GET", "/version")
        return self._decoder.document(said)

    async def _list(self, of: Selection[T]) -> Listing[T]:
        if of.kept is None:
            return await self._pages(of, None)
        with of.kept.arriving() as arriving:
            return await self._pages(of, arriving)

    async def _pages(self, of: Selection[T], arriving: ListQuota | None) -> Listing[T]:
        reader = self._decoder.reader(of)
        items: dict[Key, T] = {}
        sizes: dict[Key, int] = {}
        size, token = 0, ""
        while True:
            began = time.monotonic()
            try:
                said = await self._page(of, self._limits.get(of, PAGE), token)
            except (errors.LargerError, errors.SlowError, errors.UnansweredError) as error:
                self._ask_for_less(of, error)
                continue
            page_size, took_s = len(said), time.monotonic() - began
            size += page_size
            page, token_before = reader.page(said), token
            del said  # a list that waits for the next page keeps none, of many lists
            items.update(page.items)
            sizes.update(page.sizes)
            if arriving is not None:
                arriving.has(f"the list of {of.kind.resource}", sum(sizes.values()))
            token = page.token
            if not token or (of.most and len(items) >= of.most):
                self._doubts.asked(of)
                return Listing(items, page.version, sizes)
            if size > MAX_LISTING or token == token_before:
                raise errors.NotReachableError(f"the list of {of.kind.resource} has no end")
            self._ask_for_more(of, page_size, took_s)
            await asyncio.sleep(0)

    def _ask_for_less(self, of: Selection[Any], error: errors.NotReachableError) -> None:
        """Make the pages of ``of`` smaller; raise ``error`` where that is no help, or not yet."""
        limit = self._limits.get(of, PAGE)
        self._limits[of] = max(1, limit // _SMALLER)
        if limit == 1 or isinstance(error, errors.UnansweredError):
            raise error  # perhaps the server is away, which is waited for first

    def _ask_for_more(self, of: Selection[Any], size: int, took_s: float) -> None:
        """Make them larger again after one of ``size`` bytes that is not the last."""
        is_little = size * _LITTLE < self._most_of(of) and took_s * _LITTLE < transport.CALL_S
        if of in self._limits and is_little:
            self._limits[of] = min(PAGE, self._limits[of] * _LARGER)

    async def _page(self, of: Selection[Any], limit: int, token: str = "") -> UntrustedBytes:
        query = {"limit": str(limit), **wire.query(of)} | ({"continue": token} if token else {})
        path = wire.collection(of.kind, of.namespace)
        return await self._transport.request(
            "list", of.kind.plural, "GET", path, query=query, most=self._most_of(of)
        )

    def _most_of(self, of: Selection[Any]) -> int:
        """Return the bytes of a page: few where little of a large object is kept."""
        return _OUTLINED if of.whole_up_to else self._most_answer

    async def _check_store(self, of: Selection[Any], since: str) -> None:
        """Ask the server for its version, before a watch that broke goes on from ``since``."""
        if of not in self._doubts:
            return
        version = self._decoder.reader(of).page(await self._page(of, 1)).version
        self._doubts.asked(of)
        if cluster.is_behind(version, since):
            message = f"{of.kind.resource}: the server is at version {version}, behind {since}"
            raise errors.refusal(HTTPStatus.GATEWAY_TIMEOUT, {"message": message})

    async def _check_is_another(self, kind: Kind, key: Key, uid: str) -> None:
        there = await self.get(kind, key)
        if there is not None and there["metadata"].get("uid") == uid:
            raise errors.ConflictError(f"{kind} {key} changed while it was deleted")

    async def _call(
        self, verb: str, kind: Kind, method: str, path: str, body: Object | None = None, **rest: Any
    ) -> Object:
        rest.setdefault("headers", _JSON)
        rest["most"] = self._most_event  # of one object
        data = None if body is None else msgspec.json.encode(body)
        said = await self._transport.request(verb, kind.plural, method, path, data=data, **rest)
        return self._decoder.opened(kind, said)


def _watch_s() -> str:
    """Return after how many seconds a server shall end a watch: not all at once."""
    return str(WATCH_S + secrets.randbelow(WATCH_S))


@contextlib.contextmanager
def _meant(kind: Kind, key: Key, sent: Object) -> Iterator[None]:
    """Let a UID that is sent mean: only if it is this one. The server calls it immutable."""
    try:
        yield
    except errors.InvalidError as error:
        if "uid" not in sent.get("metadata", {}) or "metadata.uid" not in str(error):
            raise
        raise errors.ConflictError(f"{kind} {key} is another object now") from error
