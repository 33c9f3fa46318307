"""When certificates are made again, and what a bundle holds; the clock is fixed."""

import datetime as dt
from typing import Final

import pytest

from certs import childprocess, pki, policy
from certs.pki import Keypair
from certs.policy import Held

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
DNS = ("liqo-webhook.liqo.svc",)
CA = pki.new_ca("one", now=NOW, lifetime=365 * DAY)
OTHER = pki.new_ca("two", now=NOW, lifetime=365 * DAY)


def leaf(ca: Keypair = CA, now: dt.datetime = NOW, dns: tuple[str, ...] = DNS) -> Keypair:
    return pki.issue(ca, common_name="webhook", dns=dns, server=True, now=now, lifetime=30 * DAY)


LEAF = leaf()


@pytest.mark.parametrize(
    ("pair", "at", "reason"),
    [
        pytest.param(LEAF, NOW, None, id="fresh"),
        pytest.param(LEAF, NOW + 19 * DAY, None, id="before two thirds"),
        pytest.param(LEAF, NOW + 20 * DAY, "two thirds", id="after two thirds"),
        pytest.param(LEAF, NOW + 31 * DAY, "two thirds", id="ended"),
        pytest.param(LEAF, NOW - DAY, "begins later", id="clock went back"),
        pytest.param(LEAF, NOW - dt.timedelta(minutes=30), None, id="clock went back a little"),
        pytest.param(None, NOW, "there is none", id="none"),
        pytest.param(Keypair(b"x", b"y"), NOW, "cannot be read", id="garbage"),
        pytest.param(Keypair(LEAF.certificate[:99], LEAF.key), NOW, "cannot be read", id="cut"),
        pytest.param(Keypair(LEAF.certificate, b""), NOW, "cannot be read", id="no key"),
        pytest.param(Keypair(LEAF.certificate, OTHER.key), NOW, "another one's", id="wrong key"),
        pytest.param(leaf(dns=("x.liqo.svc",)), NOW, "other names", id="names"),
        pytest.param(leaf(OTHER), NOW, "no authority", id="signer"),
    ],
)
def test_the_reason_to_replace_a_leaf(
    pair: Keypair | None, at: dt.datetime, reason: str | None
) -> None:
    found = policy.reason_to_replace(Held(pair, CA.certificate, DNS), at)

    assert reason in found if found and reason else found == reason


@pytest.mark.parametrize(
    ("pair", "at", "reason"),
    [
        (CA, NOW + 200 * DAY, None),
        (CA, NOW + 250 * DAY, "two thirds"),
        (CA, NOW - DAY, "begins later"),
        (Keypair(CA.certificate, OTHER.key), NOW, "another one's"),
        (None, NOW, "there is none"),
    ],
)
def test_the_reason_to_replace_an_authority(
    pair: Keypair | None, at: dt.datetime, reason: str | None
) -> None:
    found = policy.reason_to_replace_ca(pair, at)

    assert reason in found if found and reason else found == reason


def signed(life: dt.timedelta, since: dt.timedelta) -> bytes:
    begin = NOW - since + pki.BACKDATED
    return pki.issue(CA, common_name="a", now=begin, lifetime=life + NOW - begin).certificate


MINUTE: Final = dt.timedelta(minutes=1)


@pytest.mark.parametrize(
    ("issued_at", "now", "due"),
    [
        pytest.param(NOW, NOW, 2 * MINUTE, id="two thirds of three minutes"),
        pytest.param(None, NOW, MINUTE / 3, id="of all eight"),
        pytest.param(NOW + DAY, NOW + DAY, DAY + 0.4 * MINUTE, id="a clock ahead: later"),
        pytest.param(NOW + DAY, NOW + 2 * DAY, DAY + 0.4 * MINUTE, id="and then"),
        pytest.param(NOW + DAY, NOW, 0 * MINUTE, id="a clock that was ahead: now"),
        pytest.param(NOW - DAY, NOW - DAY, -DAY + 0.4 * MINUTE, id="a clock behind: later"),
        pytest.param(NOW - DAY, NOW, MINUTE / 3, id="a clock that was behind"),
    ],
)
def test_two_thirds_count_from_the_signing(
    issued_at: dt.datetime | None, now: dt.datetime, due: dt.timedelta
) -> None:
    """A certificate of three minutes begins five minutes before it was made."""
    assert policy.renewal(signed(3 * MINUTE, 5 * MINUTE), issued_at, now) == NOW + due


def test_a_leaf_never_outlives_its_authority() -> None:
    short = pki.new_ca("short", now=NOW, lifetime=DAY)

    assert pki.expiry(leaf(short).certificate) == pki.expiry(short.certificate)


def test_a_new_authority_signs_once_it_is_known() -> None:
    settled = dt.timedelta(minutes=5)
    newest = pki.new_ca("new", now=NOW + DAY, lifetime=365 * DAY)

    assert policy.signer([newest, CA], NOW + DAY, settled) is CA
    assert policy.signer([newest, CA], NOW + DAY + settled, settled) is newest
    assert policy.signer([newest], NOW + DAY, settled) is newest


def test_a_bundle_holds_old_and_new_once_and_nothing_that_ended() -> None:
    ended = pki.new_ca("ended", now=NOW - 10 * DAY, lifetime=DAY).certificate
    new, old = OTHER.certificate, CA.certificate
    text = b"# a comment\r\n" + old.replace(b"\n", b"\r\n")
    bad = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

    merged = pki.merged_bundle(new, ended + text + bad, old, CA.key, now=NOW)

    assert merged == new + old
    assert pki.merged_bundle(merged, now=NOW) == merged
    assert pki.merged_bundle(b"", now=NOW) == b""


# Certificates are made and judged by a process that ends.


MADE = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)


async def test_a_request_is_made_and_its_certificate_judged() -> None:
    made = await childprocess.request("milan", ips=["10.0.0.9"])
    subject = pki.subject(made.csr)
    assert (subject.common_name, subject.ips) == ("system:node:milan", ("10.0.0.9",))

    ca = pki.new_ca("test", now=MADE, lifetime=dt.timedelta(days=9))
    certificate = pki.sign(ca, made.csr, server=True, now=MADE, lifetime=dt.timedelta(days=3))
    own = pki.Keypair(certificate, made.key)
    assert await childprocess.expiry(certificate) == pki.expiry(certificate)
    assert await childprocess.renewal(own, MADE) == policy.renewal(certificate, MADE, MADE)
    assert await childprocess.renewal(pki.Keypair(certificate, ca.key), MADE) is None


async def test_a_server_of_no_authority_has_a_certificate_of_its_own_for_a_year() -> None:
    first, second = [await childprocess.own("vk-milan-0") for _ in range(2)]

    assert pki.subject(first.certificate).dns == ("vk-milan-0",)
    assert pki.fits_key(first.certificate, first.key)
    assert not pki.fits_key(first.certificate, second.key)
    life = pki.expiry(first.certificate) - pki.started(first.certificate)
    assert life == dt.timedelta(days=365, hours=1)


async def test_an_authority_is_made_and_its_bundle_merged_as_in_this_process() -> None:
    life = dt.timedelta(days=9)
    ca, pair = await childprocess.authority("agents", "agent.liqo.svc", MADE, life)

    assert pki.is_signed_by(pair.certificate, ca)
    assert pki.fits_key(pair.certificate, pair.key)
    assert pki.subject(pair.certificate).dns == ("agent.liqo.svc",)
    assert pki.expiry(pair.certificate) == MADE + life
    assert await childprocess.merged_bundle(ca, b"\xff" + ca, now=MADE) == ca
    assert await childprocess.merged_bundle(ca, now=MADE + life) == b""


async def test_what_is_no_certificate_is_an_error_here() -> None:
    with pytest.raises(OSError, match="ended with 1"):
        await childprocess.renewal(pki.Keypair(b"nonsense", b"nonsense"), MADE)
    with pytest.raises(OSError, match="ended with 1"):
        await childprocess.request("milan", ips=["nowhere"])
