"""`python -m sandbox`: real clusters on this machine, for the demo, tests and benchmarks."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from sandbox import binaries, cluster, clusters, components, locks, packages, progress, registry
from sandbox.allocation import NoSlotError
from sandbox.api import NotYetError
from sandbox.clusters import DEFAULT, Sandbox
from sandbox.errors import MissingError, ProgramError
from sandbox.kubectl import KubectlError
from sandbox.layout import Site

_EXAMPLES: Final = """examples:
  python -m sandbox up                                # the clusters rome and milan
  python -m sandbox up --clusters rome,milan,turin    # a second provider
  python -m sandbox up --install                      # and pyliqo in each of them
  python -m sandbox up --simulated-nodes 50           # and nodes whose pods only seem to run
  kubectl --kubeconfig .sandbox/rome.kubeconfig get nodes
  python -m sandbox load-image image.tar              # a docker or OCI archive, onto every node
  python -m sandbox status -o json
  python -m sandbox down                              # leaves nothing
  python -m sandbox down --all                        # of any checkout on this machine
"""
_EXPECTED: Final = (
    MissingError, ProgramError, NotYetError, NoSlotError, KubectlError, locks.HeldError,
)  # fmt: skip


_UNREAD: Final = 141
"""As of a process that SIGPIPE ends."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    options = parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        status = run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # who read has seen enough, as `head` has; nothing is left to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _UNREAD
    except _EXPECTED as error:
        print(f"sandbox: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("sandbox: stopped; `python -m sandbox down` removes what there is", file=sys.stderr)
        return 130
    return status


def parser() -> argparse.ArgumentParser:
    """Return the commands and their options."""
    top = argparse.ArgumentParser(
        prog="python -m sandbox",
        description="Real Kubernetes clusters on this machine, each in a network of its own.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    up = _command(commands, "up", _up, "start what is missing of the clusters")
    up.add_argument(
        "--clusters", type=_names, default=DEFAULT, metavar="NAME,...",
        help="which clusters (default: rome,milan)",
    )  # fmt: skip
    up.add_argument(
        "--simulated-nodes", type=int, default=0, metavar="N",
        help="add N nodes to each cluster whose pods only seem to run",
    )  # fmt: skip
    up.add_argument("--install", action="store_true", help="install pyliqo, with liqoctl install")
    down = _command(commands, "down", _down, "remove the clusters and all that they made")
    down.add_argument("--all", action="store_true", help="those of every checkout")
    status = _command(commands, "status", _status, "say what runs")
    status.add_argument("-o", "--output", choices=["text", "json"], default="text")
    load = _command(commands, "load-image", _load_image, "import an archive into every node")
    load.add_argument("file", type=Path, metavar="FILE", help="a docker or OCI archive")
    _command(commands, "prepare", _prepare, "have packages, programs and images; start nothing")
    demo = _command(commands, "demo", _demo, "tell the main job on two clusters, step by step")
    demo.add_argument("--keep", action="store_true", help="leave the clusters running")
    demo.add_argument("--picture", type=Path, metavar="FILE", help="write what is shown, as SVG")
    return top


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], does: str
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=does, description=does[0].upper() + does[1:] + ".", epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.set_defaults(run=run)
    return made


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    if not names or any(not name.isalnum() or len(name) > 16 for name in names):  # noqa: PLR2004  # said in the message
        raise argparse.ArgumentTypeError("names of 1 to 16 letters and digits, with commas between")
    return names


def _up(options: argparse.Namespace) -> int:
    sandbox = Sandbox()
    kubeconfigs = sandbox.up(options.clusters)
    if options.simulated_nodes:
        sandbox.simulate(options.simulated_nodes)
    if options.install:
        _part("sandbox.install").install(kubeconfigs)
    for name, path in kubeconfigs.items():
        print(f"{name}: kubectl --kubeconfig {path} get nodes")
    return 0


def _down(options: argparse.Namespace) -> int:
    if options.all:
        clusters.down_all(registry.slots())
    else:
        Sandbox().down()
    return 0


def _status(options: argparse.Namespace) -> int:
    found = [describe(site) for site in Sandbox().sites()]
    if options.output == "json":
        print(json.dumps(found, indent=2))
        return 0
    for one in found:
        print(f"{one['cluster']}: {'ready' if one['ready'] else 'not ready'}, {one['server']}")
        for name, pid in one["components"].items():
            print(f"  {name:<24} {pid or 'stopped'}")
    if not found:
        print("no clusters: `python -m sandbox up` starts them")
    return 0


def describe(site: Site) -> dict[str, Any]:
    """Return what is known of a cluster and what runs of it."""
    slot = site.slot
    return {
        "cluster": slot.cluster,
        "ready": cluster.is_ready(site),
        "server": slot.server,
        "kubeconfig": str(site.files.kubeconfig),
        "auditLog": str(site.files.audit),
        "node": slot.node,
        "podCIDR": slot.pod_cidr,
        "serviceCIDR": slot.service_cidr,
        "networkNamespace": slot.namespace,
        "components": {name: part.pid for name, part in components.of(site).items()},
    }


def _load_image(options: argparse.Namespace) -> int:
    if not options.file.exists():
        raise MissingError(f"there is no file {options.file}: name a docker or OCI archive")
    sandbox = Sandbox()
    if not sandbox.sites():
        raise MissingError("there are no clusters: start them with `python -m sandbox up`")
    sandbox.load_image(options.file)
    return 0


def _prepare(options: argparse.Namespace) -> int:
    del options
    with progress.step("packages, programs and images"):
        clusters.prepare()
        try:
            packages.ensure(packages.TESTED)
        except (MissingError, ProgramError) as error:
            sys.stderr.write(f"some tests are skipped: {error}\n")
        for needed in (binaries.METRICS_SERVER, binaries.HELM):  # else the first test builds it
            binaries.folder(needed)
    return 0


def _demo(options: argparse.Namespace) -> int:
    demo = _part("sandbox.demo")
    sandbox = Sandbox()
    is_kept = options.keep or bool(sandbox.sites())  # what ran before is not ours to remove
    try:
        return int(demo.tell(sandbox.up(DEFAULT), options.picture))
    finally:
        if not is_kept:
            sandbox.down()


def _part(name: str) -> Any:
    """Return a module that only some commands need."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingError(f"this checkout has no {error.name}: it is not complete") from error


if __name__ == "__main__":
    sys.exit(main())
