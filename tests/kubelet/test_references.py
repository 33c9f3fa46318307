"""A pod is sent when the provider has what it reads as new as it is here."""

import asyncio
import datetime as dt
from typing import Any

import pytest

from apis import keys, reflectionpolicy
from apis.objects import Key, Kind, Object, named
from apis.offloading import ReflectionPolicy
from kube.errors import ForbiddenError, NotReachableError
from kubelet.pods import references
from kubelet.pods.references import Reads, References
from tests import factories
from tests.fakes import FakeCluster, Through
from tests.kubelet.worlds import PAIR, World

READS: Object = {
    "containers": [
        {
            "name": "main",
            "image": "nginx",
            "args": ["$(CACHE_SERVICE_HOST)"],
            "envFrom": [{"configMapRef": {"name": "cfg"}}],
        }
    ],
    "volumes": [
        {"name": "a", "secret": {"secretName": "key", "optional": True}},
        {"name": "b", "configMap": {"name": "kube-root-ca.crt"}},
    ],
}


@pytest.fixture
def world(world: World) -> World:
    world.policy = lambda _kind, _namespace: ReflectionPolicy.DENY_LIST
    world.restart()
    return world


async def here(world: World, kind: Kind, name: str, **rest: Any) -> None:
    await world.local.create(kind, named(kind, Key(world.pair.local_namespace, name), **rest))


async def create_reflected(world: World, kind: Kind, name: str, **rest: Any) -> None:
    """Do what the reflector does."""
    key = Key(world.pair.remote_namespace, name)
    labels = {keys.ORIGIN: world.pair.origin, keys.DESTINATION: world.pair.destination}
    found = await world.remote.get_live(kind, key)
    if found is None:
        made = named(kind, key, metadata={"labels": labels}, **rest)
        await world.remote.create(kind, made)
    else:
        await world.remote.patch(kind, key, rest)


async def test_it_waits_until_the_provider_has_what_it_reads_as_it_is_here(world: World) -> None:
    await here(world, keys.CONFIG_MAP, "cfg", data={"colour": "green"})
    await here(world, keys.SECRET, "key", data={"a": "Yg=="})
    await here(world, keys.SERVICE, "cache", spec={"ports": [{"port": 80}]})
    await create_reflected(world, keys.CONFIG_MAP, "cfg", data={"colour": "red"})
    await world.bound(spec=READS)

    pauses = [await world.reconcile() for _ in range(6)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    await create_reflected(world, keys.CONFIG_MAP, "cfg", data={"colour": "green"})
    await create_reflected(world, keys.SECRET, "key", data={"a": "Yg=="})
    await world.reconcile()
    assert not await world.has_shadow(), "the Service is not there yet"
    await create_reflected(world, keys.SERVICE, "cache", spec={"ports": [{"port": 80}]})
    await world.reconcile()

    assert await world.has_shadow()
    assert world.recorder.told == []
    assert world.writes() == (0, 1)


@pytest.mark.parametrize("provisioner", ["liqo.io/storage", "rancher.io/local-path", ""])
async def test_an_ephemeral_volume_is_the_reflected_claim(world: World, provisioner: str) -> None:
    notes = {"volume.kubernetes.io/storage-provisioner": provisioner} if provisioner else {}
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    noted = {"annotations": notes}
    await here(world, keys.PERSISTENT_VOLUME_CLAIM, "web-v", metadata=noted, spec=asked)
    volume: Object = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": asked}}}
    await world.bound(spec={"volumes": [volume]})
    await world.reconcile(2)

    shadow = await world.shadow()
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "web-v"}}
    is_ours = provisioner == "liqo.io/storage"
    (made,) = shadow["spec"]["pod"]["volumes"]
    if is_ours:
        assert made == claim
    else:
        assert made.keys() == volume.keys(), "the provider makes a claim of its own"
    assert world.writes() == (0, 1)


async def test_after_ten_seconds_it_is_sent_and_says_what_it_waited_for(world: World) -> None:
    await here(world, keys.CONFIG_MAP, "cfg", data={"colour": "green"})
    await world.bound(spec=READS)
    await world.reconcile()
    world.now += dt.timedelta(seconds=references.PATIENCE_S)

    await world.reconcile()

    assert await world.has_shadow()
    assert world.recorder.told == [("Warning", "ReferencesBehind")]
    assert f"configmap {world.pair.local_namespace}/cfg" in world.recorder.messages[0]


@pytest.mark.parametrize(
    "metadata", [{}, {"annotations": {keys.SKIP_REFLECTION: "true"}}], ids=["absent", "skipped"]
)
async def test_what_is_not_here_or_not_reflected_is_not_waited_for(
    world: World, metadata: Object
) -> None:
    if metadata:
        await here(world, keys.CONFIG_MAP, "cfg", metadata=metadata, data={"colour": "green"})
    await here(world, keys.CONFIG_MAP, "kube-root-ca.crt", data={"ca.crt": "x"})
    await here(world, keys.SECRET, "key", type="helm.sh/release.v1", data={"a": "Yg=="})
    await world.bound(spec=READS)

    await world.reconcile()

    assert await world.has_shadow()


async def test_a_namesake_that_no_reflection_made_is_not_waited_for(world: World) -> None:
    await here(world, keys.CONFIG_MAP, "cfg", data={"colour": "green"})
    key = Key(world.pair.remote_namespace, "cfg")
    await world.remote.create(keys.CONFIG_MAP, factories.config_map(*key, colour="theirs"))
    await world.bound(spec=READS)

    await world.reconcile()

    assert await world.has_shadow()


async def test_a_kind_that_is_not_reflected_is_not_waited_for(world: World) -> None:
    world.policy = lambda _kind, _namespace: None
    world.restart()
    await here(world, keys.CONFIG_MAP, "cfg", data={"colour": "green"})
    await world.bound(spec=READS)

    await world.reconcile()

    assert await world.has_shadow()


class Asked(Through):
    """A cluster that answers when the test lets it, and counts what is read."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.count = 0
        self.lets, self.begun = asyncio.Event(), asyncio.Event()
        self.lets.set()
        self.error: Exception | None = None

    async def get_live(self, kind: Kind, key: Key) -> Object | None:
        self.count += 1
        self.begun.set()
        found = await self._cluster.get_live(kind, key)
        await self.lets.wait()
        if self.error:
            raise self.error
        return found


def compared(local: Any, remote: Any) -> References:
    return References(local, remote, lambda _kind, _namespace: ReflectionPolicy.DENY_LIST)


async def test_pods_of_a_burst_share_a_read_of_each_object_and_server() -> None:
    home, provider = Asked(FakeCluster()), Asked(FakeCluster())
    await home.create(keys.CONFIG_MAP, factories.config_map("shop", "cfg", a="b"))
    both = compared(home, provider)
    pod = factories.pod("shop", spec=factories.pod_spec(**READS))

    found = await asyncio.gather(*(both.behind(pod, PAIR) for _ in range(50)))

    assert found == [["configmap shop/cfg"]] * 50
    assert (home.count, provider.count) == (3, 3)


async def test_a_pod_that_reads_nothing_costs_no_request() -> None:
    home, provider = Asked(FakeCluster()), Asked(FakeCluster())

    assert await compared(home, provider).behind(factories.pod("shop"), PAIR) == []
    assert (home.count, provider.count) == (0, 0)


async def test_a_read_that_began_before_answers_nobody_who_comes_later() -> None:
    asked = Asked(FakeCluster())
    reads, key = Reads(asked), Key("shop", "cfg")
    asked.lets.clear()
    first = asyncio.ensure_future(reads.get(keys.CONFIG_MAP, key))
    await asked.begun.wait()
    await asked.create(keys.CONFIG_MAP, factories.config_map(*key, a="b"))
    later = [asyncio.ensure_future(reads.get(keys.CONFIG_MAP, key)) for _ in range(5)]
    await asyncio.sleep(0)
    asked.lets.set()

    assert await first is None
    assert all([await one for one in later])
    assert asked.count == 2, "one for all who came later"


async def test_what_may_not_be_read_here_is_not_waited_for_and_what_cannot_there_is() -> None:
    home, provider = Asked(FakeCluster()), Asked(FakeCluster())
    await home.create(keys.CONFIG_MAP, factories.config_map("shop", "cfg", a="b"))
    pod = factories.pod("shop", spec=factories.pod_spec(**READS))
    provider.error = NotReachableError("unreadable")
    assert await compared(home, provider).behind(pod, PAIR) == ["configmap shop/cfg"]

    home.error = ForbiddenError("no")
    assert await compared(home, provider).behind(pod, PAIR) == []


def test_services_are_those_whose_variables_a_container_names() -> None:
    container = {
        "command": ["sh", "-c", "ask $MY_CACHE_SERVICE_HOST:$MY_CACHE_SERVICE_PORT"],
        "env": [{"name": "HOME", "value": "$(KUBERNETES_SERVICE_HOST)"}],
    }

    assert reflectionpolicy.mentioned_services({"containers": [container]}) == {
        (keys.SERVICE, "my-cache")
    }
    without = {"containers": [container], "enableServiceLinks": False}
    assert reflectionpolicy.mentioned_services(without) == frozenset()


def test_many_objects_are_named_in_part() -> None:
    said = references.in_words([f"configmap shop/c{number}" for number in range(7)], PAIR)

    assert "configmap shop/c4 and 2 more" in said
