"""The least that a real system can do: reacts to pods with three writes, and with nothing else.

``python -m bench.ideal ROME MILAN LOCAL REMOTE`` offloads the pods of namespace LOCAL that are
bound to its node: a shadow, a remote pod, the local status. No webhook, no healing, no Events.
"""

import argparse
import asyncio
import contextlib
import copy
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from apis import keys
from apis.objects import Key, Object, named
from bench import load
from bench.floor import SHADOW
from kube import client, errors
from kube.client import ClusterClient
from kube.cluster import Selection
from kube.informer import Change, Informer
from kube.slim import Slim

NODE: Final = "bench-ideal"
AGENT: Final = "bench-ideal"
_SIMULATED: Final = "pyliqo.io/simulated"
_TOLD: Final = ("containerStatuses", "conditions", "hostIP", "hostIPs", "phase", "podIP", "podIPs",
                "startTime")  # fmt: skip


class Ideal:
    """The loop, without which the kernel of a system would be nothing."""

    def __init__(self, rome: ClusterClient, milan: ClusterClient, local: str, remote: str) -> None:
        self._rome, self._milan = rome, milan
        bound = f"spec.nodeName={NODE}"
        self._here: Informer[Slim] = Informer(Selection(keys.POD, Slim, local, fields=bound))
        self._there: Informer[Slim] = Informer(Selection(keys.POD, Slim, remote))
        self._remote = remote
        self._local = local
        self._leaving: set[str] = set()
        self._shadows: dict[str, str] = {}
        self._latest: dict[str, Object] = {}
        self._telling: set[str] = set()

    async def run(self) -> None:
        """Offload for ever."""
        async with asyncio.TaskGroup() as tasks:

            def start(work: Coroutine[Any, Any, None]) -> None:
                tasks.create_task(_forgiving(work))

            self._here.subscribe(lambda change: self._on_local(change, start))
            self._there.subscribe(lambda change: self._on_remote(change, start))
            tasks.create_task(self._here.run(self._rome))
            tasks.create_task(self._there.run(self._milan))
            await self._here.synced.wait()
            await self._there.synced.wait()
            print("ready", flush=True)  # told to the parent

    def _on_local(self, change: Change[Slim], start: Any) -> None:
        pod, name = change.new, change.key.name
        if pod is None:
            self._leaving.discard(name)
        elif pod.metadata.deletion_timestamp and name not in self._leaving:
            self._leaving.add(name)
            start(self._remove(pod))
        elif change.old is None and not pod.metadata.deletion_timestamp:
            start(self._offload(pod))

    def _on_remote(self, change: Change[Slim], start: Any) -> None:
        pod = change.new
        if pod is None or pod.metadata.deletion_timestamp:
            return
        status = pod.decoded_status()
        if status.get("phase") == "Running":
            self._latest[change.key.name] = status
            if change.key.name not in self._telling:
                start(self._tell(change.key.name))

    async def _offload(self, pod: Slim) -> None:
        there = Key(self._remote, pod.metadata.name)
        spec = remote_spec(pod.decoded_spec())
        labels = {"labels": dict(pod.metadata.labels or {})}
        shadow = named(SHADOW, there, metadata=labels, spec={"pod": spec})
        made = await self._milan.create(SHADOW, shadow)
        self._shadows[there.name] = made["metadata"]["uid"]
        await self._milan.create(keys.POD, named(keys.POD, there, metadata=labels, spec=spec))

    async def _tell(self, name: str) -> None:
        self._telling.add(name)
        try:
            while status := self._latest.pop(name, None):  # the last one counts
                told: Object = {part: status[part] for part in _TOLD if part in status}
                await self._rome.patch_status(keys.POD, Key(self._local, name), told)
        finally:
            self._telling.discard(name)

    async def _remove(self, pod: Slim) -> None:
        there = Key(self._remote, pod.metadata.name)
        remote = self._there.get(there)
        shadow = self._shadows.pop(there.name, "")
        if shadow:
            await self._milan.delete(SHADOW, there, uid=shadow)
        if remote:
            await self._milan.delete(keys.POD, there, uid=remote.metadata.uid)
        await self._rome.delete(keys.POD, pod.key, uid=pod.metadata.uid, grace_s=0)


def remote_spec(local: Object) -> Object:
    """Return the spec of the remote pod, which goes to the provider's simulated nodes."""
    made: Object = copy.deepcopy(local)
    for name in ("nodeName", "nodeSelector", "priority", "preemptionPolicy", "serviceAccount",
                 "serviceAccountName", "schedulerName"):  # fmt: skip
        made.pop(name, None)
    made["nodeSelector"] = {"type": "simulated"}
    made["tolerations"] = load.tolerates(_SIMULATED)
    return made


async def _forgiving(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(errors.NotFoundError, errors.ConflictError):
        await work


async def _run(given: argparse.Namespace) -> None:
    async with (
        client.connect(given.rome, user_agent=AGENT) as rome,
        client.connect(given.milan, user_agent=AGENT) as milan,
    ):
        await Ideal(rome, milan, given.local, given.remote).run()


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m bench.ideal", description=__doc__)
    parser.add_argument("rome", type=Path)
    parser.add_argument("milan", type=Path)
    parser.add_argument("local")
    parser.add_argument("remote")
    asyncio.run(_run(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
