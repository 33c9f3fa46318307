"""A consumer's certificate: made once, kept, renewed at two thirds of its life."""

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apis import keys, objects
from apis.objects import Key, named
from certs import identity, pki
from controllers.authentication.issuing import forge
from controllers.authentication.issuing.forge import CertificateRequest
from controllers.authentication.issuing.issuer import LOOK_S, Issuer
from controllers.manager import AdvertisedEndpoint, Manager
from kube import localaddresses
from kube.controller import TerminalError
from kube.errors import BusyError, ForbiddenError
from tests import signers
from tests.controllers.support import manager_of
from tests.fakes import FakeCluster
from tests.kube.running import running
from tests.world import holds

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = Key("liqo-tenant-rome", "liqo-remote-certificate")
KEY = identity.new_key()
CSR = pki.new_csr(KEY, common_name="rome", organizations=["liqo.io"])
REQUEST = CertificateRequest(SECRET, CSR, "rome")
CA = pki.new_ca("ca", now=NOW, lifetime=timedelta(days=10))


class World:
    """A provider whose clock a test moves; its signer's is ``ahead`` of it."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.now, self.ahead = NOW, timedelta()
        self.issuer = self.made(AdvertisedEndpoint(lambda: b"CA", "milan.example:6443"))

    def made(self, endpoint: AdvertisedEndpoint, **rest: Any) -> Issuer:
        manager = manager_of(self.cluster, endpoint=endpoint, clock=lambda: self.now)
        return Issuer(manager, **rest)

    async def requests(self) -> int:
        everything = self.cluster.everything()
        return sum(kind == keys.CERTIFICATE_SIGNING_REQUEST for kind, _ in everything)


@pytest.fixture
async def issuing() -> AsyncIterator[World]:
    made = World()
    async with signers.signing(made.cluster, CA, lambda: made.now + made.ahead):
        yield made


async def test_a_certificate_is_for_who_asked_and_is_kept(issuing: World) -> None:
    issued = await issuing.issuer.issue(REQUEST)
    again = await issuing.issuer.issue(REQUEST)

    assert issued.is_new
    assert not again.is_new
    assert issued.params == again.params
    assert issued.params.api_server == "https://milan.example:6443"
    assert issued.params.ca == b"CA"
    assert pki.subject(issued.params.certificate) == pki.Subject("rome", ("liqo.io",))
    assert pki.fits_key(issued.params.certificate, KEY)
    assert pki.expiry(issued.params.certificate) == NOW + timedelta(hours=24)
    assert issued.renew_in_s == LOOK_S
    assert await issuing.requests() == 1


async def test_it_is_renewed_at_two_thirds_and_not_before(issuing: World) -> None:
    first = await issuing.issuer.issue(REQUEST)
    issuing.now += timedelta(hours=15, minutes=59)
    early = await issuing.issuer.issue(REQUEST)
    issuing.now += timedelta(minutes=2)
    late = await issuing.issuer.issue(REQUEST)

    assert early.params == first.params
    assert late.is_new
    assert late.params.certificate != first.params.certificate


HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize("wrong_for", [HOUR, 3 * DAY])
@pytest.mark.parametrize("off", [DAY, 23 * HOUR, -2 * HOUR])
@pytest.mark.parametrize("whose", ["controllers", "signer", "both"])
async def test_a_consumer_has_a_certificate_though_a_clock_of_its_provider_is_wrong(
    issuing: World, whose: str, off: timedelta, wrong_for: timedelta
) -> None:
    """By the signer's clock, which is the API server's; each look comes when the last one said.

    It has it an hour and a half after either clock changed; while the signer's alone is wrong
    nobody can tell what has ended by it.
    """
    changes, late, since = (2 * HOUR, 2 * HOUR + wrong_for), 1.5 * HOUR, timedelta()
    while since < 5 * DAY:
        is_wrong = changes[0] <= since < changes[1]
        mine = off if is_wrong and whose != "signer" else timedelta()
        its = off if is_wrong and whose != "controllers" else timedelta()
        issuing.now, issuing.ahead = NOW + since + mine, its - mine
        issued = await issuing.issuer.issue(REQUEST)
        is_certain = all(not one <= since < one + late for one in changes)
        if is_certain and not (is_wrong and whose == "signer"):
            assert holds(issued.params.certificate, issuing.now + issuing.ahead), since
        since += timedelta(seconds=issued.renew_in_s)
        assert await issuing.requests() <= 5 * DAY / (16 * HOUR) + 3 + wrong_for / HOUR


async def test_a_certificate_that_is_gone_is_made_again(issuing: World) -> None:
    first = await issuing.issuer.issue(REQUEST)
    stored = await issuing.cluster.get(keys.SECRET, SECRET)
    assert stored
    await issuing.cluster.delete(keys.SECRET, SECRET, uid=objects.uid(stored))

    again = await issuing.issuer.issue(REQUEST)

    assert again.is_new
    assert again.params.certificate != first.params.certificate
    assert (await issuing.issuer.issue(REQUEST)).params == again.params


async def test_another_request_gets_another_certificate(issuing: World) -> None:
    first = await issuing.issuer.issue(REQUEST)
    other = pki.new_csr(identity.new_key(), common_name="rome", organizations=["liqo.io"])

    second = await issuing.issuer.issue(CertificateRequest(SECRET, other, "rome"))

    assert second.params.certificate != first.params.certificate


async def test_a_refused_renewal_keeps_the_old_one_and_is_tried_again(
    issuing: World, caplog: pytest.LogCaptureFixture
) -> None:
    first = await issuing.issuer.issue(REQUEST)
    kind = keys.CERTIFICATE_SIGNING_REQUEST
    for hours in (17, 20, 24 * 3):
        issuing.now = NOW + timedelta(hours=hours)
        issuing.cluster.fail("create", ForbiddenError("no"), kind=kind)
        kept = await issuing.issuer.issue(REQUEST)
        assert kept.params == first.params
        assert (kept.problem, kept.is_new) == ("no", False)
        assert kept.renew_in_s == 30  # hours are left, or nothing is

    again = await issuing.issuer.issue(REQUEST)

    assert again.is_new
    assert [record.levelname for record in caplog.records if "renewed" in record.message] == [
        "WARNING",
        "ERROR",
        "ERROR",
    ]


async def test_refused_for_ten_lives_it_asks_on_alarms_from_80_percent_and_recovers_at_once(
    issuing: World, caplog: pytest.LogCaptureFixture
) -> None:
    """F26: each look comes when the one before said, as the loop does it."""
    life = timedelta(minutes=10)
    issuer = issuing.made(AdvertisedEndpoint(lambda: b"CA", "milan:6443"), lifetime=life)
    first = await issuer.issue(REQUEST)
    issuing.cluster.fail(
        "create", ForbiddenError("no"), kind=keys.CERTIFICATE_SIGNING_REQUEST, times=10**6
    )
    seen: list[tuple[float, str]] = []
    wait_s = first.renew_in_s
    while issuing.now + timedelta(seconds=wait_s) < NOW + 10 * life:
        issuing.now += timedelta(seconds=wait_s)
        kept = await issuer.issue(REQUEST)
        assert (kept.params, kept.problem) == (first.params, "no")
        wait_s = kept.renew_in_s
        assert 1 <= wait_s <= 30
        seen.append(((issuing.now - NOW) / life, caplog.records[-1].levelname))

    issuing.cluster.heal()
    issuing.now += timedelta(seconds=wait_s)
    again = await issuer.issue(REQUEST)

    assert again.is_new
    assert seen[-1][0] > 9.9
    assert {level for part, level in seen if part < 0.8} == {"WARNING"}
    assert {level for part, level in seen if part >= 0.8} == {"ERROR"}


async def test_a_try_that_failed_half_way_is_gone_on_with(issuing: World) -> None:
    """Else a signer that may not be approved to would leave a request every half minute."""
    kind = keys.CERTIFICATE_SIGNING_REQUEST
    issuing.cluster.fail("patch", ForbiddenError("may not approve"), kind=kind, times=3)
    for _ in range(3):
        with pytest.raises(ForbiddenError):
            await issuing.issuer.issue(REQUEST)

    issued = await issuing.issuer.issue(REQUEST)

    assert issued.is_new
    assert await issuing.requests() == 1


async def test_the_less_is_left_the_sooner_the_signer_is_asked_again(issuing: World) -> None:
    await issuing.issuer.issue(REQUEST)
    issuing.now = NOW + timedelta(hours=23, minutes=59)
    issuing.cluster.fail("create", ForbiddenError("no"), kind=keys.CERTIFICATE_SIGNING_REQUEST)

    assert (await issuing.issuer.issue(REQUEST)).renew_in_s == pytest.approx(6)


async def test_a_signer_that_refuses_is_told() -> None:
    world = World()
    async with signers.refusing(world.cluster):
        with pytest.raises(BusyError, match="Failed: cannot"):
            await world.issuer.issue(REQUEST)


async def test_a_secret_of_somebody_else_is_left_alone(issuing: World) -> None:
    await issuing.cluster.create(keys.SECRET, named(keys.SECRET, SECRET, data={"a": "Yg=="}))

    with pytest.raises(TerminalError, match="not for rome"):
        await issuing.issuer.issue(REQUEST)


async def test_what_is_stored_and_broken_is_made_anew(issuing: World) -> None:
    await issuing.issuer.issue(REQUEST)
    await issuing.cluster.patch(keys.SECRET, SECRET, {"data": {"certificate": "%"}})

    issued = await issuing.issuer.issue(REQUEST)

    stored = await issuing.cluster.get(keys.SECRET, SECRET)
    assert stored is not None
    assert base64.b64decode(stored["data"]["certificate"]) == issued.params.certificate


def node(name: str, address: str, *labels: str, type_: str = "InternalIP") -> objects.Object:
    metadata = {"labels": dict.fromkeys(labels, "")}
    status = {
        "addresses": [{"type": "Hostname", "address": name}, {"type": type_, "address": address}]
    }
    return named(keys.NODE, Key("", name), metadata=metadata, status=status)


def test_the_api_server_is_where_a_control_plane_is() -> None:
    old, new = "node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane"
    nodes = [node("a", "10.0.0.1", old), node("c", "10.0.0.3", new), node("b", "10.0.0.2")]

    assert forge.api_server(nodes) == "https://10.0.0.3:6443"
    assert forge.api_server(nodes[:1]) == "https://10.0.0.1:6443"
    assert forge.api_server([node("d", "fd00::1", new)]) == "https://[fd00::1]:6443"
    assert forge.api_server([node("d", "a.b", new, type_="ExternalDNS")]) == "https://a.b:6443"
    with pytest.raises(ValueError, match="--api-server-url"):
        forge.api_server(nodes[2:])


def test_consumers_are_told_the_address_that_they_know_as_long_as_a_node_has_it() -> None:
    label = "node-role.kubernetes.io/control-plane"
    first, second = node("cp-b", "10.0.0.2", label), node("cp-a", "10.0.0.9", label)
    ready = [{"type": "Ready", "status": "True"}]
    told = forge.api_server([first])

    assert forge.api_server([first, second], told) == told
    assert forge.api_server([second], told) == "https://10.0.0.9:6443", "cp-b is gone"
    first["status"]["conditions"] = ready
    assert forge.api_server([first, second]) == told, "the one that is ready"


async def test_where_consumers_connect_is_known_and_asked_of_no_server(issuing: World) -> None:
    label = "node-role.kubernetes.io/control-plane"
    made = [node(f"n-{number}", f"10.0.1.{number}") for number in range(50)]
    made += [node("cp-a", "10.0.0.1", label), node("cp-b", "10.0.0.2", label)]
    made[-1]["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    for each in made:
        await issuing.cluster.create(keys.NODE, each)
    endpoint = AdvertisedEndpoint(lambda: b"CA")
    manager = manager_of(issuing.cluster, of=Manager, endpoint=endpoint, clock=lambda: issuing.now)
    informer = manager.informer(localaddresses.NODES)
    async with running(informer.run(issuing.cluster)):
        await manager.informers.wait()
        lists = issuing.cluster.requests["list", "nodes"]
        told = [(await Issuer(manager).issue(REQUEST)).params.api_server for _ in range(2)]

    assert told == ["https://10.0.0.2:6443"] * 2, "the one that is Ready"
    assert issuing.cluster.requests["list", "nodes"] == lists == 1


async def test_an_authority_that_changes_is_told_without_a_restart(issuing: World) -> None:
    said = [b"old"]
    entrance = AdvertisedEndpoint(lambda: said[0], "milan.example:6443")
    issuer = issuing.made(entrance)
    assert (await issuer.issue(REQUEST)).params.ca == b"old"
    said[0] = b"old and new"

    again = await issuer.issue(REQUEST)

    assert again.params.ca == b"old and new"
    assert again.renew_in_s <= LOOK_S, "looked at again before the certificate is due"


def test_an_override_may_lack_its_scheme() -> None:
    assert forge.overridden("a.b:443") == "https://a.b:443"
    assert forge.overridden("https://a.b") == "https://a.b"
