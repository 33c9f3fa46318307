"""The default VkOptionsTemplate is there, and its image follows ours until somebody objects."""

from apis import keys
from apis.objects import Key, Object
from apis.offloading import VkOptionsTemplate
from controllers import vkoptions
from kube.cluster import Cluster
from tests import factories
from tests.fakes import FakeCluster

KEY = Key("liqo", keys.DEFAULT_VK_OPTIONS_TEMPLATE)


async def cluster_of_manager(image: str) -> FakeCluster:
    """Return a cluster with the pod of the manager, before whose container stands a sidecar."""
    cluster = FakeCluster()
    spec = factories.pod_spec()
    spec["containers"] = [
        {"name": "istio-proxy", "image": "proxy:1"},
        {"name": keys.CONTROLLERS_CONTAINER, "image": image},
    ]
    await cluster.create(keys.POD, factories.pod("liqo", "manager", spec=spec))
    return cluster


async def stored_template(cluster: Cluster) -> Object:
    found = await cluster.get_live(keys.VK_OPTIONS_TEMPLATE, KEY)
    assert found
    return found


async def test_it_is_made_with_our_image_and_made_once() -> None:
    cluster = await cluster_of_manager("pyliqo:1")

    await vkoptions.ensure(cluster, "liqo", "manager")
    first = await stored_template(cluster)
    await vkoptions.ensure(cluster, "liqo", "manager")

    assert await stored_template(cluster) == first
    options = VkOptionsTemplate.parse(first)
    assert options.container_image == "pyliqo:1"
    assert options.create_node is True
    assert len(options.annotations_not_reflected) == 11


async def test_its_image_follows_an_upgrade() -> None:
    cluster = await cluster_of_manager("pyliqo:2")
    await cluster.create(keys.VK_OPTIONS_TEMPLATE, vkoptions.template("liqo", "pyliqo:1"))

    await vkoptions.ensure(cluster, "liqo", "manager")

    assert (await stored_template(cluster))["spec"]["containerImage"] == "pyliqo:2"


async def test_an_administrators_image_stays() -> None:
    cluster = await cluster_of_manager("pyliqo:2")
    theirs = vkoptions.template("liqo", "special:1")
    theirs["metadata"]["labels"] = {}
    await cluster.create(keys.VK_OPTIONS_TEMPLATE, theirs)

    await vkoptions.ensure(cluster, "liqo", "manager")

    assert (await stored_template(cluster))["spec"]["containerImage"] == "special:1"


async def test_without_a_pod_of_ours_nothing_is_made() -> None:
    cluster = FakeCluster()

    await vkoptions.ensure(cluster, "liqo", "elsewhere")

    assert await cluster.get_live(keys.VK_OPTIONS_TEMPLATE, KEY) is None
