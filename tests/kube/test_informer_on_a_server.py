"""An informer and a real API server that restarts, forgets, and changes behind its back."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from apis import keys
from apis.objects import Key, Object, uid
from kube import client, metrics
from kube.cluster import Selection
from kube.informer import Change, Informer
from sandbox import controlplane
from sandbox.controlplane import Plane
from tests.factories import config_map
from tests.kube.running import Gate, running, some_at_once, until
from tests.kube.serverside import connected, create, made, remove

pytestmark = pytest.mark.cluster


def lists(cause: str) -> float:
    labels = {"resource": "configmaps", "cause": cause}
    return metrics.REGISTRY.get_sample_value("pyliqo_informer_lists_total", labels) or 0


def failures() -> float:
    labels = {"resource": "configmaps"}
    return metrics.REGISTRY.get_sample_value("pyliqo_informer_failures_total", labels) or 0


def followed(namespace: str) -> tuple[Informer[Object], list[Change[Object]]]:
    told: list[Change[Object]] = []
    informer = Informer(Selection(keys.CONFIG_MAP, Object, namespace, labels="test"))
    informer.subscribe(told.append)
    return informer, told


def versions(items: object) -> dict[Key, str]:
    assert hasattr(items, "items")
    return {key: obj["metadata"]["resourceVersion"] for key, obj in items.items()}


async def test_a_cut_a_deletion_a_namesake_and_a_compaction(plane: Plane, gate: Gate) -> None:
    async with connected(plane) as direct, connected(plane, gate) as through:
        namespace = await made(direct, plane)
        informer, told = followed(namespace)
        gone, replaced = [await create(direct, namespace, name) for name in ("a", "b")]
        async with running(informer.run(through)):
            await until(lambda: len(told) == 2)
            expired, told[:] = lists("expired"), []

            await gate.shut()
            await remove(direct, gone)
            await remove(direct, replaced)
            again = await create(direct, namespace, "b")
            await create(direct, namespace, "c")
            plane.compact()  # not in a thread: the server would end with it
            await gate.open()

            await until(lambda: len(told) == 4)
            listing = await direct.list(informer.selection)
            assert versions(informer.items()) == versions(listing.items)

            await remove(direct, again)
            await until(lambda: len(told) == 5)

    assert lists("expired") == expired + 1
    changes = {
        (change.key.name, uid(change.old or {"metadata": {}}), uid(change.new or {"metadata": {}}))
        for change in told
    }
    assert ("a", uid(gone), "") in changes
    assert ("b", uid(replaced), "") in changes
    assert ("b", "", uid(again)) in changes
    deleted = next(change for change in told if change.key.name == "a")
    assert deleted.old
    assert deleted.old["data"] == {"its": "last words"}
    assert not deleted.was_seen
    assert told[-1].was_seen
    assert (told[-1].key.name, uid(told[-1].old or {})) == ("b", uid(again))


async def test_a_restart_of_the_server_costs_at_most_one_list_and_no_event(plane: Plane) -> None:
    async with connected(plane) as cluster:
        namespace = await made(cluster, plane)
        informer, told = followed(namespace)
        async with running(informer.run(cluster)):
            await until(informer.synced.is_set)
            failed = failures()
            before = {cause: lists(cause) for cause in ("start", "expired", "ahead", "unreadable")}

            plane.kill_apiserver()
            await until(lambda: failures() > failed)
            plane.start_apiserver()
            await create(cluster, namespace, "after")

            await until(lambda: told)

    more = {cause: lists(cause) - count for cause, count in before.items()}
    # A server that wrote for itself before it listed config maps does not know our version: 410.
    assert more.pop("expired") <= 1
    assert not any(more.values())
    assert [change.key.name for change in told] == ["after"]


async def test_a_rolling_restart_of_two_servers_costs_a_list_each_at_most(
    plane: Plane, gate: Gate, tmp_path: Path
) -> None:
    """Of two API servers of one etcd behind one address, each ends once while the other serves."""
    causes = ("start", "expired", "ahead", "unreadable", "refused")
    with controlplane.beside(plane, tmp_path) as second:
        async with connected(plane, gate) as through:
            namespace = await made(through, plane)
            informer, told = followed(namespace)
            async with running(informer.run(through)):
                await until(informer.synced.is_set)
                for number, (ends, serves) in enumerate([(plane, second), (second, plane)]):
                    before = sum(map(lists, causes))
                    async with connected(ends) as direct:
                        await create(direct, namespace, f"before-{number}")
                    await until(lambda number=number: len(told) == 2 * number + 1)  # type: ignore[misc]
                    await gate.shut()
                    gate.lead_to(urlsplit(serves.server).port or 443)
                    ends.kill_apiserver()
                    async with connected(serves) as direct:
                        await create(direct, namespace, f"during-{number}")
                    await gate.open()
                    await until(lambda number=number: len(told) == 2 * number + 2)  # type: ignore[misc]
                    assert sum(map(lists, causes)) - before <= 1
                    ends.start_apiserver()

    wanted = [f"{when}-{number}" for number in range(2) for when in ("before", "during")]
    assert [change.key.name for change in told] == wanted


async def test_a_cut_connection_loses_and_doubles_nothing(plane: Plane, gate: Gate) -> None:
    async with connected(plane) as direct, connected(plane, gate) as through:
        namespace = await made(direct, plane)
        informer, told = followed(namespace)
        async with running(informer.run(through)):
            await until(informer.synced.is_set)
            for number in range(3):
                await create(direct, namespace, f"before-{number}")
                await gate.shut()
                await create(direct, namespace, f"during-{number}")
                await gate.open()
            await until(lambda: len(told) >= 6)

    assert sorted(change.key.name for change in told) == sorted(
        f"{when}-{number}" for when in ("before", "during") for number in range(3)
    )


async def test_bookmarks_are_asked_for_and_a_large_event_is_read(plane: Plane) -> None:
    async with connected(plane) as cluster:
        namespace = await made(cluster, plane)
        informer, told = followed(namespace)
        async with running(informer.run(cluster)):
            await until(informer.synced.is_set)
            obj = config_map(namespace, "large", large="x" * 1_000_000)
            obj["metadata"]["labels"] = {"test": ""}
            await cluster.create(keys.CONFIG_MAP, obj)
            await until(lambda: told)

    assert told[0].new
    assert len(told[0].new["data"]["large"]) == 1_000_000


async def test_a_long_list_comes_in_pages(plane: Plane) -> None:
    async with connected(plane) as cluster:
        namespace = await made(cluster, plane)
        names = [f"n{number:04d}" for number in range(client.PAGE + 20)]
        await some_at_once(create(cluster, namespace, name) for name in names)

        listing = await cluster.list(Selection(keys.CONFIG_MAP, Object, namespace, labels="test"))

    assert sorted(key.name for key in listing.items) == names
