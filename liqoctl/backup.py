"""``liqoctl backup`` and ``bundle``: what is kept of a cluster, and what a maintainer needs.

Source: docs/backup.md.
"""

import io
import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from apis import keys, objects
from apis.objects import Key, Object
from kube import errors
from kube.cluster import Selection
from liqoctl import clusters, options, output
from liqoctl.clusters import Side
from liqoctl.forge import backup as forge
from liqoctl.options import cli

if TYPE_CHECKING:
    from kube.client import ClusterClient


@cli.command("backup", "liqoctl backup > backup.yaml", "liqoctl backup --key > key.yaml")
@options.switch(
    "--key",
    "is_key",
    help="Print nothing but the Secret with the private key by which peers know this cluster.",
)
@clusters.on_cluster()
async def backup(side: Side, *, is_key: bool) -> None:
    """Print what a new cluster needs to take the place of this one, for kubectl apply.

    Reads only. These are the VkOptionsTemplates, the ProviderPolicies, and the namespaces with
    their NamespaceOffloadings; `liqoctl get values` prints the settings. docs/backup.md tells in
    which order they are applied.
    """
    await clusters.check_installed(side)
    read = _key_pair if is_key else _user_objects
    output.dump(await read(side.cluster), "yaml")


async def _key_pair(cluster: "ClusterClient") -> list[Object]:
    """Return the Secret with the key by which peers know the cluster.

    Raises:
        click.ClickException: there is no such Secret.
    """
    where = Key(keys.LIQO_NAMESPACE, keys.AUTHENTICATION_KEYS)
    found = await cluster.get_live(keys.SECRET, where)
    if found is None:
        raise click.ClickException(f"secret {where} does not exist: the controllers make it")
    return [forge.kept(keys.SECRET, found)]


async def _user_objects(cluster: "ClusterClient") -> list[Object]:
    """Return what administrators and users said, each namespace before what is in it."""
    said = [
        forge.kept(kind, obj)
        for kind in forge.OURS
        for obj in (await cluster.list(Selection(kind, Object))).items.values()
    ]
    offloadings = (await cluster.list(Selection(keys.NAMESPACE_OFFLOADING, Object))).items
    for key, obj in sorted(offloadings.items()):
        namespace = await cluster.get_live(keys.NAMESPACE, Key("", key.namespace))
        if namespace is not None:
            said.append(forge.kept(keys.NAMESPACE, namespace))
            said.append(forge.kept(keys.NAMESPACE_OFFLOADING, obj))
    return said


# One archive with what a maintainer needs to help, and no secret ----------------------------------

_LINES: Final = 2000
"""Of each log, the last."""
_MOST: Final = 1000
"""Objects of a kind."""
_TENANTS: Final = Selection(keys.NAMESPACE, Object, labels=f"{keys.TENANT_NAMESPACE}=true")


@cli.command("bundle", "liqoctl bundle", "liqoctl bundle --file for-the-maintainers.tar.gz")
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default="pyliqo-bundle.tar.gz",
    show_default=True,
    help="Where to write the archive; an older one is replaced.",
)
@clusters.on_cluster()
async def bundle(side: Side, path: Path) -> None:
    """Write an archive with what a maintainer needs to help: objects, events, logs, versions.

    Reads only. Secrets are not read; certificates, tokens, environments and annotations are left
    out of all else.
    """
    await clusters.check_installed(side)
    cluster = side.cluster
    missing: list[str] = []
    found = {kind: await _all(cluster, Selection(kind, Object), missing) for kind in forge.BUNDLED}
    spaces = await _all(cluster, _TENANTS, missing)
    names = [keys.LIQO_NAMESPACE, *(objects.key_of(one).name for one in spaces)]
    for kind in forge.BUNDLED_OF_PYLIQO:
        found[kind] = [
            obj
            for name in names
            for obj in await _all(cluster, Selection(kind, Object, name), missing)
        ]
    versions = {
        "liqoctl": clusters.version(),
        "server": (await cluster.version()).get("gitVersion"),
    }
    files = {"versions.json": json.dumps(versions)}
    files |= {name: json.dumps(objs, indent=1) for name, objs in forge.archive_files(found)}
    for pod in found[keys.POD]:
        key = objects.key_of(pod)
        for container in pod["spec"]["containers"]:
            name = container["name"]
            log = await _log(cluster, key, name, missing)
            files[f"logs/{key.namespace}/{key.name}/{name}.log"] = log
    files["missing.txt"] = "\n".join(missing)
    _pack(path, files)
    side.info(f"{len(files)} files in {path}: no Secrets; look it through before you send it")


async def _all(
    cluster: "ClusterClient", selection: Selection[Object], missing: list[str]
) -> list[Object]:
    try:
        return list((await cluster.list(selection)).items.values())[:_MOST]
    except errors.KubeError as error:
        missing.append(f"{selection.kind}: {error}")
        return []


async def _log(cluster: "ClusterClient", key: Key, container: str, missing: list[str]) -> str:
    from kube import wire

    path = f"{wire.path(keys.POD, key, 'log')}?container={container}&tailLines={_LINES}"
    try:
        return forge.without_credentials(await cluster.get_text(path))
    except errors.KubeError as error:
        missing.append(f"log of container {container} of pod {key}: {error}")
        return ""


def _pack(path: Path, files: dict[str, str]) -> None:
    path.unlink(missing_ok=True)  # an older one, which others may be allowed to read
    path.touch(mode=0o600, exist_ok=False)
    with path.open("wb") as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in sorted(files.items()):
            data = content.encode()
            entry = tarfile.TarInfo(f"pyliqo/{name}")
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
