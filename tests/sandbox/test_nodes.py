"""Archives are loaded under the names that they carry."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from sandbox import nodes


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
