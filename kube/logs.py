"""Log lines: JSON in a pod, text on a terminal; what a loop is working on comes with each line."""

import contextlib
import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NOTHING: Final[Mapping[str, object]] = {}
_OF_CLIENTS: Final = frozenset({"HttpProcessingError", "RequestPayloadError"})
"""Errors of aiohttp, which is imported by those alone who serve by it."""
_bound: ContextVar[Mapping[str, object]] = ContextVar("bound", default=_NOTHING)


@contextlib.contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Add ``fields`` to each line that is logged inside, in this task and those it starts."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def setup(*, json: bool | None = None, level: int | str = logging.INFO) -> None:
    """Send log lines to stderr, replacing what was set up before.

    ``json`` None means: text on a terminal, JSON elsewhere.
    """
    handler = logging.StreamHandler()
    as_json = not sys.stderr.isatty() if json is None else json
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.server").addFilter(_is_ours)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether it is no mistake of a client: who sends what is no HTTP is told, and fills no log."""
    error = record.exc_info[1] if record.exc_info else None
    return _OF_CLIENTS.isdisjoint(each.__name__ for each in type(error).__mro__)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the fields beside them."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; whatever JSON cannot say is said as text."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)  # ASCII: no value breaks a line


class TextFormatter(logging.Formatter):
    """``12:00:01 INFO kube.controller: created pod, pod=ns/web``; no field breaks the line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and below it the traceback, if there is one."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = "".join(f", {key}={_one_line(value)}" for key, value in fields_of(record).items())
        message = _one_line(record.getMessage())
        line = f"{clock} {record.levelname} {record.name}: {message}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what was bound when the line was logged, and what came with it as ``extra``."""
    extra = {key: _jsonable(value) for key, value in vars(record).items() if key not in _PLAIN}
    return {**{key: _jsonable(value) for key, value in _bound.get().items()}, **extra}


def _jsonable(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _one_line(value: object) -> str:
    text = str(value)
    return text if text.isprintable() else ascii(text)


def _time(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"
