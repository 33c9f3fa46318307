"""A nonce is good for one consumer at one provider for ten minutes.

Source: docs/parity.md SEC-A10.
"""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import load_pem_x509_csr

from apis import authentication
from certs import pki

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DICE = bytes(range(32))
GOOD = authentication.nonce_text("rome", "milan", DICE, NOW)


def test_the_consumer_it_was_made_for_may_use_it() -> None:
    assert authentication.nonce_problem(GOOD, "rome", "milan", NOW) == ""
    assert authentication.reason_not_to_sign(GOOD, "rome", "milan", NOW) == ""
    assert authentication.nonce_problem(GOOD, "rome", "milan", NOW + timedelta(seconds=599)) == ""


@pytest.mark.parametrize(
    ("nonce", "consumer", "provider", "later_s", "why"),
    [
        (GOOD, "turin", "milan", 0, "was made for 'rome'"),
        (GOOD, "rome", "turin", 0, "not for rome at turin"),
        (GOOD, "rome", "milan", 600, "older than ten minutes"),
        (GOOD, "rome", "milan", 10**7, "older than ten minutes"),
        (GOOD[:-1], "rome", "milan", 0, "not a nonce"),
        (GOOD[:40], "rome", "milan", 0, "not a nonce"),
        ("", "rome", "milan", 0, "not a nonce"),
        ("x" * 1_000_000, "rome", "milan", 0, "not a nonce"),
        (GOOD + "/", "rome", "milan", 0, "not a nonce"),
        (GOOD.replace("v1", "v2"), "rome", "milan", 0, "not a nonce"),
        (GOOD.upper(), "rome", "milan", 0, "not a nonce"),
        (GOOD.replace("0", "\u0660"), "rome", "milan", 0, "not a nonce"),
    ],
)
def test_anybody_else_may_not(
    nonce: str, consumer: str, provider: str, later_s: float, why: str
) -> None:
    moment = NOW + timedelta(seconds=later_s)

    assert why in authentication.nonce_problem(nonce, consumer, provider, moment)
    assert why in authentication.reason_not_to_sign(nonce, consumer, provider, moment)


def test_what_liqo_makes_is_signed_and_a_certificate_request_is_not() -> None:
    plain = base64.b64encode(bytes(64)).decode()
    csr = load_pem_x509_csr(pki.new_csr(pki.new_key(), common_name="admin"))
    to_be_signed = csr.tbs_certrequest_bytes
    encoded = base64.b64encode(csr.public_bytes(serialization.Encoding.DER)).decode()

    assert authentication.reason_not_to_sign(plain, "rome", "milan", NOW) == ""
    for nonce in (to_be_signed.decode("latin-1"), encoded, plain[:-4], plain + "AAAA"):
        assert authentication.reason_not_to_sign(nonce, "rome", "milan", NOW)


def test_whatever_the_digits_say_time_is_over_at_some_time() -> None:
    endless = GOOD.replace(GOOD.split("/")[3], "9" * 5000)

    assert authentication.nonce_has_ended("nonsense", NOW)
    assert authentication.nonce_problem(endless, "rome", "milan", NOW)


def test_a_nonce_of_another_hand_does_not_live_longer() -> None:
    """Source: docs/parity.md SEC-A10; a consumer may bring the text, and would choose its end."""
    far = authentication.nonce_text("rome", "milan", DICE, NOW + timedelta(days=36_000))
    ahead = authentication.nonce_text("rome", "milan", DICE, NOW + timedelta(minutes=2))

    for nonce in (far, ahead):
        assert "later than ten minutes" in authentication.nonce_problem(nonce, "rome", "milan", NOW)
        assert authentication.nonce_has_ended(nonce, NOW)
    assert authentication.reason_not_to_sign(far, "rome", "milan", NOW)


def test_a_provider_whose_clock_is_ahead_is_signed_for() -> None:
    ahead = authentication.nonce_text("rome", "milan", DICE, NOW + timedelta(minutes=9))

    assert authentication.reason_not_to_sign(ahead, "rome", "milan", NOW) == ""


def test_what_says_nothing_has_defaults() -> None:
    identity = authentication.Identity.parse(
        {"metadata": {"name": "a"}, "spec": {"type": "ControlPlane"}}
    )

    assert authentication.Tenant.parse({}) == authentication.Tenant("")
    assert (identity.cluster_id, identity.params.shown()) == ("", {})


def test_a_bundle_has_sixteen_authorities_at_most() -> None:
    text = b"-----BEGIN CERTIFICATE-----\n%d\n-----END CERTIFICATE-----\n"
    many = [text % number for number in range(17)]

    assert authentication.follows(b"".join(many[:16]), many[0])
    assert not authentication.follows(b"".join(many), many[0])
