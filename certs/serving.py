"""The virtual kubelet's own certificate: the key it keeps, the request it sends. Pure but for dice.

Source: behaviour.md 2.5, "VK serving"; Kubernetes, signer ``kubernetes.io/kubelet-serving``.
"""

from collections.abc import Sequence

from certs import pki
from certs.plain import ORGANIZATION as ORGANIZATION  # noqa: PLC0414  # read with the rest
from certs.plain import SIGNER as SIGNER  # noqa: PLC0414
from certs.plain import USAGES as USAGES  # noqa: PLC0414
from certs.plain import ServingRequest


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
