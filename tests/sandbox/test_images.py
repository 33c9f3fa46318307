"""Images are named by what goes into them, and built once."""

import io
import json
import re
import stat
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import binaries, images, locks, nodes
from sandbox.errors import MissingError
from sandbox.images import base, cache, pause, product, workload


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in product.PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f'"""{name}."""\n')
    for name in ("requirements.lock", "Containerfile", "pyproject.toml", "README.md"):
        (tmp_path / name).write_text(name)
    (tmp_path / "sandbox").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "changed",
    ["webhook/__init__.py", "kube/new.py", "requirements.lock", "Containerfile", "pyproject.toml"],
)
def test_a_change_of_the_product_is_another_image(project: Path, changed: str) -> None:
    before = product.recipe(project)
    (project / changed).write_text("changed")
    after = product.recipe(project)
    assert before.key != after.key
    assert before.name != after.name


@pytest.mark.parametrize(
    "changed", ["README.md", "sandbox/demo.py", "kube/__pycache__/a.pyc", "tests.py"]
)
def test_a_change_of_anything_else_is_not(project: Path, changed: str) -> None:
    before = product.recipe(project).key
    (project / changed).parent.mkdir(exist_ok=True)
    (project / changed).write_text("changed")
    assert product.recipe(project).key == before


def test_a_renamed_file_is_another_image(project: Path) -> None:
    (project / "kube" / "a.py").write_text("")
    before = product.recipe(project).key
    (project / "kube" / "a.py").rename(project / "kube" / "b.py")
    assert product.recipe(project).key != before


def test_parts_cannot_run_into_each_other() -> None:
    assert cache.key({"a": b"b"}) != cache.key({"ab": b""})
    assert cache.key({"a": b"", "b": b""}) != cache.key({"a": b"b"})
    assert cache.key({"a": b"1", "b": b"2"}) == cache.key({"b": b"2", "a": b"1"})


def test_names_are_full_and_known_without_building(project: Path) -> None:
    recipe = product.recipe(project)
    assert recipe.name == f"localhost/pyliqo:{recipe.key}"
    assert recipe.image().archive.parts[-3:] == ("pyliqo", recipe.key, "image.tar")
    assert re.fullmatch(r"localhost/pyliqo:[0-9a-f]{12}", images.product_name())
    assert images.workload_name() == f"localhost/workload:{workload.recipe().key}"
    assert pause.recipe().name == images.PAUSE


def test_the_same_base_has_the_same_key() -> None:
    assert base.key() == base.key()


def test_the_pause_image_is_one_layer_that_its_config_names() -> None:
    whole = _unpacked(pause.docker_archive("localhost/pause:9", b"program", "amd64"))
    (manifest,) = json.loads(whole["manifest.json"])
    config = json.loads(whole[manifest["Config"]])
    (layer,) = manifest["Layers"]
    assert manifest["RepoTags"] == ["localhost/pause:9"]
    assert config["config"]["Entrypoint"] == ["/pause"]
    assert len(config["rootfs"]["diff_ids"]) == 1
    assert _unpacked(whole[layer]) == {"pause": b"program"}


def test_a_folder_is_built_once(tmp_path: Path) -> None:
    built: list[Path] = []

    def build(folder: Path) -> None:
        built.append(folder)
        (folder / "image.tar").write_text("image")

    for _ in range(2):
        assert (cache.built(tmp_path / "key", build) / "image.tar").read_text() == "image"
    assert len(built) == 1


def test_a_build_that_stops_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    def stop(folder: Path) -> None:
        (folder / "image.tar").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.built(tmp_path / "key", stop)
    assert not (tmp_path / "key").exists()
    assert (cache.built(tmp_path / "key", lambda _: None)).exists()
    assert not list((tmp_path / "key").iterdir())


def test_only_the_newest_builds_are_kept(tmp_path: Path) -> None:
    for number in range(8):
        cache.built(tmp_path / "kind" / str(number), lambda _: None)
    assert (tmp_path / "kind" / "7").exists()
    assert len(list((tmp_path / "kind").iterdir())) < 8


def test_what_stopped_builds_left_goes_with_the_next_that_is_done(tmp_path: Path) -> None:
    (tmp_path / "1.unfinished").mkdir()
    cache.built(tmp_path / "2", lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


def test_one_process_builds_at_a_time(tmp_path: Path) -> None:
    second = locks.held(tmp_path / "lock", wait=False)
    with cache.locked(tmp_path), pytest.raises(locks.HeldError):
        second.__enter__()
    with locks.held(tmp_path / "lock", wait=False):
        pass


def _unpacked(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        entries = [(entry.name, opened.extractfile(entry)) for entry in opened]
        return {name: file.read() for name, file in entries if file}


# Archives are loaded under the names that they carry.


def archive(path: Path, files: dict[str, Any]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, document in files.items():
            content = json.dumps(document).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def test_an_oci_archive_names_its_images(tmp_path: Path) -> None:
    note = {"org.opencontainers.image.ref.name": "localhost/pyliqo:1"}
    index = {"manifests": [{"annotations": note}, {"digest": "sha256:0"}]}
    assert nodes.oci_names(archive(tmp_path / "a", {"index.json": index})) == ["localhost/pyliqo:1"]


def test_a_docker_archive_needs_no_help(tmp_path: Path) -> None:
    assert nodes.oci_names(archive(tmp_path / "a", {"manifest.json": []})) == []


LISTING = """REF TYPE DIGEST SIZE PLATFORMS LABELS
localhost/pyliqo:1 application/x sha256:aa 1 MiB linux/amd64 -
localhost/pyliqo:2 application/x sha256:bb 1 MiB linux/amd64 -
sha256:0123 application/x sha256:aa 1 MiB linux/amd64 -
"""


def test_an_image_goes_with_all_its_names() -> None:
    assert nodes.references(LISTING, "localhost/pyliqo:1") == ["localhost/pyliqo:1", "sha256:0123"]
    assert nodes.references(LISTING, "localhost/other:1") == []


def test_the_last_four_of_a_repository_are_kept() -> None:
    names = ["localhost/a:1", "localhost/b:1", *(f"localhost/a:{tag}" for tag in range(2, 7))]
    assert nodes.outdated(names, "localhost/a") == ["localhost/a:1", "localhost/a:2"]
    assert nodes.outdated(names, "localhost/b") == []


# Where the programs come from, and what is said when there are none.


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
