"""``liqoctl move``: step by step; every run begins by looking how far an earlier one came."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from apis import keys, objects
from apis.objects import Key, Kind, Object
from apis.resources import parse_quantity
from kube.cluster import Cluster
from liqoctl import clusters, options
from liqoctl.clusters import Side
from liqoctl.forge import manifests
from liqoctl.forge import move as forge
from liqoctl.forge.move import MoveOptions, MoveState, Step

if TYPE_CHECKING:
    from kube.client import ClusterClient
    from kube.remotecommand import RemoteCommand


@options.verb("liqoctl move volume data -n shop --target-node milan")
def move() -> None:
    """Bring data to another cluster."""


def _quantity(text: str) -> str:
    parse_quantity(text)
    return text


def _amount(flag: str, default: str | None, what: str) -> Callable[..., Any]:
    return click.option(
        f"--containers-{flag}",
        type=options.Parsed("quantity", _quantity),
        default=default,
        show_default=default is not None,
        help=f"{what} of the pods that copy.",
    )


@move.command(
    "volume",
    "liqoctl move volume data -n shop --target-node milan",
    "liqoctl move volume data-store-0 -n shop --target-node turin --containers-ram-limits 256Mi",
)
@clusters.named("name", keys.PERSISTENT_VOLUME_CLAIM, metavar="PVC")
@click.option(
    "--target-node", required=True, help="Node to move the data to, or a virtual node's cluster."
)
@click.option(
    "--image",
    default="",
    help="Image of the pods that copy, with sh, tar, find and sha256sum.  [default: pyliqo's own]",
)
@_amount("cpu-requests", "50m", "Requested CPU")
@_amount("cpu-limits", None, "Greatest CPU")
@_amount("ram-requests", "64Mi", "Requested memory")
@_amount("ram-limits", None, "Greatest memory")
@options.timeout("5m")
@clusters.on_cluster()
async def move_volume(
    side: Side, name: str, target_node: str, image: str, timeout_s: float, **amounts: str | None
) -> None:
    """Move the data of a claim of class liqo to another cluster, while no pod uses it.

    The data is copied and compared before the claim is deleted, and the claim is made again on the
    target; meanwhile the target holds it twice. Interrupted, the same command goes on from where it
    was. --timeout bounds each wait for a pod or a volume, and not the copying.
    """
    resources = {kind: given for kind in ("requests", "limits") if (given := _given(amounts, kind))}
    image = image or await _own_image(side.cluster)
    wanted = MoveOptions(Key(side.namespace, name), target_node, image, resources)
    await Move(side, wanted, Commands(side.cluster), timeout_s=timeout_s).go()


def _given(amounts: dict[str, str | None], kind: str) -> dict[str, str]:
    names = {"cpu": f"containers_cpu_{kind}", "memory": f"containers_ram_{kind}"}
    return {name: value for name, flag in names.items() if (value := amounts[flag])}


CLAIM: Final = keys.PERSISTENT_VOLUME_CLAIM
_TOLD_EACH: Final = 2**30
"""Bytes after which it is told how many were copied."""
_SHELL: Final = ("sh", "-c")


class ProcessClients(Protocol):
    """Runs scripts in the pods that copy."""

    async def run(self, pod: Key, script: str) -> str:
        """Return what ``script`` wrote; KubeError when it did not end well."""
        ...

    def pipe(
        self, source: tuple[Key, str], target: tuple[Key, str]
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[int]]:
        """Pass what a script writes in one pod to one in another; yields the bytes so far."""
        ...


class Commands:
    """Fulfils ProcessClients by ``exec``: what is copied passes here, and the API servers."""

    def __init__(self, cluster: "ClusterClient") -> None:
        self._cluster = cluster

    async def run(self, pod: Key, script: str) -> str:
        async with self._command(pod, script) as command:
            return await command.text()

    @contextlib.asynccontextmanager
    async def pipe(
        self, source: tuple[Key, str], target: tuple[Key, str]
    ) -> AsyncIterator[AsyncIterator[int]]:
        async with (
            self._command(*source) as packing,
            self._command(*target, has_input=True) as unpacking,
        ):
            ending = asyncio.ensure_future(unpacking.text())
            try:
                yield _passed(packing, unpacking, ending)
                await ending
            finally:
                ending.cancel()
                await asyncio.wait([ending])

    def _command(
        self, pod: Key, script: str, *, has_input: bool = False
    ) -> contextlib.AbstractAsyncContextManager["RemoteCommand"]:
        command = (*_SHELL, script)
        return self._cluster.execute(pod, forge.CONTAINER, command, has_input=has_input)


async def _passed(
    source: "RemoteCommand", target: "RemoteCommand", ending: asyncio.Future[str]
) -> AsyncIterator[int]:
    size = 0
    async for part in source.output():
        if ending.done():
            break  # and why, it says
        await target.write(part)
        size += len(part)
        yield size
    if not ending.done():
        await target.end_input()


class Move:
    """One move; ``timeout_s`` bounds each wait, not the copying."""

    def __init__(
        self, side: Side, wanted: MoveOptions, hands: ProcessClients, *, timeout_s: float
    ) -> None:
        self._side, self._wanted, self._hands = side, wanted, hands
        self._cluster: Cluster = side.cluster
        self._timeout_s = timeout_s

    async def go(self) -> None:
        """Do all that is left to do.

        Raises:
            click.ClickException: it cannot be done; the message says why, and what to do.
            KubeError: the cluster refused something; the same command goes on from there.
        """
        while await self._do_next() is not Step.FORGET:
            pass
        self._side.info(f"{CLAIM} {self._wanted.claim}: is on node {self._wanted.node}")

    async def _do_next(self) -> Step:
        claim = await self._cluster.get_live(CLAIM, self._wanted.claim)
        copied = await self._cluster.get_live(CLAIM, self._wanted.copy)
        step = forge.next_step(self._wanted, claim, copied)
        if isinstance(step, str):
            raise self._no(step)
        await _STEPS[step](self, claim or {}, copied or {})
        return step

    async def start(self, claim: Object, _copied: Object) -> None:
        """Check that it can be moved at all, and make the claim of the copy."""
        for one in forge.obstacles(self._wanted, await self._scene(claim or None)):
            raise self._no(one)
        await self._cluster.create(CLAIM, forge.copied_claim(self._wanted, claim))
        self._side.info(f"{CLAIM} {self._wanted.copy}: created on node {self._wanted.node}")

    async def copy(self, _claim: Object, copied: Object) -> None:
        """Copy from one cluster to the other, and note that the copy is whole."""
        wanted = self._wanted
        await self._unused()
        await self._bound(wanted.copy)
        async with (
            self._mover("source", {wanted.claim.name: forge.FROM}) as source,
            self._mover("target", {wanted.copy.name: forge.TO}) as target,
        ):
            size = await self._pass(source, target)
            digest = await self._same((source, forge.FROM), (target, forge.TO))
        await self._unused()
        await self._note(wanted.copy, copied, keys.MOVED_DIGEST, digest)
        self._side.info(f"{CLAIM} {wanted.copy}: {size} bytes copied, and compared")

    async def remove(self, claim: Object, _copied: Object) -> None:
        await self._unused()
        uid = objects.uid(claim)
        await self._cluster.delete(CLAIM, self._wanted.claim, uid=uid)
        async with self._bounded():
            await clusters.until_gone(self._side, CLAIM, [self._wanted.claim], uids={uid})
        self._side.info(f"{CLAIM} {self._wanted.claim}: deleted where it was")

    async def recreate(self, _claim: Object, copied: Object) -> None:
        await self._cluster.create(CLAIM, forge.recreated(self._wanted, copied))
        self._side.info(f"{CLAIM} {self._wanted.claim}: created on node {self._wanted.node}")

    async def restore(self, _claim: Object, copied: Object) -> None:
        """Fill the claim from the copy, within the target's cluster."""
        wanted = self._wanted
        await self._unused()
        await self._bound(wanted.claim)
        mounts = {wanted.copy.name: forge.FROM, wanted.claim.name: forge.TO}
        async with self._mover("target", mounts) as target:
            with self._side.progress.waiting("the copy on the target"):
                await self._hands.run(target, forge.COPY_HERE)
                await self._same((target, forge.FROM), (target, forge.TO))
        await self._unused()
        await self._note(wanted.copy, copied, keys.MOVED, "true")
        self._side.info(f"{CLAIM} {wanted.claim}: has its data again")

    async def finish(self, _claim: Object, _copied: Object) -> None:
        async with self._bounded():
            await clusters.remove(self._side, CLAIM, self._wanted.copy)

    async def forget(self, claim: Object, _copied: Object) -> None:
        await self._note(self._wanted.claim, claim, keys.RESTORED_FROM, None)

    async def _scene(self, claim: Object | None) -> MoveState:
        of_claim = Key("", claim["spec"].get("volumeName", "")) if claim else Key("", "")
        offloading = Key(self._wanted.claim.namespace, keys.OFFLOADING_NAME)
        volume, node, offloaded = await asyncio.gather(
            self._named(keys.PERSISTENT_VOLUME, of_claim),
            self._named(keys.NODE, Key("", self._wanted.node)),
            self._named(keys.NAMESPACE_OFFLOADING, offloading),
        )
        return MoveState(claim, volume, node, offloaded, await self._pods())

    async def _named(self, kind: Kind, key: Key) -> Object | None:
        return await self._cluster.get_live(kind, key) if key.name else None

    async def _pods(self) -> tuple[Object, ...]:
        namespace = self._wanted.claim.namespace
        return tuple(await clusters.listed(self._cluster, keys.POD, namespace))

    async def _unused(self) -> None:
        for one in forge.in_use(self._wanted.claim, await self._pods()):
            raise self._no(one)

    async def _bound(self, key: Key) -> None:
        def is_bound(claim: Object | None) -> bool:
            return objects.status(claim).get("phase") == "Bound"

        async with self._bounded():
            what = f"a volume for {CLAIM} {key}"
            await clusters.until(self._side, CLAIM, key, is_bound, what=what, why=_see_events)

    @contextlib.asynccontextmanager
    async def _mover(self, which: str, mounts: Mapping[str, str]) -> AsyncIterator[Key]:
        """Have a pod that runs while inside; one that an earlier run left goes first."""
        key = self._wanted.mover(which)
        async with self._bounded():
            await self._end(key)
        made = await self._cluster.create(keys.POD, forge.mover(self._wanted, which, mounts))
        try:
            async with self._bounded():
                await clusters.until(
                    self._side, keys.POD, key, _is_running,
                    what=f"pod {key}", why=forge.why_not_running,
                )  # fmt: skip
            yield key
        finally:
            await self._cluster.delete(keys.POD, key, uid=objects.uid(made))
        async with self._bounded():
            await clusters.until_gone(self._side, keys.POD, [key], uids={objects.uid(made)})

    async def _end(self, key: Key) -> None:
        left = await self._cluster.get_live(keys.POD, key)
        if left is None:
            return
        if keys.MOVER not in objects.labels(left):
            raise self._no(f"pod {key} is in the way: rename it or remove it")
        uid = objects.uid(left)
        await self._cluster.delete(keys.POD, key, uid=uid)
        await clusters.until_gone(self._side, keys.POD, [key], uids={uid})

    async def _pass(self, source: Key, target: Key) -> int:
        size = told = 0
        with self._side.progress.waiting("the copy to the target"):
            async with self._hands.pipe((source, forge.PACK), (target, forge.UNPACK)) as passed:
                async for size in passed:
                    if size >= told + _TOLD_EACH:
                        told = size
                        self._side.info(f"{CLAIM} {self._wanted.copy}: {size} bytes copied so far")
        return size

    async def _same(self, one: tuple[Key, str], other: tuple[Key, str]) -> str:
        """Return the digest that both folders have."""
        first, second = await asyncio.gather(
            *(self._hands.run(pod, forge.digest_of(folder)) for pod, folder in (one, other))
        )
        if first != second:
            raise self._no("the copy differs from what was copied: run the same command again")
        return first.split()[0]

    async def _note(self, key: Key, claim: Object, name: str, value: str | None) -> None:
        metadata = {"uid": objects.uid(claim), "annotations": {name: value}}
        await self._cluster.patch(CLAIM, key, {"metadata": metadata})

    def _bounded(self) -> contextlib.AbstractAsyncContextManager[None]:
        return clusters.within(self._timeout_s, f"{CLAIM} {self._wanted.claim}")

    def _no(self, why: str) -> click.ClickException:
        return click.ClickException(f"{CLAIM} {self._wanted.claim}: {why}")


_STEPS: Final[dict[Step, Callable[[Move, Object, Object], Awaitable[None]]]] = {
    Step.START: Move.start,
    Step.COPY: Move.copy,
    Step.REMOVE: Move.remove,
    Step.RECREATE: Move.recreate,
    Step.RESTORE: Move.restore,
    Step.FINISH: Move.finish,
    Step.FORGET: Move.forget,
}


async def _own_image(cluster: Cluster) -> str:
    key = Key(keys.LIQO_NAMESPACE, keys.CONTROLLER_MANAGER)
    found = await cluster.get_live(keys.DEPLOYMENT, key)
    if found is None:
        hint = "give --image, one with sh, tar, find and sha256sum"
        raise click.ClickException(f"pyliqo is not installed in {key.namespace}: {hint}")
    return manifests.image_of(found)


def _is_running(pod: Object | None) -> bool:
    status = objects.status(pod)
    return status.get("phase") == "Running" and all(
        one.get("ready") for one in status.get("containerStatuses") or []
    )


def _see_events(claim: Object | None) -> str:
    phase = objects.status(claim).get("phase", "new") if claim else "gone"
    return f"it is {phase}: kubectl describe pvc says what its provisioner says"
