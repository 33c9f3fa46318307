"""The audit log of a cluster: who asked what, the oracle of tests and benchmarks."""

import contextlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandbox.api import Api, RefusedError, wait_until

WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
OURS: Final = "pyliqo-"
_LOGGED_S: Final = 120.0
_LONGEST: Final = 8 * 2**20
"""Bytes of a line: an object of 3 MB as it was asked for and as it was answered, and some."""


@dataclass(frozen=True)
class Call:
    """One request that an API server completed; dry runs and failed writes say so."""

    agent: str
    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    dry_run: bool
    received: str = ""
    """When, to the microsecond; such texts compare as their times do."""
    completed: str = ""
    message: str = ""
    """What the server said to a request that it refused."""
    version: int = 0
    """The resourceVersion of the answer, 0 where the log does not keep it."""

    @property
    def is_write(self) -> bool:
        """Whether it may have changed something."""
        return self.verb in WRITES and not self.dry_run

    @property
    def is_ours(self) -> bool:
        """Whether a process of pyliqo made it."""
        return self.agent.startswith(OURS)


def parse(line: str) -> Call | None:
    """Return the call of one line of the log; None for what is no completed resource request."""
    event = json.loads(line)
    target = event.get("objectRef")
    if event.get("stage") != "ResponseComplete" or not target:
        return None
    parts = (target.get("resource", ""), target.get("subresource", ""))
    return Call(
        agent=event.get("userAgent", ""),
        user=event.get("user", {}).get("username", ""),
        verb=event.get("verb", ""),
        resource="/".join(part for part in parts if part),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        dry_run="dryRun=" in event.get("requestURI", ""),
        received=event.get("requestReceivedTimestamp", ""),
        completed=event.get("stageTimestamp", ""),
        message=event.get("responseStatus", {}).get("message", ""),
        version=_version(event),
    )


def _version(event: dict[str, Any]) -> int:
    answer = event.get("responseObject") or {}
    version = str((answer.get("metadata") or {}).get("resourceVersion", ""))
    return int(version) if version.isdigit() else 0


class Log:
    """An audit log from now on: each ``read`` goes on where the last one ended.

    The API server starts a new file every 100 MB and keeps the old one beside it, under its name
    with a time in it; what was added to the old one is read first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            start = max(0, found.st_size - _LONGEST)
            file.seek(start)
            last = file.read(found.st_size - start)
        # The last line may be half written yet: it is read when it is whole.
        self._file, self._offset = found.st_ino, start + last.rfind(b"\n") + 1

    def read(self) -> list[Call]:
        """Return the calls that were completed since the last look; whole lines only."""
        finished = self._finished()
        text = b"".join(map(self._rest, finished))
        with self._path.open("rb") as file:
            file.seek(self._offset)
            last = file.read()
        whole = last[: last.rfind(b"\n") + 1]
        self._offset += len(whole)
        return list(_calls((text + whole).decode().splitlines()))

    def settled(self, server: Api) -> list[Call]:
        """Return what ``read`` does, once ``server`` has logged all that it answered before.

        It answers first and logs then; a question of our own, found in the log, ends the wait.
        """
        mark = f"mark-{secrets.token_hex(8)}"
        with contextlib.suppress(RefusedError):
            server.request("GET", f"/api/v1/namespaces/default/configmaps/{mark}")
        calls: list[Call] = []

        def is_there() -> bool:
            calls.extend(self.read())
            return any(call.name == mark for call in calls)

        wait_until(is_there, f"a request in {self._path}", timeout_s=_LOGGED_S)
        return [call for call in calls if call.name != mark]

    def _finished(self) -> list[Path]:
        """Return the files that are complete but not read, the oldest first."""
        if self._path.stat().st_ino == self._file:
            return []
        kept = sorted(self._path.parent.glob(f"{self._path.stem}-*{self._path.suffix}"))
        ours = next(number for number, one in enumerate(kept) if one.stat().st_ino == self._file)
        return kept[ours:]

    def _rest(self, finished: Path) -> bytes:
        with finished.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        self._file, self._offset = self._path.stat().st_ino, 0
        return text


def count(calls: Iterable[Call], *fields: str) -> Counter[tuple[Any, ...]]:
    """Return how many calls there are for each combination of ``fields``."""
    return Counter(tuple(getattr(call, name) for name in fields) for call in calls)


def _calls(lines: Iterable[str]) -> Iterator[Call]:
    return (call for call in map(parse, lines) if call)
