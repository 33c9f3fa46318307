"""Certificates are made and judged by a process that ends."""

import datetime as dt
import subprocess
import sys

import pytest

from certs import childprocess, pki, policy

NOW = dt.datetime(2026, 1, 31, tzinfo=dt.UTC)


async def test_a_request_is_made_and_its_certificate_judged() -> None:
    made = await childprocess.request("milan", ips=["10.0.0.9"])
    subject = pki.subject(made.csr)
    assert (subject.common_name, subject.ips) == ("system:node:milan", ("10.0.0.9",))

    ca = pki.new_ca("test", now=NOW, lifetime=dt.timedelta(days=9))
    certificate = pki.sign(ca, made.csr, server=True, now=NOW, lifetime=dt.timedelta(days=3))
    own = pki.Keypair(certificate, made.key)
    assert await childprocess.renewal(own, NOW) == policy.renewal(certificate, NOW, NOW)
    assert await childprocess.renewal(pki.Keypair(certificate, ca.key), NOW) is None


async def test_a_server_of_no_authority_has_a_certificate_of_its_own_for_a_year() -> None:
    first, second = [await childprocess.own("vk-milan-0") for _ in range(2)]

    assert pki.subject(first.certificate).dns == ("vk-milan-0",)
    assert pki.fits_key(first.certificate, first.key)
    assert not pki.fits_key(first.certificate, second.key)
    life = pki.expiry(first.certificate) - pki.started(first.certificate)
    assert life == dt.timedelta(days=365, hours=1)


async def test_what_is_no_certificate_is_an_error_here() -> None:
    with pytest.raises(OSError, match="ended with 1"):
        await childprocess.renewal(pki.Keypair(b"nonsense", b"nonsense"), NOW)
    with pytest.raises(OSError, match="ended with 1"):
        await childprocess.request("milan", ips=["nowhere"])


@pytest.mark.parametrize("process", ["kubelet", "reflector"])
def test_what_a_virtual_node_is_made_of_needs_no_cryptography(process: str) -> None:
    program = f"import sys, {process}.__main__; print('cryptography' in sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "False"
