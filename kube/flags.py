"""Flags as fields of the options that a process has, and what their values mean.

Source: docs/parity.md § 5.1.
"""

import argparse
import dataclasses
import functools
import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from apis import keys, networks, objects, texts
from apis.offloading import ReflectionPolicy
from apis.reflection import ReflectedKind

T = TypeVar("T")


def flag(about: str, *names: str, default: Any = None, env: str = "", **how: Any) -> Any:
    """Return a field of a dataclass that the flag ``names`` sets; ``how`` is as argparse has it.

    The environment variable ``env`` comes before ``default``. What is given several times is a
    tuple. The help text ``about`` is followed by the default where there is one and it names none.
    """
    how = {"help": about, **how}
    default = () if default is None and how.get("action") in _SEVERAL else default
    metadata = {_FLAG: (names, default, env, how)}
    if how.get("required"):
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default_factory=lambda: default, metadata=metadata)


def add(
    parser: argparse.ArgumentParser, options: type, environment: Mapping[str, str] | None = None
) -> None:
    """Add the flags of ``options``, in the order of their fields."""
    for field in dataclasses.fields(options):
        if _FLAG not in field.metadata:
            continue
        names, default, env, how = field.metadata[_FLAG]
        if found := (environment or {}).get(env):
            default = how.get("type", str)(found)
        elif how.get("action") in _SEVERAL:
            default = list(default)
        parser.add_argument(*names, **with_default(how, default))


def with_default(how: Mapping[str, Any], default: Any) -> dict[str, Any]:
    """Return the arguments of ``add_argument``, whose help text names ``default``."""
    about = how["help"]
    if "default:" not in about and default not in (None, "", [], (), {}):
        said = str(getattr(default, "value", default))
        if isinstance(default, bool):
            said = said.lower()
        elif isinstance(default, float) and how.get("type") is duration:
            said = f"{default:g}s"
        about = f"{about} (default: {said})"
    return {**how, "default": default, "help": about}


def taken(options: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return of what argparse ``given`` has what sets fields of ``options``, and take it out."""
    found = {}
    for field in dataclasses.fields(options):
        if _FLAG in field.metadata:
            value = given.pop(field.metadata[_FLAG][0][0].strip("-").replace("-", "_"))
            found[field.name] = tuple(value) if isinstance(value, list) else value
    return found


def parsed(parser: argparse.ArgumentParser, options: type[T], argv: Sequence[str] | None) -> T:
    """Return the ``options`` that ``argv`` says, all of whose fields are flags."""
    add(parser, options)
    return options(**taken(options, vars(parser.parse_args(argv))))


_FLAG: Final = "flag"
_SEVERAL: Final = frozenset({"append", "extend"})
ON_OFF: Final = argparse.BooleanOptionalAction


def truth(text: str) -> bool:
    """Return the boolean that ``text`` means, as Go's flags have it."""
    lowered = text.lower()
    if lowered not in {"true", "false", "1", "0", "t", "f"}:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return lowered in {"true", "1", "t"}


SWITCH: Final[dict[str, Any]] = {"type": truth, "nargs": "?", "const": True}
"""How ``add_argument`` is told of a boolean: ``--flag`` and ``--flag=true`` are the same."""


def cidrs(text: str) -> tuple[str, ...]:
    """Return the networks of ``10.0.0.0/16,fd00::/64``, each as it is written."""
    for part in (parts := names(text)):
        try:
            ipaddress.ip_network(part)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{part!r} is no network: {error}") from error
    return parts


def count(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


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


def metrics() -> Any:
    return flag(
        "address that serves /metrics over TLS to identities that may get it (default: none)",
        "--metrics-address",
        type=address,
        metavar="[HOST]:PORT",
    )


def health(port: int) -> Any:
    about = "port of /healthz, /livez and /readyz"
    return flag(about, "--health-port", type=int, default=port)


def kept_here(name: str, about: str) -> Any:
    return flag(about, name, action="extend", type=names, metavar="KEY,...")


@dataclass(frozen=True, kw_only=True)
class VirtualNodeFlags:
    """Flags of both processes of a virtual node: the node and the two clusters."""

    node_name: str = flag(
        "name of the Node and of its VirtualNode", "--nodename", default=keys.VIRTUAL_KUBELET
    )
    tenant_namespace: str = flag(
        "namespace of the VirtualNode, its Secret and its Leases",
        "--tenant-namespace",
        default="default",
    )
    namespace: str = flag(
        "namespace in which pyliqo is installed", "--liqo-namespace", default=keys.LIQO_NAMESPACE
    )
    home_cluster_id: str = flag("cluster ID of the consumer", "--home-cluster-id", required=True)
    foreign_cluster_id: str = flag(
        "cluster ID of the provider", "--foreign-cluster-id", required=True
    )
    kubeconfig_secret: str = flag(
        "Secret in the tenant namespace that has the kubeconfig of the provider",
        "--foreign-kubeconfig-secret-name",
        required=True,
    )
    kubeconfig: Path | None = flag(
        "kubeconfig file of the consumer (default: $KUBECONFIG, else the pod's service account)",
        "--kubeconfig",
        "--home-kubeconfig",
        env="KUBECONFIG",
        type=Path,
    )
    health_port: int = health(0)
    metrics_address: networks.ListenAddress | None = metrics()
    hides_ips: bool = flag(
        "reflect no addresses between the clusters: no EndpointSlices, no podIP",
        "--disable-ip-reflection",
        **SWITCH,
        default=False,
    )
    hidden_labels: tuple[str, ...] = kept_here(
        "--labels-not-reflected", "labels that are not reflected"
    )
    hidden_annotations: tuple[str, ...] = kept_here(
        "--annotations-not-reflected", "annotations that are not reflected"
    )


def add_kinds(parser: argparse.ArgumentParser, rows: Iterable[ReflectedKind]) -> None:
    """Add how many objects of each kind are reflected at once, and by which policy."""
    for row in rows:
        about = f"workers that reflect objects of the kind {row.kind.kind}; 0 reflects none"
        name, how = f"--{row.name}-reflection-workers", {"type": _count, "help": about}
        parser.add_argument(name, **with_default(how, row.workers))
        if row.is_configurable:
            names = ", ".join(policy.value for policy in row.policies)
            about = f"reflection policy of the kind {row.kind.kind}: {names}"
            name = f"--{row.name}-reflection-type"
            how = {"type": functools.partial(policy, row), "help": about}
            parser.add_argument(name, **with_default(how, row.default))


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
