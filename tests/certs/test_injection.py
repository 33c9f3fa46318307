"""Whom API servers trust, in both configurations, on the fake and on a real API server."""

import asyncio
import base64
import contextlib
import datetime as dt
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from apis import keys
from apis.objects import Key, Kind, Object, named
from certs import __main__ as main
from certs import pki, rotation
from certs.rotation import InjectionReconciler, RotationOptions
from kube import client, clock
from kube.cluster import Cluster, Selection
from kube.errors import ForbiddenError
from kube.process import Process
from sandbox.controlplane import Plane
from tests.fakes import FakeCluster

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
BUNDLE = pki.new_ca("one", now=NOW, lifetime=dt.timedelta(days=1)).certificate
KINDS = (keys.MUTATING_WEBHOOKS, keys.VALIDATING_WEBHOOKS)


def hook(name: str) -> Object:
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "clientConfig": {"service": {"namespace": "liqo", "name": "x", "path": "/x"}},
        "namespaceSelector": {"matchLabels": {"no-such-label": "at-all"}},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
             "resources": ["pods"]}
        ],
    }  # fmt: skip


async def configured(cluster: Cluster, kind: Kind, name: str) -> Key:
    key = Key("", name)
    hooks = [hook("a.liqo.io"), hook("b.liqo.io")]
    await cluster.create(kind, named(kind, key, webhooks=hooks))
    return key


async def bundles(cluster: Cluster, kind: Kind, key: Key) -> list[bytes]:
    found = await cluster.get_live(kind, key)
    assert found
    return [
        base64.b64decode(one["clientConfig"].get("caBundle") or "") for one in found["webhooks"]
    ]


async def store(cluster: Cluster, key: Key, bundle: bytes, *, door: str = "") -> None:
    data = {"ca.crt": bundle, **({keys.LABELLING_DOOR: door.encode()} if door else {})}
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    await cluster.create(keys.SECRET, named(keys.SECRET, key, data=encoded))


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_every_webhook_gets_the_bundle_once(
    cluster: Cluster, namespace: str, kind: Kind
) -> None:
    where = Key(namespace, "certs")
    key = await configured(cluster, kind, f"liqo-{secrets.token_hex(4)}")
    reconciler = InjectionReconciler(cluster, kind, where)

    await reconciler.reconcile(key)
    assert await bundles(cluster, kind, key) == [b"", b""]

    await store(cluster, where, BUNDLE)
    await reconciler.reconcile(key)
    made = await cluster.get_live(kind, key)
    await reconciler.reconcile(key)

    assert await cluster.get_live(kind, key) == made
    assert await bundles(cluster, kind, key) == [BUNDLE, BUNDLE]


@pytest.mark.cluster
@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_the_rest_of_a_configuration_stays(plane: Plane, kind: Kind) -> None:
    name = f"liqo-{secrets.token_hex(4)}"
    async with client.connect(plane.kubeconfig) as real:
        key = await configured(real, kind, name)
        before = await real.get_live(kind, key)
        assert before
        wanted = rotation.injected(kind, before, BUNDLE)
        assert wanted

        after = await real.apply(kind, wanted, manager=rotation.INJECTION_MANAGER)

    for hooks in (before["webhooks"], after["webhooks"]):
        for one in hooks:
            one["clientConfig"].pop("caBundle", None)
    assert after["webhooks"] == before["webhooks"]


async def test_api_servers_are_told_the_door_of_the_webhook_that_labels(
    cluster: Cluster, namespace: str
) -> None:
    """Manifests that are applied again, which say no path, neither take it nor fight it."""
    where, name = Key(namespace, "certs"), Key("", f"liqo-{secrets.token_hex(4)}")
    kind = keys.VALIDATING_WEBHOOKS
    labelling = hook(keys.LABELLING_WEBHOOK)
    del labelling["clientConfig"]["service"]["path"]
    await cluster.create(kind, named(kind, name, webhooks=[hook("a.liqo.io"), labelling]))
    await store(cluster, where, BUNDLE, door="ab" * 16)
    reconciler = InjectionReconciler(cluster, kind, where)

    await reconciler.reconcile(name)
    made = await cluster.get_live(kind, name)
    await reconciler.reconcile(name)

    assert made
    assert await cluster.get_live(kind, name) == made
    paths = [one["clientConfig"]["service"]["path"] for one in made["webhooks"]]
    assert paths == ["/x", f"{keys.LABELLING_PATH}/{'ab' * 16}"]
    changed = {"webhooks": [{**one, "clientConfig": {**one["clientConfig"], "service": {
        "namespace": "liqo", "name": "x", "path": "/y"}}} for one in made["webhooks"]]}  # fmt: skip
    await cluster.patch(kind, name, changed)
    await reconciler.reconcile(name)
    mended = await cluster.get_live(kind, name)
    assert mended
    paths = [one["clientConfig"]["service"]["path"] for one in mended["webhooks"]]
    assert paths == ["/y", f"{keys.LABELLING_PATH}/{'ab' * 16}"]


async def test_no_configuration_is_waited_for(cluster: Cluster, namespace: str) -> None:
    where = Key(namespace, "certs")
    await store(cluster, where, BUNDLE)

    reconciler = InjectionReconciler(cluster, KINDS[0], where)

    assert await reconciler.reconcile(Key("", "not-there")) is None


def test_only_a_difference_is_applied() -> None:
    encoded = base64.b64encode(BUNDLE).decode()
    right = {"name": "a", "clientConfig": {"service": {}, "caBundle": encoded}}
    wrong = {"name": "b", "clientConfig": {"caBundle": "AAAA"}}

    def injected(*hooks: Object) -> Object | None:
        configuration = {"metadata": {"name": "liqo"}, "webhooks": list(hooks)}
        return rotation.injected(KINDS[0], configuration, BUNDLE)

    assert injected(right) is None
    assert injected() is None
    applied = injected(right, wrong)
    assert applied
    assert applied["webhooks"] == [
        {"name": name, "clientConfig": {"caBundle": encoded}} for name in ("a", "b")
    ]


@contextlib.asynccontextmanager
async def following(
    cluster: Cluster,
    settings: RotationOptions,
    name: str = keys.WEBHOOK_CONFIGURATION,
    now: Callable[[], dt.datetime] = clock.now,
) -> AsyncIterator[Process]:
    daemon = Process("certs", 0)
    task = asyncio.create_task(main.follow(cluster, settings, daemon, configuration=name, now=now))
    try:
        yield daemon
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(300):
        while not await holds():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.02)


async def test_the_process_repairs_whatever_is_broken(cluster: Cluster, namespace: str) -> None:
    name = f"liqo-{secrets.token_hex(4)}"
    settings = RotationOptions(namespace=namespace)
    wheres = [(kind, await configured(cluster, kind, name)) for kind in KINDS]

    async def is_injected() -> bool:
        secret = await cluster.get_live(keys.SECRET, settings.certs_key)
        trusted = base64.b64decode((secret or {}).get("data", {}).get("ca.crt") or "")
        found = [await bundles(cluster, *where) for where in wheres]
        return bool(trusted) and found == [[trusted] * 2] * 2

    async with following(cluster, settings, name) as daemon:
        await wait_until(is_injected)
        assert daemon.health.not_ready() == []

        for kind, key in wheres:
            broken = await cluster.get_live(kind, key)
            assert broken
            hooks = [{**one, "clientConfig": {**one["clientConfig"], "caBundle": None}}
                     for one in broken["webhooks"]]  # fmt: skip
            await cluster.patch(kind, key, {"webhooks": hooks})
        await wait_until(is_injected)

        (before, *_), *_ = [await bundles(cluster, *where) for where in wheres]
        for where in (settings.certs_key, settings.ca_key):
            secret = await cluster.get_live(keys.SECRET, where)
            assert secret
            await cluster.delete(keys.SECRET, where, uid=secret["metadata"]["uid"])
        await wait_until(is_injected)
        (after, *_), *_ = [await bundles(cluster, *where) for where in wheres]
        assert after.endswith(before), "what webhooks serve until they have the next"


async def test_users_are_told_of_a_certificate_that_is_not_renewed() -> None:
    cluster, settings = FakeCluster(), RotationOptions()

    async def is_stored() -> bool:
        return await cluster.get_live(keys.SECRET, settings.certs_key) is not None

    async with following(cluster, settings):
        await wait_until(is_stored)
    cluster.fail("patch", ForbiddenError("no right to do this"), kind=keys.SECRET, times=100)
    two_thirds = clock.now() + dt.timedelta(days=21)

    async def events() -> list[Object]:
        return list((await cluster.list(Selection(keys.EVENT, dict))).items.values())

    async with following(cluster, settings, now=lambda: two_thirds):
        await wait_until(lambda: _is_any(events()))

    for event in await events():
        assert event["type"] == "Warning"
        assert event["reason"] == "CertificateNotRenewed"
        assert event["involvedObject"]["name"] == keys.WEBHOOK_CERTS_SECRET
        assert "is not renewed: no right to do this" in event["message"]


async def _is_any(found: Awaitable[list[Object]]) -> bool:
    return bool(await found)


@pytest.mark.cluster
async def test_one_manager_owns_every_bundle(plane: Plane) -> None:
    name = f"liqo-{secrets.token_hex(4)}"
    async with client.connect(plane.kubeconfig) as real:
        for kind in KINDS:
            key = await configured(real, kind, name)
            before = await real.get_live(kind, key)
            assert before
            wanted = rotation.injected(kind, before, BUNDLE)
            assert wanted

            after = await real.apply(kind, wanted, manager=rotation.INJECTION_MANAGER)

            owners = [
                one["manager"]
                for one in after["metadata"]["managedFields"]
                if "f:caBundle" in str(one["fieldsV1"])
            ]
            assert owners == [rotation.INJECTION_MANAGER]
