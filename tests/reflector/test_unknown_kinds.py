"""Kinds that a cluster does not know, or withholds, hold up no others. Source: docs/parity.md F-34.

One real API server is both clusters: the twins of a test's kind are of another kind, whose CRD
comes and goes there as on a provider.
"""

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from apis import keys, reflection
from apis.objects import Key, Kind, Object, key_of, named
from kube import client
from kube.client import ClusterClient
from reflector.kinds import configuration
from reflector.kinds.table import KIND_REFLECTIONS
from reflector.namespaces import KindController, ReflectedNamespaces, Rules
from reflector.reflection import FAILED, SUCCESSFUL
from sandbox.controlplane import Plane
from tests import factories
from tests.conftest import CRD, definition, established
from tests.journeys import world
from tests.kube.running import until, until_so
from tests.kubelet import toll
from tests.reflector.mapped import offloaded_pairs

pytestmark = pytest.mark.cluster

Told = list[tuple[str, str]]
WITHIN_S = 300


def kind(name: str, stem: str) -> Kind:
    """Return a kind of a group that no other test has."""
    return Kind(f"{stem}.example.com", "v1", name.title(), f"{name}s")


async def installed(server: ClusterClient, kind: Kind) -> None:
    await server.apply(CRD, definition(kind), manager="tests")
    await established(server, Key("", kind.resource))


@contextlib.asynccontextmanager
async def reflecting(
    server: ClusterClient,
    stem: str,
    rows: list[reflection.ReflectedKind],
    *,
    by: ClusterClient | None = None,
    warned: Told | None = None,
) -> AsyncIterator[Told]:
    """Reflect ConfigMaps and ``rows`` from ``stem``; yield what authors are told: reason, text.

    It is done in the name of ``by``; what is told on the NamespaceOffloading goes to ``warned``.
    """
    told: Told = []
    works = by or server

    def tell(_obj: Object, _type: str, reason: str, message: str) -> None:
        told.append((reason, message))

    def warn(obj: Object, _type: str, reason: str, message: str) -> None:
        assert key_of(obj) == Key(stem, keys.OFFLOADING_NAME)
        (told if warned is None else warned).append((reason, message))

    identity = await offloaded_pairs(server, stem, "loud", "quiet")
    forges = [KIND_REFLECTIONS[reflection.CONFIG_MAP], *map(configuration.custom_resource, rows)]
    loops = [KindController(forge, Rules(), tell, 2, warn=warn) for forge in forges]
    running = asyncio.create_task(ReflectedNamespaces(identity, loops, works, works).run())
    try:
        yield told
    finally:
        running.cancel()
        await asyncio.wait([running])


async def granted(server: ClusterClient, user: str, *groups: str) -> None:
    """Let ``user`` do anything with the kinds of ``groups``."""
    name = Key("", f"{user}-{secrets.token_hex(3)}")
    rules = [{"apiGroups": list(groups), "resources": ["*"], "verbs": ["*"]}]
    await server.create(keys.CLUSTER_ROLE, named(keys.CLUSTER_ROLE, name, rules=rules))
    group = keys.CLUSTER_ROLE.group
    role = {"apiGroup": group, "kind": keys.CLUSTER_ROLE.kind, "name": name.name}
    subjects = [{"apiGroup": group, "kind": "User", "name": user}]
    bound = named(keys.CLUSTER_ROLE_BINDING, name, roleRef=role, subjects=subjects)
    await server.create(keys.CLUSTER_ROLE_BINDING, bound)


async def test_a_kind_that_comes_goes_and_comes_there_is_told_and_heals_by_itself(
    server: ClusterClient,
) -> None:
    stem = f"test-{secrets.token_hex(4)}"
    here, there = kind("widget", stem), kind("gadget", stem)
    remote, shop = f"{stem}-remote", Key(stem, "shop")
    await installed(server, here)

    async with reflecting(server, stem, [replace(reflection.custom(here), twin=there)]) as told:
        await server.create(here, named(here, shop, spec={"a": 1}))
        await until(lambda: any(reason == FAILED for reason, _ in told))
        why = next(text for reason, text in told if reason == FAILED)
        assert f"install the CRD {there.resource}" in why
        await until_so(lambda: server.get_live(keys.CONFIG_MAP, Key(remote, "loud")))

        await installed(server, there)
        await until_so(lambda: server.get_live(there, Key(remote, "shop")))
        await until(lambda: told[-1][0] == SUCCESSFUL)

        await world.remove(server, CRD, Key("", there.resource))
        await world.until_gone(server, CRD, Key("", there.resource))
        await until(lambda: told[-1][0] == FAILED)
        await server.create(keys.CONFIG_MAP, factories.config_map(stem, "meanwhile"))
        await until_so(lambda: server.get_live(keys.CONFIG_MAP, Key(remote, "meanwhile")))

        await installed(server, there)
        await until_so(lambda: server.get_live(there, Key(remote, "shop")))
        await until(lambda: told[-1][0] == SUCCESSFUL)

    assert await server.get_live(here, shop)


async def test_a_field_that_an_older_crd_lacks_is_told_and_goes_once_that_is_updated(
    server: ClusterClient,
) -> None:
    stem = f"test-{secrets.token_hex(4)}"
    here, there = kind("widget", stem), kind("gadget", stem)
    shop, twin = Key(stem, "shop"), Key(f"{stem}-remote", "shop")
    await installed(server, here)
    older = definition(there)
    spec = {"type": "object", "properties": {"a": {"type": "integer"}}}
    older["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "properties": {"spec": spec},
    }
    await server.apply(CRD, older, manager="tests")
    await established(server, Key("", there.resource))

    async with reflecting(server, stem, [replace(reflection.custom(here), twin=there)]) as told:
        await server.create(here, named(here, shop, spec={"a": 1, "b": 2}))
        await until(lambda: any(reason == FAILED for reason, _ in told))
        why = next(text for reason, text in told if reason == FAILED)
        assert ".spec.b: field not declared in schema" in why
        assert f"update the CRD {there.resource}" in why

        await installed(server, there)
        async with asyncio.timeout(WITHIN_S):
            for attempt in itertools.count():  # the server takes a moment to use the new one
                await server.patch(here, shop, {"metadata": {"labels": {"try": f"n{attempt}"}}})
                if await server.get_live(there, twin):
                    break
                await asyncio.sleep(0.2)
        await until(lambda: told[-1][0] == SUCCESSFUL)


async def test_a_kind_that_is_unknown_here_goes_once_it_is_known(server: ClusterClient) -> None:
    stem = f"test-{secrets.token_hex(4)}"
    late = kind("widget", stem)
    remote = f"{stem}-remote"

    async with reflecting(server, stem, [reflection.custom(late)]):
        await until_so(lambda: server.get_live(keys.CONFIG_MAP, Key(remote, "loud")))
        await installed(server, late)
        await server.create(late, named(late, Key(stem, "shop"), spec={"a": 1}))
        await until_so(lambda: server.get_live(late, Key(remote, "shop")))


async def test_rights_that_are_missing_are_told_on_the_namespace_and_heal(
    server: ClusterClient, plane: Plane, tmp_path: Path
) -> None:
    stem, warned = f"test-{secrets.token_hex(4)}", Told()
    here, there = kind("widget", stem), kind("gadget", stem)
    remote, way = f"{stem}-remote", tmp_path / "limited"
    for each in (here, there):
        await installed(server, each)
    await granted(server, stem, "", "offloading.liqo.io")
    way.write_text(toll.kubeconfig_as(plane, stem, "limited"))
    rows = [replace(reflection.custom(here), twin=there)]

    async with (
        client.connect(way, user_agent="limited") as limited,
        reflecting(server, stem, rows, by=limited, warned=warned),
    ):
        await until(lambda: any("on rome" in text and "on milan" in text for _, text in warned))
        reason, text = next(row for row in warned if "on rome" in row[1] and "on milan" in row[1])
        assert reason == FAILED
        assert f'cannot list resource "{here.plural}"' in text
        assert f'cannot list resource "{there.plural}"' in text
        await until_so(lambda: server.get_live(keys.CONFIG_MAP, Key(remote, "loud")))

        await granted(server, stem, here.group)
        await until(lambda: warned[-1][0] == SUCCESSFUL)
        await server.create(here, named(here, Key(stem, "shop"), spec={"a": 1}))
        await until_so(lambda: server.get_live(there, Key(remote, "shop")))
