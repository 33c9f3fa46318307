"""Which versions there are."""

from apis import keys
from apis.objects import Key, Object
from kube.client import ClusterClient
from liqoctl.forge import manifests
from liqoctl.output import echo

CONTROLLERS = "liqo-controller-manager"


async def of_server(cluster: ClusterClient, namespace: str) -> Object:
    """Return the version that is installed in ``namespace``, and that of Kubernetes.

    Shape: {"serverVersion": str, "kubernetesVersion": str}; the first is empty where nothing is.
    """
    where = Key(namespace or keys.LIQO_NAMESPACE, CONTROLLERS)
    deployment = await cluster.get_live(keys.DEPLOYMENT, where)
    kubernetes = (await cluster.version()).get("gitVersion", "unknown")
    installed = image_tag(deployment) if deployment else ""
    return {"serverVersion": installed, "kubernetesVersion": kubernetes}


async def tell(cluster: ClusterClient, namespace: str) -> None:
    """Print them as lines."""
    found = await of_server(cluster, namespace)
    missing = f"not installed in {namespace or keys.LIQO_NAMESPACE}"
    echo(f"Server version: {found['serverVersion'] or missing}")
    echo(f"Kubernetes version: {found['kubernetesVersion']}")


def image_tag(deployment: Object) -> str:
    """Return the tag of the controller manager's image, ``latest`` when it has none."""
    _, _, tag = manifests.image_of(deployment).rpartition("/")[2].partition(":")
    return tag or "latest"
