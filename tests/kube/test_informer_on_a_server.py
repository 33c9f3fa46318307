"""An informer and a real API server that restarts, forgets, and changes behind its back."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from apis import keys
from apis.objects import Key, Object, uid
from kube import client, metrics
from kube.cluster import Selection
from kube.informer import Change, Informer
from sandbox import controlplane
from sandbox.controlplane import Plane
from tests.factories import config_map
from tests.kube.between import Between
from tests.kube.running import Gate, running, some_at_once, until
from tests.kube.serverside import connected, create_labelled, made, remove_object
from tests.kube.test_informer import change_kinds

pytestmark = pytest.mark.cluster


def lists(cause: str) -> float:
    labels = {"resource": "configmaps", "cause": cause}
    return metrics.REGISTRY.get_sample_value("pyliqo_informer_lists_total", labels) or 0


def failures() -> float:
    labels = {"resource": "configmaps"}
    return metrics.REGISTRY.get_sample_value("pyliqo_informer_failures_total", labels) or 0


def followed(namespace: str, **how: Any) -> tuple[Informer[Object], list[Change[Object]]]:
    told: list[Change[Object]] = []
    informer = Informer(Selection(keys.CONFIG_MAP, Object, namespace, labels="test"), **how)
    informer.subscribe(told.append)
    return informer, told


def versions_of(items: object) -> dict[Key, str]:
    assert hasattr(items, "items")
    return {key: obj["metadata"]["resourceVersion"] for key, obj in items.items()}


async def test_a_cut_a_deletion_a_namesake_and_a_compaction(plane: Plane, gate: Gate) -> None:
    async with connected(plane) as direct, connected(plane, gate) as through:
        namespace = await made(direct, plane)
        informer, told = followed(namespace)
        gone, replaced = [await create_labelled(direct, namespace, name) for name in ("a", "b")]
        async with running(informer.run(through)):
            await until(lambda: len(told) == 2)
            expired, told[:] = lists("expired"), []

            await gate.shut()
            await remove_object(direct, gone)
            await remove_object(direct, replaced)
            again = await create_labelled(direct, namespace, "b")
            await create_labelled(direct, namespace, "c")
            plane.compact()  # not in a thread: the server would end with it
            await gate.open()

            await until(lambda: len(told) == 4)
            listing = await direct.list(informer.selection)
            assert versions_of(informer.items()) == versions_of(listing.items)

            await remove_object(direct, again)
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
            async with connected(plane) as direct:  # the other may not have noticed yet
                await create_labelled(direct, namespace, "after")

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
                        await create_labelled(direct, namespace, f"before-{number}")
                    await until(lambda number=number: len(told) == 2 * number + 1)  # type: ignore[misc]
                    await gate.shut()
                    gate.lead_to(urlsplit(serves.server).port or 443)
                    ends.kill_apiserver()
                    async with connected(serves) as direct:
                        await create_labelled(direct, namespace, f"during-{number}")
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
                await create_labelled(direct, namespace, f"before-{number}")
                await gate.shut()
                await create_labelled(direct, namespace, f"during-{number}")
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
        await some_at_once(create_labelled(cluster, namespace, name) for name in names)

        listing = await cluster.list(Selection(keys.CONFIG_MAP, Object, namespace, labels="test"))

    assert sorted(key.name for key in listing.items) == names


# What an informer makes of the watches of a real API server, also as another would word them.
# Source: docs/parity.md C-2, C-3, C-6, C-10, C-12.


LETTERS = bytes.maketrans(b"0123456789", b"qwertyuiop")
DIGITS = bytes.maketrans(b"qwertyuiop", b"0123456789")
VERSION = re.compile(rb'(?<="resourceVersion":")\w+(?=")')


def shown(told: list[Change[Object]]) -> list[tuple[str, str]]:
    return [(kind, change.key.name) for kind, change in zip(change_kinds(told), told, strict=True)]


async def test_versions_are_opaque(plane: Plane) -> None:
    """Of a server that writes them in letters, in no order, all is told as of one with numbers."""
    between = Between()
    between.tells = lambda line: [VERSION.sub(lambda it: it[0].translate(LETTERS), line)]
    between.asks = lambda query: {
        name: value.encode().translate(DIGITS).decode() if name == "resourceVersion" else value
        for name, value in query.items()
    }
    async with connected(plane) as direct, between.connected(plane) as through:
        namespace = await made(direct, plane)
        one, other = followed(namespace), followed(namespace)
        first = await create_labelled(direct, namespace, "a")
        async with running(one[0].run(direct), other[0].run(through)):
            await until(lambda: one[1] and other[1])
            for number in range(12):  # so many that one more digit comes, or the last turns
                await direct.patch(
                    keys.CONFIG_MAP, Key(namespace, "a"), {"data": {"n": str(number)}}
                )
            await until(lambda: "11" in str(other[0].items()))
            between.cut()
            await create_labelled(direct, namespace, "b")
            await remove_object(direct, first)
            left = {Key(namespace, "b")}
            await until(lambda: other[0].items().keys() == left == one[0].items().keys())

    assert shown(other[1])[-2:] == shown(one[1])[-2:] == [("add", "b"), ("delete", "a")]
    assert between.lists == 1, "it went on from a version in letters"
    assert all(watch["resourceVersion"].isalpha() for watch in between.watches)


async def test_a_bookmark_moves_the_version_and_tells_nothing(plane: Plane) -> None:
    """The server sends one of its own accord, a moment before it ends a watch."""
    bookmarks: list[str] = []
    between = Between()

    def note(line: bytes) -> list[bytes]:
        if line.startswith(b'{"type":"BOOKMARK"'):
            bookmarks.append(msgspec.json.decode(line)["object"]["metadata"]["resourceVersion"])
        return [line]

    between.tells = note
    between.asks = lambda query: {
        name: "6" if name == "timeoutSeconds" else value for name, value in query.items()
    }
    async with connected(plane) as direct, between.connected(plane) as through:
        namespace = await made(direct, plane)
        informer, told = followed(namespace)
        async with running(informer.run(through)):
            await until(lambda: between.watches)
            await create_labelled(direct, await made(direct, plane), "elsewhere")
            await until(lambda: len(between.watches) > 1)

    first, second = between.watches[:2]
    assert first["allowWatchBookmarks"] == second["allowWatchBookmarks"] == "true"
    assert int(second["resourceVersion"]) > int(first["resourceVersion"])
    assert second["resourceVersion"] == bookmarks[-1]
    assert between.lists == 1
    assert told == []


async def test_a_silent_watch_is_opened_anew_from_where_it_was(plane: Plane) -> None:
    """What it kept to itself is told by the next; each is asked to end at a time of its own."""
    between = Between()
    async with connected(plane) as direct, between.connected(plane) as through:
        namespace = await made(direct, plane)
        informer, told = followed(namespace, silent_s=(0.5, 0.5))
        async with running(informer.run(through)):
            await create_labelled(direct, namespace, "a")
            await until(lambda: told)
            between.tells = lambda line: [line] if b'"kind":"ConfigMapList"' in line else []
            await create_labelled(direct, namespace, "b")
            await until(lambda: len(between.watches) > 5)
            assert shown(told) == [("add", "a")]
            between.tells = lambda line: [line]
            await until(lambda: len(told) == 2)

    assert shown(told) == [("add", "a"), ("add", "b")]
    assert between.lists == 1
    seconds = {int(watch["timeoutSeconds"]) for watch in between.watches}
    assert len(seconds) > 1
    assert seconds <= set(range(300, 600))


async def test_the_same_version_again_tells_nothing_but_a_resync_all(plane: Plane) -> None:
    between = Between()
    between.tells = lambda line: [line] * (10 if line.startswith(b'{"type":') else 1)
    async with connected(plane) as direct, between.connected(plane) as through:
        namespace = await made(direct, plane)
        informer, told = followed(namespace)
        await create_labelled(direct, namespace, "a")
        async with running(informer.run(through)):
            await until(lambda: told)
            await create_labelled(direct, namespace, "b")
            key = Key(namespace, "b")
            await direct.patch(keys.CONFIG_MAP, key, {"data": {"x": "y"}})
            await create_labelled(direct, namespace, "last")
            await until(lambda: informer.get(Key(namespace, "last")))
            between.tells = lambda line: [b"no JSON\n" if line.startswith(b'{"type":') else line]
            last = Key(namespace, "last")
            await direct.patch(keys.CONFIG_MAP, last, {"data": {"x": "y"}})
            await until(lambda: len(told) == 5)
            before = len(told)
            informer.resync()
            again = told[before:]

    assert shown(told[:before]) == [
        ("add", "a"), ("add", "b"), ("update", "b"), ("add", "last"), ("update", "last"),
    ]  # fmt: skip
    assert between.lists == 2, "which told of what was new, and of nothing else"
    assert sorted(shown(again)) == [("update", "a"), ("update", "b"), ("update", "last")]
    assert all(change.old is change.new for change in again)


async def test_what_leaves_the_selection_leaves_the_cache_and_lives_on(plane: Plane) -> None:
    """The server calls that a deletion; what is deleted then was terminating, or is not there."""
    async with connected(plane) as cluster:
        namespace = await made(cluster, plane)
        informer, told = followed(namespace)
        await create_labelled(cluster, namespace, "leaves")
        gone = await create_labelled(cluster, namespace, "goes")
        async with running(informer.run(cluster)):
            await until(lambda: len(told) == 2)
            leaves = Key(namespace, "leaves")
            await cluster.patch(keys.CONFIG_MAP, leaves, {"metadata": {"labels": {"test": None}}})
            await until(lambda: len(told) == 3)
            await remove_object(cluster, gone)
            await until(lambda: len(told) == 4)
            await cluster.patch(keys.CONFIG_MAP, leaves, {"metadata": {"labels": {"test": ""}}})
            await until(lambda: len(told) == 5)
        there = await cluster.get_live(keys.CONFIG_MAP, leaves)

    assert shown(told)[2:] == [("delete", "leaves"), ("delete", "goes"), ("add", "leaves")]
    assert told[4].new
    assert there
    assert uid(told[4].new) == uid(there)
    assert all(change.was_seen for change in told)
