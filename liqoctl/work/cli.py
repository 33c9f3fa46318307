"""What each command does, from its flags to the cluster or to stdout."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from apis import keys
from apis.objects import Key, Object
from kube.client import ClusterClient
from liqoctl import output as output_
from liqoctl.forge import info as info_forge
from liqoctl.forge import installation as installation_forge
from liqoctl.forge import moving as moving_forge
from liqoctl.forge import offloading as offloading_forge
from liqoctl.forge import virtualnode as virtualnode_forge
from liqoctl.options import Session
from liqoctl.output import Progress
from liqoctl.work import bundle as bundle_
from liqoctl.work import info as info_
from liqoctl.work import (
    installation,
    moving,
    offloading,
    removal,
    session,
    virtualnodes,
    why,
)
from liqoctl.work import reflections as reflections_
from liqoctl.work import versions as versions_
from liqoctl.work.offloading import Chosen, Removal
from liqoctl.work.removal import Removal as Uninstallation
from liqoctl.work.session import Side
from liqoctl.work.virtualnodes import Deletion

__all__ = ["Chosen", "Deletion", "Removal", "Uninstallation"]


def install(
    who: Session,
    wanted: installation_forge.Wanted,
    *,
    default_image: str,
    timeout_s: float,
    output: str | None,
) -> None:
    """Install, or print what would be applied; that needs no cluster."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await installation.install(cluster, progress, wanted, default_image=default_image)
        except TimeoutError:
            why_not = await installation.obstacles(cluster)
            message = f"pyliqo is not available after {timeout_s:g}s: {why_not}"
            raise click.ClickException(message) from None

    if output:
        _, manifests = installation.rendered(wanted, default_image)
        output_.dump(manifests, output)
    else:
        session.run(who, work, needs_install=False)


def bundle(who: Session, path: Path, version: str) -> None:
    """Write what a maintainer needs to help into an archive."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        await session.check_installed(cluster, who)
        await bundle_.write(cluster, progress, path, version)

    session.run(who, work)


def kept_values(who: Session, *, output: str) -> None:
    """Print the settings that the installation keeps."""

    async def work(cluster: ClusterClient, _progress: Progress) -> None:
        await session.check_installed(cluster, who)
        found = await installation.kept(cluster)
        output_.dump([found], output, ends=False)

    session.run(who, work)


def uninstall(who: Session, how: Uninstallation, *, timeout_s: float) -> None:
    """Remove what was installed."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await removal.uninstall(cluster, progress, how)
        except TimeoutError:
            message = f"not all is gone after {timeout_s:g}s: run the same command again"
            raise click.ClickException(message) from None

    session.run(who, work, needs_install=False)


def offload(
    who: Session,
    chosen: Chosen,
    wanted: offloading_forge.Wanted,
    *,
    timeout_s: float,
    output: str | None,
) -> None:
    """Offload, or print what would be applied; by names alone that needs no cluster."""
    if wanted.remote_name and not wanted.chosen_name:
        Progress().warning(offloading_forge.NAME_IGNORED)

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        names = await offloading.namespaces(cluster, chosen)
        manifests = _offloadings(names, wanted)
        if output:
            output_.dump(manifests, output)
        else:
            fields = wanted.fields()
            await offloading.offload(
                cluster, progress, manifests, fields=fields, timeout_s=timeout_s
            )

    if output and chosen.selector is None:
        output_.dump(_offloadings(chosen.names, wanted), output)
    else:
        session.run(who, work)


def _offloadings(names: Sequence[str], wanted: offloading_forge.Wanted) -> list[Object]:
    return [offloading_forge.manifest(name, wanted) for name in dict.fromkeys(names)]


def would_reflect(who: Session, chosen: Chosen, wanted: offloading_forge.Wanted) -> None:
    """Print what would be reflected, were the ``chosen`` namespaces offloaded."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        for manifest in _offloadings(await offloading.namespaces(cluster, chosen), wanted):
            name = manifest["metadata"]["namespace"]
            progress.info(f"namespace {name}: would be reflected, nothing is changed")
            reflections_.show(await reflections_.would_be(cluster, manifest))

    session.run(who, work)


def reflections(who: Session, *, output: str) -> None:
    """Print what of a namespace is reflected."""

    async def work(cluster: ClusterClient, _progress: Progress) -> None:
        found = await reflections_.reflected(cluster, who.namespace or "default")
        if output == "text":
            reflections_.show(found)
        else:
            output_.dump([reflections_.told(found)], output, ends=False)

    session.run(who, work)


def unoffload(who: Session, chosen: Chosen, removal: Removal) -> None:
    """Take namespaces back."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        await session.check_installed(cluster, who)
        names = await offloading.namespaces(cluster, chosen)
        await offloading.unoffload(cluster, progress, names, removal)

    session.run(who, work)


def move_volume(who: Session, wanted: moving_forge.Wanted, *, timeout_s: float) -> None:
    """Move the data of a claim; without a namespace, of that of the kubeconfig."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        namespace = wanted.claim.namespace or cluster.access.namespace or "default"
        asked = replace(wanted, claim=Key(namespace, wanted.claim.name))
        await moving.move(Side(cluster, progress), asked, timeout_s=timeout_s)

    session.run(who, work)


def create_virtualnode(
    who: Session, wanted: virtualnode_forge.Wanted, *, timeout_s: float, output: str | None
) -> None:
    """Create a virtual node, or print it; only its slice's resources need a cluster then."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        if output:
            output_.dump([await virtualnodes.manifest(cluster, wanted)], output)
        else:
            await virtualnodes.create(cluster, progress, wanted, timeout_s=timeout_s)

    if output and not wanted.slice_name:
        output_.dump([virtualnode_forge.from_flags(wanted)], output)
    else:
        session.run(who, work)


def delete_virtualnode(who: Session, key: Key, deletion: Deletion) -> None:
    """Delete a virtual node."""

    async def work(cluster: ClusterClient, progress: Progress) -> None:
        await virtualnodes.delete(cluster, progress, key, deletion)

    session.run(who, work)


def versions(who: Session, own: str, *, output: str, is_client: bool) -> None:
    """Print the version of what is installed in the cluster, in data with ``own``, the client's."""
    told: Object = {"clientVersion": own}

    async def work(cluster: ClusterClient, _progress: Progress) -> None:
        if output == "text":
            await versions_.tell(cluster, who.namespace)
        else:
            told.update(await versions_.of_server(cluster, who.namespace))

    if not is_client:
        session.run(who, work, needs_install=False)
    if output != "text":
        output_.dump([told], output)


def why_pod(who: Session, key: Key, *, output: str) -> None:
    """Print why the pod ``key`` is where it is; without a namespace, that of the kubeconfig."""

    async def work(cluster: ClusterClient, _progress: Progress) -> None:
        namespace = key.namespace or cluster.access.namespace or "default"
        why.show(await why.pod(cluster, Key(namespace, key.name)), output)

    session.run(who, work)


def why_namespace(who: Session, name: str, *, output: str) -> None:
    """Print why the namespace ``name`` is offloaded as it is."""

    async def work(cluster: ClusterClient, _progress: Progress) -> None:
        await session.check_installed(cluster, who)
        why.show(await why.namespace(cluster, name), output)

    session.run(who, work)


def info(who: Session, *, path: str | None, output: str) -> bool:
    """Print what is installed, or one field of that; return whether all is well."""
    told: Object = {}

    async def work(cluster: ClusterClient, _progress: Progress) -> None:
        told.update(await info_.installation(cluster, who.namespace or keys.LIQO_NAMESPACE))
        if path is None:
            info_.show(told, info_forge.lines_of_installation(told), output)
        else:
            info_.show_field(_picked(info_forge.pick, told, path), output)

    session.run(who, work)
    return info_forge.is_well(told)


def info_peer(who: Session, names: Sequence[str], *, path: str | None, output: str) -> bool:
    """Print how it stands with peers, or one field of that; return whether all is well."""
    told: Object = {}

    async def work(cluster: ClusterClient, _progress: Progress) -> None:
        told.update(await info_.peers(cluster, names))
        if path is None:
            info_.show(told, info_forge.lines(told) or ["no peers"], output)
        else:
            info_.show_field(_picked(info_forge.pick_of_peers, told, path), output)

    session.run(who, work)
    return info_forge.is_well(told)


def _picked(pick: Callable[[Object, str], Any], told: Object, path: str) -> Any:
    try:
        return pick(told, path)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
