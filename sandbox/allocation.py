"""Who gets which addresses and names: one slot of the machine for each cluster of each checkout."""

import hashlib
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

SLOTS: Final = 32
PREFIX: Final = "pyliqo"
_FIRST_PODS: Final = 200
_FIRST_SERVICES: Final = 232
_NODE_NETWORKS: Final = "10.89"


class NoSlotError(Exception):
    """Every slot is taken; the message says what frees some."""


@dataclass(frozen=True)
class Slot:
    """What one cluster of one checkout has for itself on this machine."""

    id: str
    directory: str
    cluster: str
    number: int

    @property
    def namespace(self) -> str:
        """The name of its network namespace, of its CNI network and of its cgroup folder."""
        return f"{PREFIX}-{self.id}-{self.cluster}"

    @property
    def link(self) -> str:
        """The host's end of its cable; the kernel admits 15 characters."""
        return f"pl{self.id[:6]}n{self.number}"

    @property
    def gateway(self) -> str:
        """The host's address on the cable."""
        return f"{_NODE_NETWORKS}.{self.number + 1}.1"

    @property
    def address(self) -> str:
        """The address of the node, the API server and the DNS server."""
        return f"{_NODE_NETWORKS}.{self.number + 1}.2"

    @property
    def pod_cidr(self) -> str:
        """The network of all its pods."""
        return f"10.{_FIRST_PODS + self.number}.0.0/16"

    @property
    def service_cidr(self) -> str:
        """The network of its Services."""
        high, low = divmod(self.number, 16)
        return f"10.{_FIRST_SERVICES + high}.{low * 16}.0/20"

    @property
    def service_address(self) -> str:
        """The address of the Service ``kubernetes``."""
        return _nth(self.service_cidr, 1)

    @property
    def dns_address(self) -> str:
        """The address of the Service ``kube-dns``."""
        return _nth(self.service_cidr, 10)

    @property
    def node(self) -> str:
        """The name of its real node."""
        return f"{self.cluster}-1"

    @property
    def server(self) -> str:
        """The URL of its API server."""
        return f"https://{self.address}:6443"


def checkout_id(directory: Path) -> str:
    """Return eight characters that stand for the checkout at ``directory``."""
    return hashlib.sha256(str(directory).encode()).hexdigest()[:8]


def allocate(taken: Sequence[Slot], *, directory: Path, clusters: Sequence[str]) -> list[Slot]:
    """Return a slot for each of ``clusters``, the ones it has already among them.

    Raises:
        NoSlotError: more clusters than the machine has networks for.
    """
    mine = checkout_id(directory)
    have = {slot.cluster: slot for slot in taken if slot.id == mine}
    numbers = {slot.number for slot in taken}
    free = [number for number in range(SLOTS) if number not in numbers]
    wanted = [name for name in clusters if name not in have]
    if len(wanted) > len(free):
        raise NoSlotError(
            f"{len(taken)} clusters of sandboxes exist on this machine and {SLOTS} is the most: "
            "remove them with `python -m sandbox down --all`"
        )
    new = {
        name: Slot(mine, str(directory), name, number)
        for name, number in zip(wanted, free, strict=False)
    }
    return [have.get(name) or new[name] for name in clusters]


def dump(slots: Sequence[Slot]) -> list[dict[str, Any]]:
    """Return ``slots`` as JSON; ``parse`` is its inverse."""
    return [asdict(slot) for slot in slots]


def parse(document: Sequence[Mapping[str, Any]]) -> list[Slot]:
    """Return the slots that ``dump`` wrote."""
    return [Slot(**entry) for entry in document]


def _nth(cidr: str, number: int) -> str:
    return str(ipaddress.ip_network(cidr)[number])
