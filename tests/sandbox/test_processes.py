"""A process is told from another that was given its id, and leaves with what it recorded."""

import contextlib
import ipaddress
import itertools
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import allocation, api, cgroups, locks, processes, registry
from sandbox.allocation import NoSlotError, Slot
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


# Control groups of both versions are recognised, not assumed.


def test_a_version_2_machine_has_one_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "system.slice").mkdir()
    (tmp_path / "system.slice" / "cgroup.procs").touch()
    assert cgroups.hierarchies(tmp_path) == [tmp_path]


def test_a_version_1_machine_has_one_for_each_controller(tmp_path: Path) -> None:
    for name in ("cpu,cpuacct", "memory"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    (tmp_path / "empty").mkdir()
    assert cgroups.hierarchies(tmp_path) == [tmp_path / "cpu,cpuacct", tmp_path / "memory"]


@pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")
def test_a_process_that_joins_while_its_group_is_removed_ends_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is just started writes itself into one hierarchy after another."""
    name, remove = f"pyliqo-test-{os.getpid()}", os.rmdir
    late: list[subprocess.Popen[bytes]] = []

    def join_first(folder: Path) -> None:
        if not late:
            late.append(subprocess.Popen(["/bin/sleep", "600"]))
            cgroups.joins(name)[-1].write_text(str(late[0].pid))
        remove(folder)

    cgroups.create(name)
    monkeypatch.setattr(os, "rmdir", join_first)
    cgroups.remove(name)

    assert late[0].wait() == -signal.SIGKILL
    assert not list(cgroups.ROOT.glob(f"*/{name}"))


# A lock is held by one process, and freed by whatever ends it.


HOLD = """
import sys
from pathlib import Path
from sandbox import locks
with locks.held(Path(sys.argv[1]), wait=False):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_holder_is_told_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "one"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(locks.HeldError, match=f"the sandbox is busy with process {other.pid}"),
            locks.held(path, wait=False, what="the sandbox"),
        ):
            pass
        other.kill()
    with locks.held(path, wait=False):
        assert path.read_text().strip() == str(os.getpid())


def test_a_lock_leaves_no_file_when_told_so(tmp_path: Path) -> None:
    path = tmp_path / "one"
    for _ in range(2):
        with locks.held(path, wait=True, keep=False):
            assert path.exists()
        assert not path.exists()


# Clusters of one machine never share an address or a name.


ONE, OTHER = Path("/src/one"), Path("/src/other")
numbers = st.integers(0, allocation.SLOTS - 1)


def slot(number: int) -> Slot:
    return Slot("0123abcd", "/src", "rome", number)


def networks(one: Slot) -> list[ipaddress.IPv4Network]:
    nodes = ipaddress.ip_network(f"{one.address}/24", strict=False)
    cidrs = [ipaddress.ip_network(cidr) for cidr in (one.pod_cidr, one.service_cidr)]
    return [net for net in (nodes, *cidrs) if isinstance(net, ipaddress.IPv4Network)]


def test_no_two_slots_share_a_network() -> None:
    every = [net for number in range(allocation.SLOTS) for net in networks(slot(number))]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(every, 2))


@given(numbers)
def test_the_addresses_of_a_slot_lie_in_its_networks(number: int) -> None:
    one = slot(number)
    services = ipaddress.ip_network(one.service_cidr)
    assert ipaddress.ip_address(one.service_address) in services
    assert ipaddress.ip_address(one.dns_address) in services
    assert ipaddress.ip_address(one.gateway) != ipaddress.ip_address(one.address)


@given(numbers)
def test_the_kernel_admits_the_name_of_the_cable(number: int) -> None:
    assert len(slot(number).link) <= 15


def test_a_cluster_keeps_its_slot() -> None:
    first = allocation.allocate([], directory=ONE, clusters=["rome", "milan"])
    again = allocation.allocate(first, directory=ONE, clusters=["turin", "milan", "rome"])
    assert again[1:] == [first[1], first[0]]


def test_checkouts_do_not_collide() -> None:
    first = allocation.allocate([], directory=ONE, clusters=["rome", "milan"])
    second = allocation.allocate(first, directory=OTHER, clusters=["rome", "milan"])
    names = {(one.number, one.namespace, one.link) for one in [*first, *second]}
    assert len({number for number, _, _ in names}) == 4
    assert len({namespace for _, namespace, _ in names}) == 4
    assert len({link for _, _, link in names}) == 4


def test_a_slot_that_was_given_back_is_used_again() -> None:
    first = allocation.allocate([], directory=ONE, clusters=["rome", "milan"])
    second = allocation.allocate(first[1:], directory=OTHER, clusters=["turin"])
    assert second[0].number == first[0].number


def test_a_full_machine_says_what_frees_it() -> None:
    full = [Slot("x", "/x", f"c{number}", number) for number in range(allocation.SLOTS)]
    with pytest.raises(NoSlotError, match="down --all"):
        allocation.allocate(full, directory=ONE, clusters=["rome"])


def test_what_was_written_is_read() -> None:
    slots = allocation.allocate([], directory=ONE, clusters=["rome", "milan"])
    assert allocation.parse(allocation.dump(slots)) == slots


# Folders that clusters share come and go at the same time.


def test_a_folder_is_made_while_others_tidy_its_parent_away(tmp_path: Path) -> None:
    parent = tmp_path / "run" / "checkout"

    def come_and_go(name: str) -> None:
        for _ in range(500):
            registry.make_folder(parent / name)
            (parent / name).rmdir()
            registry.remove_empty(parent)

    with ThreadPoolExecutor(4) as pool:
        for job in [pool.submit(come_and_go, name) for name in ("rome", "milan", "turin", "oslo")]:
            job.result()

    assert not parent.exists()
