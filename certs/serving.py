"""Certificates that processes serve with: requests, and those made on the spot. Pure but for dice.

Source: docs/parity.md § 2.5, "VK serving"; Kubernetes, signer ``kubernetes.io/kubelet-serving``.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Final

from apis import naming
from certs import pki
from certs.plain import ORGANIZATION as ORGANIZATION  # noqa: PLC0414  # read with the rest
from certs.plain import SIGNER as SIGNER  # noqa: PLC0414
from certs.plain import USAGES as USAGES  # noqa: PLC0414
from certs.plain import KeyPair, ServingRequest

OWN_LIFETIME: Final = dt.timedelta(days=365)


def request(node: str, *, ips: Sequence[str], dns: Sequence[str] = ()) -> ServingRequest:
    """Return a new key and the request for the certificate with which ``node`` serves its API.

    Raises:
        ValueError: one of ``ips`` is no address.
    """
    key = pki.new_key()
    name = naming.serving_name(node)
    csr = pki.new_csr(key, common_name=name, organizations=[ORGANIZATION], dns=dns, ips=ips)
    return ServingRequest(csr, key)


def own(name: str, *, now: dt.datetime) -> KeyPair:
    """Return a certificate for the server ``name``, by an authority whose key is forgotten."""
    ca = pki.new_ca(f"{name[:50]}-ca", now=now, lifetime=OWN_LIFETIME)
    return pki.issue(
        ca, common_name=name[:64], dns=[name], server=True, now=now, lifetime=OWN_LIFETIME
    )
