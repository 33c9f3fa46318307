"""A process is told from another that was given its id, and leaves with what it recorded."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
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


def test_a_process_that_a_killed_caller_was_starting_is_the_one_there_is(tmp_path: Path) -> None:
    file, log, gate = tmp_path / "one", tmp_path / "log", tmp_path / "gate"
    os.mkfifo(gate)  # whoever joins it waits for a reader
    start = (
        "import pathlib, sys; from sandbox import processes\n"
        "file, log, gate = map(pathlib.Path, sys.argv[1:])\n"
        "processes.launch(['sleep', '61'], pid_file=file, log=log, joins=[gate])"
    )
    with subprocess.Popen([sys.executable, "-c", start, file, log, gate]) as caller:
        api.wait_until(lambda: log.exists() and _waits(gate), "the process starts", timeout_s=300)
        caller.send_signal(signal.SIGKILL)
    second = threading.Thread(
        target=processes.launch, args=[["sleep", "62"]], kwargs={"pid_file": file, "log": log}
    )
    second.start()
    started = gate.read_text().strip()
    second.join()
    record = processes.read(file)
    assert record
    assert record.is_alive()
    assert str(record.pid) == started
    processes.kill(file)


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


def _waits(gate: Path) -> bool:
    """Whether a shell that opens ``gate`` is there."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = file.read_bytes()
            if line.startswith(b"sh\0-c\0") and bytes(gate) in line:
                return True
    return False
