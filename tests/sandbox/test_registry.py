"""Folders that clusters share come and go at the same time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandbox import registry


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
