"""Reading what has to be kept of a cluster. Source: docs/backup.md."""

import click

from apis import keys
from apis.objects import Key, Object
from kube.client import ClusterClient
from kube.cluster import Selection
from liqoctl.forge import backup as forge


async def key_pair(cluster: ClusterClient) -> list[Object]:
    """Return the Secret with the key by which peers know the cluster.

    Raises:
        click.ClickException: there is no such Secret.
    """
    where = Key(keys.LIQO_NAMESPACE, keys.AUTHENTICATION_KEYS)
    found = await cluster.get_live(keys.SECRET, where)
    if found is None:
        raise click.ClickException(f"secret {where} does not exist: the controllers make it")
    return [forge.kept(keys.SECRET, found)]


async def words(cluster: ClusterClient) -> list[Object]:
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
