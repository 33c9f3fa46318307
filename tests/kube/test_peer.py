"""The identity towards another cluster, and how it changes while we run."""

import asyncio
import base64
import json

import pytest

from apis import keys
from apis.objects import Key, Object, named
from kube import peer
from kube.client import ClusterClient
from kube.kubeconfig import KubeconfigError
from tests.fakes import FakeCluster
from tests.kube.running import until

SECRET = Key("liqo-tenant-milan", "key")


def secret(token: str, **user: str) -> Object:
    kubeconfig = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1:6443"}}],
        "users": [{"name": "u", "user": {"token": token, **user}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    encoded = base64.b64encode(json.dumps(kubeconfig).encode()).decode()
    return named(keys.SECRET, SECRET, data={"kubeconfig": encoded})


def is_known_as(client: ClusterClient, token: str) -> bool:
    return client.access.authorization == f"Bearer {token}"


async def change(home: FakeCluster, to: Object) -> None:
    await home.patch(keys.SECRET, SECRET, {"data": to["data"]})


async def test_a_renewed_identity_is_used_from_then_on() -> None:
    home = FakeCluster()
    await home.create(keys.SECRET, secret("one"))

    async with peer.follow(home, SECRET, user_agent="tests") as client:
        assert is_known_as(client, "one")
        await change(home, secret("two"))
        await until(lambda: is_known_as(client, "two"))


async def test_what_is_no_identity_leaves_the_old_one() -> None:
    home = FakeCluster()
    made = await home.create(keys.SECRET, secret("one"))

    async with peer.follow(home, SECRET, user_agent="tests") as client:
        await change(home, secret("bad", exec="canary"))
        await change(home, named(keys.SECRET, SECRET, data={"kubeconfig": "no base64"}))
        await change(home, named(keys.SECRET, SECRET, data={"kubeconfig": None}))
        await home.delete(keys.SECRET, SECRET, uid=made["metadata"]["uid"])
        assert is_known_as(client, "one")
        await home.create(keys.SECRET, secret("three"))
        await until(lambda: is_known_as(client, "three"))


@pytest.mark.parametrize("data", ["no base64", "\u00e9", "kl\u00e4r"])
def test_what_is_no_base64_is_no_identity(data: str) -> None:
    with pytest.raises(KubeconfigError, match="base64"):
        peer.identity(named(keys.SECRET, SECRET, data={"kubeconfig": data}))


async def test_a_renewal_that_ends_is_an_error_of_who_rests_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = FakeCluster()
    await home.create(keys.SECRET, secret("one"))

    def broken(_: ClusterClient, access: object) -> None:
        raise RuntimeError("no other identity")

    monkeypatch.setattr(ClusterClient, "replace", broken)

    async def rests_on_it() -> None:
        async with peer.follow(home, SECRET, user_agent="tests"):
            await change(home, secret("two"))
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raised:
        await rests_on_it()

    assert raised.group_contains(RuntimeError, match="no other identity")


async def test_what_is_raised_meanwhile_is_raised_as_it_is() -> None:
    home = FakeCluster()
    await home.create(keys.SECRET, secret("one"))

    async def fails_itself() -> None:
        async with peer.follow(home, SECRET, user_agent="tests"):
            raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await fails_itself()


async def test_a_secret_that_is_not_there_yet_is_waited_for() -> None:
    home = FakeCluster()
    await home.create(keys.SECRET, named(keys.SECRET, Key(SECRET.namespace, "other")))
    following = peer.follow(home, SECRET, user_agent="tests")

    async def arrives() -> None:
        await until(lambda: home.requests["watch", "secrets"])
        await home.create(keys.SECRET, secret("one"))

    arriving = asyncio.create_task(arrives())
    async with following as client:
        assert is_known_as(client, "one")
    await arriving
