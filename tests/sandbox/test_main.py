"""What the command says before it touches anything."""

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import clusters
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
