"""Flags that more than one process has, and what their values mean.

Source: docs/parity.md § 5.1.
"""

import argparse
import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from apis import keys, networks, objects, texts
from apis.offloading import ReflectionPolicy
from apis.reflection import ReflectedKind

T = TypeVar("T")


def truth(text: str) -> bool:
    """Return the boolean that ``text`` means, as Go's flags have it."""
    lowered = text.lower()
    if lowered not in {"true", "false", "1", "0", "t", "f"}:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return lowered in {"true", "1", "t"}


SWITCH: Final[dict[str, Any]] = {"type": truth, "nargs": "?", "const": True}
"""How ``add_argument`` is told of a boolean: ``--flag`` and ``--flag=true`` are the same."""


def names(text: str) -> tuple[str, ...]:
    """Return ("a", "b") for ``a,b``."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return the type of a flag that ``parse`` reads, whose ValueErrors a user is shown."""

    @functools.wraps(parse)
    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


address: Final = typed(networks.listen_address)
duration: Final = typed(objects.parse_duration)
pairs: Final = typed(texts.pairs)


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Add where a daemon serves its metrics."""
    parser.add_argument(
        "--metrics-address",
        type=address,
        metavar="[HOST]:PORT",
        help="where /metrics is served, by TLS, to those who may get it; default: nowhere",
    )


def add_virtual_node(parser: argparse.ArgumentParser, *, health_port: int) -> None:
    add = parser.add_argument
    add("--nodename", default=keys.VIRTUAL_KUBELET, help="name of the Node and its VirtualNode")
    add("--tenant-namespace", default="default", help="where VirtualNode, Secret and Leases are")
    add("--liqo-namespace", default=keys.LIQO_NAMESPACE, help="where pyliqo is installed")
    add("--home-cluster-id", required=True, help="the consumer")
    add("--foreign-cluster-id", required=True, help="the provider")
    add(
        "--foreign-kubeconfig-secret-name",
        required=True,
        help="Secret in the tenant namespace with the kubeconfig for the provider",
    )
    add(
        "--kubeconfig",
        "--home-kubeconfig",
        type=Path,
        default=os.environ.get("KUBECONFIG") or None,
        help="of the consumer; default: $KUBECONFIG, else the service account of this pod",
    )
    add("--health-port", type=int, default=health_port, help="port of /healthz, /livez, /readyz")
    add_metrics(parser)
    add(
        "--disable-ip-reflection",
        **SWITCH,
        default=False,
        help="no addresses go from one cluster to the other: no EndpointSlices, no podIP",
    )
    several: dict[str, Any] = {"action": "extend", "type": names, "default": []}
    add("--labels-not-reflected", **several, metavar="KEY,...", help="labels that stay here")
    add("--annotations-not-reflected", **several, metavar="KEY,...", help="what else stays here")


def add_kinds(parser: argparse.ArgumentParser, rows: Iterable[ReflectedKind]) -> None:
    """Add how many objects of each kind are reflected at once, and by which policy."""
    for row in rows:
        parser.add_argument(
            f"--{row.name}-reflection-workers",
            type=_count,
            default=row.workers,
            help=f"how many {row.name}s at once, 0 for none at all (default {row.workers})",
        )
        if row.is_configurable:
            names = ", ".join(policy.value for policy in row.policies)
            parser.add_argument(
                f"--{row.name}-reflection-type",
                type=functools.partial(policy, row),
                default=row.default,
                help=f"which {row.name}s: {names} (default {row.default.value})",
            )


def policy(row: ReflectedKind, text: str) -> ReflectionPolicy:
    """Return the policy that ``text`` names, of those that the kind has."""
    names = [policy.value for policy in row.policies]
    if text not in names:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(names)}")
    return ReflectionPolicy(text)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no count")
    return int(text)
