"""Storage that no fabric of pyliqo makes: the provider's own, in line or under a claim's name."""

from collections.abc import AsyncIterator

import pytest

from apis import keys, objects
from apis.objects import Key, Object, named
from tests.journeys import world

pytestmark = pytest.mark.journey

CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
MOUNT = [{"name": "data", "mountPath": "/data"}]


def volume(name: str, class_: str, path: str) -> Object:
    """Return a volume that an administrator made."""
    spec = {
        "storageClassName": class_,
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "hostPath": {"path": path, "type": "DirectoryOrCreate"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    return named(keys.PERSISTENT_VOLUME, Key("", name), spec=spec)


def claim(namespace: str, class_: str, volume_: str) -> Object:
    """Return the claim ``data`` of that volume and no other."""
    spec = {
        "storageClassName": class_,
        "volumeName": volume_,
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return named(keys.PERSISTENT_VOLUME_CLAIM, Key(namespace, "data"), spec=spec)


def pod(namespace: str, name: str, image: str, does: str, source: Object) -> Object:
    made = world.pod(namespace, name, image, does, restartPolicy="Never", volumes=[source])
    made["spec"]["containers"][0]["volumeMounts"] = MOUNT
    return made


async def ends_well(both: world.Pair, made: Object) -> None:
    await both.rome.create(keys.POD, made)
    key = Key(made["metadata"]["namespace"], made["metadata"]["name"])
    await world.until_one(both.rome, keys.POD, key, lambda found: world.phase(found) == "Succeeded")


def is_bound(found: Object) -> bool:
    return world.phase(found) == "Bound"


def refusal(found: Object) -> str:
    told = objects.find_condition(
        found.get("status", {}).get("conditions"), keys.OFFLOADED_CONDITION
    )
    return str((told or {}).get("message", ""))


@pytest.fixture
async def volumes(both: world.Pair, namespace: str) -> AsyncIterator[str]:
    """Make a volume of the same name on each side, of classes that only these sides know."""
    path = f"/srv/{namespace}"
    await both.rome.create(keys.PERSISTENT_VOLUME, volume(namespace, "ours", path))
    await both.milan.create(keys.PERSISTENT_VOLUME, volume(namespace, "theirs", path))
    yield path
    for cluster in (both.rome, both.milan):
        await world.remove(cluster, keys.PERSISTENT_VOLUME, Key("", namespace))


async def test_a_claim_of_another_class_means_the_one_that_the_provider_prepared(
    both: world.Pair, namespace: str, volumes: str
) -> None:
    """It is told that it stays; the pods that went find the data of its namesake over there."""
    twin, image, data = both.twin(namespace), both.image, Key(namespace, "data")
    await both.offload(namespace)
    await both.rome.create(keys.PERSISTENT_VOLUME_CLAIM, claim(namespace, "ours", namespace))
    await both.milan.create(keys.PERSISTENT_VOLUME_CLAIM, claim(twin, "theirs", namespace))
    await world.until_one(both.rome, keys.PERSISTENT_VOLUME_CLAIM, data, is_bound)

    events = await world.until(
        both.rome, keys.EVENT, namespace, lambda seen: any(map(is_told_to_stay, seen.values()))
    )
    (told,) = filter(is_told_to_stay, events.values())
    assert told["message"].startswith(
        "its class is ours, not liqo, so it stays here: pods on milan"
    )

    await ends_well(both, pod(namespace, "writes", image, "echo kept > /data/it", CLAIM))
    await ends_well(both, pod(namespace, "reads", image, "grep kept /data/it", CLAIM))
    there = await both.milan.get_live(keys.PERSISTENT_VOLUME_CLAIM, Key(twin, "data"))
    assert there
    assert there["spec"]["storageClassName"] == "theirs", "nobody has touched it"
    assert keys.ORIGIN not in there["metadata"].get("labels", {})


def is_told_to_stay(event: Object) -> bool:
    about = event["involvedObject"]
    is_ours = (about["kind"], about["name"]) == ("PersistentVolumeClaim", "data")
    return is_ours and event["reason"] == keys.REFLECTION_DISABLED


async def test_a_volume_in_line_is_the_providers_where_it_allows_it(
    both: world.Pair, namespace: str
) -> None:
    path = {"path": f"/srv/{namespace}-line", "type": "DirectoryOrCreate"}
    in_line = {"name": "data", "hostPath": path}
    asked = pod(namespace, "early", both.image, "true", in_line)
    await both.offload(namespace)
    await both.rome.create(keys.POD, asked)
    early = Key(namespace, "early")
    found = await world.until_one(both.rome, keys.POD, early, lambda one: bool(refusal(one)))
    assert "volumes[0].hostPath must not be set" in refusal(found)
    await both.unoffload(namespace)

    async with world.policy(both.milan, "rome", podSecurityLevel="privileged"):
        await both.offload(namespace)
        writes = pod(namespace, "writes", both.image, "echo kept > /data/it", in_line)
        await ends_well(both, writes)
        await ends_well(both, pod(namespace, "reads", both.image, "grep kept /data/it", in_line))
