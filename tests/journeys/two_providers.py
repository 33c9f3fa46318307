"""An application of three tiers over two providers, from its first request to its last.

rome is the consumer, milan and cool-firefly are its providers; each has a volume or two of its own.
"""

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from apis import keys, naming
from apis.objects import Key, Object, is_terminating, named
from kube import errors
from kube.client import ClusterClient
from kube.cluster import Selection
from sandbox import images, install, pair
from tests.journeys import tiers, world
from tests.world import is_ready

PROVIDERS = ("milan", "cool-firefly")
HOME_NODE = "rome-1"
GRACE_S = 12
"""How long a pod goes on serving after it was told to end: until no endpoint leads to it."""
SERVE = (
    f"mkdir -p www; echo $HOSTNAME > www/index.html; busybox httpd -f -p {tiers.PORT} -h www & "
    f"trap 'sleep {GRACE_S}; exit 0' TERM; while :; do sleep 1; done"
)
KEEP = (
    "test -e /data/index.html || echo stored > /data/index.html; "
    f"echo $HOSTNAME >> /data/visitors; exec busybox httpd -f -p {tiers.PORT} -h /data"
)
REQUESTS = int(os.environ.get("PYLIQO_TEST_REQUESTS", "100"))
"""So many from each cluster have to be answered before an update, and after it."""
LOAD = """python3 -u -c '
import collections, json, os, time, urllib.request as u
served, lost = collections.Counter(), []
while not os.path.exists("/tmp/stop"):
    try:
        served[u.urlopen("http://api/", timeout=10).read().decode().strip()] += 1
    except OSError as error:
        lost.append(str(error))
    open("/tmp/said.new", "w").write(json.dumps({"served": served, "lost": lost}))
    os.rename("/tmp/said.new", "/tmp/said")
    time.sleep(0.02)
print(open("/tmp/said").read())
'"""


@dataclass(frozen=True)
class Shop:
    """The application's namespace, and the clusters it is in."""

    clusters: Mapping[str, ClusterClient]
    kubeconfigs: Mapping[str, Path]
    namespace: str
    image: str

    @property
    def rome(self) -> ClusterClient:
        return self.clusters["rome"]

    @property
    def twin(self) -> str:
        return naming.default_remote_namespace(self.namespace, "rome")

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    async def over(self, *names: str) -> None:
        """Wait until pods have ended well."""
        for name in names:
            pod = await world.until_one(self.rome, keys.POD, self.key(name), has_ended)
            assert world.phase(pod) == "Succeeded", await log(self.rome, self.key(name))

    async def running(self, name: str) -> Object:
        return await world.until_one(self.rome, keys.POD, self.key(name), is_ready)

    async def ask(self, when: str, *places: str) -> None:
        """Ask for all tiers by name, from each of ``places``."""
        names = [f"asks-{when}-{place}" for place in places]
        for name, place in zip(names, places, strict=True):
            made = tiers.asking(self.namespace, name, self.image, {}, "web", "api", "store")
            made["spec"] |= {"affinity": None, "nodeSelector": at(place)}
            await self.rome.create(keys.POD, made)
        await self.over(*names)


def at(place: str) -> dict[str, str]:
    """Return the node selector for a provider, or for home."""
    return {keys.HOSTNAME: place}


async def begin(
    clusters: Mapping[str, ClusterClient], kubeconfigs: Mapping[str, Path], namespace: str
) -> Shop:
    """Set up the shop in an offloaded namespace: web at home, api on both, store on milan."""
    shop = Shop(clusters, kubeconfigs, namespace, images.workload_name())
    for cluster, class_ in (
        ("milan", pair.STORAGE_CLASS),
        ("cool-firefly", pair.STORAGE_CLASS),
        ("rome", ""),
    ):
        for number in range(2):
            made = volume(f"{namespace}-{cluster}-{number}", class_)
            await clusters[cluster].create(keys.PERSISTENT_VOLUME, made)
    for name in ("web", "api", "store"):
        await shop.rome.create(keys.SERVICE, tiers.service(namespace, name))
    await shop.rome.create(keys.PERSISTENT_VOLUME_CLAIM, tiers.claim(namespace))
    for name, place in (("web", HOME_NODE), ("api", "milan"), ("api", "cool-firefly")):
        made = deployment(shop, name, place)
        await shop.rome.create(keys.DEPLOYMENT, made)
    await shop.rome.create(keys.POD, store(shop, "store-0", nodeSelector=at("milan")))
    return shop


def volume(name: str, class_: str) -> Object:
    spec = {
        "storageClassName": class_,
        "capacity": {"storage": tiers.SIZE},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": f"/srv/{name}", "type": "DirectoryOrCreate"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    return named(keys.PERSISTENT_VOLUME, Key("", name), spec=spec)


def deployment(shop: Shop, name: str, place: str) -> Object:
    labels = {"app": name, "place": place}
    made = tiers.tier(shop.namespace, name, shop.image, SERVE, nodeSelector=at(place))
    made["spec"]["terminationGracePeriodSeconds"] = 2 * GRACE_S
    template = {"metadata": {"labels": labels}, "spec": made["spec"]}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": template,
        "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
    }
    return named(keys.DEPLOYMENT, shop.key(f"{name}-{place}"), spec=spec)


def store(shop: Shop, name: str, **spec: object) -> Object:
    made = tiers.tier(shop.namespace, name, shop.image, KEEP, volumes=[tiers.CLAIM], **spec)
    made["metadata"]["labels"] = {"app": "store"}
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return made


async def scaling_moves_endpoints(shop: Shop) -> None:
    """A pod of cool-firefly is an endpoint on milan, and none any more once it is scaled away."""
    key = shop.key("api-cool-firefly")
    for replicas in (0, 1):
        await shop.rome.patch(keys.DEPLOYMENT, key, {"spec": {"replicas": replicas}})
        await world.until(
            shop.clusters["milan"],
            keys.ENDPOINT_SLICE,
            shop.twin,
            lambda seen, replicas=replicas: elsewhere(seen, "api") == replicas,  # type: ignore[misc]
        )


@dataclass
class Load:
    """What a load generator says of its requests: answered ones by who served them."""

    served: Counter[str]
    lost: list[str]

    @property
    def answered(self) -> int:
        return self.served.total()


async def said(shop: Shop, name: str, holds: Callable[[Load], bool]) -> Load:
    """Return what a load generator says, once it ``holds``."""
    async with asyncio.timeout(world.PATIENCE_S):
        while True:
            text = "{}"
            with contextlib.suppress(errors.KubeError):  # it is asked again anyway
                text = await sh(shop, name, "cat /tmp/said 2> /dev/null || echo '{}'")
            told = json.loads(text)
            load = Load(Counter(told.get("served")), told.get("lost") or [])
            assert not load.lost, f"{name} lost requests: {load.lost}"
            if holds(load):
                return load
            await asyncio.sleep(1)


async def apis(shop: Shop) -> set[str]:
    """Return the pods of the API that nobody has told to end."""
    found = (await shop.rome.list(Selection(keys.POD, Object, shop.namespace))).items
    return {key.name for key, pod in found.items() if is_api(pod) and not is_terminating(pod)}


async def a_rolling_update_loses_no_request(shop: Shop) -> str:
    """Requests go on from each cluster while both Deployments are replaced; return the counts.

    All pods of before are reached from everywhere, and so are all that come after them.
    """
    loads = {place: f"load-{place}" for place in (HOME_NODE, *PROVIDERS)}
    for place, name in loads.items():
        made = world.pod(shop.namespace, name, shop.image, LOAD, restartPolicy="Never")
        made["spec"]["nodeSelector"] = at(place)
        await shop.rome.create(keys.POD, made)
    old = await apis(shop)
    assert len(old) == len(PROVIDERS)
    for name in loads.values():
        await shop.running(name)
        await said(shop, name, lambda it: it.answered >= REQUESTS and it.served.keys() >= old)
    for place in PROVIDERS:
        change = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        await shop.rome.patch(keys.DEPLOYMENT, shop.key(f"api-{place}"), change)
    await world.until(shop.rome, keys.DEPLOYMENT, shop.namespace, are_updated)
    await world.until(shop.rome, keys.POD, shop.namespace, lambda seen: not old_ones(seen))
    new, counts = await apis(shop), []
    assert len(new) == len(PROVIDERS)
    assert not new & old
    for name in loads.values():
        wanted = (await said(shop, name, lambda _: True)).answered + REQUESTS
        await said(
            shop, name,
            lambda it, wanted=wanted: it.answered >= wanted and it.served.keys() >= new,  # type: ignore[misc]
        )  # fmt: skip
        await sh(shop, name, "touch /tmp/stop")
    await shop.over(*loads.values())
    for place, name in loads.items():
        last = json.loads(await log(shop.rome, shop.key(name)))
        assert last["lost"] == []
        counts.append(f"{sum(last['served'].values())} from {place}")
    return f"requests during a rolling update: {', '.join(counts)}, none lost"


async def pods_follow_their_data(shop: Shop, name: str, node: str, visitors: list[str]) -> None:
    """A pod that says nothing of where it wants to be goes where the claim's data is."""
    await shop.rome.create(keys.POD, store(shop, name))
    pod = await shop.running(name)
    assert pod["spec"]["nodeName"] == node
    assert (await sh(shop, name, "cat /data/visitors")).split() == visitors


async def ended(shop: Shop, name: str) -> None:
    await world.remove(shop.rome, keys.POD, shop.key(name))
    await world.until_gone(shop.rome, keys.POD, shop.key(name))


async def moved(shop: Shop, node: str) -> None:
    """Move the data with the command of an administrator."""
    args = ("move", "volume", "data", "-n", shop.namespace, "--target-node", node)
    await asyncio.to_thread(install.run, shop.kubeconfigs["rome"], *args)


async def nothing_is_left_elsewhere(shop: Shop) -> None:
    """Once the data is home, claims on providers and what stood for them here are gone."""
    for place in PROVIDERS:
        kind = keys.PERSISTENT_VOLUME_CLAIM
        await world.until(shop.clusters[place], kind, shop.twin, lambda seen: not seen)
    await world.until(
        shop.rome,
        keys.PERSISTENT_VOLUME,
        "",
        lambda seen: not any(is_placeholder(each, shop.namespace) for each in seen.values()),
    )


def is_placeholder(volume_: Object, namespace: str) -> bool:
    """Whether a volume stands for one on a provider, for a claim of that namespace."""
    claim = volume_["spec"].get("claimRef") or {}
    return (
        keys.REMOTE_CLUSTER_ID in volume_["metadata"].get("labels", {})
        and claim.get("namespace") == namespace
    )


async def cut_off(shop: Shop, node: str) -> None:
    """Begin to move the data, and kill the command once the copy's claim is there."""
    args = ("move", "volume", "data", "-n", shop.namespace, "--target-node", node)
    command = install.liqoctl(shop.kubeconfigs["rome"], *args)
    process = await asyncio.create_subprocess_exec(*command)
    try:
        await world.until(
            shop.rome,
            keys.PERSISTENT_VOLUME_CLAIM,
            shop.namespace,
            lambda seen: shop.key("data-moving") in seen,
        )
    finally:
        process.kill()
        await process.wait()


async def all_comes_home(shop: Shop) -> None:
    """Unoffloaded, and no longer told where to be, all pods run here with their data."""
    key = shop.key(keys.OFFLOADING_NAME)
    await world.remove(shop.rome, keys.NAMESPACE_OFFLOADING, key)
    for place in PROVIDERS:
        change = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
        await shop.rome.patch(keys.DEPLOYMENT, shop.key(f"api-{place}"), change)
    await world.until_gone(shop.rome, keys.NAMESPACE_OFFLOADING, key)
    for place in PROVIDERS:
        await world.until_gone(shop.clusters[place], keys.NAMESPACE, Key("", shop.twin))
    await world.until(shop.rome, keys.DEPLOYMENT, shop.namespace, are_updated)
    await world.until(shop.rome, keys.POD, shop.namespace, are_at_home)
    await shop.ask("at-last", HOME_NODE)


async def sh(shop: Shop, pod: str, script: str) -> str:
    command = ("sh", "-c", script)
    async with shop.rome.execute(shop.key(pod), "main", command) as running_:
        return await running_.text()


async def log(cluster: ClusterClient, key: Key) -> str:
    return await cluster.get_text(f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/log")


def has_ended(pod: Object) -> bool:
    return world.phase(pod) in {"Succeeded", "Failed"}


def elsewhere(slices: world.World, service: str) -> int:
    """Return how many ready endpoints of a Service a provider has from other clusters."""
    return sum(
        bool((endpoint.get("conditions") or {}).get("ready"))
        for found in slices.values()
        if found["metadata"]["labels"].get(keys.SERVICE_NAME) == service
        and found["metadata"]["labels"].get(keys.ENDPOINT_SLICE_MANAGED_BY)
        == keys.ENDPOINT_SLICE_MANAGER
        for endpoint in found.get("endpoints") or []
    )


def are_updated(deployments: world.World) -> bool:
    return all(
        one.get("status", {}).get("observedGeneration") == one["metadata"]["generation"]
        and one["status"].get("updatedReplicas") == 1
        and one["status"].get("readyReplicas") == 1
        and one["status"].get("replicas") == 1
        for one in deployments.values()
    )


def old_ones(pods: world.World) -> list[Key]:
    """Return the pods of the API that are of its first version."""
    return [
        key
        for key, pod in pods.items()
        if is_api(pod) and "version" not in pod["metadata"].get("annotations", {})
    ]


def is_api(pod: Object) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("app") == "api")


def are_at_home(pods: world.World) -> bool:
    """Whether all that have not ended are on the node of this cluster."""
    living = [pod for pod in pods.values() if not has_ended(pod)]
    return all(pod["spec"].get("nodeName") == HOME_NODE for pod in living)
