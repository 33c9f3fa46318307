"""An application of three tiers over two clusters finds its parts as if they were one."""

import pytest

from apis import keys, objects
from apis.objects import Key, Object
from tests import factories
from tests.journeys import world
from tests.journeys.tiers import (
    CLAIM,
    PORT,
    SERVE,
    SIZE,
    asking,
    claim,
    is_over,
    offer_storage,
    service,
    tier,
)

pytestmark = pytest.mark.journey

FRONT = "front"
STORE = f"echo stored > /data/index.html; exec busybox httpd -f -p {PORT} -h /data"


def scratch(namespace: str) -> Object:
    """Return a generic ephemeral volume of the class that virtual nodes offer."""
    return {
        "name": "scratch",
        "ephemeral": {"volumeClaimTemplate": {"spec": claim(namespace)["spec"]}},
    }


def at(operator: str) -> Object:
    """Return the affinity for nodes that are virtual (In) or are not (NotIn)."""
    term = {"key": keys.NODE_TYPE, "operator": operator, "values": [keys.VIRTUAL_NODE_TYPE]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


HOME, AWAY = at("NotIn"), at("In")


def front(namespace: str) -> Object:
    """Return a load balancer in front of the first tier, which milan does not offer."""
    made = service(namespace, FRONT, type="LoadBalancer")
    return {**made, "spec": {**made["spec"], "selector": {"app": "web"}}}


def entry(namespace: str) -> Object:
    """Return an Ingress with a certificate, to two of the tiers."""
    made = factories.ingress(namespace)
    (rule,) = made["spec"]["rules"]
    backend = {"service": {"name": "api", "port": {"number": 80}}}
    rule["http"]["paths"].append({"path": "/api", "pathType": "Exact", "backend": backend})
    made["spec"]["tls"] = [{"hosts": ["shop.example"], "secretName": "shop"}]
    return made


async def test_three_tiers_find_each_other_and_keep_their_data(
    both: world.Pair, namespace: str
) -> None:
    twin, image = both.twin(namespace), both.image
    await offer_storage(both, namespace)
    await offer_storage(both, f"{namespace}-scratch")
    await both.offload(namespace, podOffloadingStrategy="LocalAndRemote")
    for name in ("web", "api", "store"):
        await both.rome.create(keys.SERVICE, service(namespace, name))
    await both.rome.create(keys.SERVICE, front(namespace))
    await both.rome.create(keys.INGRESS, entry(namespace))
    await both.rome.create(keys.PERSISTENT_VOLUME_CLAIM, claim(namespace))
    store = tier(namespace, "store", image, STORE, affinity=AWAY, volumes=[CLAIM])
    store["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    web = tier(namespace, "web", image, SERVE, affinity=HOME)
    api = tier(namespace, "api", image, SERVE, affinity=AWAY)
    for pod in (web, api, store):
        await both.rome.create(keys.POD, pod)

    for where, affinity in (("home", HOME), ("away", AWAY)):
        asks = asking(namespace, where, image, affinity, FRONT, "web", "api", "store")
        asks["spec"]["volumes"] = [scratch(namespace)] if where == "away" else []
        await both.rome.create(keys.POD, asks)
    for where in ("home", "away"):
        await world.until_one(both.rome, keys.POD, Key(namespace, where), is_over)

    bound = await both.rome.get_live(keys.PERSISTENT_VOLUME_CLAIM, Key(namespace, "data"))
    assert bound
    volume = await both.rome.get_live(keys.PERSISTENT_VOLUME, Key("", bound["spec"]["volumeName"]))
    assert volume
    assert volume["spec"]["capacity"] == {"storage": SIZE}
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["milan"]
    remote = await world.until_one(
        both.milan,
        keys.PERSISTENT_VOLUME_CLAIM,
        Key(twin, "data"),
        lambda found: world.phase(found) == "Bound",
    )
    assert remote["spec"]["resources"] == {"requests": {"storage": SIZE}}
    made = await world.until_one(both.milan, keys.INGRESS, Key(twin, "web"), lambda found: True)
    assert made["spec"] == entry(namespace)["spec"], "hosts, paths, certificates, backends"
    await world.until(both.rome, keys.EVENT, namespace, has_come_home)
    inside = await both.milan.get_live(keys.SERVICE, Key(twin, FRONT))
    assert inside
    assert inside["spec"]["type"] == "ClusterIP"
    await world.until(both.rome, keys.EVENT, namespace, is_told_of_its_type)

    await world.remove(both.rome, keys.POD, Key(namespace, "away"))
    await world.until_gone(both.milan, keys.PERSISTENT_VOLUME_CLAIM, Key(twin, "away-scratch"))
    await world.remove(both.rome, keys.POD, Key(namespace, "web"))
    await world.until(both.milan, keys.ENDPOINT_SLICE, twin, lambda seen: not from_home(seen))

    await both.unoffload(namespace)
    await world.until_gone(both.milan, keys.NAMESPACE, Key("", twin))
    await world.until_one(
        both.rome,
        keys.PERSISTENT_VOLUME_CLAIM,
        Key(namespace, "data"),
        lambda found: world.phase(found) == "Lost",
    )
    await world.until_gone(both.rome, keys.PERSISTENT_VOLUME, objects.key_of(volume))
    await world.until(both.rome, keys.EVENT, namespace, has_lost_its_volume)


async def test_services_of_pods_that_stay_are_reached_from_the_provider(
    both: world.Pair, namespace: str
) -> None:
    """All pods are local; who asks is a pod that the provider itself put into the twin.

    The twin has the same name, so that whole names mean the same in both clusters.
    """
    image = both.image
    same = {"namespaceMappingStrategy": "EnforceSameName", "podOffloadingStrategy": "Local"}
    await both.offload(namespace, **same)
    await both.rome.create(keys.SERVICE, service(namespace, "web"))
    await both.rome.create(keys.POD, tier(namespace, "web", image, SERVE))
    others = {
        keys.CONFIG_MAP: factories.config_map(namespace, a="b"),
        keys.SECRET: factories.secret(namespace, a="Yg=="),
    }
    for kind, other in others.items():
        await both.rome.create(kind, other)
    for kind, other in others.items():
        key = objects.key_of(other)  # the twin has the same name
        made = await world.until_one(both.milan, kind, key, lambda found: True)
        assert made["data"] == other["data"]
    await world.until(
        both.milan, keys.ENDPOINT_SLICE, namespace, lambda seen: bool(from_home(seen))
    )

    whole = f"web.{namespace}.svc.cluster.local"
    await both.milan.create(keys.POD, asking(namespace, "theirs", image, HOME, "web", whole))

    await world.until_one(both.milan, keys.POD, Key(namespace, "theirs"), is_over)


def has_lost_its_volume(events: world.World) -> bool:
    return any(
        (event["reason"], event["involvedObject"]["name"]) == ("VolumeLost", "data")
        for event in events.values()
    )


def has_come_home(events: world.World) -> bool:
    return any(
        event.get("source", {}).get("host", "").endswith("(remote)")
        and event["involvedObject"]["name"] == "data"
        for event in events.values()
    )


def is_told_of_its_type(events: world.World) -> bool:
    return any(
        event["reason"] == keys.REFLECTED_IN_PART
        and event["type"] == "Normal"
        and event["involvedObject"]["name"] == FRONT
        and "its type on milan is ClusterIP" in event["message"]
        for event in events.values()
    )


def from_home(slices: world.World) -> list[Key]:
    """Return the slices by which milan reaches the pods of rome, where any is ready."""
    return [
        key
        for key, found in slices.items()
        if found["metadata"]["labels"][keys.ENDPOINT_SLICE_MANAGED_BY]
        == keys.ENDPOINT_SLICE_MANAGER
        and any(each["conditions"]["ready"] for each in found.get("endpoints") or [])
    ]
