"""Images are named by what goes into them, and built once."""

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from sandbox import images, locks
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
