"""ConfigMaps, Secrets and Services follow their originals into the twin namespace."""

import base64

import pytest

from apis import keys
from apis.objects import Key, Object, named
from tests.journeys import world

pytestmark = pytest.mark.journey


def secret(namespace: str, name: str, value: str, **rest: object) -> Object:
    data = {"value": base64.b64encode(value.encode()).decode()}
    return named(keys.SECRET, Key(namespace, name), data=data, **rest)


async def test_twins_are_made_follow_and_go(both: world.Pair, namespace: str) -> None:
    twin = both.twin(namespace)
    ports = [{"port": 80, "targetPort": 8080}]
    service = named(
        keys.SERVICE, Key(namespace, "web"), spec={"ports": ports, "selector": {"app": "web"}}
    )
    await both.offload(namespace)
    await both.rome.create(keys.CONFIG_MAP, config(namespace, "one"))
    await both.rome.create(keys.SECRET, secret(namespace, "password", "sesame"))
    await both.rome.create(keys.SERVICE, service)

    for kind, name in ((keys.CONFIG_MAP, "one"), (keys.SECRET, "password"), (keys.SERVICE, "web")):
        made = await world.until_one(both.milan, kind, Key(twin, name), lambda found: True)
        assert made["metadata"]["labels"][keys.ORIGIN] == "rome"
        assert made["metadata"]["labels"][keys.DESTINATION] == "milan"

    key, there = Key(namespace, "one"), Key(twin, "one")
    await both.rome.patch(keys.CONFIG_MAP, key, {"data": {"colour": "blue"}})
    await world.until_one(both.milan, keys.CONFIG_MAP, there, lambda found: colour(found) == "blue")

    await both.milan.patch(keys.CONFIG_MAP, there, {"data": {"colour": "grey"}})
    await world.until_one(both.milan, keys.CONFIG_MAP, there, lambda found: colour(found) == "blue")

    await world.remove(both.rome, keys.CONFIG_MAP, key)
    await world.until_gone(both.milan, keys.CONFIG_MAP, there)


async def test_what_is_the_providers_own_is_left_alone(both: world.Pair, namespace: str) -> None:
    twin = both.twin(namespace)
    await both.offload(namespace)
    theirs = await both.milan.create(keys.CONFIG_MAP, config(twin, "taken", colour="theirs"))

    await both.rome.create(keys.CONFIG_MAP, config(namespace, "taken"))
    await both.rome.create(keys.CONFIG_MAP, config(namespace, "free"))

    await world.until_one(both.milan, keys.CONFIG_MAP, Key(twin, "free"), lambda found: True)
    events = await world.until(
        both.rome, keys.EVENT, namespace, lambda seen: any(map(is_failed_reflection, seen.values()))
    )
    left = await both.milan.get_live(keys.CONFIG_MAP, Key(twin, "taken"))
    assert left
    assert left["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]
    assert any(is_failed_reflection(event) for event in events.values())


async def test_protected_secrets_never_leave(both: world.Pair, namespace: str) -> None:
    twin = both.twin(namespace)
    await both.offload(namespace)
    token = named(
        keys.SECRET,
        Key(namespace, "token"),
        metadata={"annotations": {"kubernetes.io/service-account.name": "default"}},
        type="kubernetes.io/service-account-token",
    )
    await both.rome.create(keys.SECRET, token)
    release = secret(namespace, "release", "canary", type="helm.sh/release.v1")
    await both.rome.create(keys.SECRET, release)
    await both.rome.create(keys.SECRET, secret(namespace, "ordinary", "sesame"))

    await world.until_one(both.milan, keys.SECRET, Key(twin, "ordinary"), lambda found: True)

    reflected = await world.until(both.milan, keys.SECRET, twin, lambda seen: True)
    assert {key.name for key in reflected} == {"ordinary"}


def config(namespace: str, name: str, colour: str = "red") -> Object:
    return named(keys.CONFIG_MAP, Key(namespace, name), data={"colour": colour})


def colour(found: Object) -> str:
    return str(found["data"].get("colour"))


def is_failed_reflection(event: Object) -> bool:
    return bool(
        event["reason"] == "FailedReflection" and event["involvedObject"]["name"] == "taken"
    )
