"""What the command line of ``python3 -m webhook`` says."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apis import keys
from webhook import drain, serving

_ABOUT: Final = "The admission webhook of one cluster."


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    serving: serving.Settings
    client_names: frozenset[str]
    kubeconfig: Path | None
    is_enforced: bool
    json_logs: bool | None


def parse(argv: Sequence[str] | None) -> Settings:
    """Return what ``argv`` asks for, or the process's own command line; end with what is wrong."""
    given = _parser().parse_args(argv)
    return Settings(
        serving=serving.Settings(
            bind=serving.address(given.host, given.port),
            tls=given.tls_dir,
            drain=drain.Drain(given.drain_seconds),
            client_ca=given.client_ca,
        ),
        client_names=frozenset(given.client_name),
        kubeconfig=given.kubeconfig,
        is_enforced=given.enable_resource_enforcement,
        json_logs=given.json_logs,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m webhook", description=_ABOUT)
    _add_serving(parser)
    parser.add_argument(
        "--kubeconfig", type=Path, help="kubeconfig file; without it this pod's own identity"
    )
    parser.add_argument(
        "--enable-resource-enforcement",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="judge ShadowPods by the Quota of the one who creates them (%(default)s)",
    )
    parser.add_argument(
        "--json-logs",
        action=argparse.BooleanOptionalAction,
        help="JSON log lines; by default unless standard error is a terminal",
    )
    return parser


def _add_serving(parser: argparse.ArgumentParser) -> None:
    """Add where it listens, to whom, and how it ends."""
    parser.add_argument(
        "--tls-dir",
        type=Path,
        default=Path("/etc/liqo/tls"),
        help="directory with tls.crt and tls.key; read again when they change (%(default)s)",
    )
    parser.add_argument(
        "--host",
        default="0.0.0.0",  # noqa: S104  # a pod has one address, which it learns late
        help="address to listen on (%(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=keys.WEBHOOK_PORT, help="port to listen on (%(default)s)"
    )
    parser.add_argument(
        "--client-ca",
        type=Path,
        help="answer reviews only to clients with a certificate that this PEM file vouches for",
    )
    parser.add_argument(
        "--client-name",
        action="append",
        default=[],
        help="with --client-ca: only to certificates of this common name; may be repeated",
    )
    parser.add_argument(
        "--drain-seconds",
        type=float,
        default=drain.DRAIN_S,
        help="serve on for so long after SIGTERM, not ready any more (%(default)s)",
    )
