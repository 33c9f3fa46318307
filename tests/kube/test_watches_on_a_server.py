"""What an informer makes of the watches of a real API server, also as another would word them.

Source: docs/parity.md C-2, C-3, C-6, C-10, C-12.
"""

import re
from typing import Any

import msgspec
import pytest

from apis import keys
from apis.objects import Key, Object, uid
from kube.cluster import Selection
from kube.informer import Change, Informer
from sandbox.controlplane import Plane
from tests.kube.between import Between
from tests.kube.running import running, until
from tests.kube.serverside import connected, create, made, remove
from tests.kube.test_informer import kinds

pytestmark = pytest.mark.cluster

LETTERS = bytes.maketrans(b"0123456789", b"qwertyuiop")
DIGITS = bytes.maketrans(b"qwertyuiop", b"0123456789")
VERSION = re.compile(rb'(?<="resourceVersion":")\w+(?=")')


def followed(namespace: str, **how: Any) -> tuple[Informer[Object], list[Change[Object]]]:
    told: list[Change[Object]] = []
    informer = Informer(Selection(keys.CONFIG_MAP, Object, namespace, labels="test"), **how)
    informer.subscribe(told.append)
    return informer, told


def shown(told: list[Change[Object]]) -> list[tuple[str, str]]:
    return [(kind, change.key.name) for kind, change in zip(kinds(told), told, strict=True)]


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
        first = await create(direct, namespace, "a")
        async with running(one[0].run(direct), other[0].run(through)):
            await until(lambda: one[1] and other[1])
            for number in range(12):  # so many that one more digit comes, or the last turns
                await direct.patch(
                    keys.CONFIG_MAP, Key(namespace, "a"), {"data": {"n": str(number)}}
                )
            await until(lambda: "11" in str(other[0].items()))
            between.cut()
            await create(direct, namespace, "b")
            await remove(direct, first)
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
            await create(direct, await made(direct, plane), "elsewhere")
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
            await create(direct, namespace, "a")
            await until(lambda: told)
            between.tells = lambda line: [line] if b'"kind":"ConfigMapList"' in line else []
            await create(direct, namespace, "b")
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
        await create(direct, namespace, "a")
        async with running(informer.run(through)):
            await until(lambda: told)
            await create(direct, namespace, "b")
            key = Key(namespace, "b")
            await direct.patch(keys.CONFIG_MAP, key, {"data": {"x": "y"}})
            await create(direct, namespace, "last")
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
        await create(cluster, namespace, "leaves")
        gone = await create(cluster, namespace, "goes")
        async with running(informer.run(cluster)):
            await until(lambda: len(told) == 2)
            leaves = Key(namespace, "leaves")
            await cluster.patch(keys.CONFIG_MAP, leaves, {"metadata": {"labels": {"test": None}}})
            await until(lambda: len(told) == 3)
            await remove(cluster, gone)
            await until(lambda: len(told) == 4)
            await cluster.patch(keys.CONFIG_MAP, leaves, {"metadata": {"labels": {"test": ""}}})
            await until(lambda: len(told) == 5)
        there = await cluster.get_live(keys.CONFIG_MAP, leaves)

    assert shown(told)[2:] == [("delete", "leaves"), ("delete", "goes"), ("add", "leaves")]
    assert told[4].new
    assert there
    assert uid(told[4].new) == uid(there)
    assert all(change.was_seen for change in told)
