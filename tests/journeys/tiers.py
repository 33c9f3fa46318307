"""An application of three tiers, and what its parts answer."""

from typing import Any

from apis import keys
from apis.objects import Key, Object, named
from sandbox import pair
from tests import factories
from tests.journeys import world

PORT = 8080
SERVE = f"mkdir -p www; echo served > www/index.html; exec busybox httpd -f -p {PORT} -h www"
SIZE = "1536Mi"
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def tier(namespace: str, name: str, image: str, script: str, **spec: Any) -> Object:
    """Return a pod that serves the Service of its name once it answers."""
    made = world.pod(namespace, name, image, script, **spec)
    made["metadata"]["labels"] = {"app": name}
    probe = {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1}
    made["spec"]["containers"][0]["readinessProbe"] = probe
    return made


def service(namespace: str, name: str, **spec: Any) -> Object:
    ports = [{"port": 80, "targetPort": PORT}]
    return factories.service(namespace, name, selector={"app": name}, ports=ports, **spec)


def asking(namespace: str, name: str, image: str, affinity: Object, *hosts: str) -> Object:
    """Return a pod that ends well once all ``hosts`` have answered."""
    asks = "python3 -c 'import urllib.request as u; u.urlopen(\"http://{}/\", timeout=2)'"
    script = "; ".join(f"until {asks.format(host)}; do sleep 1; done" for host in hosts)
    return world.pod(namespace, name, image, script, restartPolicy="Never", affinity=affinity)


async def offer_storage(both: world.Pair, name: str) -> None:
    """Give milan the class that its virtual node offers, and one volume of it."""
    class_ = named(
        keys.STORAGE_CLASS,
        Key("", pair.STORAGE_CLASS),
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="WaitForFirstConsumer",
    )
    await both.milan.apply(keys.STORAGE_CLASS, class_, manager="journeys")
    volume = named(
        keys.PERSISTENT_VOLUME,
        Key("", name),
        spec={
            "storageClassName": pair.STORAGE_CLASS,
            "capacity": {"storage": SIZE},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": f"/srv/{name}", "type": "DirectoryOrCreate"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    )
    await both.milan.create(keys.PERSISTENT_VOLUME, volume)


def claim(namespace: str) -> Object:
    spec = {
        "storageClassName": keys.VIRTUAL_STORAGE_CLASS,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": SIZE}},
    }
    return named(keys.PERSISTENT_VOLUME_CLAIM, Key(namespace, "data"), spec=spec)


def is_over(pod: Object) -> bool:
    return world.phase(pod) == "Succeeded"
