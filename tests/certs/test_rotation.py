"""Both Secrets over their life, on the fake and on a real API server."""

import asyncio
import base64
import contextlib
import datetime as dt
import itertools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import pytest

from apis import authentication, keys
from apis.objects import Key, Kind, Object, named
from certs import __main__ as main
from certs import pki, policy, rotation
from certs.rotation import InjectionReconciler, RotationOptions, RotationReconciler
from kube import client, clock, metrics
from kube.cluster import Cluster, Selection
from kube.errors import AlreadyExistsError, ConflictError, ForbiddenError
from kube.process import Process
from sandbox.controlplane import Plane
from tests.fakes import FakeCluster
from tests.kube.running import until_so
from tests.world import existing, holds, remove

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


class MovedClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> dt.datetime:
        return self.now


async def data(cluster: Cluster, key: Key) -> dict[str, bytes]:
    found = await existing(cluster, keys.SECRET, key)
    return {name: base64.b64decode(value) for name, value in found["data"].items()}


async def stored_secrets(cluster: Cluster, settings: RotationOptions) -> list[Object | None]:
    where = (settings.ca_key, settings.certs_key)
    return [await cluster.get_live(keys.SECRET, key) for key in where]


async def test_the_first_look_makes_both_and_the_second_writes_nothing(
    cluster: Cluster, namespace: str
) -> None:
    settings = RotationOptions(namespace=namespace)
    reconciler = RotationReconciler(cluster, MovedClock(), settings)

    again_s = await reconciler.reconcile(settings.certs_key)
    made = await stored_secrets(cluster, settings)
    await reconciler.reconcile(settings.certs_key)

    assert again_s == rotation.LOOK_AGAIN_S
    assert await stored_secrets(cluster, settings) == made
    served = await data(cluster, settings.certs_key)
    assert sorted(served) == ["ca.crt", keys.LABELLING_DOOR, "tls.crt", "tls.key"]
    assert pki.is_signed_by(served["tls.crt"], served["ca.crt"])
    assert pki.subject(served["tls.crt"]).dns == (f"liqo-webhook.{namespace}.svc",)
    assert (await data(cluster, settings.ca_key))["tls.key"] not in served.values()


@pytest.mark.parametrize("broken", [None, b"", b"../mutate/pod", b"ab" * 17])
async def test_the_door_stays_and_one_that_is_gone_or_wrong_is_made_anew(
    cluster: Cluster, namespace: str, broken: bytes | None
) -> None:
    settings = RotationOptions(namespace=namespace)
    reconciler = RotationReconciler(cluster, MovedClock(), settings)
    await reconciler.reconcile(settings.certs_key)
    first = await data(cluster, settings.certs_key)
    wrong = None if broken is None else base64.b64encode(broken).decode()
    changes = {"data": {keys.LABELLING_DOOR: wrong}}
    await cluster.patch(keys.SECRET, settings.certs_key, changes)

    await reconciler.reconcile(settings.certs_key)
    second = await data(cluster, settings.certs_key)

    doors = [one.pop(keys.LABELLING_DOOR) for one in (first, second)]
    assert len(set(doors)) == 2
    assert [len(door) for door in doors] == [32, 32]
    assert first == second


async def test_replicas_at_first_boot_agree(cluster: Cluster, namespace: str) -> None:
    settings = RotationOptions(namespace=namespace)
    replicas = [RotationReconciler(cluster, MovedClock(), settings) for _ in range(5)]

    async def boot(replica: RotationReconciler) -> None:
        while True:
            try:
                await replica.reconcile(settings.certs_key)
            except AlreadyExistsError:
                continue  # as the queue does: look again
            return

    await asyncio.gather(*(boot(replica) for replica in replicas))

    authority = await data(cluster, settings.ca_key)
    served = await data(cluster, settings.certs_key)
    assert served["ca.crt"] == authority["tls.crt"]
    assert pki.is_signed_by(served["tls.crt"], authority["tls.crt"])


async def test_a_year_of_hourly_looks_never_breaks_trust(cluster: Cluster, namespace: str) -> None:
    settings = RotationOptions(namespace=namespace)
    clock = MovedClock()
    reconciler = RotationReconciler(cluster, clock, settings)
    leaves, authorities = set(), set()
    trusted_before = b""

    for _ in range(150):
        await reconciler.reconcile(settings.certs_key)
        served = await data(cluster, settings.certs_key)
        leaves.add(served["tls.crt"])
        authorities.add((await data(cluster, settings.ca_key))["tls.crt"])
        # Anybody who still has the bundle of the look before trusts what is served now, and before.
        pair = pki.Keypair(served["tls.crt"], served["tls.key"])
        held = policy.Held(pair, trusted_before, settings.dns)
        if trusted_before:
            assert policy.reason_to_replace(held, clock.now) is None
        trusted_before = served["ca.crt"]
        clock.now += 5 * DAY

    assert len(authorities) >= 3
    assert len(leaves) >= 30


async def test_a_lost_leaf_and_a_lost_authority_are_made_anew(
    cluster: Cluster, namespace: str
) -> None:
    settings = RotationOptions(namespace=namespace)
    clock = MovedClock()
    reconciler = RotationReconciler(cluster, clock, settings)
    await reconciler.reconcile(settings.certs_key)
    before = await data(cluster, settings.certs_key)

    await remove(cluster, keys.SECRET, settings.certs_key)
    await reconciler.reconcile(settings.certs_key)
    leaf = await data(cluster, settings.certs_key)
    assert leaf["ca.crt"] == before["ca.crt"]
    assert pki.is_signed_by(leaf["tls.crt"], before["ca.crt"])

    await remove(cluster, keys.SECRET, settings.ca_key)
    clock.now += DAY
    await reconciler.reconcile(settings.certs_key)
    after = await data(cluster, settings.certs_key)
    assert after["tls.crt"] == leaf["tls.crt"]
    assert after["ca.crt"].endswith(leaf["ca.crt"])
    assert after["ca.crt"] != leaf["ca.crt"]


async def test_an_authority_is_replaced_by_deleting_it_and_nobody_is_refused(
    cluster: Cluster, namespace: str
) -> None:
    """Webhooks serve what was stored before for a while, and API servers trust what was."""
    settings = RotationOptions(namespace=namespace)
    clock = MovedClock()
    reconciler = RotationReconciler(cluster, clock, settings)
    await reconciler.reconcile(settings.certs_key)
    clock.now += DAY
    first = before = await data(cluster, settings.certs_key)
    await remove(cluster, keys.SECRET, settings.ca_key)

    for _ in range(4):
        await reconciler.reconcile(settings.certs_key)
        now = await data(cluster, settings.certs_key)
        assert is_trusted(now["tls.crt"], before["ca.crt"])
        assert is_trusted(before["tls.crt"], now["ca.crt"])
        before = now
        clock.now += settings.settled

    assert not is_trusted(first["tls.crt"], before["ca.crt"]), "a stolen key is good for nothing"
    assert before["ca.crt"] == (await data(cluster, settings.ca_key))["tls.crt"]


async def test_both_secrets_that_are_gone_refuse_nobody(cluster: Cluster, namespace: str) -> None:
    """W16. Webhooks serve on what they have: API servers trust it until what is stored is served.

    Only the configurations still say what that is.
    """
    settings, clock, injected = RotationOptions(namespace=namespace), MovedClock(), [b""]

    async def known() -> bytes:
        return injected[-1]

    reconciler = RotationReconciler(cluster, clock, settings, known=known)
    await reconciler.reconcile(settings.certs_key)
    clock.now += DAY
    before = await data(cluster, settings.certs_key)
    injected.append(before["ca.crt"])
    await remove(cluster, keys.SECRET, settings.certs_key)
    await remove(cluster, keys.SECRET, settings.ca_key)

    await reconciler.reconcile(settings.certs_key)
    after = await data(cluster, settings.certs_key)
    assert is_trusted(after["tls.crt"], after["ca.crt"])
    assert is_trusted(before["tls.crt"], after["ca.crt"])

    injected.append(after["ca.crt"])
    clock.now += settings.settled
    await reconciler.reconcile(settings.certs_key)
    last = await data(cluster, settings.certs_key)
    assert last["tls.crt"] == after["tls.crt"]
    assert last["ca.crt"] == (await data(cluster, settings.ca_key))["tls.crt"]


@pytest.mark.parametrize("away", [31 * DAY, 400 * DAY])
async def test_what_ended_while_nobody_renewed_it_is_made_again_at_once(
    cluster: Cluster, namespace: str, away: dt.timedelta
) -> None:
    """A leaf, or the authority, too."""
    settings, clock = RotationOptions(namespace=namespace), MovedClock()
    reconciler = RotationReconciler(cluster, clock, settings)
    await reconciler.reconcile(settings.certs_key)

    clock.now += away
    await reconciler.reconcile(settings.certs_key)

    served = await data(cluster, settings.certs_key)
    assert holds(served["tls.crt"], clock.now)
    holding = authentication.certificates(served["ca.crt"])
    assert all(holds(one, clock.now) for one in holding)
    assert is_trusted(served["tls.crt"], served["ca.crt"])


def is_trusted(leaf: bytes, trusted: bytes) -> bool:
    return any(pki.is_signed_by(leaf, one) for one in authentication.certificates(trusted))


HOUR: Final = dt.timedelta(hours=1)


@pytest.mark.parametrize("off", [DAY, -2 * HOUR])
async def test_a_clock_that_is_wrong_for_a_while_breaks_no_trust(
    cluster: Cluster, namespace: str, off: dt.timedelta
) -> None:
    """W16. A new bundle is in force before webhooks serve what it came with, and trusts both."""
    settings = RotationOptions(namespace=namespace)
    clock = MovedClock()
    reconciler = RotationReconciler(cluster, clock, settings)
    seen = []
    for moment in (NOW, NOW + off, NOW + HOUR, NOW + 2 * HOUR, NOW + 2 * DAY):
        clock.now = moment
        await reconciler.reconcile(settings.certs_key)
        seen.append(await data(cluster, settings.certs_key))

    for before, now in itertools.pairwise(seen):
        assert is_trusted(now["tls.crt"], now["ca.crt"])
        assert is_trusted(before["tls.crt"], now["ca.crt"])


async def test_what_was_made_a_day_ahead_is_made_again_at_once(
    cluster: Cluster, namespace: str
) -> None:
    """W16: no API server trusts an authority that begins tomorrow."""
    settings = RotationOptions(namespace=namespace)
    clock = MovedClock()
    clock.now = NOW + DAY
    reconciler = RotationReconciler(cluster, clock, settings)
    await reconciler.reconcile(settings.certs_key)

    clock.now = NOW
    await reconciler.reconcile(settings.certs_key)

    served = await data(cluster, settings.certs_key)
    assert pki.started(served["tls.crt"]) <= NOW
    holding = [one for one in authentication.certificates(served["ca.crt"]) if holds(one, NOW)]
    assert is_trusted(served["tls.crt"], b"".join(holding))


async def test_garbage_and_strange_keys_are_replaced(cluster: Cluster, namespace: str) -> None:
    settings = RotationOptions(namespace=namespace)
    reconciler = RotationReconciler(cluster, MovedClock(), settings)
    await reconciler.reconcile(settings.certs_key)
    garbage = {"data": {"tls.crt": "AAAA", "tls.key": None, "more": "AAAA"}}
    await cluster.patch(keys.SECRET, settings.certs_key, garbage)

    await reconciler.reconcile(settings.certs_key)

    served = await data(cluster, settings.certs_key)
    assert sorted(served) == ["ca.crt", keys.LABELLING_DOOR, "tls.crt", "tls.key"]
    assert pki.fits_key(served["tls.crt"], served["tls.key"])


async def test_a_slower_replica_does_not_overwrite(cluster: Cluster, namespace: str) -> None:
    settings = RotationOptions(namespace=namespace)
    clock = MovedClock()
    first, second = (RotationReconciler(cluster, clock, settings) for _ in range(2))
    await first.reconcile(settings.certs_key)
    clock.now += 25 * DAY

    found = await asyncio.gather(
        first.reconcile(settings.certs_key),
        second.reconcile(settings.certs_key),
        return_exceptions=True,
    )

    failed = [one for one in found if isinstance(one, BaseException)]
    assert all(isinstance(one, ConflictError) for one in failed)
    await second.reconcile(settings.certs_key)
    served = await data(cluster, settings.certs_key)
    assert pki.fits_key(served["tls.crt"], served["tls.key"])


async def test_a_certificate_that_is_not_renewed_is_told_from_two_thirds_of_its_life_on() -> None:
    cluster, clock, told = FakeCluster(), MovedClock(), list[tuple[Object, str]]()
    settings = RotationOptions()

    def alarm(secret: Object, message: str) -> None:
        told.append((secret, message))

    reconciler = RotationReconciler(cluster, clock, settings, alarm=alarm)
    await reconciler.reconcile(settings.certs_key)
    cluster.fail("*", ForbiddenError("no right to do this"), times=100)

    async def look() -> None:
        with pytest.raises(ForbiddenError):
            await reconciler.reconcile(settings.certs_key)

    clock.now += 19 * DAY
    await look()
    assert told == []
    clock.now += DAY
    await look()
    ((secret, message),) = told
    assert secret["metadata"]["name"] == keys.WEBHOOK_CERTS_SECRET
    ends = (NOW + rotation.LEAF_LIFETIME).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert message == (
        f"the serving certificate ends at {ends} and is not renewed: no right to do this"
    )

    cluster.heal()
    await reconciler.reconcile(settings.certs_key)
    cluster.fail("*", ForbiddenError("no right to do this"), times=100)
    await look()
    assert len(told) == 1


async def test_when_certificates_end_is_measured(cluster: Cluster, namespace: str) -> None:
    settings = RotationOptions(namespace=namespace)

    ends = {"authority": rotation.CA_LIFETIME, "serving": rotation.LEAF_LIFETIME}
    name = "pyliqo_certs_expiry_timestamp_seconds"
    for _ in ("made", "found"):
        rotation._EXPIRY.clear()  # noqa: SLF001  # as in a process that has just begun
        await RotationReconciler(cluster, MovedClock(), settings).reconcile(settings.certs_key)
        for certificate, life in ends.items():
            found = metrics.REGISTRY.get_sample_value(name, {"certificate": certificate})
            assert found == (NOW + life).timestamp()


# Whom API servers trust, in both configurations ---------------------------------------------------

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
    found = await existing(cluster, kind, key)
    return [
        base64.b64decode(one["clientConfig"].get("caBundle") or "") for one in found["webhooks"]
    ]


async def store_bundle(cluster: Cluster, key: Key, bundle: bytes, *, door: str = "") -> None:
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

    await store_bundle(cluster, where, BUNDLE)
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
        before = await existing(real, kind, key)
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
    await store_bundle(cluster, where, BUNDLE, door="ab" * 16)
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
    mended = await existing(cluster, kind, name)
    paths = [one["clientConfig"]["service"]["path"] for one in mended["webhooks"]]
    assert paths == ["/y", f"{keys.LABELLING_PATH}/{'ab' * 16}"]


async def test_no_configuration_is_waited_for(cluster: Cluster, namespace: str) -> None:
    where = Key(namespace, "certs")
    await store_bundle(cluster, where, BUNDLE)

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
async def rotating_process(
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


async def test_the_process_repairs_whatever_is_broken(cluster: Cluster, namespace: str) -> None:
    name = f"liqo-{secrets.token_hex(4)}"
    settings = RotationOptions(namespace=namespace)
    wheres = [(kind, await configured(cluster, kind, name)) for kind in KINDS]

    async def is_injected() -> bool:
        secret = await cluster.get_live(keys.SECRET, settings.certs_key)
        trusted = base64.b64decode((secret or {}).get("data", {}).get("ca.crt") or "")
        found = [await bundles(cluster, *where) for where in wheres]
        return bool(trusted) and found == [[trusted] * 2] * 2

    async with rotating_process(cluster, settings, name) as daemon:
        await until_so(is_injected)
        assert daemon.health.not_ready() == []

        for kind, key in wheres:
            broken = await existing(cluster, kind, key)
            hooks = [{**one, "clientConfig": {**one["clientConfig"], "caBundle": None}}
                     for one in broken["webhooks"]]  # fmt: skip
            await cluster.patch(kind, key, {"webhooks": hooks})
        await until_so(is_injected)

        (before, *_), *_ = [await bundles(cluster, *where) for where in wheres]
        for where in (settings.certs_key, settings.ca_key):
            await remove(cluster, keys.SECRET, where)
        await until_so(is_injected)
        (after, *_), *_ = [await bundles(cluster, *where) for where in wheres]
        assert after.endswith(before), "what webhooks serve until they have the next"


async def test_users_are_told_of_a_certificate_that_is_not_renewed() -> None:
    cluster, settings = FakeCluster(), RotationOptions()

    async def is_stored() -> bool:
        return await cluster.get_live(keys.SECRET, settings.certs_key) is not None

    async with rotating_process(cluster, settings):
        await until_so(is_stored)
    cluster.fail("patch", ForbiddenError("no right to do this"), kind=keys.SECRET, times=100)
    two_thirds = clock.now() + dt.timedelta(days=21)

    async def events() -> list[Object]:
        return list((await cluster.list(Selection(keys.EVENT, dict))).items.values())

    async with rotating_process(cluster, settings, now=lambda: two_thirds):
        await until_so(lambda: _is_any(events()))

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
            before = await existing(real, kind, key)
            wanted = rotation.injected(kind, before, BUNDLE)
            assert wanted

            after = await real.apply(kind, wanted, manager=rotation.INJECTION_MANAGER)

            owners = [
                one["manager"]
                for one in after["metadata"]["managedFields"]
                if "f:caBundle" in str(one["fieldsV1"])
            ]
            assert owners == [rotation.INJECTION_MANAGER]
