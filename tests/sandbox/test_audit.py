"""What the audit log says is read as what happened."""

import json
from pathlib import Path
from typing import Any

from sandbox import audit


def line(**changes: Any) -> str:
    event = {
        "stage": "ResponseComplete",
        "verb": "patch",
        "userAgent": "pyliqo-kubelet/0.1.0",
        "requestURI": "/api/v1/namespaces/demo/pods/web/status",
        "objectRef": {
            "resource": "pods",
            "subresource": "status",
            "namespace": "demo",
            "name": "web",
        },
        "responseStatus": {"code": 200},
        **changes,
    }
    return json.dumps(event) + "\n"


def test_a_status_patch_of_ours_is_a_write() -> None:
    call = audit.parse(line())

    assert call
    assert call.is_write
    assert call.is_ours
    assert call.resource == "pods/status"


def test_reads_dry_runs_and_unfinished_requests_are_no_writes() -> None:
    read = audit.parse(line(verb="watch"))
    dry = audit.parse(line(requestURI="/api/v1/pods?dryRun=All"))

    assert read
    assert dry
    assert not read.is_write
    assert not dry.is_write
    assert audit.parse(line(stage="RequestReceived")) is None


def test_a_log_goes_on_where_it_was_read_and_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text(line(), encoding="utf-8")
    log = audit.Log(path)
    assert log.read() == []

    with path.open("a", encoding="utf-8") as file:
        file.write(line() + line()[:40])
    assert len(log.read()) == 1

    with path.open("a", encoding="utf-8") as file:
        file.write(line()[40:])
    assert audit.count(log.read(), "verb", "resource") == {("patch", "pods/status"): 1}


def test_a_line_that_is_half_written_when_the_log_is_opened_is_read_when_it_is_whole(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.log"
    half = len(line()) // 2
    path.write_text(line() + line()[:half])
    log = audit.Log(path)
    with path.open("a") as file:
        file.write(line()[half:])

    assert [call.verb for call in log.read()] == ["patch"]


def test_a_log_that_was_begun_anew_loses_no_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text(line(verb="get"), encoding="utf-8")
    log = audit.Log(path)

    with path.open("a", encoding="utf-8") as file:
        file.write(line(verb="create"))
    path.rename(tmp_path / "audit-2026-01-01T00-00-01.000.log")
    path.write_text(line(verb="update"), encoding="utf-8")
    path.rename(tmp_path / "audit-2026-01-01T00-00-02.000.log")
    path.write_text(line(verb="patch"), encoding="utf-8")

    assert [call.verb for call in log.read()] == ["create", "update", "patch"]
    assert log.read() == []


def test_a_call_knows_its_times_and_the_version_of_its_answer() -> None:
    call = audit.parse(
        line(
            requestReceivedTimestamp="2026-01-01T00:00:00.000001Z",
            stageTimestamp="2026-01-01T00:00:00.000002Z",
            responseObject={"metadata": {"resourceVersion": "7"}},
        )
    )
    other = audit.parse(line())

    assert call
    assert other
    assert call.received < call.completed
    assert (call.version, other.version) == (7, 0)
