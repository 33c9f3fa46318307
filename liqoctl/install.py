"""``liqoctl install``, ``get values``, ``version``: pyliqo from the manifests of this program.

Source: docs/parity.md § 7.8; the manifests' README.md.
"""

import asyncio
import contextlib
import functools
import importlib.metadata
import importlib.resources
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from apis import keys, objects, ownership
from apis.objects import Key, Kind, Object, key_of
from kube import errors
from kube.cluster import Cluster, Selection
from liqoctl import clusters, options
from liqoctl.clusters import Side
from liqoctl.forge import manifests as forge
from liqoctl.forge import values
from liqoctl.forge.manifests import IMAGE, InstallOptions, check_cluster_id
from liqoctl.options import Session, cli
from liqoctl.output import Progress, as_yaml, dump, echo

if TYPE_CHECKING:
    from kube.client import ClusterClient

MANAGER: Final = "liqoctl"
_CONTROLLERS: Final = Key(keys.LIQO_NAMESPACE, keys.CONTROLLER_MANAGER)
_CLUSTER_ID: Final = Key(keys.LIQO_NAMESPACE, keys.CLUSTER_ID_CONFIG_MAP)
_MANAGED: Final = ("aks", "eks", "gke")
_PROVIDERS: Final = (*_MANAGED, "k3s", "kind", "kubeadm", "openshift")
"""Liqo's ``install`` has a command for each of them."""


@cli.command(
    "install",
    "liqoctl install --cluster-id rome",
    "liqoctl install kind --cluster-id rome",
    "liqoctl install --cluster-id milan --image registry.example/pyliqo:0.1.0",
    "liqoctl install --cluster-id milan --cluster-labels region=europe --sharing-percentage 70",
    "liqoctl install --cluster-id rome --values values.yaml",
    "liqoctl install --cluster-id rome --api-server-url https://rome.example:443",
    "liqoctl install --values values.yaml --dry-run=server",
    "liqoctl install --cluster-id rome -o yaml | kubectl apply --server-side -f -",
)
@click.argument("provider", required=False, type=click.Choice(_PROVIDERS))
@click.option(
    "--cluster-id",
    default="",
    help="Name of this cluster among its peers.  [default: what the About API says, else a "
    "name made of the UID of kube-system]",
)
@click.option(
    "--image",
    default="",
    envvar="PYLIQO_IMAGE",
    show_envvar=True,
    help="Image of all processes.  [default: the one installed, else pyliqo:VERSION]",
)
@options.pairs(
    "--cluster-labels",
    "Labels that consumers are told to put on the nodes that stand for this cluster.",
)
@click.option(
    "--sharing-percentage",
    type=click.IntRange(0, 100),
    help="Percent of what is free that consumers get, also by slice class default.  [default: "
    "class default gives 4 CPUs, 8Gi and 110 pods, class shared 90]",
)
@options.switch(
    "--enable-resource-enforcement",
    default=None,
    help="Keep consumers to what their slices were granted.  [default: as installed, else yes]",
)
@click.option(
    "--values",
    "-f",
    "files",
    type=options.SetValues(),
    multiple=True,
    help="YAML file with settings that the installation keeps (docs/values.md); - reads stdin. May "
    "be repeated: the last one wins, over those kept too.",
)
@click.option(
    "--api-server-url",
    default="",
    help="https:// URL at which peers reach this cluster's API server; it is kept.  [default: the "
    "address of a control-plane node, port 6443]",
)
@click.option(
    "--api-server-ca",
    type=click.File(),
    help="PEM file of who signs the API server's certificate; it is kept.  [default: the authority "
    "that pods of the cluster are given]",
)
@options.timeout("5m")
@click.option(
    "--dry-run",
    type=click.Choice(["server"]),
    help="Have the API server check everything, print what would change, and store nothing.",
)
@options.OUTPUT
@options.global_flags
def install_command(
    session: Session,
    provider: str | None,
    timeout_s: float,
    form: str | None,
    dry_run: str | None,
    **given: Any,
) -> None:
    """Install pyliqo in a cluster, or bring it up to date; both are repeatable.

    What a flag leaves out stays as it is, settings of --values too. The manifests are this
    program's own. They are the same for each provider of clusters: its name, which Liqo asks for,
    may be left out.
    """
    check_namespace(session)
    if provider:
        Progress().info(_of_provider(provider, is_reached=bool(given["api_server_url"])))
    if given["cluster_id"]:
        try:
            check_cluster_id(given["cluster_id"])
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--cluster-id") from error
    flags = ("files", "api_server_url", "api_server_ca")
    said = _values(*(given.pop(flag) for flag in flags))
    wanted = InstallOptions(metadata=session.metadata, values=said, **given)
    default = f"{IMAGE}:{importlib.metadata.version('pyliqo')}"
    if form:  # that needs no cluster
        _, manifests = rendered(wanted, default)
        dump(manifests, form)
        return
    do = rehearse if dry_run else _install_within
    work = functools.partial(do, wanted=wanted, default_image=default, timeout_s=timeout_s)
    clusters.run(session, work, needs_install=False)


def _of_provider(provider: str, *, is_reached: bool) -> str:
    told = f"{provider}: installed as in any other cluster"
    if is_reached or provider not in _MANAGED:
        return told
    cure = "--api-server-url says where its peers reach the API server (docs/managed-clusters.md)"
    return f"{told}, but no node there is a control plane: {cure}"


def _values(files: tuple[dict[str, Any], ...], url: str, ca: TextIO | None) -> dict[str, Any]:
    """Return the settings that the flags say, the last word on each."""
    server = {"url": url, "ca": ca.read(options.MOST_OF_A_FILE) if ca else ""}
    flagged = {name: text for name, text in server.items() if text}
    said = functools.reduce(values.merged, (*files, {"apiServer": flagged} if flagged else {}))
    try:
        values.parsed(values.merged({}, said))
    except ValueError as error:
        given = {"--values": files, "--api-server-url": url, "--api-server-ca": ca}
        hint = ", ".join(flag for flag, value in given.items() if value)
        raise click.BadParameter(str(error), param_hint=hint) from error
    return said


def check_namespace(session: Session) -> None:
    if session.namespace not in {"", keys.LIQO_NAMESPACE}:
        raise click.UsageError(f"pyliqo is installed in namespace {keys.LIQO_NAMESPACE}: omit -n")


def manifests(folders: Iterable[str] = ("",)) -> list[Object]:
    """Return the objects of these kustomizations of this version, as they are."""
    import yaml

    def documents(folder: Traversable, path: str = "") -> Iterator[tuple[str, list[Object]]]:
        for entry in folder.iterdir():
            if entry.is_dir():
                yield from documents(entry, f"{path}{entry.name}/")
            elif entry.name.endswith(".yaml"):
                found = yaml.load_all(entry.read_bytes(), Loader=yaml.CSafeLoader)
                yield path + entry.name, [obj for obj in found if obj]

    files = dict(documents(importlib.resources.files("manifests")))
    return [obj for folder in folders for obj in forge.everything(files, folder)]


async def _install_within(
    side: Side, wanted: InstallOptions, default_image: str, timeout_s: float
) -> None:
    """Install, or fail with what is not available in time.

    Raises:
        click.ClickException: as of ``install``, too.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await install(side, wanted, default_image=default_image)
    except TimeoutError:
        why_not = await obstacles(side.cluster)
        message = f"pyliqo is not available after {timeout_s:g}s: {why_not}"
        raise click.ClickException(message) from None


async def install(side: Side, wanted: InstallOptions, *, default_image: str) -> None:
    """Apply the manifests and return once all that they start is available.

    What ``wanted`` leaves open of image and enforcement an installation keeps as it has it. The
    caller bounds the time.

    Raises:
        click.ClickException: the cluster is too old, or is called otherwise.
        TimeoutError: something is not available in time; ``obstacles`` says what.
    """
    cluster = side.cluster
    image, made = await _completed(cluster, wanted, default_image)
    bound = await widened(cluster, made)
    await _apply(side, bound)
    deployments = [key_of(obj) for obj in made if obj["kind"] == keys.DEPLOYMENT.kind]
    with side.progress.waiting(f"{len(deployments)} Deployments with image {image}"):
        await _all(cluster, keys.DEPLOYMENT, deployments, forge.is_rolled_out)
    side.info(f"{len(deployments)} Deployments are available, with image {image}")
    await _take_back(side, made, bound)
    found = await clusters.reached(
        cluster, keys.CONFIG_MAP, _CLUSTER_ID, lambda one: one is not None
    )
    side.info(f"this cluster is called {_name_in(found)}")


async def rehearse(
    side: Side, wanted: InstallOptions, default_image: str, timeout_s: float
) -> None:
    """Have the API server validate what an installation would apply, and store nothing.

    Prints a line an object, as ``kubectl apply --dry-run=server`` does.

    Raises:
        click.ClickException: something is refused; the message has all of it.
    """
    async with asyncio.timeout(timeout_s):
        lines = await _would_be(side.cluster, wanted, default_image)
    for line in lines:
        echo(f"{line} (server dry run)")


async def _would_be(
    cluster: "ClusterClient", wanted: InstallOptions, default_image: str
) -> list[str]:
    _, made = await _completed(cluster, wanted, default_image)
    old = await find_outdated(cluster, [*made, forge.cluster_id("")], MANAGER)
    lines = [await _rehearsed(cluster, obj) for obj in made]
    refused = [line for line, is_refused in lines if is_refused]
    if refused:
        raise click.ClickException("\n  ".join(["the API server refuses:", *refused]))
    gone = [forge.rehearsed(obj, "deleted") for obj in old if not forge.is_prerequisite(obj)]
    return [*(line for line, _ in lines), *gone]


async def _rehearsed(cluster: "ClusterClient", obj: Object) -> tuple[str, bool]:
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
    cluster: "ClusterClient", wanted: InstallOptions, default_image: str
) -> tuple[str, list[Object]]:
    """Return what ``rendered`` does, with what the installation in ``cluster`` keeps."""
    version = await _check(cluster, wanted)
    there = await cluster.get_live(keys.DEPLOYMENT, _CONTROLLERS)
    default_image = forge.image_of(there) if there else default_image
    if wanted.enable_resource_enforcement is None and there:
        wanted = replace(wanted, enable_resource_enforcement=forge.is_enforced(there))
    wanted = replace(wanted, values=values.merged(await kept(cluster), wanted.values))
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
    text = as_yaml(said)
    first = next(at for at, obj in enumerate(made) if obj["kind"] != keys.NAMESPACE.kind)
    return image, [*made[:first], values.kept(text), *made[first:]]


async def kept(cluster: Cluster) -> dict[str, Any]:
    """Return the settings that the installation keeps, empty if it keeps none.

    Raises:
        click.ClickException: somebody wrote into them what is not YAML of a mapping.
    """
    import yaml

    key = Key(keys.LIQO_NAMESPACE, values.NAME)
    data = (await cluster.get_live(keys.CONFIG_MAP, key) or {}).get("data") or {}
    try:
        found = yaml.load(data.get(values.ENTRY, ""), Loader=yaml.CSafeLoader) or {}
    except yaml.YAMLError as error:
        raise click.ClickException(f"configmap {key}, {values.ENTRY}: {error}") from error
    if not isinstance(found, dict):
        raise click.ClickException(f"configmap {key}, {values.ENTRY}: a mapping is needed")
    return found


@options.get.command("values", "liqoctl get values", "liqoctl get values > values.yaml")
@options.output("yaml", "json", default="yaml", show_default=True, help="How to print it.")
@clusters.on_cluster()
async def get_values(side: Side, form: str) -> None:
    """Show the settings that the installation keeps, as `install --values` reads them.

    Reads only. docs/values.md lists all settings.
    """
    await clusters.check_installed(side)
    dump([await kept(side.cluster)], form)


async def _take_back(side: Side, made: Sequence[Object], widened: Sequence[Object]) -> None:
    """Remove what an older version had: rights last, since its controllers ran until now."""
    cluster = side.cluster
    narrowed = [one for one, wide in zip(made, widened, strict=True) if one is not wide]
    old = await find_outdated(cluster, [*made, forge.cluster_id("")], MANAGER)
    if narrowed or old:
        await until_bound(side)
    for obj in narrowed:
        await _apply_one(cluster, obj)
        side.info(f"{forge.kind_of(obj)} {key_of(obj)}: rights of an older version removed")
    await _remove_outdated(side, old)


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


async def _check(cluster: "ClusterClient", wanted: InstallOptions) -> Object:
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


async def _apply(side: Side, made: Sequence[Object]) -> None:
    cluster = side.cluster
    first = [obj for obj in made if forge.is_prerequisite(obj)]
    kinds = [key_of(obj) for obj in first if obj["kind"] != keys.NAMESPACE.kind]
    for obj in first:
        await cluster.apply(forge.kind_of(obj), obj, manager=MANAGER)
    with side.progress.waiting(f"{len(kinds)} kinds"):
        await _all(cluster, keys.CUSTOM_RESOURCE_DEFINITION, kinds, forge.is_established)
    for obj in made:
        if not forge.is_prerequisite(obj):
            await _apply_one(cluster, obj)
    side.info(f"{len(made)} objects applied, {len(kinds)} kinds among them")


async def _apply_one(cluster: Cluster, obj: Object) -> None:
    """Apply ``obj``; a ProviderPolicy has other writers, so what is not said of it stays."""
    kind = forge.kind_of(obj)
    if kind != keys.PROVIDER_POLICY:
        if "webhooks" in obj:
            old = await cluster.get_live(kind, key_of(obj))
            if changes := forge.without_old_hooks(old, obj):
                await cluster.patch(kind, key_of(obj), changes)
        await cluster.apply(kind, obj, manager=MANAGER)
    elif await cluster.get_live(kind, key_of(obj)) is None:
        await cluster.create(kind, obj)
    else:
        await cluster.patch(kind, key_of(obj), {"spec": obj["spec"]})


async def _all(
    cluster: Cluster, kind: Kind, keys_: Iterable[Key], holds: Callable[[Object | None], bool]
) -> None:
    async with asyncio.TaskGroup() as tasks:
        for key in keys_:
            tasks.create_task(clusters.reached(cluster, kind, key, holds))


async def obstacles(cluster: Cluster) -> str:
    """Return why pods of pyliqo do not run, as the end of a sentence."""
    pods, deployments = [
        (await cluster.list(Selection(kind, Object, keys.LIQO_NAMESPACE))).items.values()
        for kind in (keys.POD, keys.DEPLOYMENT)
    ]
    reasons = forge.obstacles(pods, deployments)
    return "; ".join(reasons) or f"see the pods of namespace {keys.LIQO_NAMESPACE}"


# An upgrade takes no right away before the process that needed it has ended -----------------------
# The controller manager gives itself a part of its rights, in each twin and tenant namespace.
# One of an older version, that had them in the whole cluster, goes on with them until the new one
# leads.

BOUND_S: Final = 60.0
"""A consumer that is refused gets nothing, and so does the controller manager in its twins."""
_POLL_S: Final = 0.5
_OF_PEERS: Final = Selection(keys.NAMESPACE, Object, labels=ownership.PEERS)
_BINDINGS: Final = Selection(
    keys.ROLE_BINDING, Object, labels=f"{keys.APP_MANAGED_BY}=liqo,{keys.REMOTE_CLUSTER_ID}"
)


async def widened(cluster: Cluster, made: Sequence[Object]) -> list[Object]:
    """Return ``made`` with all that the roles among them allow in the cluster now."""
    return [
        forge.with_old_rules(obj, await cluster.get_live(forge.kind_of(obj), objects.key_of(obj)))
        if obj["kind"] in forge.ROLES
        else obj
        for obj in made
    ]


async def until_bound(side: Side) -> None:
    """Return once the controller manager has bound itself everywhere, or say where it did not."""
    with side.progress.waiting("the controllers to have their rights in each namespace"):
        try:
            async with asyncio.timeout(BOUND_S):
                while await _unbound(side.cluster):  # noqa: ASYNC110  # two kinds, and not for long
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            names = ", ".join(await _unbound(side.cluster))
            side.warning(f"the controllers have no rights in these namespaces: {names}")


async def _unbound(cluster: Cluster) -> list[str]:
    namespaces = (await cluster.list(_OF_PEERS)).items.values()
    bound = (await cluster.list(_BINDINGS)).items
    names = (objects.key_of(one).name for one in namespaces if forge.is_opened(one))
    return sorted(name for name in names if Key(name, keys.CONTROLLER_MANAGER) not in bound)


# What an older version of pyliqo had and this one has not -----------------------------------------
# It is found by the label of all manifests; what somebody else applied with that label is his.


async def find_outdated(cluster: Cluster, wanted: Iterable[Object], manager: str) -> list[Object]:
    """Return, read live, what ``manager`` applied at some time and ``wanted`` lacks.

    The kinds are those of ``wanted``, the last first, so that nothing is asked of what is gone.
    """
    kept: dict[Kind, set[Key]] = {}
    for obj in wanted:
        kept.setdefault(forge.kind_of(obj), set()).add(objects.key_of(obj))
    found = []
    for kind in reversed(kept):
        for key in sorted(await _labelled(cluster, kind) - kept[kind]):
            existing = await cluster.get_live(kind, key)
            if existing and forge.is_applied_by(existing, manager):
                found.append(existing)
    return found


async def _labelled(cluster: Cluster, kind: Kind) -> set[Key]:
    with contextlib.suppress(errors.NotFoundError):  # the kind itself is not installed
        return set((await cluster.list(Selection(kind, Object, labels=forge.OURS))).items)
    return set()


async def _remove_outdated(side: Side, found: Iterable[Object]) -> None:
    """Delete ``found``, but for kinds and namespaces: these hold what is not ours."""
    for obj in found:
        kind, key = forge.kind_of(obj), key_of(obj)
        if forge.is_prerequisite(obj):
            side.info(f"{kind} {key} is of an older version: delete it if nobody needs it")
        else:
            await side.cluster.delete(kind, key, uid=objects.uid(obj))
            side.info(f"{kind} {key} of an older version removed")


# Which versions there are -------------------------------------------------------------------------


@cli.command("version", "liqoctl version", "liqoctl version --client", "liqoctl version -o json")
@options.switch("--client", help="Only this program, not the cluster.")
@options.TEXT_OUTPUT
@options.global_flags
def version(session: Session, *, client: bool, form: str) -> None:
    """Print versions: of this program, and of what is installed in the cluster."""
    own = importlib.metadata.version("pyliqo")
    if form == "text":
        click.echo(f"Client version: {own}")  # noqa: TID251  # its own words
    if not client:
        work = functools.partial(_show_versions, own=own, form=form)
        clusters.run(session, work, needs_install=False)
    elif form != "text":
        dump([{"clientVersion": own}], form)


async def _show_versions(side: Side, own: str, form: str) -> None:
    """Print the version that is installed, and that of Kubernetes; as data with liqoctl's ``own``.

    Shape: {"clientVersion", "serverVersion", "kubernetesVersion"}; the second may be empty.
    """
    where = Key(side.session.liqo_namespace, keys.CONTROLLER_MANAGER)
    deployment = await side.cluster.get_live(keys.DEPLOYMENT, where)
    kubernetes = (await side.cluster.version()).get("gitVersion", "unknown")
    installed = image_tag(deployment) if deployment else ""
    if form == "text":
        echo(f"Server version: {installed or f'not installed in {where.namespace}'}")
        echo(f"Kubernetes version: {kubernetes}")
    else:
        told = {"serverVersion": installed, "kubernetesVersion": kubernetes}
        dump([{"clientVersion": own, **told}], form)


def image_tag(deployment: Object) -> str:
    _, _, tag = forge.image_of(deployment).rpartition("/")[2].partition(":")
    return tag or "latest"
