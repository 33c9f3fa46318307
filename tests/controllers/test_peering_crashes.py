"""Controllers that die at any of their writes: peering and its end come out the same.

Both sides run on clusters in a dict, in turns; the garbage collector, the signer and the virtual
kubelet are played. ``PYLIQO_CRASH_STRIDE=1`` dies at each write of a whole peering, by default at
some of them.

Deaths at reads need no sweep of their own: a read changes neither cluster, so that a process which
dies at one leaves what it leaves by dying before its next write. Nothing else is lost with it,
because the controllers here are made again in each turn and keep nothing from the one before.
"""

import asyncio
from typing import Final

import pytest

from apis import keys
from apis.objects import Key, Object, named
from liqoctl import authentication as auth
from liqoctl import peer, provider, virtualnode
from liqoctl.forge import peering as forge
from liqoctl.forge.virtualnode import VirtualNodeOptions
from tests.conftest import size_of
from tests.controllers.peers import OWN_RIGHTS, World, differing
from tests.controllers.support import defaulted, ensure_namespace

STRIDE: Final = size_of("PYLIQO_CRASH_STRIDE", 24, 1)
MOST_OF_ALL: Final = 400
MOST: Final = 40
"""More writes than the controllers of either side make in all."""


async def lived(world: World) -> tuple[Object, Object]:
    """Return what there is while both are peered, and after."""
    async with asyncio.timeout(300), world.working():
        peers = await auth.meet(*world.sides())
        await auth.authenticate(peers)
        await world.settled()
        during = world.state()
        await auth.unauthenticate(peers)
        await world.settled()
        return during, world.state()


async def lived_whole(world: World) -> tuple[Object, Object]:
    """Return what there is while rome uses milan for a namespace, and after all of that."""
    async with asyncio.timeout(300), world.working():
        peers = await auth.meet(*world.sides())
        await ensure_namespace(world.rome.fake, "shop")
        await world.rome.fake.create(keys.NAMESPACE_OFFLOADING, defaulted("shop"))
        await peer.peer(peers, {"resources": {"cpu": "1"}})
        await world.settled()
        during = world.state()
        await peer.unpeer(peers)
        await world.settled()
        return during, world.state()


async def test_undisturbed_a_whole_peering_makes_a_node_and_a_twin_and_leaves_neither() -> None:
    during, after = await lived_whole(World())

    assert {
        "rome node milan",
        "rome virtualnode liqo-tenant-milan/milan",
        "milan namespace shop-rome",
        "milan rolebinding liqo-tenant-rome/liqo-controller-manager",
        "milan rolebinding shop-rome/liqo-controller-manager",
        "milan rolebinding shop-rome/liqo-tenant-rome",
    } <= during.keys()
    assert any(line.startswith("milan quota ") for line in during)
    left = {line for line in after if " namespace " not in line and " vkoptions" not in line}
    assert left == {
        "rome namespaceoffloading shop/offloading",
        *(
            f"{name} {what}"
            for name in ("rome", "milan")
            for what in ("configmap liqo/clusterid-configmap", "secret liqo/authentication-keys")
        ),
        *OWN_RIGHTS,
    }
    assert "milan namespace shop-rome" not in after


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies", ["rome", "milan"])
async def test_wherever_they_die_of_a_whole_peering_it_comes_out_the_same(
    dies: str, *, is_done: bool
) -> None:
    undisturbed = await lived_whole(World())
    swept = 0
    for at in range(STRIDE // 2 + 1, MOST_OF_ALL, STRIDE):
        world = World(at, dies=dies, is_done=is_done)
        for found, expected in zip(await lived_whole(world), undisturbed, strict=True):
            assert differing(found, expected) == {}, f"dies at write {at} of {dies}"
        if not world.has_crashed():
            break
        swept += 1
    assert 20 < swept * STRIDE < MOST_OF_ALL - STRIDE


async def test_undisturbed_it_leaves_what_was_there_before() -> None:
    world = World()

    during, after = await lived(world)

    kinds = {line.split()[1] for line in during}
    assert {"tenant", "identity", "renew", "secret", "rolebinding", "clusterrolebinding"} <= kinds
    left = {line for line in after if " namespace " not in line and " vkoptions" not in line}
    assert left == OWN_RIGHTS | {
        f"{name} {what}"
        for name in ("rome", "milan")
        for what in ("configmap liqo/clusterid-configmap", "secret liqo/authentication-keys")
    }


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies", ["rome", "milan"])
async def test_wherever_the_controllers_die_it_comes_out_the_same(
    dies: str, *, is_done: bool
) -> None:
    undisturbed = await lived(World())
    swept = 0
    for at in range(1, MOST):
        world = World(at, dies=dies, is_done=is_done)
        for found, expected in zip(await lived(world), undisturbed, strict=True):
            assert differing(found, expected) == {}, f"dies at write {at} of {dies}"
        if not world.has_crashed():
            break
        swept += 1
    assert 5 < swept < MOST - 1


async def test_a_tenant_that_is_drained_loses_all_and_gets_it_back_when_it_is_active() -> None:
    """By the commands; what the consumer asks for it asks for meanwhile."""
    world = World()
    async with asyncio.timeout(300), world.working():
        await ensure_namespace(world.rome.fake, "shop")
        await world.rome.fake.create(keys.NAMESPACE_OFFLOADING, defaulted("shop"))
        peers = await auth.meet(*world.sides())
        await peer.peer(peers, {"resources": {"cpu": "1"}})
        await world.settled()
        before = world.state()
        tenant = Key("liqo-tenant-rome", "rome")

        await provider.bring(peers.provider, tenant, provider.DRAINED)
        await world.settled()
        drained = world.state()
        await provider.bring(peers.provider, tenant, provider.ACTIVE)
        await world.settled()

        assert {"milan namespace shop-rome", "milan rolebinding shop-rome/liqo-tenant-rome"} <= (
            before.keys() - drained.keys()
        )
        assert not any(line.startswith("milan quota ") for line in drained)
        assert differing(world.state(), before) == {}


async def test_a_virtual_node_of_a_kubeconfig_comes_up_as_a_node_and_goes_with_it() -> None:
    world = World()
    async with asyncio.timeout(300), world.working():
        rome, _ = world.sides()
        await rome.cluster.create(keys.NAMESPACE, forge.tenant_namespace("milan"))
        key = Key("liqo-tenant-milan", "given")
        given = named(keys.SECRET, key, data={"kubeconfig": "e30="}, type="Opaque")
        await rome.cluster.create(keys.SECRET, given)
        await world.settled()
        before = world.state()
        hard = {"cpu": "2", "memory": "4Gi", "pods": "110"}
        wanted = VirtualNodeOptions(
            "milan", "", "milan", kubeconfig_secret_name=key.name, hard=hard
        )

        await virtualnode.create(rome, wanted, 300)

        assert await rome.cluster.get_live(keys.NODE, Key("", "milan"))
        where = Key("liqo-tenant-milan", "milan")
        await virtualnode.delete(rome, where, 300)
        await world.settled()
        assert differing(world.state(), before) == {}
