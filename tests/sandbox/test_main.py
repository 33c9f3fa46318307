"""What the command says before it touches anything."""

import io
import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from sandbox import clusters, packages, progress
from sandbox.__main__ import main
from sandbox.errors import MissingError


@pytest.mark.parametrize("command", [[], ["up"], ["down"], ["status"], ["load-image"], ["demo"]])
def test_help_has_examples(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert "python -m sandbox up" in capsys.readouterr().out


@pytest.mark.parametrize("names", ["", ",", "a/b", "x" * 17])
def test_a_name_that_cannot_be_a_cluster_is_refused(
    names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["up", "--clusters", names])
    assert ended.value.code == 2
    assert "letters and digits" in capsys.readouterr().err


def test_an_archive_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["load-image", str(tmp_path / "none.tar")]) == 1
    said = capsys.readouterr().err
    assert "none.tar" in said
    assert len(said.splitlines()) == 1


def test_without_root_one_sentence_says_why() -> None:
    with pytest.raises(MissingError, match="only root may") as stopped:
        clusters.check_root(1000)
    assert len(str(stopped.value).splitlines()) == 1
    clusters.check_root(0)


def test_a_reader_that_has_seen_enough_gets_no_stack_trace() -> None:
    command = [sys.executable, "-m", "sandbox", "status"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        said = process.stderr.read()

    assert (process.returncode, said) == (141, b"")


# Which Debian packages are missing, and whether they can be installed.


DEBIAN = {"ID": "debian", "PRETTY_NAME": "Debian GNU/Linux 12"}
UBUNTU_LIKE = {"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}
FEDORA = {"ID": "fedora", "PRETTY_NAME": "Fedora Linux 42"}


def test_nothing_is_missing_when_all_are_installed() -> None:
    answer = "".join(f"{name} installed\n" for name in packages.NEEDED)
    assert packages.missing(answer) == ()


def test_removed_and_unknown_packages_are_missing() -> None:
    rest = "".join(f"{name} installed\n" for name in packages.NEEDED if name != "buildah")
    assert packages.missing(rest) == ("buildah",)
    assert packages.missing(f"{rest}buildah config-files\n") == ("buildah",)
    assert packages.missing("") == packages.NEEDED


@pytest.mark.parametrize("system", [DEBIAN, UBUNTU_LIKE])
def test_root_installs_on_debian_and_its_kin(system: dict[str, str]) -> None:
    assert packages.hindrance(system, uid=0) == ""
    assert "needs root" in packages.hindrance(system, uid=1000)


def test_other_systems_are_named() -> None:
    assert packages.hindrance(FEDORA, uid=0) == "Fedora Linux 42 is not Debian or Ubuntu"
    assert packages.hindrance({}, uid=0) == "this system is not Debian or Ubuntu"


# Progress on a terminal and in a log.


def progress_on(
    *, terminal: bool, clock: list[float] | None = None
) -> tuple[progress.Progress, io.StringIO]:
    out = io.StringIO()
    ticks = iter(clock or itertools.count())
    console = Console(file=out, force_terminal=terminal, width=100)
    return progress.Progress(console, lambda: float(next(ticks))), out


def test_a_log_gets_plain_lines() -> None:
    steps, out = progress_on(terminal=False, clock=[0, 0, 12])
    with steps.step("building the base image"):
        pass
    assert out.getvalue() == "==> building the base image\n    done in 12 s\n"


def test_a_log_gets_details_only_now_and_then() -> None:
    steps, out = progress_on(terminal=False, clock=[0, 0, 1, 11, 11, 12, 20])
    with steps.step("copying") as step:
        step.update("1 of 3")
        step.update("2 of 3")
        step.update("3 of 3")
    assert out.getvalue().splitlines() == ["==> copying", "    2 of 3", "    done in 20 s"]


def test_a_step_that_fails_says_so_and_lets_the_error_pass() -> None:
    steps, out = progress_on(terminal=False, clock=[0, 0, 3])
    with pytest.raises(OSError, match="full"), steps.step("copying"):
        raise OSError("full")
    assert out.getvalue().endswith("    stopped after 3 s\n")


def test_a_terminal_keeps_one_line_a_step() -> None:
    steps, out = progress_on(terminal=True)
    with steps.step("copying [all]") as step:
        step.update("1 of 3")
    assert out.getvalue().splitlines()[-1].count("copying [all]") == 1


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "0 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s")]
)
def test_durations_read_as_people_say_them(seconds: float, said: str) -> None:
    assert progress.duration(seconds) == said
