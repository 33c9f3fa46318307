"""``python -m tests.podpath``: the way of a pod through the kubelet, function by function.

It prints, in order, each function of ``kubelet`` that gets the key of a pod or the pod itself as an
argument, in the reconcile that tells that it runs: from what ``Runner`` calls to the last write. A
function of a pure module (pyproject.toml lists them) counts where another module calls it; helpers
that it calls inside of its module do not count. A reader follows a pod the easier, the fewer there
are: ``tests/kubelet/test_podpath.py`` bounds their number.
"""

import asyncio
import sys
import tomllib
from pathlib import Path
from types import CodeType, FrameType
from typing import Final, NamedTuple

from apis import objects
from apis.objects import Key
from kubelet.pods.decide import PodSnapshot
from tests.fakes import FakeCluster
from tests.kubelet import worlds
from tests.kubelet.worlds import World

ROOT: Final = Path(__file__).parents[1]
CONTRACT: Final = "The pure core does no I/O"


class Stay(NamedTuple):
    """A function that gets the pod, and the file where it is."""

    file: str
    function: str


def pure() -> frozenset[str]:
    """Return the files of ``kubelet`` that do no input or output."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    listed = next(one["source_modules"] for one in contracts if one["name"] == CONTRACT)
    return frozenset(f"{one.replace('.', '/')}.py" for one in listed if one.startswith("kubelet."))


class Follower:
    """Notes who gets the pod with ``key`` and ``uid``; for ``sys.setprofile``."""

    def __init__(self, key: Key, uid: str) -> None:
        self._key, self._uid, self._pure = key, uid, pure()
        self.stays: dict[Stay, None] = {}

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        """Note ``frame`` if a function of the kubelet begins there, or goes on, with the pod."""
        code, caller = frame.f_code, frame.f_back
        file = _file(code)
        if event != "call" or not file.startswith("kubelet/") or code.co_name.startswith("<"):
            return
        if caller is not None and _file(caller.f_code) in self._pure:
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(self._is_pod(frame.f_locals[name]) for name in names if name != "self"):
            self.stays[Stay(file, code.co_qualname)] = None

    def _is_pod(self, given: object) -> bool:
        if isinstance(given, PodSnapshot):
            return self._is_pod(given.local)
        if isinstance(given, dict):
            return isinstance(given.get("metadata"), dict) and objects.uid(given) == self._uid
        return isinstance(given, Key) and given == self._key


def _file(code: CodeType) -> str:
    return code.co_filename.removeprefix(f"{ROOT}/")


async def followed() -> list[Stay]:
    """Return the stays of a pod that has begun to run on the provider, which is told here."""
    world = World(FakeCluster(), FakeCluster())
    made = await world.bound()
    await world.reconcile()
    await world.run_remotely(worlds.running())
    before, follower = world.writes(), Follower(world.web, objects.uid(made))
    sys.setprofile(follower)
    try:
        await world.reconcile()
    finally:
        sys.setprofile(None)
    assert world.writes() != before, "nothing was told: this is not the way"
    return list(follower.stays)


def main() -> None:
    """Print the stays in order, and how many functions and files they are."""
    stays = asyncio.run(followed())
    for stay in stays:
        sys.stdout.write(f"{stay.file:<32} {stay.function}\n")
    sys.stdout.write(f"{len(stays)} functions in {len({stay.file for stay in stays})} files\n")


if __name__ == "__main__":
    main()
