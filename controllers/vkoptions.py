"""The default VkOptionsTemplate: made if it is absent, its image kept that of this process.

It is not among the manifests, because kubectl refuses a file whose kinds it does not know yet, and
one ``kubectl apply -k`` is to suffice. Source of the values: docs/parity.md § 1.4, 6.2.
"""

import logging
from typing import Final

from apis import keys, objects, reflection
from apis.objects import Key, Object
from kube.cluster import Cluster
from kube.errors import AlreadyExistsError

OURS: Final = {keys.APP_MANAGED_BY: "liqo"}
"""While the template carries this label its image follows ours; an administrator may remove it."""

logger = logging.getLogger(__name__)


def template(namespace: str, image: str) -> Object:
    """Return the default template, for virtual kubelets that run ``image``."""
    reflected = {
        row.name: {"workers": row.workers, "type": row.default.value} for row in reflection.KINDS
    }
    return objects.named(
        keys.VK_OPTIONS_TEMPLATE,
        Key(namespace, keys.DEFAULT_VK_OPTIONS_TEMPLATE),
        metadata={"labels": dict(OURS)},
        spec={
            "containerImage": image,
            "pullPolicy": "IfNotPresent",
            "replicas": 1,
            "createNode": True,
            "disableNetworkCheck": False,
            "metricsEnabled": False,
            "resources": {
                "requests": {"cpu": "10m", "memory": "96Mi"},
                "limits": {"memory": "256Mi"},
            },
            "labelsNotReflected": [],
            "annotationsNotReflected": list(keys.ANNOTATIONS_OF_CONTROLLERS),
            "reflectorsConfig": {
                "pod": {"workers": reflection.POD_WORKERS, "type": "CustomLiqo"},
                **reflected,
            },
        },
    )


async def ensure(cluster: Cluster, namespace: str, pod: str) -> None:
    """Make the default template, or give it the image of ``pod``, this process's own."""
    key = Key(namespace, keys.DEFAULT_VK_OPTIONS_TEMPLATE)
    found = await cluster.get_live(keys.VK_OPTIONS_TEMPLATE, key)
    image = await _image(cluster, Key(namespace, pod))
    if image is None:
        if found is None:
            logger.warning("No default template, and no pod of ours to take the image from")
        return
    if found is None:
        await _create(cluster, template(namespace, image))
    elif _follows(found) and found["spec"].get("containerImage") != image:
        logger.info("Giving the default template our image", extra={"image": image})
        await cluster.patch(keys.VK_OPTIONS_TEMPLATE, key, {"spec": {"containerImage": image}})


def _follows(found: Object) -> bool:
    return OURS.items() <= objects.labels(found).items()


async def _image(cluster: Cluster, key: Key) -> str | None:
    pod = await cluster.get_live(keys.POD, key)
    return objects.image(pod["spec"], keys.CONTROLLERS_CONTAINER) if pod else None


async def _create(cluster: Cluster, wanted: Object) -> None:
    logger.info("Creating default template", extra={"image": wanted["spec"]["containerImage"]})
    try:
        await cluster.create(keys.VK_OPTIONS_TEMPLATE, wanted)
    except AlreadyExistsError:
        logger.info("Somebody was faster with the default template")
