"""A provider whose etcd is slow, stands still, is full, or is one of yesterday.

Home is the API server of all tests; the provider is one of its own, and takes it all.
Source: docs/parity.md F-12, F-14.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from apis import keys, objects, reflection
from apis.objects import Key, Kind, Object, named
from kube import client, errors
from kube.client import ClusterClient
from kube.cluster import Selection
from reflector.kinds.contract import RemoteObjectOptions
from reflector.kinds.table import KIND_REFLECTIONS
from reflector.namespaces import KindController, ReflectedNamespaces, Rules
from sandbox import controlplane
from sandbox.controlplane import Plane
from tests import conftest, factories
from tests.conftest import size_of
from tests.kube.running import running, until
from tests.reflector.mapped import offloaded_pairs

pytestmark = pytest.mark.cluster

CLAIM: Final = keys.PERSISTENT_VOLUME_CLAIM
WITHIN_S: Final = 240
HELD_S: Final = size_of("PYLIQO_TEST_HELD_S", 20.0, 60.0)
"""How long twins stay then."""
REFUSED_S: Final = 3.0
SLOWLY: Final = 12
VERSIONS: Final = 300
"""So many writes are forgotten by a restore, far more than an API server makes as it starts: what
the reflector saw last is a version that the restored etcd does not have yet."""


@pytest.fixture(scope="module")
def provider_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with controlplane.start(tmp_path_factory.mktemp("milan")) as plane:
        yield plane


class Reflected:
    """A namespace of home, its twin, and a view of the twin that another client has."""

    def __init__(self, home: ClusterClient, seen: ClusterClient, stem: str) -> None:
        self.home, self.stem, self._seen = home, stem, seen
        self.twin = f"{stem}-remote"

    async def create(self, name: str) -> None:
        await self.home.create(keys.CONFIG_MAP, factories.config_map(self.stem, name, told="a"))

    async def change(self, name: str, told: str) -> None:
        await self.home.patch(keys.CONFIG_MAP, Key(self.stem, name), {"data": {"told": told}})

    async def spoil(self, name: str) -> None:
        """Have a twin say something else; the reflector puts it right if its watch is open."""
        await self._seen.patch(keys.CONFIG_MAP, Key(self.twin, name), {"data": {"told": "odd"}})

    async def write(self, times: int) -> None:
        """Let the provider have so many versions more, of an object that is no twin."""
        await _write(self._seen, Key(self.twin, "noise"), times)

    async def look(self, name: str) -> Object:
        """Return a twin as the provider has it now, {} where there is none or nobody answers."""
        with contextlib.suppress(errors.KubeError):
            found = await self._seen.get_live(keys.CONFIG_MAP, Key(self.twin, name))
            return found or {}
        return {}

    async def says(self, name: str, told: str) -> Object:
        """Return a twin once it says that."""
        async with asyncio.timeout(WITHIN_S):
            while (found := await self.look(name)).get("data", {}).get("told") != told:  # noqa: ASYNC110  # it restarts
                await asyncio.sleep(0.05)
        return found


async def _write(cluster: ClusterClient, noise: Key, times: int) -> None:
    await cluster.create(keys.CONFIG_MAP, factories.config_map(*noise, told=""))
    for number in range(times):
        await cluster.patch(keys.CONFIG_MAP, noise, {"data": {"told": str(number)}})


@pytest.fixture
async def reflected(plane: Plane, crds: None, provider_etcd: Plane) -> AsyncIterator[Reflected]:
    stem = f"test-{secrets.token_hex(4)}"
    async with (
        client.connect(plane.kubeconfig, user_agent="tests") as home,
        client.connect(provider_etcd.kubeconfig, user_agent="tests") as seen,
        client.connect(provider_etcd.kubeconfig, user_agent="pyliqo-reflector") as foreign,
    ):
        identity = await offloaded_pairs(home, stem, "loud", "quiet")
        made = Reflected(home, seen, stem)
        await seen.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", made.twin)))
        loops = [
            KindController(KIND_REFLECTIONS[reflection.CONFIG_MAP], Rules(), lambda *_: None, 3)
        ]
        foreign.reach.subscribe(loops[0].runner.server_is_back)
        async with running(ReflectedNamespaces(identity, loops, home, foreign).run()):
            await made.create("before")
            await made.says("before", "a")
            yield made


async def refuses(provider: Plane, namespace: str) -> None:
    """Assert that nobody can write there now."""
    made = factories.config_map(namespace, f"probe-{secrets.token_hex(3)}")
    async with client.connect(provider.kubeconfig, user_agent="tests") as probe:
        with pytest.raises((errors.KubeError, TimeoutError)):
            async with asyncio.timeout(REFUSED_S):
                await probe.create(keys.CONFIG_MAP, made)


@pytest.mark.parametrize("trouble", ["stalled", "full"])
async def test_what_changes_while_an_etcd_takes_no_writes_comes_after(
    provider_etcd: Plane, reflected: Reflected, trouble: str
) -> None:
    before = await reflected.look("before")
    with provider_etcd.stalled() if trouble == "stalled" else provider_etcd.full():
        await reflected.create("meanwhile")
        await reflected.change("before", "b")
        await refuses(provider_etcd, reflected.twin)

    await reflected.says("meanwhile", "a")
    after = await reflected.says("before", "b")
    assert objects.uid(after) == objects.uid(before)


async def test_on_a_slow_disk_all_goes_on(provider_etcd: Plane, reflected: Reflected) -> None:
    before = await reflected.look("before")
    names = [f"slow-{number}" for number in range(SLOWLY)]
    with provider_etcd.slow():
        await asyncio.gather(*map(reflected.create, names), reflected.change("before", "b"))
        for name in names:
            await reflected.says(name, "a")
        after = await reflected.says("before", "b")

    assert objects.uid(after) == objects.uid(before)


async def test_a_provider_that_is_restored_from_yesterday_gets_what_it_lacks(
    provider_etcd: Plane, reflected: Reflected, tmp_path: Path
) -> None:
    home_before = await _all(reflected.home, reflected.stem)
    provider_etcd.save(tmp_path / "saved")
    await reflected.create("later")
    await reflected.says("later", "a")
    await reflected.spoil("later")
    await reflected.says("later", "a")
    await reflected.write(VERSIONS)
    await reflected.change("before", "b")
    await reflected.says("before", "b")

    provider_etcd.restore(tmp_path / "saved")

    await reflected.says("later", "a")
    await reflected.says("before", "b")
    await reflected.change("before", "c")
    await reflected.says("before", "c")
    assert (await _all(reflected.home, reflected.stem)).keys() == {*home_before, "later"}


async def _all(
    cluster: ClusterClient, namespace: str, kind: Kind = keys.CONFIG_MAP
) -> dict[str, Object]:
    """Return what lives there, by name: of a claim that is deleted nobody takes the finalizer."""
    found = (await cluster.list(Selection(kind, Object, namespace))).items
    return {key.name: obj for key, obj in found.items() if not objects.is_terminating(obj)}


@pytest.fixture(scope="module")
def yesterday(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with controlplane.start(tmp_path_factory.mktemp("rome")) as plane:
        yield plane


async def test_a_home_that_is_restored_from_yesterday_takes_no_twin_along_for_a_while(
    yesterday: Plane, provider_etcd: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.breaker.HOLD_S", HELD_S)
    await conftest.install_crds(yesterday.kubeconfig)
    stem, warned = f"test-{secrets.token_hex(4)}", dict[Kind, float]()
    names = {f"late-{number}" for number in range(20)}
    claims = {f"data-{number}" for number in range(3)}
    kinds = {keys.CONFIG_MAP: names, CLAIM: claims}

    def warn(_of: Object, _type: str, reason: str, message: str) -> None:
        (kind,) = (kind for kind in kinds if f" {kind.plural} " in message)
        if reason == keys.MASS_ABSENCE:
            warned.setdefault(kind, time.monotonic())

    async with (
        client.connect(yesterday.kubeconfig, user_agent="tests") as home,
        client.connect(provider_etcd.kubeconfig, user_agent="tests") as seen,
        client.connect(provider_etcd.kubeconfig, user_agent="pyliqo-reflector") as foreign,
    ):
        identity = await offloaded_pairs(home, stem, "loud", "quiet")
        made = Reflected(home, seen, stem)
        await seen.create(keys.NAMESPACE, named(keys.NAMESPACE, Key("", made.twin)))
        await home.create(keys.NODE, factories.virtual_node())
        rules = Rules(settings=RemoteObjectOptions(enable_storage=True))
        loops = [
            KindController(KIND_REFLECTIONS[row], rules, lambda *_: None, 3, warn=warn)
            for row in (reflection.CONFIG_MAP, reflection.CLAIM)
        ]
        async with running(ReflectedNamespaces(identity, loops, home, foreign).run()):
            yesterday.save(tmp_path / "saved")
            async with client.connect(yesterday.kubeconfig, user_agent="tests") as again:
                await _write(again, Key("default", "noise"), VERSIONS)
                for name in claims:
                    await again.create(CLAIM, factories.claim(stem, name, node="milan"))
                for name in names:
                    await again.create(keys.CONFIG_MAP, factories.config_map(stem, name, told="a"))
            for kind, wanted in kinds.items():
                await _until(seen, made.twin, kind, lambda have, wanted=wanted: have >= wanted)  # type: ignore[misc]

            yesterday.restore(tmp_path / "saved")

            await until(lambda: warned.keys() == kinds.keys())
            for kind, wanted in kinds.items():
                await _until(seen, made.twin, kind, lambda have, wanted=wanted: not have >= wanted)  # type: ignore[misc]
                lasted_s = time.monotonic() - warned[kind]
                print(f"{kind.plural} that a restore took went {lasted_s:.1f} s after it was told")  # noqa: T201
                assert lasted_s >= HELD_S, "the first to go"
                await _until(seen, made.twin, kind, lambda have, wanted=wanted: not have & wanted)  # type: ignore[misc]
            assert {"loud", "quiet"} <= (await _all(seen, made.twin)).keys()


async def _until(
    cluster: ClusterClient, namespace: str, kind: Kind, holds: Callable[[set[str]], bool]
) -> None:
    """Return once the names of what lives there are as ``holds`` wants."""
    async with asyncio.timeout(WITHIN_S):
        while not holds(set(await _all(cluster, namespace, kind))):  # noqa: ASYNC110  # it restarts
            await asyncio.sleep(0.2)
