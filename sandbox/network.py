"""The network of a cluster: a namespace, a cable to it from the host, and a route to its pods."""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sandbox.allocation import Slot

_NAMESPACES: Final = Path("/run/netns")
_INNER: Final = "uplink"


def create(slot: Slot) -> None:
    """Make what is missing of the network of ``slot``."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    if not is_complete(slot):
        remove(slot)
        _cable(slot)
    for rule in _rules(slot):
        if _try("iptables", "-w", "-C", *rule):
            _run("iptables", "-w", "-I", *rule)


def is_complete(slot: Slot) -> bool:
    """Whether the namespace is there and the host knows the way to its pods."""
    command = ["ip", "route", "show", slot.pod_cidr]
    known = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return (_NAMESPACES / slot.namespace).exists() and slot.link in known


def remove(slot: Slot) -> None:
    """Remove whatever there is of the network of ``slot``."""
    for rule in _rules(slot):
        while not _try("iptables", "-w", "-D", *rule):
            pass
    if Path("/sys/class/net", slot.link).exists():
        _run("ip", "link", "delete", slot.link)
    if (_NAMESPACES / slot.namespace).exists():
        _run("ip", "netns", "delete", slot.namespace)


def inside(slot: Slot, argv: Sequence[str]) -> list[str]:
    """Return the command that runs ``argv`` in the namespace of ``slot``.

    Why not ``ip netns exec``: it mounts a fresh /sys without control groups, and kubelets stop.
    """
    return ["nsenter", f"--net={_NAMESPACES / slot.namespace}", "--", *argv]


@contextlib.contextmanager
def cut(slot: Slot, sender: Slot) -> Iterator[None]:
    """Drop what ``sender`` sends to ``slot`` while inside: no side is told that packets are lost.

    The rules are in the namespace of ``slot``, and gone with it at the latest.
    """
    sources = (sender.address, sender.pod_cidr)
    rules = [["INPUT", "-s", source, "-j", "DROP"] for source in sources]
    for rule in rules:
        _run(*inside(slot, ["iptables", "-w", "-I", *rule]))
    try:
        yield
    finally:
        for rule in rules:
            _run(*inside(slot, ["iptables", "-w", "-D", *rule]))


def _cable(slot: Slot) -> None:
    name = slot.namespace
    _run("ip", "netns", "add", name)
    _run("ip", "link", "add", slot.link, "type", "veth", "peer", "name", _INNER, "netns", name)
    _run("ip", "address", "add", f"{slot.gateway}/24", "dev", slot.link)
    _run("ip", "link", "set", slot.link, "up")
    _run("ip", "-n", name, "link", "set", "lo", "up")
    _run("ip", "-n", name, "address", "add", f"{slot.address}/24", "dev", _INNER)
    _run("ip", "-n", name, "link", "set", _INNER, "up")
    _run("ip", "-n", name, "route", "add", "default", "via", slot.gateway)
    _run(*inside(slot, ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]))
    _run("ip", "route", "replace", slot.pod_cidr, "via", slot.address, "dev", slot.link)


def _rules(slot: Slot) -> list[list[str]]:
    """Return what lets its packets through where a firewall drops what it forwards."""
    comment = ["-m", "comment", "--comment", slot.namespace, "-j", "ACCEPT"]
    return [["FORWARD", "-i", slot.link, *comment], ["FORWARD", "-o", slot.link, *comment]]


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(argv)}: {done.stderr.strip()}")


def _try(*argv: str) -> int:
    return subprocess.run(argv, capture_output=True, check=False).returncode
