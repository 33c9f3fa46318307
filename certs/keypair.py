"""What a process holds of a certificate of its own; nothing here needs ``cryptography``.

Source: docs/parity.md § 2.5, "VK serving"; Kubernetes, signer ``kubernetes.io/kubelet-serving``.
"""

from dataclasses import dataclass, field
from typing import Final

SIGNER: Final = "kubernetes.io/kubelet-serving"
ORGANIZATION: Final = "system:nodes"
USAGES: Final = ("digital signature", "server auth")
"""Of a key on an elliptic curve; key encipherment is for RSA, though the signer would take it."""


@dataclass(frozen=True)
class Keypair:
    """A certificate and its private key, both PEM; never logged, never shown."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class ServingRequest:
    """A new private key, and the request made with it, both PEM; the key is never logged."""

    csr: bytes
    key: bytes = field(repr=False)
