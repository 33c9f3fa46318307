"""Where the programs come from, and what is said when there are none."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox import binaries
from sandbox.errors import MissingError


def fill(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (folder / name).touch()
        (folder / name).chmod(0o755)


def test_the_folder_of_the_user_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, binaries.COMPONENTS)
    monkeypatch.setenv(binaries.FOLDER_VARIABLE, str(tmp_path))
    assert binaries.program("etcd") == tmp_path / "etcd"
    assert binaries.kubectl() == tmp_path / "kubectl"


def test_an_incomplete_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, ("etcd",))
    monkeypatch.setenv(binaries.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(MissingError, match="does not hold all of"):
        binaries.program("etcd")


def test_a_file_that_nobody_may_run_is_none(tmp_path: Path) -> None:
    (tmp_path / "etcd").touch(mode=stat.S_IRUSR)
    assert not binaries.holds(tmp_path, ("etcd",))


def test_without_go_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(binaries.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    wanted = binaries.Program("coredns", ("coredns", "another-name"), "no time")
    with pytest.raises(MissingError, match="install Go"):
        binaries.folder(wanted)
    assert not list(tmp_path.glob("pyliqo/coredns/*"))


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    wanted = binaries.Program("coredns", ("coredns", "yet-another-name"), "no time")
    with pytest.raises(MissingError, match="no such module"):
        binaries.folder(wanted)
    assert not list(tmp_path.glob("pyliqo/coredns/*"))


def test_the_key_follows_name_and_content() -> None:
    same = {"go.mod": b"a", "main.go": b"b"}
    assert binaries.key(same) == binaries.key(dict(reversed(same.items())))
    assert binaries.key(same) != binaries.key({"go.mod": b"b", "main.go": b"a"})
    assert binaries.key(same) != binaries.key({"go.mod": b"", "main.go": b"ab"})


def test_the_version_is_that_of_go_mod() -> None:
    text = binaries.KUBERNETES.go_mod.read_text()
    version = binaries.kubernetes_version(text)
    assert version.startswith("v1.35.")
    assert f"version.gitVersion={version} " in binaries.link_flags(version)
    assert "version.gitMinor=35" in binaries.link_flags(version)


def test_a_go_mod_without_kubernetes_is_refused() -> None:
    with pytest.raises(ValueError, match="requires no release"):
        binaries.kubernetes_version("module x\n")


def test_a_minor_version_that_cannot_be_built_is_refused_with_those_that_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(binaries.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv(binaries.VERSION_VARIABLE, "1.7")
    with pytest.raises(MissingError, match=r"choose one of 1\.31, 1\.32, 1\.35, 1\.37"):
        binaries.folder(binaries.KUBERNETES)


@pytest.mark.parametrize("minor", binaries.minor_versions())
def test_each_minor_version_is_built_of_its_own_modules(minor: str) -> None:
    wanted = replace(binaries.KUBERNETES, modules=minor)
    assert binaries.kubernetes_version(wanted.go_mod.read_text()).startswith(f"v{minor}.")
    assert binaries.key(wanted.sources()) != binaries.key(binaries.KUBERNETES.sources())


def test_a_newer_kubernetes_has_a_containerd_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "containerd").touch(mode=stat.S_IRWXU)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(binaries.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv(binaries.VERSION_VARIABLE, "1.32")
    assert binaries.runtime("containerd") == tmp_path / "containerd"
    with pytest.raises(MissingError, match="install the package containerd"):
        binaries.runtime("ctr")
    monkeypatch.setenv(binaries.VERSION_VARIABLE, "1.37")
    with pytest.raises(MissingError, match="programs of containerd"):
        binaries.runtime("containerd")


def test_the_containerd_of_the_users_folder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, (*binaries.COMPONENTS, *binaries.CONTAINERD.names))
    monkeypatch.setenv(binaries.FOLDER_VARIABLE, str(tmp_path))
    assert binaries.runtime("containerd") == tmp_path / "containerd"
