"""HTTP/2 to one server: a hundred requests at a time on one connection, each read at its own pace.

What a server makes us hold is bounded by the windows of the streams, and one list of headers and
one frame a connection; a rule that it breaks ends that connection. Source: RFC 9113; decision 0018.
"""

import asyncio
import contextlib
import functools
import logging
import re
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import ClassVar, Final, NamedTuple, Self, cast

import hpack
from multidict import CIMultiDict

logging.getLogger("hpack").setLevel(logging.WARNING)  # it logs headers, and so what logs us in

AT_ONCE: Final = 100
"""Requests on one connection, as many as an API server takes."""
MOST_HEADERS: Final = 2**15
"""Bytes of the headers of an answer, as they come and as they are meant."""
MOST_IDLE_FRAMES: Final = 10_000
"""Frames within ``_PERIOD_S`` that bring no answer further, such as PING and SETTINGS."""
UNSENT: Final = 2**20
"""Bytes that a server may leave unread, of requests and of what it is told."""
_PERIOD_S, _IDLE_S = 10.0, 60.0
_FRAME, _AHEAD, _INITIAL, _MOST_WINDOW = 2**14, 2**30, 2**16 - 1, 2**31 - 1
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD: Final = struct.Struct(">IBI")  # length and type, flags, stream
_SETTING: Final = struct.Struct(">HI")
_DATA, _HEADERS, _RST, _SETTINGS, _PUSH, _PING, _GOAWAY, _WINDOW, _MORE = 0, 1, 3, 4, 5, 6, 7, 8, 9
_END, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 1, 1, 4, 8, 32
_ENABLE_PUSH, _STREAMS, _WINDOW_SIZE, _LIST_SIZE = 2, 3, 4, 6
_REFUSED, _CANCEL = 7, 8
_NAME, _UNFIT = re.compile(rb"[!#-9;-@\[-~]+"), re.compile(rb"[\r\n\0]")
_MAY_BE_REPEATED: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


class NotSpokenError(Exception):
    """The server does not speak HTTP/2."""


class DisconnectedError(ConnectionError):
    """It ended the stream, or the connection, without an answer."""


class UntouchedError(DisconnectedError):
    """It says that it did nothing of what was asked."""


class BrokenOffError(ConnectionError):
    """It ended the stream, or the connection, in the middle of an answer."""


class ProtocolError(ConnectionError):
    """It broke a rule of HTTP/2, or a bound of ours."""


class HttpTimeoutError(TimeoutError):
    """No connection in time, or no byte: of all of an answer it is a plain TimeoutError."""


class Within(NamedTuple):
    """Seconds for all of an answer, for a connection to it, and for a byte; None for ever."""

    total: float | None = None
    connect_s: float | None = None
    idle_s: float | None = None


class Window(NamedTuple):
    """Bytes of an answer that are under way or unread, at first and for one that is read."""

    first: int
    most: int


class Http2Answer:
    """What a server answers to one request; the body is read as it comes."""

    def __init__(self, of: "Http2Connection", most: int, within: Within) -> None:
        self.status, self.headers = 0, CIMultiDict[str]()
        self.number, self.sendable, self.window = of.next_number, of.initial, of.window.first
        self.is_over = False
        self._connection, self._most, self._credit = of, most, self.window
        self._body, self._taken, self._left = bytearray(), 0, -1
        self._why: tuple[type[OSError], str] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._since, self._idle_s = 0.0, within.idle_s
        self._until = None if within.total is None else self._loop.time() + within.total
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    @property
    def content(self) -> Self:
        return self

    def iter_any(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._body:
            if self.is_over and self._why is None:
                raise StopAsyncIteration
            await self.changed()
        taken = bytes(self._body)
        self._body.clear()
        self._give_back(len(taken))
        return taken

    async def ping(self) -> None:
        """Have the server say something on the connection of this answer."""
        self._connection.ping()

    async def signs_of_life(self) -> AsyncIterator[None]:
        """Yield when the server has said anything; bytes of this answer are dropped, to its end."""
        with self._connection.overheard(self), contextlib.suppress(OSError):
            while not self.is_over:
                await self.changed()
                size = len(self._body)
                self._body.clear()
                self._give_back(size)
                yield

    async def changed(self) -> None:
        """Wait until there is more of it, or room for what is sent.

        Raises:
            OSError: the answer broke off, or its time is over.
        """
        if self._why is None:
            self._waiter, self._since = self._loop.create_future(), self._loop.time()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._why is not None:
            kind, text = self._why  # a new error each: one that is kept leads to no answer
            raise kind(text) if text else kind

    def close(self) -> None:
        """Read no more of it; the server is told, unless that was all."""
        self._connection.leave(self)
        self.fail(ConnectionError, "Connection closed")

    def fail(self, kind: type[OSError], text: str = "") -> None:
        if self._why is None:
            self._why = (kind, text)
            self._body.clear()
            self._changes()

    def lost(self, text: str = "") -> None:
        self.fail(BrokenOffError if self.status else DisconnectedError, text)

    def begins(self, fields: Iterable[tuple[bytes, bytes]], *, is_end: bool) -> None:
        """Take headers: of the answer, of one before it (1xx), or those that end it."""
        said, status = list(fields), ""
        if not self.status and said and said[0][0] == b":status":
            status = said.pop(0)[1].decode("latin-1")
        if not all(_NAME.fullmatch(name) and not _UNFIT.search(value) for name, value in said):
            _refuse("a header that no answer may have")
        if not (self.status or (len(status) == 3 and status.isdecimal())):  # noqa: PLR2004
            _refuse("headers without a status")
        is_begin = status[:1] not in {"", "1"}
        if not is_begin and is_end != bool(self.status):
            _refuse("headers that end nothing, or an answer that is none")
        if is_begin:
            decoded = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in said)
            self.status, self.headers = int(status), CIMultiDict(decoded)
            self._left = self._length()
        if self.status:
            self.comes(b"", 0, is_end=is_end)

    def _length(self) -> int:
        """Return how many bytes it says that it has, -1 for any number."""
        lengths = {*self.headers.getall("Content-Length", ())}
        if not lengths or self.status in {204, 304}:
            return -1
        length = lengths.pop()
        if lengths or not length.isdecimal() or len(length) > 18:  # noqa: PLR2004
            _refuse("an answer whose length is none")
        return int(length)

    def comes(self, data: bytes, padding: int, *, is_end: bool) -> None:
        self._credit -= len(data) + padding
        if self._credit < 0 or not self.status:
            raise ProtocolError("bytes that it may not send yet")
        if self._left >= 0:
            self._left -= len(data)
            if self._left < 0 or (is_end and self._left):
                self.lost("another length than it said")
        if self._why is None:
            self._body += data
            self.is_over = is_end
            self._give_back(padding)
            self._changes()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _give_back(self, size: int) -> None:
        """Let the server send as much again, and the most of what goes on to be read."""
        self._taken += size
        if self._taken * 2 >= self.window and not self.is_over:
            more, self.window = self._taken + self._most - self.window, self._most
            self._connection.tell(_WINDOW, self.number, more)
            self._credit, self._taken = self._credit + more, 0

    def _changes(self) -> None:
        if self._timer is not None and (self.is_over or self._why is not None):
            self._timer.cancel()
        self.wake()

    def _look(self) -> None:
        """Fail once the time is over: for all of it, or for who waits for a byte."""
        now, times = self._loop.time(), [] if self._until is None else [self._until]
        if self._idle_s is not None:
            times.append((self._since if self._waiter else now) + self._idle_s)
        if times and min(times) <= now:
            self.fail(TimeoutError if self._until == min(times) else HttpTimeoutError)
        elif times:
            self._timer = self._loop.call_at(min(times), self._look)


class Http2Connection(asyncio.Protocol):
    """One connection; ``settled`` once the server has said how much it takes."""

    def __init__(self, window: Window, on_loss: Callable[["Http2Connection"], None]) -> None:
        self.window, self._on_loss = window, on_loss
        self._loop = asyncio.get_running_loop()
        self.settled: asyncio.Future[None] = self._loop.create_future()
        self.initial, self.next_number = _INITIAL, 1
        self.was_used = self._is_going = self._is_closed = self._is_full = False
        self._limit, self._sendable, self._heard = AT_ONCE, _INITIAL, 0
        self._streams: dict[int, Http2Answer] = {}
        self._sending: set[Http2Answer] = set()
        self._overhearing: set[Http2Answer] = set()
        self._decoder = hpack.Decoder(max_header_list_size=MOST_HEADERS)
        self._unparsed = bytearray()
        self._block: tuple[int, int, bytearray] | None = None
        self._idle_frames, self._period = 0, 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_room(self) -> bool:
        return not self._is_going and len(self._streams) < self._limit

    async def ask(self, head: list[tuple[str, str]], body: bytes, within: Within) -> Http2Answer:
        """Send a request; return its answer once that begins."""
        answer = self._streams[self.next_number] = Http2Answer(self, self.window.most, within)
        self.next_number += 2
        self._is_going |= self.next_number > _MOST_WINDOW
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._send(answer, head, body)
            while not answer.status:
                await answer.changed()
        except BaseException:
            answer.close()
            raise
        self.was_used = True
        return answer

    async def _send(self, answer: Http2Answer, head: list[tuple[str, str]], body: bytes) -> None:
        block = b"".join([_field(*each) for each in head])
        parts = [block[at : at + _FRAME] for at in range(0, len(block), _FRAME)]
        said, at = b"", 0
        for part in parts:
            at += len(part)
            flags = _END_HEADERS * (at == len(block)) | _END * (not said and not body)
            said += _frame(_MORE if said else _HEADERS, flags, answer.number, part)
        at = 0
        while at < len(body):
            room = min(self._sendable, answer.sendable, _FRAME)
            if room <= 0 or self._is_full:
                self._write(said)
                said = b""
                self._sending.add(answer)
                try:
                    await answer.changed()
                finally:
                    self._sending.discard(answer)
                if answer.is_over:  # it has read enough
                    self.tell(_RST, answer.number, _CANCEL)
                    return
                continue
            part, at = body[at : at + room], at + room
            said += _frame(_DATA, _END * (at >= len(body)), answer.number, part)
            self._sendable -= len(part)
            answer.sendable -= len(part)
            if len(said) >= 4 * _FRAME or at >= len(body):
                self._write(said)
                said = b""
        self._write(said)

    def tell(self, kind: int, number: int, what: int) -> None:
        self._write(_frame(kind, 0, number, what.to_bytes(4, "big")))

    def ping(self) -> None:
        self._write(_frame(_PING, 0, 0, bytes(_SIZES[_PING])))

    @contextlib.contextmanager
    def overheard(self, by: Http2Answer) -> Iterator[None]:
        """Wake ``by`` at whatever comes, inside."""
        self._overhearing.add(by)
        try:
            yield
        finally:
            self._overhearing.discard(by)

    def leave(self, answer: Http2Answer) -> None:
        if self._ended(answer.number):
            self.tell(_RST, answer.number, _CANCEL)

    def let_go(self) -> None:
        """Take no more requests, and close when those under way are answered."""
        self._is_going = True
        if not self._streams:
            self.close()

    def close(self, kind: type[OSError] = ConnectionError, text: str = "Connection closed") -> None:
        self._is_going = self._is_closed = True
        for answer in self._streams.values():
            answer.fail(kind, text)
        self._streams.clear()
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is None or tls.selected_alpn_protocol() != "h2":
            self.settled.set_exception(NotSpokenError())
            self.close()
            return
        ours = {_ENABLE_PUSH: 0, _WINDOW_SIZE: self.window.first, _LIST_SIZE: MOST_HEADERS}
        said = b"".join(_SETTING.pack(*each) for each in ours.items())
        self._write(_PREFACE + _frame(_SETTINGS, 0, 0, said))
        self.tell(_WINDOW, 0, _AHEAD - _INITIAL)  # the windows of its streams are the bound

    def connection_lost(self, exc: Exception | None) -> None:
        why = exc if isinstance(exc, OSError) else DisconnectedError()
        for answer in self._streams.values():
            if not answer.status and isinstance(exc, ConnectionError):
                answer.fail(type(exc))
            answer.lost()
        if not self.settled.done():
            self.settled.set_exception(why)
        _ = self.settled.cancelled() or self.settled.exception()  # perhaps nobody waits for it
        if self._timer is not None:
            self._timer.cancel()
        self._streams.clear()
        self._is_going = self._is_closed = True
        self._on_loss(self)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        _wake(self._sending)

    def data_received(self, data: bytes) -> None:
        if self._unparsed and not self._is_closed:
            self._unparsed += data
        whole, at = self._unparsed or data, 0
        try:
            while not self._is_closed and len(whole) - at >= _HEAD.size:
                size, flags, number = _HEAD.unpack_from(whole, at)
                begin, end = at + _HEAD.size, at + _HEAD.size + (size >> 8)
                if end - begin > _FRAME:
                    _refuse("a frame larger than any may be")
                if end > len(whole):
                    break
                at = end
                self._comes(size & 0xFF, flags, number & _MOST_WINDOW, bytes(whole[begin:end]))
        except (ProtocolError, hpack.HPACKError) as error:
            self._break(str(error) if isinstance(error, ProtocolError) else "broken headers")
        _wake(self._overhearing)
        if self._is_closed:
            self._unparsed.clear()
        elif whole is data:
            self._unparsed = bytearray(data[at:])
        else:
            del self._unparsed[:at]

    def _comes(self, kind: int, flags: int, number: int, said: bytes) -> None:
        if self._block is not None and kind != _MORE:
            _refuse("a frame in the middle of headers")
        is_open = number & 1 and number < self.next_number
        if kind in _OF_STREAMS and not is_open and (number or kind != _WINDOW):
            _refuse("a frame of a stream that nobody opened")
        if (kind in _OF_ALL and number) or len(said) != _SIZES.get(kind, len(said)):
            _refuse("a frame of another shape than it must have")
        if kind not in self._HANDLERS or not self._HANDLERS[kind](self, flags, number, said):
            self._idle_frames += 1
            if self._idle_frames > MOST_IDLE_FRAMES:
                now, self._idle_frames = self._loop.time(), 0
                if now - self._period < _PERIOD_S:
                    _refuse("many frames that say nothing")
                self._period = now

    def _on_data(self, flags: int, number: int, said: bytes) -> bool:
        self._heard += len(said)
        if self._heard * 2 >= _AHEAD:
            self.tell(_WINDOW, 0, self._heard)
            self._heard = 0
        if (answer := self._streams.get(number)) is None:
            return False
        data, is_end = _unpadded(flags, said), bool(flags & _END)
        answer.comes(data, len(said) - len(data), is_end=is_end)
        if is_end:
            self._ended(number)
        return bool(data) or is_end

    def _on_headers(self, flags: int, number: int, said: bytes) -> bool:
        self._block = (number, flags & _END, bytearray())
        return self._on_more(flags, number, _unpadded(flags, said)[5 * bool(flags & _PRIORITY) :])

    def _on_more(self, flags: int, number: int, said: bytes) -> bool:
        if self._block is None or self._block[0] != number:
            raise ProtocolError("headers that go on without a beginning")
        _, is_end, block = self._block
        block += said
        if len(block) > MOST_HEADERS:
            _refuse("headers that are too large")
        if not flags & _END_HEADERS:
            return False
        self._block = None
        fields = cast("Iterable[tuple[bytes, bytes]]", self._decoder.decode(bytes(block), raw=True))
        if (answer := self._streams.get(number)) is None:
            return False
        answer.begins(fields, is_end=bool(is_end))
        if is_end:
            self._ended(number)
        return bool(answer.status)

    def _on_reset(self, _flags: int, number: int, said: bytes) -> bool:
        if (answer := self._ended(number)) is None:
            return False
        if int.from_bytes(said, "big") == _REFUSED and not answer.status:
            answer.fail(UntouchedError)
        answer.lost()
        return True

    def _on_settings(self, flags: int, _number: int, said: bytes) -> bool:
        if flags & _ACK:
            return False
        if len(said) % _SETTING.size:
            _refuse("settings of another shape than they must have")
        for name, value in _SETTING.iter_unpack(said):
            self._is_set(name, value)
        self._write(_frame(_SETTINGS, _ACK, 0, b""))
        if not self.settled.done():
            self.settled.set_result(None)
        _wake(self._sending)
        return False

    def _is_set(self, name: int, value: int) -> None:
        if name == _STREAMS:
            self._limit = min(value, AT_ONCE)
        elif name == _WINDOW_SIZE:
            if value > _MOST_WINDOW:
                _refuse("a window larger than any may be")
            for answer in self._streams.values():
                answer.sendable += value - self.initial
            self.initial = value

    def _on_push(self, _flags: int, _number: int, _said: bytes) -> bool:
        raise ProtocolError("an answer that nobody asked for")

    def _on_ping(self, flags: int, _number: int, said: bytes) -> bool:
        if not flags & _ACK:
            self._write(_frame(_PING, _ACK, 0, said))
        return False

    def _on_goaway(self, _flags: int, _number: int, said: bytes) -> bool:
        last = int.from_bytes(said[:4], "big") & _MOST_WINDOW
        for later in [each for each in self._streams if each > last]:
            self._streams.pop(later).fail(UntouchedError)
        self.let_go()
        return False

    def _on_window(self, _flags: int, number: int, said: bytes) -> bool:
        by, answer = int.from_bytes(said, "big") & _MOST_WINDOW, self._streams.get(number)
        if answer is not None:
            answer.sendable += by
        self._sendable += by * (number == 0)
        if not by or max(self._sendable, answer.sendable if answer else 0) > _MOST_WINDOW:
            _refuse("a window larger than any may be, or by nothing")
        _wake(self._sending)
        return False

    _HANDLERS: ClassVar = {
        _DATA: _on_data,
        _HEADERS: _on_headers,
        _RST: _on_reset,
        _SETTINGS: _on_settings,
        _PUSH: _on_push,
        _PING: _on_ping,
        _GOAWAY: _on_goaway,
        _WINDOW: _on_window,
        _MORE: _on_more,
    }

    def _ended(self, number: int) -> Http2Answer | None:
        answer = self._streams.pop(number, None)
        if answer is not None and not self._streams:
            if self._is_going:
                self.close()
            else:
                self._timer = self._loop.call_later(_IDLE_S, self.let_go)
        return answer

    def _write(self, data: bytes) -> None:
        if self._is_closed or not data:
            return
        if self._transport.get_write_buffer_size() > UNSENT:
            self._break("it reads nothing of what it is told")
        else:
            self._transport.write(data)

    def _break(self, text: str) -> None:
        self.close(ProtocolError, f"it breaks the rules of HTTP/2: {text}")
        self._transport.abort()


_OF_STREAMS: Final = frozenset({_DATA, _HEADERS, _RST, _MORE, _WINDOW})
_OF_ALL: Final = frozenset({_SETTINGS, _PING, _GOAWAY})
_SIZES: Final = {_RST: 4, _PING: 8, _WINDOW: 4}


def _frame(kind: int, flags: int, number: int, said: bytes) -> bytes:
    return _HEAD.pack(len(said) << 8 | kind, flags, number) + said


@functools.lru_cache(128)  # most are the same each time
def _field(name: str, value: str) -> bytes:
    """Return a header as a literal that no table keeps: nothing to search, nothing to shrink."""
    said = b"\0"
    for part in (name.encode(), value.encode()):
        size, more = min(len(part), 127), len(part) - 127
        said += bytes([size])
        while size == 127 and more >= 128:  # noqa: PLR2004
            said, more = said + bytes([more % 128 + 128]), more // 128
        said += (bytes([more]) if size == 127 else b"") + part  # noqa: PLR2004
    return said


def _wake(answers: Iterable[Http2Answer]) -> None:
    for each in answers:
        each.wake()


def _refuse(what: str) -> None:
    raise ProtocolError(what)


def _unpadded(flags: int, said: bytes) -> bytes:
    if not flags & _PADDED:
        return said
    if not said or said[0] >= len(said):
        _refuse("more padding than there is room for")
    return said[1 : len(said) - said[0]]


Dial = Callable[[Callable[[], Http2Connection]], Awaitable[Http2Connection]]


class Http2Pool:
    """Connections to one server, each opened when those before it have no room."""

    def __init__(self, dial: Dial, window: Window) -> None:
        """``dial`` connects what its argument makes."""
        self._dial, self._window = dial, window
        self._connections: list[Http2Connection] = []
        self._opening: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def request(
        self, head: list[tuple[str, str]], body: bytes, within: Within
    ) -> Http2Answer:
        """Send a request, once more where that is safe; return its answer once that begins.

        Raises:
            NotSpokenError: the server does not speak HTTP/2, and heard nothing.
            OSError: it was not reached in time, or broke off.
        """
        for is_last in (False, True):
            connection = await self._with_room(within.connect_s)
            is_safe = connection.was_used and head[0][1] in _MAY_BE_REPEATED
            try:
                return await connection.ask(head, body, within)
            except DisconnectedError as error:
                if is_last or not (is_safe or isinstance(error, UntouchedError)):
                    raise
        raise AssertionError  # pragma: no cover  # the last attempt raises

    async def _with_room(self, within_s: float | None) -> Http2Connection:
        while True:
            for each in self._connections:
                if each.has_room:
                    return each
            if self._opening is None:  # one for all who come meanwhile
                self._opening = asyncio.get_running_loop().create_task(self._open(within_s))
                self._tasks.add(self._opening)
                self._opening.add_done_callback(self._opened)
            opening = self._opening
            await asyncio.wait({opening})
            if self._is_closed:
                raise ConnectionError("Connection closed")
            opening.result()

    async def _open(self, within_s: float | None) -> None:
        try:
            async with asyncio.timeout(within_s):
                made = await self._dial(lambda: Http2Connection(self._window, self._lost))
                try:
                    await made.settled
                except BaseException:
                    made.close()
                    raise
        except TimeoutError as error:
            raise HttpTimeoutError from error
        if self._is_closed or asyncio.current_task() is not self._opening:
            made.close()  # it was let go before it was there
        elif not made.has_room:
            made.close()
            raise ConnectionError("it takes no requests")
        else:
            self._connections.append(made)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task is self._opening:
            self._opening = None
        _ = task.cancelled() or task.exception()  # whoever waited may have gone

    def _lost(self, connection: Http2Connection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)

    def let_go(self) -> None:
        """Open new ones for what is asked from now on."""
        self._opening = None
        for connection in list(self._connections):
            connection.let_go()

    def close(self) -> None:
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        for connection in list(self._connections):
            connection.close()
