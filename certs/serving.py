"""The virtual kubelet's own certificate: the key it keeps, the request it sends. Pure but for dice.

Source: behaviour.md 2.5, "VK serving"; Kubernetes, signer ``kubernetes.io/kubelet-serving``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from certs import pki

SIGNER: Final = "kubernetes.io/kubelet-serving"
ORGANIZATION: Final = "system:nodes"
USAGES: Final = ("digital signature", "server auth")
"""Of a key on an elliptic curve; key encipherment is for RSA, though the signer would take it."""


@dataclass(frozen=True)
class ServingRequest:
    """A new private key, and the request made with it, both PEM; the key is never logged."""

    csr: bytes
    key: bytes = field(repr=False)


def common_name(node: str) -> str:
    """Return the name in the serving certificate of ``node``."""
    return f"system:node:{node}"


def request(node: str, *, ips: Sequence[str], dns: Sequence[str] = ()) -> ServingRequest:
    """Return a new key and the request for the certificate with which ``node`` serves its API.

    Raises:
        ValueError: one of ``ips`` is no address.
    """
    key = pki.new_key()
    csr = pki.new_csr(
        key, common_name=common_name(node), organizations=[ORGANIZATION], dns=dns, ips=ips
    )
    return ServingRequest(csr, key)
