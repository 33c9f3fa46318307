"""A process is told from another that was given its id, and leaves with what it recorded."""

import os
from pathlib import Path

from sandbox import api, processes
from sandbox.processes import Record


def test_a_launched_process_is_recorded_and_killed(tmp_path: Path) -> None:
    file = tmp_path / "pids" / "sleeper"
    groups = tmp_path / "group"
    processes.launch(["sleep", "60"], pid_file=file, log=tmp_path / "log", joins=[groups])
    record = processes.read(file)
    assert record
    assert record.is_alive()
    assert groups.read_text().strip() == str(record.pid)
    processes.kill(file)
    assert not record.is_alive()
    assert not file.exists()


def test_a_process_may_end_by_itself_when_asked(tmp_path: Path) -> None:
    file, log = tmp_path / "one", tmp_path / "log"
    script = "trap 'echo bye; exit' TERM; echo ready; while :; do read -t 1 x < /dev/zero; done"
    processes.launch(["bash", "-c", script], pid_file=file, log=log)
    api.wait_until(lambda: "ready" in log.read_text(), "its start", timeout_s=300)
    processes.stop(file)
    assert "bye" in log.read_text()


def test_an_id_that_another_process_got_is_not_ours(tmp_path: Path) -> None:
    file = tmp_path / "one"
    file.write_text(f"{os.getpid()} 1")
    assert not processes.is_alive(file)
    processes.kill(file)  # must not end this very process
    assert not file.exists()


def test_a_pid_file_that_says_nothing_is_nobody(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert processes.read(tmp_path / "empty") is None
    assert processes.read(tmp_path / "missing") is None


def test_a_process_that_is_gone_is_not_alive() -> None:
    assert not Record(2**22 + 1, "1").is_alive()
