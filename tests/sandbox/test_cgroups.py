"""Control groups of both versions are recognised, not assumed."""

from pathlib import Path

from sandbox import cgroups


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
