"""A log line is one line, says what was worked on, and survives whatever is logged."""

import io
import json
import logging

import pytest

from apis.objects import Key
from kube import logs


def record(message: str = "created pod", **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": message, "name": "kube.x", "levelname": "INFO"})
    vars(made).update(extra)
    return made


def test_json_lines_say_who_when_and_what() -> None:
    with logs.bound(controller="pods"):
        line = json.loads(logs.JsonFormatter().format(record(pod=Key("ns", "web"), count=3)))

    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "INFO",
        "logger": "kube.x",
        "message": "created pod",
        "controller": "pods",
        "pod": "ns/web",
        "count": 3,
    }


NASTY = [
    # Ends of lines, as any reader may see them.
    "a\nb", "a\rb", "a\r\nb", "\n", "a\n", "\nb", "a\n\nb", "a\x0bb", "a\x0cb", "a\x1cb", "a\x1db",
    "a\x1eb", "a\x85b", "a\u2028b", "a\u2029b", "a\x00b", "a\tb", "a\x08b", "a\x7fb", "a\x9bb",
    # What a terminal obeys.
    "\x1b[31m", "\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;http://x\x07", "\x9b31m", "\x07", "\x1bc",
    # What turns or hides text, or is none.
    "\u202e", "\u2066", "\u200b", "\ufeff", "\ud800", "\udfff", "\U000e0001", "\ufffe",
    # A second line or field of ours.
    '"}', "\r\n{}", '", "level": "ERROR', '\n{"level": "ERROR", "message": "x"}', "level=ERROR",
    "\\", "\\n", '\\"', "a=b c=d", "'", "`",
    # What formatters, templates, shells and databases would read.
    "%s %d %(x)s", "{0} {x} {self}", "{{7*7}}", "${jndi:ldap://x}", "$(id)", "`id`", "; rm -rf /",
    "' OR 1=1 --", "<script>", "x" * 2**18,
]  # fmt: skip


def test_there_are_fifty_of_them() -> None:
    assert len(set(NASTY)) >= 50


@pytest.mark.parametrize("nasty", NASTY, ids=lambda nasty: ascii(nasty)[:40])
def test_no_value_breaks_the_line(nasty: str) -> None:
    for formatter in (logs.JsonFormatter(), logs.TextFormatter()):
        line = formatter.format(record(nasty, field=nasty))
        assert len(line.splitlines()) == 1
        assert "\x1b" not in line
        line.encode()


def test_what_is_bound_inside_ends_outside() -> None:
    with logs.bound(a=1):
        with logs.bound(b=2):
            assert logs.fields_of(record()) == {"a": 1, "b": 2}
        assert logs.fields_of(record()) == {"a": 1}
    assert logs.fields_of(record()) == {}


def test_an_exception_comes_with_the_line() -> None:
    error = ValueError("so it is")
    failed = record(exc_info=(ValueError, error, None))

    assert "ValueError: so it is" in json.loads(logs.JsonFormatter().format(failed))["exception"]
    assert logs.TextFormatter().format(failed).endswith("ValueError: so it is")


def test_setup_replaces_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    try:
        logs.setup(json=None, level="INFO")
        logs.setup(json=None, level="INFO")
        logging.getLogger("x").info("hello", extra={"pod": "ns/web"})
    finally:
        root.handlers[:] = before
        root.setLevel(level)

    assert json.loads(stderr.getvalue())["pod"] == "ns/web"
