"""Which versions there are."""

from apis import keys
from apis.objects import Key, Object
from kube.client import ClusterClient
from liqoctl.output import echo

CONTROLLERS = "liqo-controller-manager"


async def tell(cluster: ClusterClient, namespace: str) -> None:
    """Print the version that is installed in ``namespace``, and that of Kubernetes."""
    where = Key(namespace or keys.LIQO_NAMESPACE, CONTROLLERS)
    deployment = await cluster.get_live(keys.DEPLOYMENT, where)
    installed = image_tag(deployment) if deployment else f"not installed in {where.namespace}"
    echo(f"Server version: {installed}")
    echo(f"Kubernetes version: {(await cluster.version()).get('gitVersion', 'unknown')}")


def image_tag(deployment: Object) -> str:
    """Return the tag of its first image, ``latest`` when it has none."""
    image = str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])
    _, _, tag = image.rpartition("/")[2].partition(":")
    return tag or "latest"
