"""Installing pyliqo from the manifests that came with this program.

Source: docs/parity.md § 7.8; the manifests' README.md.
"""

import asyncio
import importlib.resources
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.resources.abc import Traversable
from typing import Any, Final

import click
import yaml

from apis import keys
from apis.objects import Key, Kind, Object, key_of
from kube import errors, waiting
from kube.client import ClusterClient
from kube.cluster import Cluster, Selection
from liqoctl import outdated, upgrade
from liqoctl.forge import manifests as forge
from liqoctl.forge import values
from liqoctl.forge.manifests import InstallOptions
from liqoctl.output import Progress

MANAGER: Final = "liqoctl"
_CONTROLLERS: Final = Key(keys.LIQO_NAMESPACE, "liqo-controller-manager")
_CLUSTER_ID: Final = Key(keys.LIQO_NAMESPACE, keys.CLUSTER_ID_CONFIG_MAP)


def manifests(folders: Iterable[str] = ("",)) -> list[Object]:
    """Return the objects of these kustomizations of this version, as they are."""
    files = dict(_documents(importlib.resources.files("manifests")))
    return [obj for folder in folders for obj in forge.everything(files, folder)]


def _documents(folder: Traversable, path: str = "") -> Iterator[tuple[str, list[Object]]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _documents(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".yaml"):
            found = yaml.load_all(entry.read_bytes(), Loader=yaml.CSafeLoader)
            yield path + entry.name, [obj for obj in found if obj]


async def install(
    cluster: ClusterClient, progress: Progress, wanted: InstallOptions, *, default_image: str
) -> None:
    """Apply the manifests and return once all that they start is available.

    What ``wanted`` leaves open of image and enforcement an installation keeps as it has it. The
    caller bounds the time.

    Raises:
        click.ClickException: the cluster is too old, or is called otherwise.
        TimeoutError: something is not available in time; ``obstacles`` says what.
    """
    image, made = await _completed(cluster, wanted, default_image)
    widened = await upgrade.widened(cluster, made)
    await _apply(cluster, progress, widened)
    deployments = [key_of(obj) for obj in made if obj["kind"] == keys.DEPLOYMENT.kind]
    with progress.waiting(f"{len(deployments)} Deployments with image {image}"):
        await _all(cluster, keys.DEPLOYMENT, deployments, forge.is_rolled_out)
    progress.info(f"{len(deployments)} Deployments are available, with image {image}")
    await _take_back(cluster, progress, made, widened)
    found = await waiting.until(cluster, keys.CONFIG_MAP, _CLUSTER_ID, lambda one: one is not None)
    progress.info(f"this cluster is called {_name_in(found)}")


async def rehearse(
    cluster: ClusterClient, wanted: InstallOptions, *, default_image: str
) -> list[str]:
    """Have the API server judge what an installation would apply, and store nothing.

    Returns a line an object, as ``kubectl apply --dry-run=server`` has it.

    Raises:
        click.ClickException: something is refused; the message has all of it.
    """
    _, made = await _completed(cluster, wanted, default_image)
    old = await outdated.find(cluster, [*made, forge.cluster_id("")], MANAGER)
    lines = [await _rehearsed(cluster, obj) for obj in made]
    refused = [line for line, is_refused in lines if is_refused]
    if refused:
        raise click.ClickException("\n  ".join(["the API server refuses:", *refused]))
    gone = [forge.rehearsed(obj, "deleted") for obj in old if not forge.is_prerequisite(obj)]
    said = [*(line for line, _ in lines), *gone]
    return [f"{line} (server dry run)" for line in said]


async def _rehearsed(cluster: ClusterClient, obj: Object) -> tuple[str, bool]:
    """Return what would become of ``obj``, and whether it is refused."""
    kind = forge.kind_of(obj)
    try:
        found = await cluster.get_live(kind, key_of(obj))
        made = await cluster.apply(kind, obj, manager=MANAGER, is_dry=True)
    except errors.NotFoundError:  # its kind, or its namespace
        return forge.rehearsed(obj, "created"), False
    except (errors.ForbiddenError, errors.InvalidError) as error:
        return f"{forge.rehearsed(obj, 'refused')}: {error}", True
    return forge.rehearsed(obj, forge.outcome(found, made)), False


async def _completed(
    cluster: ClusterClient, wanted: InstallOptions, default_image: str
) -> tuple[str, list[Object]]:
    """Return what ``rendered`` does, with what the installation in ``cluster`` keeps."""
    version = await _check(cluster, wanted)
    there = await cluster.get_live(keys.DEPLOYMENT, _CONTROLLERS)
    default_image = forge.image_of(there) if there else default_image
    is_enforced = wanted.is_enforced
    if is_enforced is None and there:
        is_enforced = forge.is_enforced(there)
    said = values.merged(await kept(cluster), wanted.values)
    wanted = replace(wanted, values=said, is_enforced=is_enforced)
    return rendered(wanted, default_image, forge.folders(version))


def rendered(
    wanted: InstallOptions, default_image: str, folders: Iterable[str] = ("",)
) -> tuple[str, list[Object]]:
    """Return the image of all processes, and all objects, the kept settings among them.

    Raises:
        click.ClickException: the settings say what cannot be.
    """
    said = dict(wanted.values)
    if wanted.image and "image" in said:
        said["image"] = wanted.image  # the next installation keeps it
    try:
        settings = values.parsed(said)
    except ValueError as error:
        raise click.ClickException(f"settings: {error}") from error
    image = wanted.image or settings.image or default_image
    given = values.applied(manifests(folders), settings)
    made = forge.customised(given, replace(wanted, image=image))
    if not said:
        return image, made
    text = yaml.dump(said, Dumper=yaml.CSafeDumper)
    first = next(at for at, obj in enumerate(made) if obj["kind"] != keys.NAMESPACE.kind)
    return image, [*made[:first], values.kept(text), *made[first:]]


async def kept(cluster: Cluster) -> dict[str, Any]:
    """Return the settings that the installation keeps, empty if it keeps none.

    Raises:
        click.ClickException: somebody wrote into them what is not YAML of a mapping.
    """
    key = Key(keys.LIQO_NAMESPACE, values.NAME)
    data = (await cluster.get_live(keys.CONFIG_MAP, key) or {}).get("data") or {}
    try:
        found = yaml.load(data.get(values.ENTRY, ""), Loader=yaml.CSafeLoader) or {}
    except yaml.YAMLError as error:
        raise click.ClickException(f"configmap {key}, {values.ENTRY}: {error}") from error
    if not isinstance(found, dict):
        raise click.ClickException(f"configmap {key}, {values.ENTRY}: a mapping is needed")
    return found


async def _take_back(
    cluster: Cluster, progress: Progress, made: Sequence[Object], widened: Sequence[Object]
) -> None:
    """Remove what an older version had: rights last, since its controllers ran until now."""
    narrowed = [one for one, wide in zip(made, widened, strict=True) if one is not wide]
    old = await outdated.find(cluster, [*made, forge.cluster_id("")], MANAGER)
    if narrowed or old:
        await upgrade.until_bound(cluster, progress)
    for obj in narrowed:
        await _apply_one(cluster, obj)
        progress.info(f"{forge.kind_of(obj)} {key_of(obj)}: rights of an older version removed")
    await outdated.remove(cluster, progress, old)


async def refuse_liqo(cluster: Cluster) -> None:
    """Leave a cluster alone that Liqo runs in: its objects have the names of ours.

    Raises:
        click.ClickException: the message says how to move from it.
    """
    chart = forge.chart_of_liqo(await cluster.get_live(keys.DEPLOYMENT, _CONTROLLERS))
    if chart:
        raise click.ClickException(
            f"this cluster runs Liqo (deployment {_CONTROLLERS}, chart {chart}), and only one of "
            "the two can be in a cluster: remove Liqo by its own liqoctl first "
            "(docs/guides/from-liqo.md)"
        )


async def _check(cluster: ClusterClient, wanted: InstallOptions) -> Object:
    """Return the version of the API server, unless pyliqo cannot be installed there."""
    await refuse_liqo(cluster)
    version = await cluster.version()
    if not forge.is_supported(version):
        has, least = version.get("gitVersion", "unknown"), ".".join(map(str, forge.LEAST))
        raise click.ClickException(
            f"this cluster runs Kubernetes {has}: {least} or later is needed"
        )
    name = _name_in(await cluster.get_live(keys.CONFIG_MAP, _CLUSTER_ID))
    if wanted.cluster_id and name not in {"", wanted.cluster_id}:
        raise click.ClickException(
            f"this cluster is called {name} already, and its peers know it by that name: leave out "
            "--cluster-id, or uninstall first"
        )
    return version


def _name_in(config: Object | None) -> str:
    return str(((config or {}).get("data") or {}).get(keys.CLUSTER_ID_KEY, ""))


async def _apply(cluster: Cluster, progress: Progress, made: Sequence[Object]) -> None:
    first = [obj for obj in made if forge.is_prerequisite(obj)]
    kinds = [key_of(obj) for obj in first if obj["kind"] != keys.NAMESPACE.kind]
    for obj in first:
        await cluster.apply(forge.kind_of(obj), obj, manager=MANAGER)
    with progress.waiting(f"{len(kinds)} kinds"):
        await _all(cluster, keys.CUSTOM_RESOURCE_DEFINITION, kinds, forge.is_established)
    for obj in made:
        if not forge.is_prerequisite(obj):
            await _apply_one(cluster, obj)
    progress.info(f"{len(made)} objects applied, {len(kinds)} kinds among them")


async def _apply_one(cluster: Cluster, obj: Object) -> None:
    """Apply ``obj``; a ProviderPolicy has other writers, so what is not said of it stays."""
    kind = forge.kind_of(obj)
    if kind != keys.PROVIDER_POLICY:
        if "webhooks" in obj:
            await _forget_old_hooks(cluster, kind, obj)
        await cluster.apply(kind, obj, manager=MANAGER)
    elif await cluster.get_live(kind, key_of(obj)) is None:
        await cluster.create(kind, obj)
    else:
        await cluster.patch(kind, key_of(obj), {"spec": obj["spec"]})


async def _forget_old_hooks(cluster: Cluster, kind: Kind, obj: Object) -> None:
    key = key_of(obj)
    if changes := forge.without_old_hooks(await cluster.get_live(kind, key), obj):
        await cluster.patch(kind, key, changes)


async def _all(
    cluster: Cluster, kind: Kind, keys_: Iterable[Key], holds: Callable[[Object | None], bool]
) -> None:
    async with asyncio.TaskGroup() as tasks:
        for key in keys_:
            tasks.create_task(waiting.until(cluster, kind, key, holds))


async def obstacles(cluster: Cluster) -> str:
    """Return why pods of pyliqo do not run, as the end of a sentence."""
    pods, deployments = [
        (await cluster.list(Selection(kind, Object, keys.LIQO_NAMESPACE))).items.values()
        for kind in (keys.POD, keys.DEPLOYMENT)
    ]
    reasons = forge.obstacles(pods, deployments)
    return "; ".join(reasons) or f"see the pods of namespace {keys.LIQO_NAMESPACE}"
